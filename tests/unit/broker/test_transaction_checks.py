"""What becomes of halves whose producers say nothing, and of those that RocketMQ left."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from broker.state.consumer_offset import TRANSACTION_CHECK_GROUP, ConsumerOffsetTable
from broker.state.replicated_state import ReplicatedState
from broker.state.snapshot import Snapshot
from broker.transactions import service as service_module
from broker.transactions.service import (
    PARKING_BYTES_MAX,
    READ_BYTES_MAX,
    RETRIED_MAX,
    RETRY_MS,
    TURN_MAX,
)
from broker.transactions.table import HalfTable
from broker.transactions.takeover import HALF_TOPIC, take_over
from ledgermq.remoting.protocol.message import decode_record
from ledgermq.runtime.cancel import timeout
from ledgermq.runtime.disk import RealDisk
from mutants.patches import BY_TESTS, MUTANTS
from mutants.planting import planted
from store.results import GetResult, GetStatus, PutStatus
from tests.unit.broker.transactions import (
    CHECK_MAX,
    INTERVAL_MS,
    PARK_TOPIC,
    TIMEOUT_MS,
    Replica,
)  # fmt: skip
from tests.unit.store.fakes import REFUSALS

if TYPE_CHECKING:
    from pathlib import Path


class Majority:
    """What the others say of the time."""

    says_ms: int | None = None

    def correction_ms(self) -> int | None:
        return self.says_ms


@pytest.fixture
def leader() -> Replica:
    replica = Replica().begin()
    replica.lead()
    return replica


# Questions


def test_a_producer_is_asked_for_what_waits_too_long(leader: Replica) -> None:
    connection = leader.connect()
    leader.wait(INTERVAL_MS - TIMEOUT_MS + 1)
    half = leader.send()
    leader.wait(TIMEOUT_MS - 1)
    assert connection.sent == [], "it is younger than transactionTimeOut"
    leader.wait()
    (question,) = connection.sent
    assert (question.code, question.flag & 2) == (39, 2)
    assert question.ext_fields["commitLogOffset"] == str(half.physical)
    body = decode_record(question.body, check_crc=True)
    assert (body.topic, body.queue_id, body.body) == ("orders", 2, b"pay")
    assert body.maybe_property("TRANSACTION_CHECK_TIMES") == "1"
    answers = leader.end(half, fromTransactionCheck="true", transactionId="U0")
    leader.commit()
    assert [one.code for one in answers] == [0]
    assert leader.records[-2].maybe_property("TRANSACTION_CHECK_TIMES") == "1"
    leader.wait()
    assert len(connection.sent) == 1


def test_another_producer_is_asked_each_time(leader: Replica) -> None:
    connections = [leader.connect(number=number) for number in (1, 2)]
    other = leader.connect("others", 3)
    leader.send()
    leader.wait(INTERVAL_MS * 2)
    assert [len(one.sent) for one in connections] == [1, 1]
    assert other.sent == []


def test_who_may_not_have_a_half_is_not_asked_for_it(leader: Replica) -> None:
    stranger, connection = leader.connect(number=1), leader.connect(number=2)
    leader.service.may_hear = lambda one, topic: one is not stranger and topic == "orders"
    leader.send()
    leader.wait(INTERVAL_MS * 3)
    assert (len(stranger.sent), len(connection.sent)) == (0, 3)


@pytest.mark.parametrize(("immunity", "passes"), [(b"1", 1), (b"70", 2), (b"x", 1), (b"-1", 1)])
def test_a_half_may_say_itself_when_it_may_be_asked_for(
    leader: Replica, immunity: bytes, passes: int
) -> None:
    connection = leader.connect()
    leader.send(properties=b"\x02CHECK_IMMUNITY_TIME_IN_SECONDS\x01" + immunity)
    leader.wait(INTERVAL_MS * (passes - 1))
    assert connection.sent == []
    leader.wait()
    assert len(connection.sent) == 1


@pytest.mark.parametrize(("timeout_ms", "longest_ms"), [(6_000, 3_600_000), (7_200_000, 7_200_000)])
def test_no_half_is_left_alone_for_ever(timeout_ms: int, longest_ms: int) -> None:
    """A client could fill the table for months."""
    leader = Replica(timeout_ms=timeout_ms).begin()
    leader.lead()
    connection = leader.connect()
    leader.send(properties=b"\x02CHECK_IMMUNITY_TIME_IN_SECONDS\x019999999")
    leader.wait(longest_ms - INTERVAL_MS)
    assert connection.sent == []
    leader.wait(2 * INTERVAL_MS)
    assert len(connection.sent) >= 1


def test_a_half_that_is_left_alone_for_months_is_found_here() -> None:
    with planted(BY_TESTS["left-alone-for-months"]), pytest.raises(AssertionError):
        test_no_half_is_left_alone_for_ever(6_000, 3_600_000)


def asked_once_the_clock_is_right() -> tuple[int, int]:
    """Return how many questions there are within the time-out of a half, and within an interval.

    Two halves: one has the wrong time, three days ahead, the other one the right time.
    """
    leader = Replica().begin()
    leader.lead()
    connection = leader.connect()
    store, majority = leader.world.store, Majority()
    store.writer.compare_clocks(majority)
    leader.send()
    leader.settle()
    majority.says_ms = -3 * 24 * 3_600_000
    store._commit_log.expire(leader.world.clock.now)
    leader.send()
    leader.wait(TIMEOUT_MS - 1)
    early = len(connection.sent)
    leader.wait(3 * INTERVAL_MS)
    return early, len({one.ext_fields["tranStateTableOffset"] for one in connection.sent})


def test_a_clock_that_is_put_right_leaves_no_half_alone() -> None:
    """The leader goes on to lead; what it knew of the next pass was by the wrong clock."""
    assert asked_once_the_clock_is_right() == (0, 2)
    with planted(BY_TESTS["next-pass-by-the-wrong-clock"]):
        assert asked_once_the_clock_is_right() == (0, 0)
    with planted(BY_TESTS["half-of-a-wrong-clock-left-alone"]):
        assert asked_once_the_clock_is_right() == (0, 1)


def parked(leader: Replica) -> None:
    connection = leader.connect()
    half = leader.send()
    leader.wait(INTERVAL_MS * (CHECK_MAX + 3))
    assert len(connection.sent) == CHECK_MAX
    assert leader.copies(PARK_TOPIC) == [half.physical]
    assert leader.copies() == []
    assert leader.ops() == [b"0"]
    assert leader.rows == []
    assert [one.code for one in leader.end(half)] == [1]


def test_what_nobody_knows_the_end_of_is_parked(leader: Replica) -> None:
    parked(leader)


def parked_without_a_commit() -> int:
    """Return how many of a dozen large halves are put aside before one of them is committed."""
    leader = Replica(check_max=0).begin()
    leader.lead()
    halves = [leader.send(bytes(PARKING_BYTES_MAX // 4)) for _ in range(12)]
    leader.world.clock.now += INTERVAL_MS
    leader.timer.due_ms = 0
    for _ in range(100):
        if leader.timer.due_ms == 0:
            leader.timer.due_ms = None
            leader.service.run()
    count = len(leader.copies(PARK_TOPIC))
    leader.commit()
    leader.settle()
    assert leader.copies(PARK_TOPIC) == [half.physical for half in halves]
    assert leader.rows == []
    return count


def test_so_many_bytes_are_parked_at_a_time() -> None:
    assert parked_without_a_commit() == 4
    with planted(BY_TESTS["parked-bytes-unbounded"]):
        assert parked_without_a_commit() == 12


def lost_while_parking(leader: Replica) -> None:
    half = leader.send()
    leader.wait(INTERVAL_MS * CHECK_MAX)
    leader.world.clock.now += INTERVAL_MS
    leader.service.run()
    leader.turn()
    leader.commit(leader.world.node.end_index - 1)
    assert leader.copies(PARK_TOPIC) == [half.physical]
    other = Replica().begin()
    other.follow(leader)
    other.lead()
    assert [one.code for one in other.end(half)] == [1]
    assert (other.copies(), other.ops(), other.rows) == ([], [b"0"], [])


def test_a_leader_lost_while_it_parks_is_completed(leader: Replica) -> None:
    lost_while_parking(leader)


def counted_across_leaders(leader: Replica) -> None:
    connection = leader.connect()
    half = leader.send()
    leader.wait(INTERVAL_MS * 2)
    other = Replica().begin()
    other.follow(leader)
    later = other.connect()
    other.world.clock.now = leader.world.clock.now
    other.lead()
    assert later.sent == [], "a new leader does not ask at once"
    other.wait(INTERVAL_MS * 3)
    assert (len(connection.sent), len(later.sent)) == (2, CHECK_MAX - 2)
    assert other.copies(PARK_TOPIC) == [half.physical]


def test_how_often_was_asked_outlives_the_leader(leader: Replica) -> None:
    counted_across_leaders(leader)


def test_who_lost_the_leadership_asks_nobody(leader: Replica) -> None:
    connection = leader.connect()
    leader.send()
    leader.world.node.follow()
    leader.wait(INTERVAL_MS * 5)
    assert connection.sent == []


def asked_by_who_leads_again(leader: Replica) -> int:
    """Return how often a leader asks that lost its office while it counted, and has it again."""
    connection = leader.connect()
    leader.send()
    leader.world.clock.now += INTERVAL_MS
    leader.service.run()
    leader.world.node.follow()
    leader.world.turns()
    assert connection.sent == []
    leader.lead()
    leader.wait(INTERVAL_MS * 2)
    return len(connection.sent)


def test_who_leads_again_asks_again(leader: Replica) -> None:
    assert asked_by_who_leads_again(leader) == 2


def test_a_planted_wait_for_another_term_is_found_here(leader: Replica) -> None:
    with planted(MUTANTS["questions-of-another-term-awaited"]):
        assert asked_by_who_leads_again(leader) == 0


def test_without_a_producer_it_counts_all_the_same(leader: Replica) -> None:
    """As in RocketMQ: needDiscard counts before getAvailableChannel finds nobody."""
    half = leader.send()
    leader.wait(INTERVAL_MS * (CHECK_MAX + 1))
    assert leader.copies(PARK_TOPIC) == [half.physical]


def test_a_count_that_is_refused_is_tried_again(leader: Replica) -> None:
    connection = leader.connect()
    leader.send()
    leader.world.node.refuse = REFUSALS[PutStatus.FULL]
    leader.wait()
    assert connection.sent == []
    leader.world.node.refuse = None
    leader.wait()
    assert len(connection.sent) == 1


def test_a_count_that_is_late_is_asked_for(leader: Replica) -> None:
    """It commits after all, and counts: a half would be parked that nobody was asked for."""
    connection = leader.connect()
    leader.send()
    for _ in range(CHECK_MAX):
        leader.world.clock.now += INTERVAL_MS
        leader.service.run()
        log: Any = leader.world.store._commit_log
        log.uncommitted.expire(leader.world.clock.now, 0, PutStatus.QUORUM_TIMEOUT)
        leader.commit()
        leader.settle()
    assert [one.asked for one in leader.rows] == [CHECK_MAX]
    assert len(connection.sent) == CHECK_MAX


def test_turns_are_bounded(leader: Replica) -> None:
    connection = leader.connect()
    for number in range(3 * TURN_MAX):
        leader.put_half(b"%d" % number)
    leader.commit()
    leader.wait(INTERVAL_MS - 1)
    leader.world.clock.now += 1
    leader.timer.due_ms = 0
    most = 0
    while leader.timer.due_ms == 0:
        before = len(connection.sent)
        leader.timer.due_ms = None
        leader.service.run()
        leader.commit()
        most = max(most, len(connection.sent) - before)
    assert len(connection.sent) == 3 * TURN_MAX
    assert most <= TURN_MAX


def test_large_halves_take_turns(leader: Replica) -> None:
    connection = leader.connect()
    for _ in range(4):
        leader.put_half(bytes(READ_BYTES_MAX))
    leader.commit()
    leader.world.clock.now += INTERVAL_MS
    leader.timer.due_ms = 0
    leader.service.run()
    leader.commit()
    seen = []
    while leader.timer.due_ms == 0:
        leader.timer.due_ms = None
        leader.service.run()
        leader.commit()
        seen.append(len(connection.sent))
    assert seen[:4] == [1, 2, 3, 4]


def test_who_does_not_read_is_not_asked(leader: Replica) -> None:
    connections = [leader.connect(number=number) for number in (1, 2)]
    connections[0].slow = True
    for _ in range(3):
        leader.put_half()
    leader.commit()
    leader.wait()
    assert [len(one.sent) for one in connections] == [0, 3]


def test_questions_wait_for_producers_that_read(leader: Replica) -> None:
    """Else a burst of large halves ends the connection of one that does read."""
    connection, other = leader.connect(), leader.connect("others", 2)
    connection.slow = True
    for _ in range(RETRIED_MAX + 2):
        leader.put_half()
    leader.put_half(properties=b"\x02PGROUP\x01others")
    leader.commit()
    leader.wait()
    leader.wait(3 * RETRY_MS)
    assert (len(connection.sent), len(other.sent)) == (0, 1)
    connection.slow = False
    leader.wait(RETRY_MS)
    assert len(connection.sent) == RETRIED_MAX
    leader.wait(RETRY_MS)
    assert len(connection.sent) == RETRIED_MAX + 2
    leader.wait(RETRY_MS)
    assert len(connection.sent) == RETRIED_MAX + 2


def test_who_never_reads_holds_nobody_up(leader: Replica) -> None:
    connection = leader.connect()
    connection.slow = True
    half = leader.send()
    leader.wait(INTERVAL_MS * (CHECK_MAX + 1))
    assert connection.sent == []
    assert leader.copies(PARK_TOPIC) == [half.physical]


def test_a_half_that_raises_does_not_end_the_process(
    leader: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = leader.connect()
    leader.send()
    told: list[str] = []
    monkeypatch.setattr(connection, "send", lambda _command: 1 / 0)
    monkeypatch.setattr(service_module, "report_serving_failure", lambda what, _: told.append(what))
    leader.wait()
    assert told == ["transactions"]
    monkeypatch.undo()
    leader.wait()
    assert len(connection.sent) == 1


def test_a_half_that_raises_is_passed_over(
    leader: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = leader.connect()
    bad = leader.send(b"bad")
    leader.wait(INTERVAL_MS * CHECK_MAX)
    leader.send(b"good")
    told: list[str] = []
    finish = leader.service.endings.finish
    monkeypatch.setattr(leader.service.endings, "finish", lambda *_: 1 / 0)
    monkeypatch.setattr(service_module, "report_serving_failure", lambda what, _: told.append(what))
    leader.wait()
    leader.wait(RETRY_MS)
    assert told == ["transactions"]
    assert len(connection.sent) == CHECK_MAX + 1, "the next one is asked for"
    monkeypatch.setattr(leader.service.endings, "finish", finish)
    leader.wait()
    assert leader.copies(PARK_TOPIC) == [bad.physical]


def test_a_half_to_park_that_cannot_be_read_ends_no_pass(
    leader: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = leader.connect()
    bad = leader.send(b"bad")
    leader.wait(INTERVAL_MS * CHECK_MAX)
    leader.send(b"good")
    told: list[str] = []
    read = leader.world.store.reader.message_at
    monkeypatch.setattr(
        leader.world.store.reader,
        "message_at",
        lambda at: memoryview(bytes(100)) if at == bad.physical else read(at),
    )
    monkeypatch.setattr(service_module, "report_serving_failure", lambda what, _: told.append(what))
    leader.wait()
    assert told == []
    assert len(connection.sent) == CHECK_MAX + 1


def test_a_half_that_the_log_dropped_is_closed(leader: Replica) -> None:
    leader.send()
    store: Any = leader.world.store
    end = leader.world.node.end_position
    store.reader.log_range = lambda: (end, end)
    leader.service.stop()
    leader.service.start(2)
    leader.send(b"later")
    leader.settle()
    assert leader.ops() == [b"0"]
    assert [one.offset for one in leader.rows] == [1]


def test_what_becomes_of_many_halves_is_told_once_a_second(
    leader: Replica, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(100):
        leader.put_half()
    leader.commit()
    leader.wait(INTERVAL_MS * (CHECK_MAX + 1))
    told = [one.getMessage() for one in caplog.records if "event=transaction_" in one.getMessage()]
    parked = [one for one in told if "transaction_parked" in one]
    unasked = [one for one in told if "without_producer" in one]
    assert (len(parked), len(unasked)) == (1, CHECK_MAX)
    assert "others=99" in unasked[1]


# A store that RocketMQ wrote


def test_the_open_halves_of_a_foreign_store_are_found() -> None:
    """No record told of them: the table begins empty, as in a directory that RocketMQ wrote."""
    replica = Replica().begin()
    replica.lead()
    for _ in range(40):
        replica.put_half()
    replica.commit()
    for half in replica.rows:
        if half.offset % 2:
            replica.put_ops(half.offset)
    replica.commit()
    expected = [half for half in replica.rows if half.offset >= 10]
    table = HalfTable()
    offsets = ConsumerOffsetTable()
    offsets.restore(
        msgspec.json.encode({"offsetTable": {f"{HALF_TOPIC}@{TRANSACTION_CHECK_GROUP}": {"0": 10}}})
    )
    asyncio.run(take_over(table, replica.world.store.reader, offsets))  # type: ignore[arg-type]
    assert list(table.rows) == expected
    assert table.end == 40
    table.open(b"[40,99999999,1,-1,0,0]")
    assert table.end == 41


def taken_over(replica: Replica, table: HalfTable, on_halves: Any = lambda: None) -> None:
    """Take over as after the loss of all offsets; ``on_halves``: called between the two scans."""
    reader: Any = replica.world.store.reader

    class Reader:
        def __getattr__(self, name: str) -> Any:
            return getattr(reader, name)

        def get(self, topic: str, *rest: Any) -> Any:
            if topic == HALF_TOPIC:
                on_halves()
            return reader.get(topic, *rest)

    asyncio.run(take_over(table, Reader(), ConsumerOffsetTable()))  # type: ignore[arg-type]


def test_what_is_finished_during_the_take_over_stays_so(leader: Replica) -> None:
    """The log told of the last one before: it may be committed between the two scans."""
    halves = [leader.send(b"%d" % number) for number in range(3)]
    table = HalfTable()
    table.open(b"[%d,%d,%d,%d,%d,%d]" % (*halves[2][:4], *halves[2][5:]))

    def finish() -> None:
        table.mark_copied(b"%d" % halves[2].physical)
        table.close(b"2")

    taken_over(leader, table, finish)
    assert list(table.rows) == halves[:2]
    assert table.closed is None


def test_the_end_of_a_take_over_is_saved(leader: Replica, tmp_path: Path) -> None:
    """No record tells of it: what is in no file is scanned again, beside rows of later halves."""
    leader.send()
    table = HalfTable()
    snapshot = Snapshot(str(tmp_path), ReplicatedState(table), RealDisk())
    snapshot.write(snapshot.capture(7))
    taken_over(leader, table)
    assert msgspec.json.decode(snapshot.capture(7).files[table.file][0])["end"] == 1


def test_of_two_halves_that_a_client_sent_both_stay_open(leader: Replica) -> None:
    """The client sent again for want of an answer: either may be the one it got one for."""
    for text, born in ((b"", 1), (b"", 2), (b"\x02TRANSACTION_CHECK_TIMES\x011", 1)):
        leader.sent = 0
        leader.send(properties=text, born_timestamp=born)
    table = HalfTable()
    taken_over(leader, table)
    assert [half.offset for half in table.rows] == [1, 2], "RocketMQ stored the first one anew"


def taken_over_in_spite_of(replica: Replica, offset: int, lost: Any) -> list[int]:
    """Take over where the half at ``offset`` cannot be had; return which ones are open."""
    reader: Any = replica.world.store.reader
    record = reader.get(HALF_TOPIC, 0, offset, 1, 1, None).buffers[0]

    class Reader:
        def __getattr__(self, name: str) -> Any:
            return getattr(reader, name)

        def get(self, topic: str, queue_id: int, first: int, count: int, *rest: Any) -> Any:
            if (topic, first) == (HALF_TOPIC, offset):
                return lost(record)
            until = offset if topic == HALF_TOPIC and first < offset else first + count
            return reader.get(topic, queue_id, first, min(count, until - first), *rest)

    async def run() -> None:
        async with timeout(5):
            await take_over(table, Reader(), ConsumerOffsetTable())  # type: ignore[arg-type]

    table = HalfTable()
    asyncio.run(run())
    assert table.end == 3, "it is over, for good"
    return [half.offset for half in table.rows]


def test_a_half_that_is_lost_does_not_hold_up_the_others(leader: Replica) -> None:
    """Nobody repairs it in the log of a broker on its own, and a take-over that waits never ends:
    no producer is asked then, and each end of a transaction is refused."""
    for number in range(3):
        leader.send(b"%d" % number)
    lost = GetResult(GetStatus.LOST, 1, 0, 3, [], 0, 0)
    assert taken_over_in_spite_of(leader, 1, lambda _record: lost) == [0, 2]


def test_many_that_are_lost_make_two_lines_of_the_log(
    leader: Replica, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        leader.send(b"%d" % number)
    reader: Any = leader.world.store.reader
    lost = GetResult(GetStatus.LOST, 0, 0, 3, [], 0, 0)

    class Reader:
        def __getattr__(self, name: str) -> Any:
            return getattr(reader, name)

        def get(self, topic: str, *rest: Any) -> Any:
            return lost if topic == HALF_TOPIC else reader.get(topic, *rest)

    table = HalfTable()
    asyncio.run(take_over(table, Reader(), ConsumerOffsetTable()))  # type: ignore[arg-type]
    assert not table.rows
    told = [text for text in caplog.messages if "event=lost_amid_a_take_over" in text]
    assert len(told) == 2
    assert "queue_offset_from=0" in told[0]
    assert "messages=3" in told[1]


def test_a_half_that_cannot_be_read_does_not_hold_up_the_others(leader: Replica) -> None:
    for number in range(3):
        leader.send(b"%d" % number)

    def unreadable(record: memoryview) -> GetResult:
        cut = record[:-1]  # it is shorter than it says
        return GetResult(GetStatus.FOUND, 2, 0, 3, [cut], 1, len(cut))

    assert taken_over_in_spite_of(leader, 1, unreadable) == [0, 2]


def test_what_rocketmq_has_done_with_is_closed(leader: Replica) -> None:
    halves = [leader.send(b"%d" % number) for number in range(3)]
    key = f"{HALF_TOPIC}@{TRANSACTION_CHECK_GROUP}"
    leader.offsets.restore(msgspec.json.encode({"offsetTable": {key: {"0": 2}}}))
    leader.world.node.follow()
    leader.lead()
    assert leader.rows == [halves[2]]
    assert sorted(leader.ops()) == [b"0", b"1"]
    assert leader.copies() == []


def test_a_half_that_rocketmq_postponed_is_finished_by_its_first_place(leader: Replica) -> None:
    """Whose producer asked to be asked later is stored anew, and it knows the first place alone."""
    postponed_and_finished(leader)


def postponed_and_finished(leader: Replica) -> None:
    postponed = b"\x02TRAN_PREPARED_QUEUE_OFFSET\x010"
    for text, born in ((b"", 1), (postponed, 1), (b"", 7), (b"", 8)):
        leader.sent = 0
        leader.send(properties=text, born_timestamp=born)
    leader.put_ops(0)
    leader.commit()
    table = HalfTable()
    taken_over(leader, table)
    assert [half.offset for half in table.rows] == [2, 3]


def test_a_half_that_rocketmq_postponed_is_open_where_its_producer_knows_it(
    leader: Replica,
) -> None:
    for text in (b"", b"\x02TRAN_PREPARED_QUEUE_OFFSET\x010"):
        leader.sent = 0
        leader.send(properties=text, born_timestamp=1)
    table = HalfTable()
    taken_over(leader, table)
    assert [half.offset for half in table.rows] == [0]


def ended_before_it_is_saved(_: Replica) -> None:
    """A crash behind the copy, before the rows are on disk, would have the half opened again."""
    replica = Replica(takes_over=True).begin()
    replica.lead()
    half = replica.send()
    replica.service.stop()
    replica.service.table.restore(HalfTable().snapshot())
    codes: list[int] = []

    async def save() -> None:
        await asyncio.sleep(0)
        assert replica.rows == [half]
        codes.extend(answer.code for answer in replica.end(half))
        replica.commit()

    replica.service.save = save
    steps = replica.service.start(2)
    assert steps is not None
    codes += [answer.code for answer in replica.end(half)]
    asyncio.run(steps)
    assert codes == [2, 2]
    replica.end(half)
    replica.commit()
    assert replica.rows == []


def test_nothing_that_is_taken_over_ends_before_it_is_saved(leader: Replica) -> None:
    ended_before_it_is_saved(leader)
