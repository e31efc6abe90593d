"""Delayed messages: put by, due, delivered once, whoever leads; over real stores."""

from __future__ import annotations

import asyncio
import errno
import json
from collections import Counter, defaultdict
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from broker.config import BrokerConfig
from broker.delays.agenda import WAIT_MS_MAX, Agenda, Level
from broker.delays.copies import scheduled_of
from broker.delays.progress import DelayProgress
from broker.delays.service import (
    DAMAGED_RETRY_MS,
    IN_FLIGHT_BYTES_MAX,
    IN_FLIGHT_MAX,
    READ_BYTES_MAX,
    TURN_MAX,
    DelayedDelivery,
)
from broker.sends.properties import PropertyRewriter
from broker.sends.schedule import scheduled
from broker.state.kinds import StateKind
from dledger.config import ENTRY_HEADER_BYTES
from ledgermq.remoting.protocol.message import decode_record
from ledgermq.runtime.errors import FatalError
from mutants.patches import ALL
from mutants.planting import planted
from store.layout import FLAG_NOT_INDEXED, SCHEDULE_TOPIC_BYTES
from store.origins import DELIVERED, maybe_said, maybe_said_by, origin_of
from store.results import GetResult, GetStatus, PutStatus
from tests.unit.store.fakes import REFUSALS, World, message

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgermq.remoting.protocol.message import MessageExt
    from mutants.planting import Mutant

LEVEL_MAX = 18
DELAYS_MS = (1_000, 5_000, 10_000)
DAY_MS = 24 * 3_600_000
RECORDED = (
    b"REAL_TOPIC\x01fx_delay_d4uel\x02KEYS\x01d\x02UNIQ_KEY\x01FD0000000000000000000000000000024319"
    b"5FFD2B27672ADB2F0000\x02CLUSTER\x01FixtureCluster\x02DELAY\x012\x02WAIT\x01true\x02TAGS\x01T"
    b"\x02REAL_QID\x010"
)
"""What the real 4.9.7 had stored of a delayed message when it was delivered."""


class FakeTimer:
    def __init__(self) -> None:
        self.due_ms: float | None = None

    def set(self, delay_ms: float) -> None:
        self.due_ms = delay_ms

    def cancel(self) -> None:
        self.due_ms = None


class Majority:
    """What the others say of the time."""

    def __init__(self) -> None:
        self.says_ms: int | None = None

    def correction_ms(self) -> int | None:
        return self.says_ms


class Replica:
    """A store, and the service over it; the test is clock, loop and log."""

    def __init__(self, **config: Any) -> None:
        self.world = World(**{"delay_levels_ms": DELAYS_MS, "queue_file_bytes": 20_000, **config})
        self.timer = FakeTimer()
        self.puts: defaultdict[str, int] = defaultdict(int)
        self.service = DelayedDelivery(
            self.world.store,  # type: ignore[arg-type]
            lambda _name, _function: self.timer,
            is_repaired=True,
            puts=self.puts,
        )
        listener: Any = self.world.listener
        listener.on_message = self._on_message
        listener.apply_state = self._apply
        listener.on_writable = self._on_writable
        self.world.begin()

    def _on_message(self, topic: str, queue_id: int, _max_offset: int) -> None:
        if topic == SCHEDULE_TOPIC_BYTES.decode():
            self.service.on_message(queue_id)

    def _apply(self, _position: int, kind: str, payload: bytes) -> None:
        if kind == StateKind.DELIVERED:
            self.service.progress.apply(payload)

    def _on_writable(self, writable: bool, term: int) -> None:
        self.service.stop()
        if writable:
            self.service.start(term)

    def send(self, *levels: int, topic: str = "T", **fields: Any) -> None:
        for level in levels:
            number = self.world.node.end_index
            one = message(topic=topic, body=b"%d" % number, properties=b"TAGS\x01A", **fields)
            self.world.store.writer.put(scheduled(one, level, LEVEL_MAX), lambda *_: None)

    def commit(self) -> None:
        self.world.node.commit()
        self.world.turns()

    def turn(self) -> None:
        """Let the timer go off, if it is due now."""
        if self.timer.due_ms == 0:
            self.timer.due_ms = None
            self.service.run()

    def settle(self, *, commit: bool = True) -> int:
        """Let time stand still until nothing is due; return the turns that this took."""
        turns = 0
        while self.timer.due_ms == 0:
            self.turn()
            turns += 1
            if commit:
                self.commit()
            assert turns < 10_000
        return turns

    def wait(self, ms: float) -> None:
        """Let time pass, with a turn where the timer is due meanwhile."""
        end = self.world.clock.now + ms
        while self.timer.due_ms is not None and self.world.clock.now + self.timer.due_ms <= end:
            self.world.clock.now += int(self.timer.due_ms)
            self.timer.due_ms = 0
            self.settle()
        if self.timer.due_ms is not None:
            self.timer.due_ms -= end - self.world.clock.now
        self.world.clock.now = int(end)

    def follow(self, other: Replica) -> None:
        """Take over the log of another replica, and what is committed of it."""
        mine, theirs = self.world.node, other.world.node
        for position, term, body in theirs.entries[mine.end_index + 1 : theirs.commit_index + 1]:
            mine.add(position, term, body)
        mine.term = theirs.term
        mine.commit(theirs.commit_index)
        self.world.turns()

    @property
    def records(self) -> list[MessageExt]:
        return [decode_record(body) for _, _, body in self.world.node.entries]

    @property
    def copies(self) -> list[tuple[int, int]]:
        """Level and offset of each delivered copy in the log."""
        found = []
        for _, _, body in self.world.node.entries:
            said = maybe_said_by(body, 0)
            if said is not None:
                queue_id, offset = json.loads(said[1])
                found.append((queue_id + 1, offset))
        return found


@pytest.fixture
def leader() -> Replica:
    replica = Replica()
    replica.world.node.lead()
    return replica


def test_what_is_delivered_counts_in_its_topic(leader: Replica) -> None:
    leader.send(1, 1, topic="%RETRY%g")
    leader.send(1, topic="orders")
    leader.commit()
    assert not leader.puts
    leader.wait(DELAYS_MS[0])
    assert leader.puts == {"%RETRY%g": 2, "orders": 1}


# The scheduled form


def test_a_scheduled_message_is_byte_for_byte_what_the_real_broker_stores() -> None:
    sent = (
        b"KEYS\x01d\x02UNIQ_KEY\x01FD00000000000000000000000000000243195FFD2B27672ADB2F0000\x02"
        b"WAIT\x01true\x02DELAY\x012\x02TAGS\x01T"
    )
    let_in = PropertyRewriter("FixtureCluster", lambda: b"ID").rewrite(sent)
    one = message(topic="fx_delay_d4uel", properties=let_in.text)
    waiting = scheduled(one, let_in.delay_level, LEVEL_MAX)
    assert (waiting.topic, waiting.queue_id) == (b"SCHEDULE_TOPIC_XXXX", 1)
    assert waiting.properties == RECORDED


def test_a_level_above_the_highest_is_the_highest() -> None:
    waiting = scheduled(message(properties=b"DELAY\x0199", queue_id=3), 99, LEVEL_MAX)
    assert waiting.queue_id == 17
    assert waiting.properties.split(b"\x02").count(b"DELAY\x0118") == 1
    assert b"REAL_QID\x013" in waiting.properties


def test_a_sender_does_not_choose_where_a_delayed_message_goes() -> None:
    forged = b"REAL_TOPIC\x01rmq_sys_LEDGER_STATE\x02REAL_QID\x017\x02DELAY\x011"
    waiting = scheduled(message(properties=forged, queue_id=2), 1, LEVEL_MAX)
    items = waiting.properties.split(b"\x02")
    assert sorted(items) == [b"DELAY\x011", b"REAL_QID\x012", b"REAL_TOPIC\x01t"]


def test_levels_are_configured_as_in_rocketmq() -> None:
    assert BrokerConfig(delay_levels="1s 2m 3h 1d").delay_levels_ms == (
        1_000, 120_000, 10_800_000, 86_400_000,
    )  # fmt: skip
    assert len(BrokerConfig().delay_levels_ms) == LEVEL_MAX
    for wrong in ("", "1", "s", "1s,2s", "-1s", "400d", "1s " * 257):
        with pytest.raises(FatalError, match="messageDelayLevel="):
            _ = BrokerConfig(delay_levels=wrong).delay_levels_ms


# Where a copy comes from


@pytest.mark.parametrize("place", [(0, 0), (17, 1), (255, 2**40 - 1)])
def test_a_copy_says_where_it_comes_from(place: tuple[int, int]) -> None:
    value = origin_of(*place)
    assert 0 < value < 2**63
    said = maybe_said(value, 0)
    assert said is not None
    assert (said[0], tuple(json.loads(said[1]))) == (DELIVERED, place)
    assert maybe_said(value, 8) != said, "that field belongs to transactions there"


def test_no_other_message_says_so() -> None:
    assert [maybe_said(value, 0) for value in (0, 1, 2**62, -1, 2**63 - 1)] == [None] * 5


# What is due, and what next


def test_nobody_looks_behind_what_is_not_due() -> None:
    level = Level(0, 7, 1_000)
    assert level.ready([90, 100, 101, 95], 100) == 2
    assert level.due_ms == 101
    assert level.ready([], 101) == 0
    assert level.due_ms is None


def test_messages_that_a_wrong_clock_stamped_wait_once_more_all_together() -> None:
    level = Level(0, 0, 1_000)
    assert level.ready([10**12], 5_000) == 0
    assert level.due_ms == 6_000
    assert level.ready([10**12, 10**12 + 1, 6_500], 6_000) == 2
    assert level.ready([10**13], 9_000) == 0, "a second such clock is another wait"
    assert level.due_ms == 10_000


def test_the_next_look_is_for_the_first_that_is_due_and_not_far_off() -> None:
    agenda = Agenda()
    assert agenda.wait_ms(0) is None
    for number, due_ms in enumerate((None, 50, 70)):
        agenda.levels[number] = level = Level(number, 0, None)
        level.due_ms = due_ms
    assert (agenda.wait_ms(20), agenda.wait_ms(60)) == (30, 0)
    assert [level.queue_id for level in agenda.due(60)] == [1]
    assert {agenda.due(99)[0].queue_id for _ in range(6)} == {1, 2}, "they take turns"
    agenda.levels[1].due_ms = agenda.levels[2].due_ms = 10**9
    assert agenda.wait_ms(0) == WAIT_MS_MAX


# Delivery


def test_a_message_is_delivered_when_it_is_due_as_it_was_sent(leader: Replica) -> None:
    leader.send(1, topic="orders", queue_id=3, reconsume_times=2, flag=9)
    leader.commit()
    leader.settle()
    leader.wait(999)
    assert leader.copies == []
    leader.wait(1)
    assert leader.copies == [(1, 0)]
    original, copy = leader.records[-2:]
    assert (copy.topic, copy.queue_id, copy.queue_offset) == ("orders", 3, 0)
    assert copy.store_timestamp - original.store_timestamp == 1_000
    same = (
        "body",
        "flag",
        "sys_flag",
        "born_timestamp",
        "born_host",
        "reconsume_times",
        "properties",
    )
    assert [getattr(copy, name) for name in same] == [getattr(original, name) for name in same]
    unit = leader.world.store._queues.by_name["orders", 3].read(0, 1)
    assert int.from_bytes(unit[12:], "big") == ord("A"), "the code of its tags"
    assert leader.timer.due_ms is None, "nothing waits: no timer"


def check_levels_are_delivered_in_order_and_each_in_its_time(leader: Replica) -> None:
    for _ in range(3):
        leader.send(2, 1, 3)
        leader.commit()
        leader.settle()
        leader.wait(300)
    leader.wait(12_000)
    assert Counter(leader.copies) == {(level, at): 1 for level in (1, 2, 3) for at in range(3)}
    for level in (1, 2, 3):
        assert [at for one, at in leader.copies if one == level] == [0, 1, 2]
    stored = {(one.queue_id, one.queue_offset): one for one in leader.records
              if one.topic == "SCHEDULE_TOPIC_XXXX"}  # fmt: skip
    copies = [one for one in leader.records if one.topic == "T"]
    for (level, offset), copy in zip(leader.copies, copies, strict=True):
        waited = copy.store_timestamp - stored[level - 1, offset].store_timestamp
        assert waited == DELAYS_MS[level - 1]


def test_a_great_many_that_are_due_at_once_are_delivered_in_turns(leader: Replica) -> None:
    count = 3 * TURN_MAX + 5
    leader.send(*[1, 2] * count)
    leader.commit()
    leader.world.clock.now += 5_000
    before = len(leader.copies)
    leader.turn()
    assert len(leader.copies) - before == TURN_MAX
    assert leader.settle() >= 2 * count // TURN_MAX
    assert Counter(leader.copies) == {(one, at): 1 for one in (1, 2) for at in range(count)}


def test_a_turn_has_so_many_bytes(leader: Replica) -> None:
    """Each level reads one message in any case, however large it is."""
    for level in (1, 2, 3):
        one = message(topic="T", body=bytes(READ_BYTES_MAX), properties=b"TAGS\x01A")
        leader.world.store.writer.put(scheduled(one, level, LEVEL_MAX), lambda *_: None)
    leader.commit()
    leader.world.clock.now += 60_000
    leader.turn()
    assert len(leader.copies) == 1
    leader.turn()
    assert len(leader.copies) == 2
    leader.settle()
    assert len(leader.copies) == 3


def test_what_one_message_raises_is_told_and_tried_again(
    leader: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader.send(1, 1)
    leader.commit()
    leader.world.clock.now += 1_000
    told: list[BaseException] = []

    async def fail_once() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: told.append(context["exception"]))
        with monkeypatch.context() as patching:
            patching.setattr(leader.world.store.reader, "get", unreadable)
            leader.turn()

    def unreadable(*_: object) -> None:
        raise OSError(errno.EMFILE, "planted")

    asyncio.run(fail_once())
    assert [error.errno for error in told if isinstance(error, OSError)] == [errno.EMFILE]
    assert leader.timer.due_ms == DAMAGED_RETRY_MS
    assert leader.copies == []
    leader.wait(DAMAGED_RETRY_MS)
    assert leader.copies == [(1, 0), (1, 1)]


def test_only_so_many_are_on_their_way(leader: Replica) -> None:
    leader.send(*[1] * (IN_FLIGHT_MAX + 10))
    leader.commit()
    leader.world.clock.now += 1_000
    leader.settle(commit=False)
    assert len(leader.copies) == IN_FLIGHT_MAX
    leader.commit()
    leader.settle()
    assert len(leader.copies) == IN_FLIGHT_MAX + 10


def delivered_in_a_later_term() -> int:
    """Have a leader lose its term with all on their way, and lead again; return what it puts."""
    leader = Replica()
    leader.world.node.lead()
    leader.send(*[1] * IN_FLIGHT_MAX)
    leader.commit()
    leader.world.clock.now += 1_000
    leader.settle(commit=False)
    assert len(leader.copies) == IN_FLIGHT_MAX
    leader.world.node.follow()
    assert leader.copies == []
    leader.world.node.lead()
    leader.settle()
    return len(leader.copies)


def test_what_was_on_its_way_in_another_term_is_on_its_way_no_more() -> None:
    assert delivered_in_a_later_term() == IN_FLIGHT_MAX
    with planted(ALL["deliveries-of-another-term-count"]):
        assert delivered_in_a_later_term() == 0


def check_so_many_bytes_are_on_their_way(leader: Replica) -> None:
    body = bytes(IN_FLIGHT_BYTES_MAX // 4)
    for _ in range(20):
        one = message(topic="T", body=body, properties=b"TAGS\x01A")
        leader.world.store.writer.put(scheduled(one, 1, LEVEL_MAX), lambda *_: None)
        leader.commit()
    leader.world.clock.now += 1_000
    leader.settle(commit=False)
    assert len(leader.copies) == 4
    leader.commit()
    leader.settle()
    assert leader.copies == [(1, at) for at in range(20)]


def check_what_is_refused_is_tried_again(leader: Replica) -> None:
    leader.send(1, 1, 1, 2)
    leader.commit()
    for refusal in (REFUSALS[PutStatus.FULL], REFUSALS[PutStatus.DISK_FULL]):
        leader.world.node.refuse = refusal
        leader.wait(1_200)
    assert leader.copies == []
    leader.world.node.refuse = None
    leader.wait(6_000)
    assert Counter(leader.copies) == {(1, 0): 1, (1, 1): 1, (1, 2): 1, (2, 0): 1}
    assert [at for level, at in leader.copies if level == 1] == [0, 1, 2]


def test_what_could_not_be_written_is_tried_again(leader: Replica) -> None:
    leader.send(1, 1, 1)
    leader.commit()
    leader.world.clock.now += 1_000
    leader.settle(commit=False)
    assert len(leader.copies) == 3
    node = leader.world.node
    at = node.entries[-2][0]
    node.truncate(node.end_index - 1)
    leader.world.store.log_user.on_rolled_back(at)
    assert leader.copies == [(1, 0)]
    leader.wait(200)
    assert leader.copies == [(1, 0), (1, 1), (1, 2)]


def check_what_waits_long_is_waited_for(leader: Replica) -> None:
    leader.send(1)
    leader.commit()
    leader.world.clock.now += 1_000
    leader.settle(commit=False)
    log = leader.world.store._commit_log
    for _ in range(3):
        log.expire(
            leader.world.clock.now,
        )
        leader.world.clock.now += 10_000
        if leader.timer.due_ms is not None:
            leader.timer.due_ms = 0
        leader.settle(commit=False)
    leader.commit()
    leader.settle()
    assert leader.copies == [(1, 0)]


def test_a_message_that_says_nothing_is_passed_over_on_all_replicas(leader: Replica) -> None:
    other = Replica()
    raw = message(topic="SCHEDULE_TOPIC_XXXX", properties=b"DELAY\x011")
    leader.world.store.writer.put(raw, lambda *_: None)
    leader.send(1)
    leader.commit()
    leader.wait(1_000)
    assert leader.copies == [(1, 1)]
    other.follow(leader)
    assert other.service.progress.delivered_before(0) == 2
    assert leader.records[-2].sys_flag & FLAG_NOT_INDEXED, "a state record"


def check_a_sound_message_is_not_left_aside(leader: Replica) -> None:
    """On a broker on its own, the unit that names it may be damaged: the log makes that good."""
    leader.service._is_repaired = False
    reader, status = leader.world.store.reader, GetStatus.DAMAGED

    class Reader:
        def get(self, topic: str, queue_id: int, offset: int, *rest: Any) -> GetResult:
            if offset == 1 and status is not GetStatus.FOUND:
                return GetResult(status, offset, 0, 3, [], 0, 0)
            return reader.get(topic, queue_id, offset, 1, *rest[1:])

    leader.service._store = SimpleNamespace(
        schedule=leader.world.store.schedule, writer=leader.world.store.writer, reader=Reader()
    )  # type: ignore[assignment]
    leader.send(1, 1, 1)
    leader.commit()
    leader.wait(DELAYS_MS[0])
    assert leader.copies == [(1, 0)]
    status = GetStatus.FOUND
    leader.wait(DAMAGED_RETRY_MS)
    assert leader.copies == [(1, 0), (1, 1), (1, 2)]
    status = GetStatus.LOST
    leader.service.start(9)
    leader.service._agenda.levels[0].next_offset = 1  # type: ignore[union-attr]
    leader.settle()
    assert leader.copies[3:] == [(1, 2)], "what is lost for good holds nothing up"


def check_a_clock_that_is_put_right_delays_nothing_for_long(leader: Replica) -> None:
    """The leader goes on to lead; what it knew of the next time to look was by the wrong clock."""
    log, majority = leader.world.store._commit_log, Majority()
    leader.world.store.writer.compare_clocks(majority)
    leader.send(2)
    leader.commit()
    leader.settle()
    majority.says_ms = -3 * DAY_MS
    log.expire(leader.world.clock.now)
    leader.send(2)
    leader.commit()
    leader.wait(WAIT_MS_MAX + DELAYS_MS[1])
    assert leader.copies == [(2, 0), (2, 1)]


def check_what_is_passed_over_late_is_waited_for(leader: Replica) -> None:
    """A broker on its own says FLUSH_TIMEOUT of a record that its disk is slow to sync."""
    leader.world.store._commit_log._late_status = PutStatus.FLUSH_TIMEOUT
    raw = message(topic="SCHEDULE_TOPIC_XXXX", properties=b"DELAY\x011")
    leader.world.store.writer.put(raw, lambda *_: None)
    leader.send(1, 1)
    leader.commit()
    leader.world.clock.now += 1_000
    leader.settle(commit=False)
    for _ in range(2):
        leader.world.store._commit_log.expire(leader.world.clock.now)
        leader.world.clock.now += 10_000
    leader.wait(1_000)
    leader.commit()
    leader.wait(1_000)
    assert leader.copies == [(1, 1), (1, 2)], "each once"


def test_a_half_of_a_transaction_leaves_no_trace_in_its_copy() -> None:
    replica = Replica()
    replica.world.node.lead()
    replica.send(1, sys_flag=8)
    body = replica.world.node.entries[-1][2]
    copy = scheduled_of(body).copy
    assert copy is not None
    assert copy.sys_flag == 0


# Who comes after


def check_the_next_leader_goes_on_where_the_log_stands(first: Replica) -> None:
    """Due and delivered, due and put but not committed, and not due yet."""
    first.send(*[1] * 5, *[2] * 2)
    first.commit()
    first.world.clock.now += 1_000
    first.settle()
    first.send(1, 1)
    first.commit()
    first.world.clock.now += 1_000
    first.settle(commit=False)
    assert len(first.copies) == 7
    second = Replica()
    second.follow(first)
    first.world.node.follow()
    assert first.timer.due_ms is None
    assert len(second.copies) == 5, "those of the last two were not committed"
    second.world.clock.now = first.world.clock.now
    second.world.node.lead()
    second.settle()
    assert Counter(second.copies) == {(1, at): 1 for at in range(7)}
    second.wait(5_000)
    assert Counter(second.copies) == {**{(1, at): 1 for at in range(7)}, (2, 0): 1, (2, 1): 1}
    first.follow(second)
    assert first.service.progress.snapshot() == second.service.progress.snapshot()


def test_a_leader_that_leads_again_goes_on_where_the_log_stands(leader: Replica) -> None:
    leader.send(1, 1)
    leader.commit()
    leader.world.clock.now += 1_000
    leader.settle(commit=False)
    leader.world.node.follow()
    assert leader.copies == []
    leader.world.node.lead()
    leader.settle()
    assert leader.copies == [(1, 0), (1, 1)]


def test_a_restart_reads_from_the_log_what_was_delivered(leader: Replica) -> None:
    leader.send(1, 1, 1)
    leader.commit()
    leader.wait(1_000)
    again = Replica()
    again.follow(leader)
    assert again.service.progress.snapshot() == leader.service.progress.snapshot()
    again.world.clock.now = leader.world.clock.now + 60_000
    again.world.node.lead()
    again.settle()
    assert again.copies == leader.copies


def test_ipv6_hosts_change_nothing() -> None:
    replica, other = Replica(store_host=bytes(20)), Replica(store_host=bytes(20))
    replica.world.node.lead()
    replica.send(1, born_host=bytes(20))
    replica.commit()
    replica.wait(1_000)
    assert replica.copies == [(1, 0)]
    other.follow(replica)
    assert other.service.progress.delivered_before(0) == 1


def test_what_a_leader_says_of_its_entries_leaves_copies_to_be_read(leader: Replica) -> None:
    from store.write.hints import LOOKED_INTO, maybe_decode_hint

    leader.send(1)
    leader.commit()
    leader.world.clock.now += 1_000
    leader.settle(commit=False)
    position, _, body = leader.world.node.entries[-1]
    hint = leader.world.store.log_user.write_hint(
        position, position + ENTRY_HEADER_BYTES + len(body)
    )
    decoded = maybe_decode_hint(hint)
    assert decoded is not None
    assert [(run.kind, run.entries) for run in decoded.runs] == [(LOOKED_INTO, 1)]


def test_progress_is_kept_in_the_shape_of_rocketmq() -> None:
    table = DelayProgress()
    table.apply(b"[0,4]")
    table.apply(b"[17,99]")
    table.apply(b"[17,99]")
    assert json.loads(table.snapshot()) == {"offsetTable": {"1": 5, "18": 100}}
    again = DelayProgress()
    again.restore(b'{"dataVersion":{"counter":3,"timestamp":5},"offsetTable":{1:5,18:100}}')
    assert again.snapshot() == table.snapshot()
    assert again.delivered_before(3) == 0


CHECKS: list[tuple[Mutant, Callable[[Replica], None]]] = [
    (ALL["delivery-known-to-its-leader"], check_the_next_leader_goes_on_where_the_log_stands),
    (ALL["delivery-goes-on-behind-a-refusal"], check_what_is_refused_is_tried_again),
    (ALL["delayed-bytes-unbounded"], check_so_many_bytes_are_on_their_way),
    (ALL["delivery-told-too-early"], check_what_waits_long_is_waited_for),
    (ALL["delayed-left-aside-for-a-unit"], check_a_sound_message_is_not_left_aside),
    (ALL["next-look-by-the-wrong-clock"], check_a_clock_that_is_put_right_delays_nothing_for_long),
    (ALL["passed-over-again-when-late"], check_what_is_passed_over_late_is_waited_for),
    (ALL["delivery-a-level-early"], check_levels_are_delivered_in_order_and_each_in_its_time),
]
each_rule = pytest.mark.parametrize(("bug", "check"), CHECKS, ids=[bug.name for bug, _ in CHECKS])


@each_rule
def test_the_rule_holds(bug: Mutant, check: Callable[[Replica], None], leader: Replica) -> None:
    del bug
    check(leader)


@each_rule
def test_the_check_of_a_rule_finds_its_bug(bug: Mutant, check: Callable[[Replica], None]) -> None:
    with planted(bug):
        replica = Replica()
        replica.world.node.lead()
        with pytest.raises(AssertionError):
            check(replica)
