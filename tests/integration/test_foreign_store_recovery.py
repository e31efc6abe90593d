"""Queues that RocketMQ 4.9.7 wrote, taken over; and whatever may have happened to them before."""

import logging
import shutil
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.errors import FatalError
from store.config import StoreConfig
from store.layout import FLAG_NOT_INDEXED, UNIT, delivery_code, read_record, tags_code
from store.plain import PlainLog, PlainLogConfig
from store.queues.consume_queue import ConsumeQueues
from store.recovery.checkpoint import StoreTimes, decode_times
from store.recovery.foreign_queues import ForeignQueueRecovery, LeftBehind
from tests import fixtures
from tests.unit.store.offline.stores import QUEUE_FILE, SEGMENT, PlainStore, write

SEGMENT_BYTES = 256 * 1024
FILE_BYTES = 2000


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    root = tmp_path_factory.mktemp("recorded")
    for name in ("killed", "clean"):
        with tarfile.open(fixtures.store(f"master-4.9.7-{name}")) as archive:
            archive.extractall(root / name, filter="data")
    return root


class Opened:
    """The log and the queues of one directory, after they were adopted."""

    def __init__(self, root: Path, *, times: StoreTimes | None = None) -> None:
        self.root = root
        clean = not (root / "abort").exists()
        self.times = times or decode_times((root / "checkpoint").read_bytes())
        self.log = PlainLog(
            PlainLogConfig(directory=str(root / "commitlog"), segment_bytes=SEGMENT_BYTES)
        )
        safe = max(0, min(self.times.physic, self.times.logics) - 3000)
        self.log.open(clean=clean, safe_timestamp_ms=safe)
        config = StoreConfig(directory=str(root), store_host=bytes(8), queue_file_bytes=FILE_BYTES)
        self.config = config
        self.queues = ConsumeQueues(config, RealDisk())
        self.changes = 0
        bases = range(self.log.first_position, self.log.next_position, SEGMENT_BYTES)
        left = LeftBehind(
            clean=clean,
            times=self.times,
            segments=list(bases),
            segment_bytes=SEGMENT_BYTES,
            last_start=self.log.written.last_start,
        )
        self.recovery = ForeignQueueRecovery(
            RealDisk(), self.queues, self.log, left, before_change=self._note_change
        )
        self.begin = self.recovery.run()

    def _note_change(self) -> None:
        self.changes += 1

    def dispatch(self) -> int:
        """Put in the queues what is behind `begin`; return how many units were missing."""
        missing = 0
        for physical, chunk, at, _ in self.log.walk(self.begin, self.log.end_position, 10**9):
            size, queue_id, offset, flags, stored, topic, properties = read_record(chunk, at)
            if flags & FLAG_NOT_INDEXED:
                continue
            queue = self.queues.maybe_make(topic, queue_id)
            assert offset <= queue.max_offset, (topic, queue_id, offset, queue.max_offset)
            if offset == queue.max_offset:
                tags = tags_code(properties)
                if queue.is_schedule:
                    tags = delivery_code(properties, stored, self.config.delay_levels_ms)
                queue.tail += UNIT.pack(physical, size, tags)
                queue.max_offset += 1
                missing += 1
        return missing

    def units(self) -> dict[tuple[bytes, int], bytes]:
        return {
            key: queue.read(queue.min_offset, queue.max_offset - queue.min_offset)
            for key, queue in self.queues.by_key.items()
            if queue.max_offset
        }

    def close(self) -> None:
        self.queues.files.close()
        self.log._segments.close()


class Units(dict[tuple[bytes, int], bytes]):
    """Units by queue, too many to be shown."""

    def __repr__(self) -> str:
        return "the units"


@pytest.fixture(scope="module")
def expected(recorded, tmp_path_factory):
    """The units that RocketMQ has."""
    root = tmp_path_factory.mktemp("expected")
    shutil.copytree(recorded / "clean/store", root / "store")
    opened = Opened(root / "store")
    units = Units(opened.units())
    opened.close()
    return units


def copied(recorded, tmp_path, name):
    shutil.copytree(recorded / name / "store", tmp_path / name)
    return tmp_path / name


def queue_bytes(root):
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted((root / "consumequeue").rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_rocketmqs_queues_are_taken_as_they_are(recorded, expected, tmp_path, name):
    root = copied(recorded, tmp_path, name)
    before = queue_bytes(root)
    opened = Opened(root)
    assert opened.begin > (opened.log.end_position - 5000 if name == "clean" else -1)
    assert opened.changes == 0
    assert opened.units() == expected
    assert opened.dispatch() == 0, "they are complete"
    assert queue_bytes(root) == before
    limits = {
        (line["queue"]["topic"], line["queue"]["queueId"]): line["queue"]
        for line in fixtures.stored_messages("master-4.9.7")
        if "queue" in line
    }
    assert len(limits) > 60
    for (topic, queue_id), limit in limits.items():
        queue = opened.queues.by_name.get((topic, queue_id))
        found = (queue.min_offset, queue.max_offset) if queue else (0, 0)
        assert found == (limit["min"], limit["max"]), (topic, queue_id)
    opened.close()


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_after_a_crash_with_a_checkpoint_of_no_use_all_is_dispatched_again(
    recorded, expected, tmp_path, name
):
    root = copied(recorded, tmp_path, name)
    (root / "abort").touch()
    opened = Opened(root, times=StoreTimes(0, 0, 0))
    assert opened.begin == 0
    assert opened.dispatch() == 0
    assert opened.units() == expected
    opened.close()


def test_what_is_not_served_is_named(recorded, tmp_path, caplog):
    root = copied(recorded, tmp_path, "clean")
    shutil.copytree(next((root / "consumequeue").iterdir()), root / "consumequeue/%LMQ%a")
    opened = Opened(root)
    assert "event=light_queues_not_served topics=1" in caplog.text
    assert "timers" not in caplog.text
    assert any((root / "consumequeue/%LMQ%a").rglob("0*0")), "RocketMQ goes on with it"
    opened.queues.maybe_make(b"rmq_sys_wheel_timer", 0).max_offset = 3
    opened.recovery._tell_what_is_not_served()
    assert "event=timers_not_served messages_at_most=3" in caplog.text
    opened.close()


@pytest.mark.parametrize("tags", [5, -(1 << 62)])
def test_a_queue_whose_messages_are_gone_keeps_counting(tmp_path, tags):
    """With and without an address in ``consumequeue_ext``, which is read no more."""
    store = PlainStore(40, first_position=2 * SEGMENT)
    files = store.files()
    old = b"".join(UNIT.pack(place, 50, tags) for place in (100, 200, 300))
    files[f"consumequeue/old/0/{0:020}"] = old.ljust(QUEUE_FILE, b"\0")
    write(tmp_path, files)
    log = PlainLog(PlainLogConfig(directory=f"{tmp_path}/commitlog", segment_bytes=SEGMENT))
    log.open(clean=True, safe_timestamp_ms=0)
    config = StoreConfig(directory=str(tmp_path), store_host=bytes(8), queue_file_bytes=QUEUE_FILE)
    queues = ConsumeQueues(config, RealDisk())
    bases = range(log.first_position, log.next_position, SEGMENT)
    left = LeftBehind(
        clean=True, times=StoreTimes(0, 0, 0), segments=bases, segment_bytes=SEGMENT,
        last_start=log.written.last_start,
    )  # fmt: skip
    ForeignQueueRecovery(RealDisk(), queues, log, left, before_change=lambda: None).run()
    queue = queues.by_key[b"old", 0]
    assert (queue.min_offset, queue.max_offset) == (3, 3)
    queues.files.close()
    log._segments.close()


def test_wiped_queues_are_made_from_the_log(recorded, expected, tmp_path):
    root = copied(recorded, tmp_path, "clean")
    shutil.rmtree(root / "consumequeue")
    opened = Opened(root)
    assert opened.begin == 0
    assert opened.dispatch() == sum(len(units) for units in expected.values()) // 20
    assert opened.units() == expected
    opened.close()


def test_files_of_another_size_are_refused_with_the_key(recorded, tmp_path):
    root = copied(recorded, tmp_path, "clean")
    for path in (root / "consumequeue").rglob("0*"):
        if path.is_file():
            path.write_bytes(path.read_bytes() + bytes(2000))
    before = queue_bytes(root)
    with pytest.raises(FatalError, match="has 4000 bytes, mappedFileSizeConsumeQueue says 2000"):
        Opened(root)
    assert queue_bytes(root) == before


def hurt(root, kind, which, where, value):
    """Do one thing to one queue file, or to all of a topic."""
    paths = [path for path in sorted((root / "consumequeue").rglob("*")) if path.is_file()]
    if not paths:
        return
    path = paths[which % len(paths)]
    data = bytearray(path.read_bytes())
    at = where % max(1, len(data))
    if kind == "flip" and data:
        data[at] ^= value or 1
        path.write_bytes(data)
    elif kind == "zero":
        path.write_bytes(bytes(data[:at]).ljust(len(data), b"\0"))
    elif kind == "fill":
        path.write_bytes(bytes(data[:at]).ljust(len(data), bytes((value or 255,))))
    elif kind == "cut":
        path.write_bytes(data[:at])
    elif kind == "remove":
        path.unlink()
    elif kind == "wipe":
        shutil.rmtree(path.parent.parent)
    elif kind == "swap":
        path.write_bytes(paths[value % len(paths)].read_bytes())
    elif kind == "stranger":
        (path.parent / f"{where * 2000 % 20000:020}").write_bytes(bytes((value,)) * FILE_BYTES)


damage = st.tuples(
    st.sampled_from(["flip", "flip", "zero", "fill", "cut", "remove", "wipe", "swap", "stranger"]),
    st.integers(0, 100),
    st.integers(0, 2000),
    st.integers(0, 255),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(damage, min_size=1, max_size=4), st.booleans())
def test_queues_are_what_the_log_says_however_the_files_were_hurt(
    recorded, expected, tmp_path_factory, damages, killed
):
    root = tmp_path_factory.mktemp("hurt") / "store"
    shutil.copytree(recorded / ("killed" if killed else "clean") / "store", root)
    for kind, which, where, value in damages:
        hurt(root, kind, which, where, value)
    logging.disable(logging.WARNING)
    try:
        opened = Opened(root)
        opened.dispatch()
        assert opened.units() == expected
        for queue in opened.queues.by_key.values():
            queue.flush()
        opened.close()
        again = Opened(root)
        assert again.units() == expected
        assert again.dispatch() == 0
        again.close()
    finally:
        logging.disable(logging.NOTSET)
        shutil.rmtree(root)
