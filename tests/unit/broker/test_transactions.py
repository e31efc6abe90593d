"""The ends of transactions: one for each half, whoever leads; over real stores."""

from __future__ import annotations

from typing import Any

import pytest

from broker.fair_share import FairShare
from broker.processor import transaction as processor_module
from broker.sends.rules import Refused
from broker.state.consumer_offset import TRANSACTION_CHECK_GROUP, ConsumerOffsetTable
from broker.transactions.halves import COPIED
from broker.transactions.table import HalfTable
from broker.transactions.takeover import HALF_TOPIC
from ledgermq.remoting.protocol.errors import InvalidHeader
from ledgermq.remoting.protocol.limits import GROUP_LENGTH_MAX
from store.results import PutStatus
from tests.unit.broker.transactions import (
    COMMIT,
    PROPERTIES,
    ROLLBACK,
    UNKNOWN,
    Replica,
)  # fmt: skip
from tests.unit.store.fakes import REFUSALS, message


@pytest.fixture
def leader() -> Replica:
    replica = Replica().begin()
    replica.lead()
    return replica


# One end


def test_a_half_is_nowhere_until_it_is_committed(leader: Replica) -> None:
    half = leader.send()
    assert leader.world.store.reader.max_offset("orders", 2) == 0
    answers = leader.end(half)
    assert answers == [], "a majority does not have it yet"
    leader.commit()
    assert [one.code for one in answers] == [0]
    assert leader.world.store.reader.max_offset("orders", 2) == 1
    copy = leader.records[-2]
    assert (copy.topic, copy.queue_id, copy.body) == ("orders", 2, b"pay")
    assert (copy.sys_flag & 0xC, copy.prepared_offset) == (8, half.physical)
    assert leader.ops() == [b"0"]
    assert leader.rows == []
    assert dict(leader.puts) == {"orders": 1}


def test_a_rollback_leaves_an_op_message_alone(leader: Replica) -> None:
    answers = leader.end(leader.send(), ROLLBACK)
    leader.commit()
    assert [one.code for one in answers] == [0]
    assert (leader.copies(), leader.ops(), leader.rows) == ([], [b"0"], [])


def test_who_knows_no_end_yet_changes_nothing(leader: Replica) -> None:
    half = leader.send()
    end = leader.world.node.end_index
    assert [one.code for one in leader.end(half, UNKNOWN)] == [0]
    assert leader.world.node.end_index == end
    assert leader.rows == [half]


def test_halves_are_finished_in_any_order(leader: Replica) -> None:
    halves = [leader.send(b"%d" % number) for number in range(4)]
    for number, end in ((2, COMMIT), (0, ROLLBACK), (3, COMMIT)):
        leader.end(halves[number], end)
    leader.commit()
    assert leader.rows == [halves[1]]
    assert leader.copies() == [halves[2].physical, halves[3].physical]


# Finished twice


def finished_twice(leader: Replica) -> None:
    half = leader.send()
    first, second = leader.end(half), leader.end(half)
    leader.commit()
    third = leader.end(half)
    rolled_back = leader.end(half, ROLLBACK)
    leader.commit()
    assert leader.copies() == [half.physical]
    assert leader.ops() == [b"0"]
    assert [one.code for one in first + second + third + rolled_back] == [0, 1, 1, 1]
    assert "already" in (second[0].remark or "")
    assert "finished already" in (third[0].remark or "")


def test_a_half_that_is_finished_twice_has_one_copy(leader: Replica) -> None:
    finished_twice(leader)


def answered_before_it_is_applied(leader: Replica) -> None:
    """Dispatch is far behind: a majority has the copy, and the table does not know it."""
    half = leader.send()
    leader.end(half)
    leader.turn()
    store: Any = leader.world.store
    store._turns._scheduled = True
    leader.world.node.commit()
    assert leader.rows == [half]
    leader.end(half)
    store._turns._scheduled = False
    leader.commit()
    assert leader.copies() == [half.physical]
    assert leader.rows == []


def test_what_is_answered_and_not_applied_is_finished(leader: Replica) -> None:
    answered_before_it_is_applied(leader)


@pytest.mark.parametrize("status", REFUSALS)
def test_a_copy_that_is_refused_leaves_the_half_open(leader: Replica, status: PutStatus) -> None:
    half = leader.send()
    leader.world.node.refuse = REFUSALS[status]
    answers = leader.end(half)
    assert [one.code for one in answers] != [0]
    assert leader.rows == [half]
    leader.world.node.refuse = None
    again = leader.end(half)
    leader.commit()
    assert [one.code for one in again] == [0]
    assert leader.copies() == [half.physical]


def refused_op(leader: Replica) -> None:
    """The copy is in the log, then there is no room; nobody commits it a second time."""
    half = leader.send()
    store: Any = leader.world.store
    put = store.writer.put_each

    def refuse_ops(_ops: Any, dones: Any) -> None:
        for done in dones:
            done(PutStatus.FULL, -1, -1)

    store.writer.put_each = refuse_ops
    first = leader.end(half)
    second = leader.end(half)
    leader.commit()
    assert [one.code for one in first + second] == [0, 1]
    assert leader.copies() == [half.physical]
    assert [one.asked for one in leader.rows] == [COPIED]
    assert [one.code for one in leader.end(half, ROLLBACK)] == [1]
    store.writer.put_each = put
    leader.wait()
    assert leader.ops() == [b"0"]
    assert leader.rows == []


def test_an_op_message_that_is_refused_is_put_later(leader: Replica) -> None:
    refused_op(leader)


def test_copies_the_log_could_not_write_leave_the_half_open(leader: Replica) -> None:
    half = leader.send()
    kept = leader.world.node.end_index + 1
    answers = leader.end(half)
    leader.world.node.truncate(kept)
    leader.world.store.log_user.on_rolled_back(leader.world.node.end_position)
    assert [one.code for one in answers] == [14]
    again = leader.end(half)
    leader.commit()
    assert [one.code for one in again] == [0]
    assert leader.copies() == [half.physical]


# Whoever leads


def half_then_another_leader(leader: Replica) -> None:
    half = leader.send()
    other = Replica().begin()
    other.follow(leader)
    assert other.rows == [half]
    other.lead()
    answers = other.end(half)
    other.commit()
    assert [one.code for one in answers] == [0]
    assert other.copies() == [half.physical]


def test_another_leader_knows_the_halves(leader: Replica) -> None:
    half_then_another_leader(leader)


def finished_at_two_leaders(leader: Replica) -> None:
    half = leader.send()
    leader.end(half)
    leader.commit()
    other = Replica().begin()
    other.follow(leader)
    other.lead()
    answers = other.end(half)
    other.commit()
    assert other.copies() == [half.physical]
    assert [one.code for one in answers] == [1]


def test_a_half_is_not_committed_by_two_leaders(leader: Replica) -> None:
    finished_at_two_leaders(leader)


def lost_between_copy_and_op(leader: Replica) -> None:
    half = leader.send()
    leader.end(half)
    leader.turn()
    leader.commit(leader.world.node.end_index - 1)
    other = Replica().begin()
    other.follow(leader)
    assert [one.asked for one in other.rows] == [COPIED]
    other.world.node.lead()
    answers = other.end(half)
    other.settle()
    assert other.copies() == [half.physical]
    assert [one.code for one in answers] == [1]
    assert other.ops() == [b"0"]
    assert other.rows == []


def test_a_leader_lost_between_copy_and_op_message_is_completed(leader: Replica) -> None:
    lost_between_copy_and_op(leader)


def test_a_copy_that_no_majority_had_is_put_by_the_next_leader(leader: Replica) -> None:
    half = leader.send()
    answers = leader.end(half)
    leader.world.node.follow()
    assert [one.code for one in answers] == [1]
    assert "outcome unknown" in (answers[0].remark or "")
    leader.lead()
    again = leader.end(half)
    leader.commit()
    assert [one.code for one in again] == [0]
    assert leader.copies() == [half.physical]


def test_who_does_not_lead_finishes_nothing(leader: Replica) -> None:
    half = leader.send()
    leader.world.node.follow()
    assert [one.code for one in leader.end(half)] == [14]


def power_loss(leader: Replica, taken: int) -> None:
    """A start with the table as it was then, and the log from there: whatever is applied twice."""
    halves = [leader.send(b"%d" % number) for number in range(3)]
    saved = [(leader.world.node.end_index, leader.service.table.snapshot())]
    for half, end in zip(halves, (COMMIT, ROLLBACK, COMMIT), strict=True):
        if half.offset < 2:
            leader.end(half, end)
            leader.commit()
        saved.append((leader.world.node.end_index, leader.service.table.snapshot()))
    index, text = saved[taken]
    for from_index in (index, halves[0].physical and 0):
        other = Replica()
        other.service.table.restore(text)
        other.world.node.entries = leader.world.node.entries[:]
        other.world.node.segments = {
            at: bytearray(data) for at, data in leader.world.node.segments.items()
        }
        other.world.node.end, other.world.node.term = leader.world.node.end, 1
        other.world.node.commit_index = leader.world.node.commit_index
        other.begin(from_index)
        assert other.rows == [halves[2]]
        other.lead()
        assert [one.code for one in other.end(halves[0])] == [1]
        other.end(halves[2])
        other.commit()
        assert other.copies() == [halves[0].physical, halves[2].physical]


@pytest.mark.parametrize("taken", range(4))
def test_a_start_knows_what_is_open(leader: Replica, taken: int) -> None:
    power_loss(leader, taken)


# What is refused


@pytest.mark.parametrize(
    ("end", "fields", "word"),
    [
        (COMMIT, {"producerGroup": "others"}, "group wrong"),
        (COMMIT, {"tranStateTableOffset": 1}, "offset wrong"),
        (COMMIT, {"commitLogOffset": 17}, "no open transaction"),
        (COMMIT, {"commitLogOffset": -1}, "no open transaction"),
        (COMMIT, {"commitLogOffset": 2**63 - 1}, "no open transaction"),
        (COMMIT, {"transactionId": "U7"}, "another transaction"),
        (ROLLBACK, {"producerGroup": "others"}, "group wrong"),
        (4, {}, "commitOrRollback is 4"),
        (-1, {}, "commitOrRollback is -1"),
    ],
)
def test_what_means_no_open_half_is_refused(
    leader: Replica, end: int, fields: dict[str, object], word: str
) -> None:
    half = leader.send()
    before = leader.world.node.end_index
    (answer,) = leader.end(half, end, **fields)
    assert answer.code == 1
    assert word in (answer.remark or "")
    assert leader.world.node.end_index == before
    assert leader.rows == [half]


def test_a_place_that_holds_no_half_is_refused(leader: Replica) -> None:
    leader.world.put(topic="orders", body=b"plain")
    half = leader.send()
    leader.commit()
    plain = next(one for one in leader.records if one.body == b"plain")
    for place in (plain.physical_offset, half.physical + 1, half.physical - 1):
        assert [one.code for one in leader.end(half, commitLogOffset=place)] == [1]
    assert leader.copies() == [0], "the plain one"


def test_refusals_are_told_in_the_log_but_not_all(
    leader: Replica, caplog: pytest.LogCaptureFixture
) -> None:
    half = leader.send()
    for _ in range(1_000):
        leader.end(half, producerGroup="o" * 2_000)
    leader.world.clock.now += 1_000
    leader.end(half, producerGroup="others")
    told = [one.getMessage() for one in caplog.records if "end_transaction" in one.getMessage()]
    assert len(told) == 2
    assert "others=999" in told[1]
    assert len(told[0]) < 1_000


def test_what_may_be_no_half_is_refused() -> None:
    replica = Replica().begin()
    replica.lead()
    with pytest.raises(Refused, match="PGROUP"):
        replica.service.let_in(message(properties=b"TRAN_MSG\x01true"))
    for group in (b"g" * (GROUP_LENGTH_MAX + 1), b"no name", b"\xff"):
        with pytest.raises(Refused, match="PGROUP"):
            replica.service.let_in(message(properties=b"TRAN_MSG\x01true\x02PGROUP\x01" + group))
    replica.service.let_in(message(properties=b"PGROUP\x01ns%g-1_|" + b"g" * 245))
    with pytest.raises(Refused) as rejected:
        Replica(rejected=True).put_half()
    assert rejected.value.answer[0] == 16


def shared_fairly(replica: Replica) -> None:
    """A group may have a quarter of what is free, on whoever leads."""

    def is_refused(group: bytes) -> bool:
        text = b"TRAN_MSG\x01true\x02PGROUP\x01" + group
        try:
            replica.service.let_in(message(properties=text))
        except Refused as refused:
            return refused.answer[0] == 2
        return False

    table = replica.service.table
    table.room = FairShare(20)
    halves = [replica.send() for _ in range(4)]
    assert is_refused(b"payers")
    assert not is_refused(b"others")
    other = HalfTable()
    other.restore(table.snapshot())
    assert (other.room.used, other.room._used_by) == (4, table.room._used_by)
    replica.end(halves[0])
    replica.end(halves[1], ROLLBACK)
    assert is_refused(b"payers"), "their ends are not committed"
    replica.commit()
    assert table.room.used == 2
    assert not is_refused(b"payers")


def looked_at_before_it_is_read(replica: Replica) -> None:
    """Whose half it is is known without its bytes, and which one without a copy of them."""
    half = replica.send(b"x" * 1_000)
    replica.processor._recent.forget(half.physical)
    reader, read, copied = replica.world.store.reader, [], []
    message_at, decode = reader.message_at, processor_module.decode_record
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reader, "message_at", lambda at: (read.append(at), message_at(at))[1])
        patched.setattr(
            processor_module, "decode_record", lambda one: (copied.append(1), decode(one))[1]
        )
        (answer,) = replica.end(half, producerGroup="somebody")
        assert (answer.code, read) == (1, [])
        assert "The producer group wrong" in str(answer.remark)
        (answer,) = replica.end(half, transactionId="U77")
        assert (answer.code, read, copied) == (1, [half.physical], [])
        replica.end(half, transactionId="U0")
        assert copied == [1]
    replica.commit()
    assert not replica.rows


def answered_when_its_row_is_open(replica: Replica) -> None:
    """A half that is committed while dispatch stands still is answered by dispatch."""
    replica.send()
    answers: list[tuple[PutStatus, int]] = []
    text = PROPERTIES % replica.sent
    half = replica.service.let_in(message(topic="orders", queue_id=2, properties=text))
    late = replica.service.let_in(message(topic="orders", queue_id=2, properties=text))
    store = replica.world.store
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(store._dispatcher), "_keys_have_room", lambda _: False)
        store.writer.put(half, lambda status, _, physical: answers.append((status, physical)))
        store.writer.put(late, lambda *_: None)
        replica.commit()
        assert answers == []
        assert len(replica.rows) == 1
    store._turns.resume()
    replica.world.turns()
    assert answers == [(PutStatus.OK, replica.rows[1].physical)]
    assert len(replica.rows) == 3
    replica.end(replica.rows[1])
    replica.commit()
    assert len(replica.rows) == 2
    assert not store._commit_log.uncommitted._states


def test_a_half_is_answered_when_it_can_be_finished(leader: Replica) -> None:
    answered_when_its_row_is_open(leader)


def test_a_half_that_waits_for_dispatch_too_long_is_answered_late(leader: Replica) -> None:
    answers: list[PutStatus] = []
    half = leader.service.let_in(message(topic="orders", queue_id=2, properties=PROPERTIES % 1))
    store = leader.world.store
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(store._dispatcher), "_keys_have_room", lambda _: False)
        store.writer.put(half, lambda status, *_: answers.append(status))
        leader.commit()
        for _ in range(3):
            store._commit_log.expire(leader.world.clock.now)
            leader.world.clock.now += 60_000
    assert answers == [store._commit_log._late_status]


def test_open_halves_are_shared_fairly_among_producer_groups(leader: Replica) -> None:
    shared_fairly(leader)


def invented_groups_are_bounded(replica: Replica) -> None:
    """Three senders, one of them with many addresses of one network, invent groups."""
    replica.service.table.room = FairShare(10**6)
    replica.service.table.sources = FairShare(20)
    hosts = [b"\x0a\0\0\1"] * 6 + [b"\x20\1" + bytes(13) + b"%c" % n for n in range(6)]
    hosts.append(b"\x0a\0\0\2")
    let_in = []
    for number, host in enumerate(hosts):
        text = b"TRAN_MSG\x01true\x02PGROUP\x01g%d" % number
        one = message(properties=text, born_host=host + b"\0\0\0\1")
        try:
            half = replica.service.let_in(one)
        except Refused:
            let_in.append(False)
        else:
            replica.world.store.writer.put(half, lambda *_: None)
            replica.commit()
            let_in.append(True)
    assert let_in == [True] * 4 + [False] * 2 + [True] * 3 + [False] * 3 + [True]


def test_invented_groups_share_what_their_address_may_have(leader: Replica) -> None:
    invented_groups_are_bounded(leader)


def test_a_half_is_not_read_for_somebody_else(leader: Replica) -> None:
    looked_at_before_it_is_read(leader)


def test_rows_of_a_version_without_groups_are_read(leader: Replica) -> None:
    half = leader.send()
    text = leader.service.table.snapshot()
    without_source = text.replace(b' %d"' % half.source, b'"')
    leader.service.table.restore(without_source)
    assert leader.rows == [half._replace(source=0)]
    former = without_source.replace(b' %d"' % half.group, b'"')
    assert len({text, without_source, former}) == 3
    leader.service.table.restore(former)
    (row,) = leader.rows
    assert row == half._replace(group=0, source=0)
    (answer,) = leader.end(row, producerGroup="somebody")
    assert answer.code == 1
    leader.end(row)
    leader.commit()
    assert not leader.rows
    assert leader.service.table.room.used == leader.service.table.sources.used == 0


def test_no_client_says_how_far_rocketmq_has_come() -> None:
    with pytest.raises(InvalidHeader):
        ConsumerOffsetTable().commit(TRANSACTION_CHECK_GROUP, HALF_TOPIC, 0, 10**9)


def test_a_sender_cannot_claim_to_be_a_copy(leader: Replica) -> None:
    """The properties of a copy are no proof of anything."""
    half = leader.send()
    leader.world.put(topic="orders", properties=PROPERTIES % 0)
    leader.commit()
    assert leader.rows == [half]


# Delays


def test_the_delay_of_a_half_begins_with_its_commit(leader: Replica) -> None:
    half = leader.send(properties=b"\x02DELAY\x012")
    assert half.offset == 0
    leader.end(half)
    leader.commit()
    copy = leader.records[-2]
    assert (copy.topic, copy.queue_id) == ("SCHEDULE_TOPIC_XXXX", 1)
    assert (copy.maybe_property("REAL_TOPIC"), copy.maybe_property("REAL_QID")) == ("orders", "2")
    assert leader.rows == []
    assert dict(leader.puts) == {"SCHEDULE_TOPIC_XXXX": 1}, "in its topic it counts when it is due"
    assert [one.code for one in leader.end(half)] == [1]
