"""The configurations that a replica knows are those of its log, whenever a crash came.

Core, driver and files are the real ones; the disk refuses one step after the other.
"""

import errno

import pytest

from dledger.codec.configuration import (
    encode_configuration,
    encode_configuration_span,
    read_configuration,
)
from dledger.codec.entry import HEADER_BYTES, decode_header, encode_span, is_configuration
from dledger.core.configuration import Configuration
from dledger.core.messages import Append
from dledger.errors import DiskFull
from ledgermq.runtime.errors import FatalError
from mutants.patches import BY_TESTS
from mutants.planting import planted
from sim.disk_rules import Action, Rule
from tests.unit.dledger.test_power_loss_group import IDS, Group

ADDRESS = "127.0.0.1:1"
STEPS_MAX = 60


def with_learner(node_id):
    return Configuration(dict.fromkeys(IDS, ADDRESS), {node_id: ADDRESS}, 1)


def append(node, term, configuration=None):
    """Step an entry of a leader of ``term`` behind the last one of ``node``."""
    log = node.raft.state.log
    place = (log.last_index + 1, term, log.end_position)
    if configuration is None:
        span = encode_span(*place, [b"an entry"])
    else:
        span = encode_configuration_span(*place, encode_configuration(configuration), configuration)
    node.raft.step(Append(f"n{term}", "n0", term, log.last_index, log.last_term, -1, span))


def follower_whose_configuration_is_to_be_cut():
    """A follower: the change of one leader in its log, and another one's that takes its place."""
    node = Group(0).nodes["n0"]
    append(node, 1)
    node.work()
    before = node.raft.state.log.last_index, node.store.end_position
    append(node, 1, with_learner("n3"))
    node.work()
    span = encode_span(before[0] + 1, 2, before[1], [b"of the next leader"])
    node.raft.step(Append("n2", "n0", 2, before[0], 1, -1, span))
    append(node, 2, with_learner("n4"))
    return node


def in_log(node):
    found = []
    store = node.store
    for index in range(store.first_index, store.last_index + 1):
        position, _, term = store.entry(index)
        if is_configuration(decode_header(store.view(position, HEADER_BYTES))):
            found.append((index, term, read_configuration(store.body_view(index))))
    return found


def known(node):
    entries = node.raft.state.membership.entries
    return [(entry.index, entry.term, entry.configuration) for entry in entries]


def crash_at(step):
    """Let the disk end the follower at one of its steps, and start it; None if it has fewer."""
    node = follower_whose_configuration_is_to_be_cut()
    rule = Rule(action=Action.FAIL, error=errno.EIO, skip=step, count=1)
    node.disk.add_rule(rule)
    try:
        node.work()
    except FatalError:
        node.disk.heal()
        node.stop(None, 0)
        node.start()
    return node if rule.hits else None


def test_a_crash_while_a_configuration_is_cut_leaves_none_that_is_not_known():
    logs = []
    for step in range(STEPS_MAX):
        node = crash_at(step)
        if node is None:
            break
        assert known(node) == in_log(node), f"step {step}"
        logs.append([members.learners for _, _, members in in_log(node)])
    assert [{"n3": ADDRESS}] in logs, "it never ended before the cut"
    assert [] in logs, "it never ended behind it"


def test_the_planted_order_leaves_one_in_the_log_that_is_not_known():
    with planted(BY_TESTS["configurations-saved-before-the-cut"]), pytest.raises(AssertionError):
        test_a_crash_while_a_configuration_is_cut_leaves_none_that_is_not_known()


def test_configurations_that_find_no_space_behind_the_cut_are_saved_later():
    node = follower_whose_configuration_is_to_be_cut()
    ready = node.raft.ready()
    assert node.driver.begin(ready)
    node.disk.add_rule(Rule(action=Action.FAIL, error=errno.ENOSPC, glob="*membership*"))
    for _ in range(2):
        with pytest.raises(DiskFull):
            node.driver.persist_state(ready)
    node.disk.heal()
    node.driver.persist_state(ready)
    assert node.driver.complete(ready)
    node.stop(None, 0)
    node.start()
    assert known(node) == in_log(node)
    assert node.raft.state.membership.latest.configuration == with_learner("n4")
