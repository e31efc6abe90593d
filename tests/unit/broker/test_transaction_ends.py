"""Ends of transactions that come together: op messages are put together, and never too early."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker.transactions.endings import OPS_TOGETHER_MAX, OPS_WAIT_MS
from broker.transactions.halves import COPIED
from broker.transactions.records import ops_of
from broker.transactions.takeover import OP_TOPIC
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.results import PutStatus
from tests.unit.broker.transactions import ROLLBACK, Replica
from tests.unit.store.fakes import message

if TYPE_CHECKING:
    from collections.abc import Callable

    from mutants.planting import Mutant


def led() -> Replica:
    replica = Replica().begin()
    replica.lead()
    return replica


@pytest.fixture
def leader() -> Replica:
    return led()


def is_cut_off(replica: Replica, kept: int) -> None:
    """The log finds no room for what lies behind its first ``kept`` entries."""
    replica.world.node.truncate(kept)
    replica.world.store.log_user.on_rolled_back(replica.world.node.end_position)


def test_op_messages_of_one_turn_lie_side_by_side_behind_the_copies(leader: Replica) -> None:
    halves = [leader.send(b"%d" % number) for number in range(5)]
    for half in halves:
        leader.end(half)
    assert leader.ends.due_ms == OPS_WAIT_MS
    assert leader.ops() == [], "others may follow"
    leader.commit()
    assert [one.topic for one in leader.records[-10:]] == ["orders"] * 5 + [OP_TOPIC] * 5
    assert leader.ops() == [b"0", b"1", b"2", b"3", b"4"]
    assert leader.rows == []
    assert not leader.service.endings._under_way


def test_many_do_not_wait_for_others(leader: Replica) -> None:
    halves = [leader.send() for _ in range(OPS_TOGETHER_MAX)]
    for half in halves[:-1]:
        leader.end(half)
    assert leader.ops() == []
    leader.end(halves[-1])
    assert len(leader.ops()) == OPS_TOGETHER_MAX


def test_a_rollback_takes_along_what_waits_and_does_not_wait_itself(leader: Replica) -> None:
    halves = [leader.send() for _ in range(2)]
    leader.end(halves[0])
    answers = leader.end(halves[1], ROLLBACK)
    assert leader.ends.due_ms == 0
    leader.commit()
    assert (leader.ops(), leader.rows) == ([b"0", b"1"], [])
    assert [one.code for one in answers] == [0]


def test_each_op_message_is_as_rocketmq_reads_it(leader: Replica) -> None:
    for half in [leader.send() for _ in range(3)]:
        leader.end(half)
    leader.commit()
    ops = [one for one in leader.records if one.topic == OP_TOPIC]
    assert [int(one.body) for one in ops] == [0, 1, 2], "4.9 takes the body for one number"
    assert [one.queue_offset for one in ops] == [0, 1, 2]
    assert {(one.queue_id, one.sys_flag, one.properties) for one in ops} == {
        (0, 0, b"WAIT\x01true\x02TAGS\x01d")
    }


# Between the copy and its op message


def copy_cut_off_before_its_op(leader: Replica) -> None:
    """The copy finds no room in the log: its half is open, and no op message says otherwise."""
    half = leader.send()
    kept = leader.world.node.end_index + 1
    answers = leader.end(half)
    is_cut_off(leader, kept)
    assert [one.code for one in answers] == [14]
    leader.commit()
    assert (leader.ops(), leader.rows) == ([], [half])
    again = leader.end(half)
    leader.commit()
    assert [one.code for one in again] == [0]
    assert (leader.copies(), leader.ops(), leader.rows) == ([half.physical], [b"0"], [])


def test_a_half_whose_copy_was_cut_off_stays_open(leader: Replica) -> None:
    copy_cut_off_before_its_op(leader)


def test_copy_and_op_message_that_are_cut_off_leave_the_half_open(leader: Replica) -> None:
    half = leader.send()
    kept = leader.world.node.end_index + 1
    leader.end(half)
    leader.turn()
    is_cut_off(leader, kept)
    assert leader.rows == [half]
    leader.end(half)
    leader.commit()
    assert (leader.copies(), leader.ops(), leader.rows) == ([half.physical], [b"0"], [])


def torn_between_op_messages(leader: Replica) -> None:
    """Of two rollbacks one is in the log and one is not: each is answered as it ended."""
    halves = [leader.send() for _ in range(2)]
    answers = [leader.end(half, ROLLBACK) for half in halves]
    leader.turn()
    is_cut_off(leader, leader.world.node.end_index)
    assert [[one.code for one in each] for each in answers] == [[], [14]]
    assert [one.code for one in leader.end(halves[0])] == [1], "its end is in the log"
    leader.commit()
    assert leader.rows == [halves[1]]
    assert [[one.code for one in each] for each in answers] == [[0], [14]]


def test_op_messages_that_are_torn_apart_end_each_for_itself(leader: Replica) -> None:
    torn_between_op_messages(leader)


def test_a_leader_lost_before_the_op_message_is_completed(leader: Replica) -> None:
    half = leader.send()
    leader.end(half)
    leader.world.node.commit()
    assert leader.ops() == []
    other = Replica().begin()
    other.follow(leader)
    assert [one.asked for one in other.rows] == [COPIED]
    other.lead()
    assert (other.copies(), other.ops(), other.rows) == ([half.physical], [b"0"], [])


def ended_in_an_earlier_term(leader: Replica) -> None:
    """What waits to be put is not put in another term, in which its half may get another end."""
    half = leader.send()
    answers = leader.end(half, ROLLBACK)
    leader.world.node.follow()
    leader.lead()
    assert [one.code for one in answers] == [14]
    leader.end(half)
    leader.commit()
    assert (leader.copies(), leader.ops()) == ([half.physical], [b"0"])
    assert leader.rows == []


def test_what_waits_is_refused_with_the_term(leader: Replica) -> None:
    ended_in_an_earlier_term(leader)


def test_who_leads_no_more_refuses_what_waits(leader: Replica) -> None:
    answers = leader.end(leader.send(), ROLLBACK)
    leader.world.node.follow()
    leader.turn()
    assert [one.code for one in answers] == [14]


def test_a_leader_that_stops_puts_what_waits(leader: Replica) -> None:
    leader.end(leader.send())
    assert leader.ops() == []
    leader.service.stop()
    assert leader.ops() == [b"0"]


def test_op_messages_that_find_the_disk_full_are_put_later(leader: Replica) -> None:
    half = leader.send()
    leader.end(half)
    leader.world.store.writer.refuse_messages(True)
    leader.commit()
    assert [one.asked for one in leader.rows] == [COPIED]
    leader.world.store.writer.refuse_messages(False)
    leader.wait()
    assert (leader.ops(), leader.rows) == ([b"0"], [])


def op_refused_before_its_copy_is_applied(leader: Replica) -> None:
    """A committed copy ends its half, though dispatch is slow and its op message is refused."""
    half = leader.send()
    writer = leader.world.store.writer
    for _ in range(4):  # more long properties than dispatch takes in one turn
        writer.put(message(topic="orders", properties=b"a\x01" + b"x" * 9_000), lambda *_: None)
    first = leader.end(half)
    leader.world.node.commit()
    assert [one.code for one in first] == [0]
    assert leader.rows == [half], "dispatch has not come to it"
    writer.refuse_messages(True)
    leader.turn()
    writer.refuse_messages(False)
    again = leader.end(half)
    leader.commit()
    leader.wait()
    assert [one.code for one in again] == [1], "it is being finished already"
    assert [one for one in leader.copies() if one == half.physical] == [half.physical]
    assert (leader.ops(), leader.rows) == ([b"0"], [])


def test_an_op_message_refused_while_dispatch_is_behind_opens_no_half(leader: Replica) -> None:
    op_refused_before_its_copy_is_applied(leader)


FOUND_BY: list[tuple[Mutant, Callable[[Replica], None]]] = [
    (BY_TESTS["op-message-without-its-copy"], copy_cut_off_before_its_op),
    (BY_TESTS["half-open-behind-its-copy"], op_refused_before_its_copy_is_applied),
    (BY_TESTS["op-messages-answered-as-one"], torn_between_op_messages),
    (BY_TESTS["op-message-of-an-earlier-term"], ended_in_an_earlier_term),
]


@pytest.mark.parametrize(("bug", "check"), FOUND_BY, ids=lambda value: getattr(value, "name", ""))
def test_a_planted_bug_is_found(bug: Mutant, check: Callable[[Replica], None]) -> None:
    with planted(bug):
        replica = led()
        with pytest.raises((AssertionError, RuntimeError)):
            check(replica)


# What the store refuses


def test_only_what_says_state_is_put_so(leader: Replica) -> None:
    heard: list[PutStatus] = []
    batch = ops_of([1, 2], leader.service._settings.host, 5)
    batch.topic = b"orders"
    dones = [lambda status, *_: heard.append(status)] * 2
    leader.world.store.writer.put_each(batch, dones)
    assert heard == [PutStatus.MESSAGE_ILLEGAL] * 2
    batch.topic, batch.bodies = OP_TOPIC.encode(), [b"1", b""]
    leader.world.store.writer.put_each(batch, dones)
    assert heard == [PutStatus.MESSAGE_ILLEGAL] * 4
