"""Both sides of the HA stream over fake connections, and the bugs planted in either."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest

from dledger.config import FlushDiskType
from dledger.peers.door import Door
from dledger.segments.gather import Gather
from ledgermq.remoting.transport.credentials import CredentialStore, SecuritySettings
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.errors import FatalError
from mutants.master_slave import MASTER_SLAVE
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.dispatch.anomalies import Copied
from store.ha import slave_log as slave_log_module
from store.ha.assembly import Run
from store.ha.channel import Channel
from store.ha.codec import BadStream, Piece, TransferDecoder, encode_header, encode_report
from store.ha.config import HaConfig
from store.ha.gate import Gate, Lack
from store.ha.intake import DiskFull, Diverged, Intake
from store.ha.master import HaMaster, SlaveLink
from store.ha.master_log import MasterLog
from store.ha.recent import RECENT_BYTES_MAX, Recent
from store.ha.slave import RETRY_MS_MAX, TICK_MS_MAX, HaSlave, MasterLink
from store.ha.slave_log import SlaveLog
from store.limits import HA_COMPLAINTS_MAX, HA_REPORTS_BYTES_MAX, HA_SLAVES_MAX
from store.plain.config import PlainLogConfig
from store.plain.view import PlainView
from store.plain.writer import Extent
from tests.unit.store.ha import test_stream as stream
from tests.unit.store.plain.records import SEGMENT, record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mutants.planting import Mutant
    from store.plain.view import Body


def fail(error: FatalError) -> None:
    raise error


def config(path: Path, **more: Any) -> PlainLogConfig:
    return PlainLogConfig(directory=str(path), segment_bytes=SEGMENT, **more)


def put(log: MasterLog, body: bytes) -> None:
    """Append and write, without a loop."""
    log._writer.accepting = log._writer.scheduled = True
    position = log.reserve(len(record(0, body=body)))
    data = record(position, body=body)
    log.append((data,), len(data))
    log._write()


def master_log(path: Path, gate: Gate | None = None, **more: Any) -> MasterLog:
    log = MasterLog(config(path, **more), gate, disk=RealDisk(), clock=SystemClock(), on_fatal=fail)
    log.open()
    return log


def slave_log(path: Path) -> SlaveLog:
    log = SlaveLog(config(path), disk=RealDisk(), clock=SystemClock(), on_fatal=fail)
    log.open()
    log._user = Heard()
    return log


class Heard:
    """The user of a log."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []

    def on_committed(self, position: int) -> None:
        self.told.append(("committed", position))

    def on_unreplicated(self, position: int, lack: Lack) -> None:
        self.told.append((lack.value, position))

    def on_begun(self, position: int) -> None:
        self.told.append(("begun", position))

    def on_role(self, *_: object) -> None:
        self.told.append(("role", None))

    def on_rolled_back(self, position: int) -> None:
        raise AssertionError(position)


class Wire:
    """Stands for a transport."""

    def __init__(self) -> None:
        self.sent = b""
        self.closed = False

    def set_write_buffer_limits(self, high: int) -> None:
        assert high > 0

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else None

    def is_closing(self) -> bool:
        return self.closed

    def write(self, data: bytes) -> None:
        self.sent += data

    def abort(self) -> None:
        self.closed = True


def door_of(broker_id: str, key: bytes = b"") -> Door:
    settings = SecuritySettings(shared_key=key.hex()) if key else SecuritySettings()
    credentials = CredentialStore(settings, f"b/{broker_id}", lambda: 0)
    credentials.load()
    return Door(("b", broker_id), credentials, os.urandom)


def linked(log: MasterLog) -> tuple[SlaveLink, Wire]:
    master = HaMaster(HaConfig(), log, SystemClock(), ("127.0.0.1", 1), door_of("0"))
    master._server = object()  # type: ignore[assignment]
    link, wire = SlaveLink(master), Wire()
    link.connection_made(wire)  # type: ignore[arg-type]
    return link, wire


def test_a_slave_gets_the_log_from_where_it_asks(tmp_path: Path) -> None:
    log = master_log(tmp_path)
    put(log, b"one")
    first = log.end_position
    put(log, b"two")
    link, wire = linked(log)
    link.take_bytes(encode_report(first))
    found = [piece for piece in TransferDecoder().feed(wire.sent) if piece.data]
    assert [(p.position, bytes(p.data)) for p in found] == [(first, record(first, body=b"two"))]
    link.take_bytes(encode_report(log.end_position))
    assert not wire.closed
    assert link._master.status()[0]["behind"] == 0


def test_only_what_is_synced_is_sent_where_syncs_count(tmp_path: Path) -> None:
    log = master_log(tmp_path, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    put(log, b"one")
    link, wire = linked(log)
    link.take_bytes(encode_report(0))
    assert not [piece for piece in TransferDecoder().feed(wire.sent) if piece.data]
    log._flusher.save_all()
    link.push()
    assert b"one" in wire.sent


def test_what_was_not_sent_cannot_be_confirmed(tmp_path: Path) -> None:
    log = master_log(tmp_path)
    put(log, b"one")
    link, wire = linked(log)
    link.take_bytes(encode_report(0))
    link.take_bytes(encode_report(log.end_position + 1))
    assert wire.closed


def test_a_slave_that_has_more_is_refused(tmp_path: Path) -> None:
    log = master_log(tmp_path)
    put(log, b"one")
    link, wire = linked(log)
    link.take_bytes(encode_report(log.end_position + 1))
    assert wire.closed
    assert link.position is None


def test_a_slave_that_hangs_up_is_not_waited_for(tmp_path: Path) -> None:
    gate = Gate(1_000, 1_000_000)
    log = master_log(tmp_path, gate)
    log._user = Heard()
    put(log, b"one")
    link, _ = linked(log)
    for position in (0, log.end_position):
        link.take_bytes(encode_report(position))
    assert gate.best == log.end_position
    link.connection_lost(None)
    assert gate.best is None


def test_who_waits_hears_that_no_slave_has_it_before_it_is_committed(tmp_path: Path) -> None:
    log = master_log(tmp_path, Gate(1_000, 1_000_000))
    user = log._user = Heard()
    put(log, b"one")
    log._tell()
    assert user.told == [("no slave", log.end_position), ("committed", log.end_position)]


def taken(log: SlaveLog, intake: Intake, data: bytes, position: int = 0) -> None:
    log._running = True
    log._told_role = True
    intake.take([Piece(position, data)])


def test_a_slave_confirms_what_it_has_written(tmp_path: Path) -> None:
    async def main() -> None:
        log = slave_log(tmp_path)
        data = record(0, body=b"x" * 200)
        intake = Intake(log)
        taken(log, intake, data[:150])
        assert intake.report() == 0
        taken(log, intake, data[150:], 150)
        assert intake.report() == len(data) == log.end_position

    log_worker(main)


def test_a_slave_compares_its_last_record(tmp_path: Path) -> None:
    async def main() -> None:
        log = slave_log(tmp_path)
        one = record(0, body=b"x" * 50)
        data = one + record(len(one), body=b"y" * 50)
        taken(log, Intake(log), data)
        again = Intake(log)
        assert again.first_report == again.report() == len(one)
        taken(log, again, data[len(one) :], len(one))
        assert again.is_verified
        other = one + record(len(one), body=b"z" * 50)
        with pytest.raises(Diverged, match="other messages"):
            taken(log, Intake(log), other[len(one) :], len(one))
        assert log.end_position == len(data)

    log_worker(main)


def test_an_empty_slave_begins_where_the_master_sends_from(tmp_path: Path) -> None:
    async def main() -> None:
        log = slave_log(tmp_path)
        begin = 2 * SEGMENT
        with pytest.raises(BadStream, match="not a multiple of mappedFileSizeCommitLog"):
            taken(log, Intake(log), record(begin + 8), begin + 8)
        data = record(begin)
        taken(log, Intake(log), data, begin)
        assert (log.first_position, log.end_position) == (begin, begin + len(data))
        assert ("begun", begin) in log._user.told  # type: ignore[attr-defined]
        assert [path.name for path in tmp_path.iterdir()] == [f"{begin:020}"]

    log_worker(main)


def test_an_empty_slave_begins_nowhere_near_the_last_position(tmp_path: Path) -> None:
    async def main() -> None:
        log = slave_log(tmp_path)
        begin = (2**63 - 2**30) // SEGMENT * SEGMENT
        with pytest.raises(BadStream, match=f"no log begins at position {begin}"):
            taken(log, Intake(log), record(begin), begin)
        assert log.is_blank
        assert list(tmp_path.iterdir()) == []

    log_worker(main)


def log_worker(main: Callable[[], Any]) -> None:
    asyncio.run(main())


def test_the_first_report_confirms_nothing(tmp_path: Path) -> None:
    gate = Gate(1_000, 1_000_000)
    log = master_log(tmp_path, gate)
    log._user = Heard()
    put(log, b"one")
    other, good = linked(log)[0], linked(log)[0]
    other.take_bytes(encode_report(log.end_position))  # what is its log? nobody has compared it
    assert (gate.confirmed, gate.best) == (0, None)
    good._master = other._master
    good._master.on_opened(good)
    good.take_bytes(encode_report(0))
    good.take_bytes(encode_report(log.end_position))
    assert (gate.confirmed, gate.best) == (log.end_position, log.end_position)


def followed(log: SlaveLog) -> tuple[HaSlave, MasterLink, Wire]:
    slave = HaSlave(HaConfig(), log, SystemClock(), door_of("1"))
    link, wire = MasterLink(slave), Wire()
    link.connection_made(wire)  # type: ignore[arg-type]
    return slave, link, wire


def test_a_slave_reports_nothing_more_before_it_has_compared(tmp_path: Path) -> None:
    async def main() -> None:
        log = slave_log(tmp_path)
        one = record(0, body=b"x" * 50)
        data = one + record(len(one), body=b"y" * 50)
        taken(log, Intake(log), data)
        _, link, wire = followed(log)
        link.pass_time(SystemClock().monotonic_ms() + 6_000)
        assert wire.sent == encode_report(len(one))
        link.data_received(encode_header(len(one), len(data) - len(one)) + data[len(one) :])
        link.pass_time(SystemClock().monotonic_ms() + 6_000)
        assert wire.sent == b"".join(map(encode_report, (len(one), len(data), len(data))))

    log_worker(main)


def test_a_slave_that_gets_nothing_reports_when_it_is_time_and_not_a_look_later(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        _, link, wire = followed(slave_log(tmp_path))
        link.data_received(encode_header(0, 0))
        said_ms, period_ms = SystemClock().monotonic_ms(), HaConfig().heartbeat_ms
        assert link.wait_ms(said_ms) == TICK_MS_MAX
        assert 0 < link.wait_ms(said_ms + period_ms - 50) <= 50
        assert link.wait_ms(said_ms + 2 * period_ms) == 1
        sent = len(wire.sent)
        link.pass_time(said_ms + period_ms)
        assert len(wire.sent) > sent
        assert link.wait_ms(SystemClock().monotonic_ms()) == TICK_MS_MAX
        with planted(BY_TESTS["report-a-look-late"]):
            assert link.wait_ms(SystemClock().monotonic_ms() + period_ms - 50) == TICK_MS_MAX

    log_worker(main)


def test_a_slave_without_anything_says_at_once_that_it_follows(tmp_path: Path) -> None:
    async def main() -> None:
        _, link, wire = followed(slave_log(tmp_path))
        link.data_received(encode_header(0, 0))
        link.data_received(encode_header(0, 0))
        assert wire.sent == encode_report(0) * 2

    log_worker(main)


def fail_to_begin() -> None:
    pytest.fail("a sync began")


def test_a_slave_asks_for_nothing_behind_what_is_synced(tmp_path: Path) -> None:
    async def main() -> None:
        synced = config(tmp_path, flush_disk_type=FlushDiskType.SYNC_FLUSH)
        log = SlaveLog(synced, disk=RealDisk(), clock=SystemClock(), on_fatal=fail)
        log.open()
        log._user = Heard()
        one = record(0)
        log._gather = Gather(lambda _: None, lambda: 0, fail_to_begin)  # a disk so slow
        taken(log, Intake(log), one + record(len(one)))
        assert Intake(log).first_report > log.own_position
        slave = HaSlave(HaConfig(), log, SystemClock(), door_of("1"))
        await slave._follow("127.0.0.1:1")
        assert "is not synced" in str(slave.status()["state"])
        log._flusher.save_all()
        await slave._follow("127.0.0.1:1")
        assert "cannot be reached" in str(slave.status()["state"])

    log_worker(main)


@pytest.mark.parametrize("address", ["..:10912", "a" * 64 + ".example:10912", "a\0b:1"])
def test_an_address_that_cannot_be_ends_no_slave(tmp_path: Path, address: str) -> None:
    async def main() -> None:
        slave = HaSlave(HaConfig(), slave_log(tmp_path), SystemClock(), door_of("1"))
        await slave._follow(address)
        assert "cannot be reached" in str(slave.status()["state"])

    log_worker(main)


def test_a_slave_without_space_asks_seldom(tmp_path: Path) -> None:
    slave, link, _ = followed(slave_log(tmp_path))
    link.error = DiskFull("the disk is full")
    assert "the disk is full" in slave._describe_end("a:1", link)
    assert slave._delay_ms == RETRY_MS_MAX


def test_reports_without_end_are_read_in_small_parts(tmp_path: Path) -> None:
    """Each part costs a turn of the loop, in which nobody else is served."""
    link, _ = linked(master_log(tmp_path))
    parts: list[int] = []
    link._feed = lambda stream: parts.append(len(stream))  # type: ignore[method-assign]
    data = encode_report(0) * 20_000

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(lambda: link, "127.0.0.1", 0)
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(data)
        async with asyncio.timeout(20):
            while sum(parts) < len(data):
                await asyncio.sleep(0)
        writer.close()
        server.close()

    log_worker(main)
    assert max(parts) <= HA_REPORTS_BYTES_MAX


def test_a_new_slave_takes_the_place_of_who_confirms_nothing(tmp_path: Path) -> None:
    log = master_log(tmp_path)
    first, first_wire = linked(log)
    master = first._master
    for _ in range(2):
        first.take_bytes(encode_report(0))
    wires = []
    for _ in range(HA_SLAVES_MAX + 5):
        link, wire = SlaveLink(master), Wire()
        link.connection_made(wire)  # type: ignore[arg-type]
        wires.append(wire)
    assert not first_wire.closed
    closed = [number for number, wire in enumerate(wires) if wire.closed]
    assert closed == list(range(6))
    for link in master._links:
        link.take_bytes(encode_report(0))
        link.take_bytes(encode_report(0))
    late = Wire()
    SlaveLink(master).connection_made(late)  # type: ignore[arg-type]
    assert late.closed


def test_a_slave_of_rocketmq_may_be_silent_for_a_heartbeat_and_a_stranger_not(
    tmp_path: Path,
) -> None:
    class Unproven(Channel):
        is_open = False

    link, wire = linked(master_log(tmp_path))
    link.pass_time(SystemClock().monotonic_ms() + 7_000)
    assert not wire.closed
    link._channel = Unproven()
    link.pass_time(SystemClock().monotonic_ms() + 7_000)
    assert wire.closed
    link, wire = linked(link._log)
    link.pass_time(SystemClock().monotonic_ms() + 21_000)
    assert wire.closed


def test_refusals_fill_no_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    master = linked(master_log(tmp_path))[0]._master
    for number in range(100):
        master.complain(f"10.0.0.1:{number}", f"it has a log up to {number}, and this one ends")
    assert len(caplog.records) == 1
    for number in range(100):
        master.complain(f"10.0.1.{number}:1", "it says nothing")
    assert len(caplog.records) == HA_COMPLAINTS_MAX


class Queue:
    topic, topic_field, queue_id = "T", b"\1T", 0
    min_offset = max_offset = first_file = 0


class Nothing:
    """A log without an entry that tells why offsets are missing."""

    first_position = header_bytes = 0
    walks = 0

    def __init__(self, *records: bytes) -> None:
        self._records = records

    def walk(self, *_: int) -> Any:
        self.walks += 1
        places = (sum(map(len, self._records[:n])) for n in range(len(self._records)))
        return ((at, one, 0, len(one)) for at, one in zip(places, self._records, strict=True))

    def describe(self, physical: int) -> str:
        return f"at {physical}"


def test_a_record_that_lies_does_not_end_a_slave() -> None:
    log: Any = Nothing()
    queue: Any = Queue()
    anomalies = Copied(log, log, None)  # type: ignore[arg-type]
    try:
        assert [anomalies.skips(queue, 1_000, at) for at in (1, 2)] == [None, None]
        anomalies.on_no_queue(3, "queue -1 cannot name a queue")
    except FatalError as error:
        pytest.fail(str(error))
    assert (anomalies.count, log.walks) == (3, 1)


def test_a_slave_that_lost_units_of_a_queue_ends() -> None:
    log: Any = Nothing(record(0, topic="T"))
    queue: Any = Queue()
    with pytest.raises(FatalError, match="ends at 0, the message at 500 has queue offset 1"):
        Copied(log, log, None).skips(queue, 1, 500)  # type: ignore[arg-type]


def test_a_slave_goes_on_with_a_queue_of_which_its_log_has_nothing() -> None:
    """Its last units are lost, with messages that the log has no more."""
    filled: list[tuple[Any, int]] = []

    class Queues:
        fill = staticmethod(lambda *what: filled.append(what))

    log: Any = Nothing()
    queue: Any = Queue()
    log.first_position, log.maybe_size = 4096, lambda _: None
    queue.min_offset, queue.max_offset, queue.first_file = 20, 20, 400
    assert Copied(log, log, Queues()).skips(queue, 25, 5000)  # type: ignore[arg-type]
    assert filled == [(queue, 5)]


def test_what_has_just_come_is_walked_as_the_log_would_be(tmp_path: Path) -> None:
    """From any record on, up to any end, over the ends of files; old ones are read from disk."""
    data, extent = stream.log_bytes(files=2)
    log = slave_log(tmp_path)
    intake = Intake(log)
    for at in range(0, len(data), 700):
        intake.take([Piece(at, data[at : at + 700])])
    end = extent.last_end
    starts = [position for position, *_ in PlainView.walk(log, 0, end, 1 << 20)]
    assert len(starts) > 20
    places = [*starts, end]
    for dropped in (0, starts[9]):
        log.feed.next_batch(dropped, 1)
        for number, start in enumerate(starts):
            for upto in {places[number + 1], places[min(number + 5, len(starts))], end}:
                for limit in (1, 3, 1 << 20):
                    expected = _records(PlainView.walk(log, start, upto, limit))
                    assert _records(log.walk(start, upto, limit)) == expected
    assert isinstance(next(log.walk(starts[12], end, 1))[1], bytes)


def _records(walk: Iterator[Body]) -> list[tuple[int, bytes]]:
    return [(position, bytes(chunk[at : at + size])) for position, chunk, at, size in walk]


def test_what_has_just_come_is_kept_within_bounds() -> None:
    recent = Recent()
    data = record(0, body=b"x" * 1000)
    count = RECENT_BYTES_MAX // len(data) + 10
    for number in range(count):
        position = number * len(data)
        extent = Extent(position + len(data), position, position + len(data))
        recent.add([Run(position, data, extent, [len(data)])])
    kept = len(list(recent.walk((count - 1) * len(data), 1 << 40, 10)))
    assert (kept, list(recent.walk(0, 1 << 40, 10))) == (1, [])


def test_the_log_comes_before_the_queues_while_it_is_behind_and_up_to_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, extent = stream.log_bytes(files=2)
    log = slave_log(tmp_path)
    intake = Intake(log)
    monkeypatch.setattr(slave_log_module, "FULL_READ_BYTES", 1_500)
    for at in range(0, SEGMENT, 2_000):
        intake.take([Piece(at, data[at : at + 2_000])])
    assert (log.feed.next_batch(0, 512), log.feed.next_batch(0, 3)) == (64, 1)
    monkeypatch.setattr(slave_log_module, "UNDISPATCHED_BYTES_MAX", 1_000)
    assert log.feed.next_batch(0, 512) == 512
    assert log.feed.next_batch(log.end_position - 900, 512) == 64
    place = intake._assembly.position
    intake.take([Piece(place, data[place : place + 600])])
    assert log.feed.next_batch(log.end_position - 900, 512) == 512
    assert extent.last_end > place


CHECKS: tuple[tuple[Mutant, Callable[..., None]], ...] = (
    (BY_TESTS["ha-acknowledged-before-the-slave"], stream.test_an_entry_counts_once_both_have_it),
    (BY_TESTS["ha-slave-that-has-gone-counts"], stream.test_a_slave_that_has_gone_does_not_count),
    (BY_TESTS["ha-hanging-up-not-told"], test_a_slave_that_hangs_up_is_not_waited_for),
    (BY_TESTS["ha-slave-far-behind-counts"], stream.test_a_slave_that_is_far_behind_does_not_count),
    (
        BY_TESTS["ha-one-late-releases-all"],
        stream.test_what_waits_too_long_counts_and_the_rest_waits,
    ),
    (
        BY_TESTS["ha-lack-not-told"],
        test_who_waits_hears_that_no_slave_has_it_before_it_is_committed,
    ),
    (BY_TESTS["ha-sent-before-the-sync"], test_only_what_is_synced_is_sent_where_syncs_count),
    (BY_TESTS["ha-unsent-confirmed"], test_what_was_not_sent_cannot_be_confirmed),
    (BY_TESTS["ha-question-confirms"], test_the_first_report_confirms_nothing),
    (
        BY_TESTS["ha-unverified-confirms"],
        test_a_slave_reports_nothing_more_before_it_has_compared,
    ),
    (BY_TESTS["ha-record-ends-the-slave"], test_a_record_that_lies_does_not_end_a_slave),
    (BY_TESTS["ha-longer-slave-taken"], test_a_slave_that_has_more_is_refused),
    (BY_TESTS["ha-appended-behind-a-gap"], stream.test_what_is_not_the_very_next_is_refused),
    (
        BY_TESTS["ha-record-unchecked"],
        lambda: stream.test_what_is_no_record_is_refused(
            record(0, body=b"x" * 50).replace(b"xxxx", b"xyxx", 1), "CRC"
        ),
    ),
    (
        BY_TESTS["ha-dispatch-at-the-old-beginning"],
        test_an_empty_slave_begins_where_the_master_sends_from,
    ),
    (
        BY_TESTS["ha-begins-anywhere"],
        test_an_empty_slave_begins_nowhere_near_the_last_position,
    ),
    (
        BY_TESTS["ha-recent-from-its-beginning"],
        test_what_has_just_come_is_walked_as_the_log_would_be,
    ),
    (
        BY_TESTS["ha-recent-goes-on-beyond"],
        test_what_has_just_come_is_walked_as_the_log_would_be,
    ),
    (BY_TESTS["ha-reports-read-at-once"], test_reports_without_end_are_read_in_small_parts),
    (BY_TESTS["ha-lost-units-left-aside"], test_a_slave_that_lost_units_of_a_queue_ends),
    (BY_TESTS["ha-other-log-followed"], test_a_slave_compares_its_last_record),
    (BY_TESTS["ha-reported-before-written"], test_a_slave_confirms_what_it_has_written),
)


@pytest.mark.parametrize(("mutant", "check"), CHECKS, ids=[one.name for one, _ in CHECKS])
def test_a_planted_bug_is_found(tmp_path: Path, mutant: Mutant, check: Callable[..., None]) -> None:
    needs_path = bool(check.__code__.co_argcount)
    arguments = [(tmp_path / "a",), (tmp_path / "b",)] if needs_path else [(), ()]
    check(*arguments[0])
    with (
        planted(mutant),
        pytest.raises((AssertionError, BadStream, pytest.fail.Exception)),
    ):
        check(*arguments[1])


def test_every_planted_bug_of_the_stream_has_a_check() -> None:
    assert {mutant.name for mutant in MASTER_SLAVE} == {mutant.name for mutant, _ in CHECKS}
