"""A replica whose damaged entries no peer has any more: a peer's snapshot stands for them."""

import contextlib

import pytest

from dledger.codec.snapshot import encode_snapshot
from dledger.core.model import SnapshotId
from dledger.errors import DamagedEntry
from dledger.repair import Repairer
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.integration.dledger_group import SEGMENT, run
from tests.integration.faulty_disk import flip
from tests.integration.test_dledger_snapshot import STATE, KeeperGroup, play, trim


def damage(group, node, index):
    position = node.reader.entry(index)[0]
    base = position - position % SEGMENT
    flip(group.path / node.self_id / "data" / f"{base:020}", position - base + 60)
    with contextlib.suppress(DamagedEntry):
        node.reader.body_view(index)


async def others_have_trimmed(group, *, leads):
    """A node, leader or not, has two damaged entries that the others have trimmed."""
    leader = await group.append(3000)
    await group.settle()
    node = leader if leads else next(n for n in group.nodes.values() if n is not leader)
    others = [other for other in group.nodes.values() if other is not node]
    plans = [await trim(other) for other in others]
    kept = {
        i: bytes(node.reader.body_view(i)) for i in range(plans[0].first_index, node.end_index + 1)
    }
    damage(group, node, 10)
    damage(group, node, 700)
    await group.until(lambda: node.first_index == plans[0].first_index)
    assert not node._store.corruption.damaged
    ((meta, state),) = group.listeners[node.self_id].installed
    assert (meta.id.last_index, state) == (plans[0].first_index - 1, STATE)
    assert {i: bytes(node.reader.body_view(i)) for i in kept} == kept, "what comes behind stays"
    await group.append(100)
    await group.settle()
    await group.stop()
    await group.start()
    again = group.nodes[node.self_id]
    assert again.first_index == plans[0].first_index
    assert again.reader.snapshot_state() == STATE
    await group.append(100)
    await group.settle()


@pytest.mark.parametrize("leads", [False, True], ids=["follower", "leader"])
def test_damage_that_the_others_have_trimmed_is_replaced_by_a_snapshot(tmp_path, leads):
    play(tmp_path, lambda group: others_have_trimmed(group, leads=leads))


def test_a_peer_that_answers_nothing_instead_is_caught(tmp_path, monkeypatch):
    monkeypatch.setattr(Repairer, "_send_chunk", lambda self, *chunk: None)
    with pytest.raises(TimeoutError):
        play(tmp_path, lambda group: others_have_trimmed(group, leads=False))


def forged(node, what):
    """Return announcement and bytes of a snapshot that is wrong in one thing."""
    trimmed = node.first_index == 0 and node.trimmer.plan(node.commit_index)
    last = (trimmed.first_index - 1, trimmed.base_term, trimmed.position)
    configuration = node._raft.state.membership.at(last[0])
    if what == "position":
        last = (*last[:2], last[2] + SEGMENT)
    state = b"no state of ours" if what == "state" else STATE
    data = encode_snapshot(last, last[0], configuration, state)
    size = len(data)
    if what == "cut":
        data = data[:-1]
    crc = int.from_bytes(data[8:12])
    return SnapshotId(last[0], last[1], size, crc), data


async def is_adopted(path, what):
    """Tell whether a snapshot takes the place of the beginning of the log."""
    group = KeeperGroup(path)
    await group.start("n0", "n1", "n2")
    node = await group.append(3000)
    node.trimmer.validate_states(lambda state: "" if state == STATE else "no state")
    announced, data = forged(node, what)
    found = []
    node.trimmer.adopt(announced, data, found.append)
    await node._state_worker.drain()  # what was submitted before has run, and been told
    began = node.first_index
    await group.append(10)
    await group.settle()
    await group.stop()
    assert not group.fatal
    return bool(found), began > 0


def adopted(path, what):
    found = []

    async def main():
        found.append(await is_adopted(path, what))

    run(main())
    return found[0]


def test_a_snapshot_that_fits_is_adopted(tmp_path):
    assert adopted(tmp_path, "nothing") == (True, True)


@pytest.mark.parametrize("what", ["position", "state", "cut"])
def test_a_snapshot_of_a_peer_that_cannot_be_leaves_the_log_as_it_was(tmp_path, what, caplog):
    assert adopted(tmp_path, what) == (False, False)
    assert "event=snapshot_refused" in caplog.text


def test_the_planted_bug_adopts_a_state_that_nobody_can_read(tmp_path):
    with planted(BY_TESTS["repair-adopts-unverified"]):
        assert adopted(tmp_path, "state") == (True, True)
