"""Starts: whatever happened to the queue files, the queues are what dispatching the log gives."""

import asyncio
import logging
import re
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledgermq.runtime.disk import RealDisk
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.config import StoreConfig
from store.layout import UNIT
from store.queues import files as queue_files
from store.queues.consume_queue import ConsumeQueues
from store.queues.files import BLOCK_BYTES
from store.recovery import start as recovery
from store.recovery.checkpoint import (
    CHECKPOINT_FILE,
    CLEAN_FILE,
    CheckpointHead,
    LogMark,
    QueueMark,
    StoreTimes,
    encode_queues,
    encode_times,
    join_checkpoint,
    maybe_decode_checkpoint,
)
from store.recovery.checkpointer import Picture
from store.results import GetStatus
from tests.unit.store.fakes import HOST, FakeDisk, FakeNode, World
from tests.unit.store.test_dispatch import fill, log_of

CHECKPOINT = "/s/" + CHECKPOINT_FILE


def rebuilt(node):
    """What a store that never had a file makes of the log."""
    return World(node=node).begin().queue_bytes()


def restart(world, **config):
    """Start again with a state snapshot that is ahead, so that only the queues say where."""
    return World(disk=world.disk, node=world.node, **config).begin(10**6)


def led(count=40, *, checkpoint_at=20):
    world = World().begin()
    world.node.lead()
    fill(world, checkpoint_at)
    world.node.commit()
    assert world.store.checkpoints.write_now()
    fill(world, count - checkpoint_at)
    world.node.commit()
    world.store.tick()
    return world


def test_a_clean_restart_dispatches_only_what_is_new():
    world = led()
    assert world.store.checkpoints.write_now()
    before = world.queue_bytes()
    again = World(disk=world.disk, node=world.node)
    again.load(40)
    again.log.on_committed(0)
    assert again.applied_index == 40
    assert again.queue_bytes() == before == rebuilt(world.node)


def test_a_clean_stop_is_believed_once():
    world = led()
    asyncio.run(world.store.stop())
    clean = "/s/" + CLEAN_FILE
    assert clean in world.disk.files
    again = restart(world)
    assert clean not in world.disk.files
    assert again.store._loading.recovered.clean
    assert not restart(world).store._loading.recovered.clean
    asyncio.run(again.store.stop())  # nothing came: the checkpoint is the same
    assert restart(world).store._loading.recovered.clean


def start_behind_a_picture(path):
    """Return what a start makes of a picture of a queue that just begins with a file."""
    config = StoreConfig(directory=str(path), store_host=HOST, queue_file_bytes=100)
    queues = ConsumeQueues(config, RealDisk())
    queues.take(queues.maybe_make(b"old", 0), UNIT.pack(0, 10, -1), 1)
    assert queues.flush()
    queue = queues.maybe_make(b"new", 0)
    queues.begin(queue, 15)
    queues.take(queue, UNIT.pack(10, 10, -1), 1)  # not written yet
    picture = Picture((0, 10), queues)
    assert picture.note(10)
    queues.files.close()
    head = CheckpointHead(100, BLOCK_BYTES, 0, (LogMark(9, 1, 0),))
    RealDisk().replace(f"{path}/{CHECKPOINT_FILE}", join_checkpoint(head, picture.parts))
    return recovery.load_queues(str(path), RealDisk(), ConsumeQueues(config, RealDisk()))


def test_a_queue_that_has_only_begun_makes_no_start_dispatch_all(tmp_path):
    assert not start_behind_a_picture(tmp_path / "s").rebuild
    with planted(BY_TESTS["begun-queue-vouched-for"]):
        assert start_behind_a_picture(tmp_path / "t").rebuild


def test_a_clean_stop_says_nothing_of_an_older_checkpoint():
    world = led()
    asyncio.run(world.store.stop())
    clean = world.disk.files["/s/" + CLEAN_FILE]
    again = restart(world)
    again.node.lead()
    again.node.commit()
    assert again.store.checkpoints.write_now()
    world.disk.files["/s/" + CLEAN_FILE] = clean
    assert not restart(world).store._loading.recovered.clean


@pytest.fixture
def unhurried(monkeypatch):
    """A start checks nothing; blocks are of three units."""
    monkeypatch.setattr(recovery, "CHECKED_BYTES", 0)
    monkeypatch.setattr(queue_files, "BLOCK_BYTES", 60)


def read_all(world):
    """Everything that can be read, by queue, and whether that was all."""
    found, whole = {}, True
    for topic, queue_id in sorted(world.store._queues.by_name):
        offset = world.store.reader.min_offset(topic, queue_id)
        records = found[topic, queue_id] = []
        while offset < world.store.reader.max_offset(topic, queue_id):
            result = world.store.reader.get(topic, queue_id, offset, 32, 10**6, None)
            if not result.buffers:
                assert result.status is GetStatus.DAMAGED
                whole = False
                break
            records += [bytes(buffer) for buffer in result.buffers]
            offset = result.next_offset
    return found, whole


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, 99), st.integers(0, 199), st.integers(1, 255)), max_size=4),
    st.booleans(),
)
def test_what_a_start_did_not_check_is_refused_when_damaged_and_repaired(unhurried, flips, clean):
    world = led(60, checkpoint_at=30)
    if clean:
        asyncio.run(world.store.stop())
    for which, where, value in flips:
        paths = [path for path in sorted(world.disk.files) if "consumequeue/" in path]
        content = world.disk.files[paths[which % len(paths)]]
        content[where % len(content.rstrip(b"\0"))] ^= value
    logging.disable(logging.ERROR)
    try:
        again = restart(world)
        again.node.commit()
        again.turns()
        model, _ = read_all(World(node=world.node).begin())
        whole = False
        for _ in range(20):
            if whole:
                break
            found, whole = read_all(again)
            for key, records in found.items():
                assert records == model[key][: len(records)]
            again.store.tick()
        assert found == model
        assert again.queue_bytes() == rebuilt(world.node)
    finally:
        logging.disable(logging.NOTSET)


def test_what_the_log_has_no_more_is_not_repaired(unhurried, caplog):
    world = led(60, checkpoint_at=60)
    asyncio.run(world.store.stop())
    world.disk.files["/s/consumequeue/t0/0/00000000000000000000"][3] ^= 1
    world.node.drop_before(61)
    again = restart(world)
    for _ in range(3):
        assert again.store.reader.get("t0", 0, 0, 1, 99, None).status is GetStatus.DAMAGED
        again.store.tick()
    assert caplog.text.count("event=queue_corruption file=") == 1
    assert caplog.text.count("event=queue_not_repaired topic=t0 queue=0 units_from=0") == 1


def test_after_a_crash_dispatch_goes_on_behind_the_checkpoint():
    world = led(checkpoint_at=20)
    again = World(disk=world.disk, node=world.node)
    again.load(40)
    again.log.on_committed(-1)
    assert again.applied_index == 20
    again.node.commit()
    again.turns()
    assert again.queue_bytes() == rebuilt(world.node)


class CountingDisk(FakeDisk):
    """Counts how often each file is opened."""

    def __init__(self):
        super().__init__()
        self.opens = Counter()

    def open(self, path, *, size):
        self.opens[path] += 1
        return super().open(path, size=size)


@pytest.mark.parametrize("hurt", [False, True])
def test_a_start_after_a_crash_opens_no_queue_file_twice(hurt):
    """There may be tens of thousands, of which few can be open at a time."""
    disk = CountingDisk()
    world = World(disk=disk).begin()
    world.node.lead()
    fill(world, 80, queues=20)
    world.node.commit()
    assert world.store.checkpoints.write_now()
    if hurt:  # units that no checkpoint knows of: they are zeroed, with the file open
        fill(world, 80, queues=20)
        world.node.commit()
        world.store.tick()
    disk.opens.clear()
    again = World(disk=disk, node=world.node, open_files_max=2)
    again.load(10**6)
    again.store._agree()
    queues = {path: n for path, n in disk.opens.items() if "/consumequeue/" in path}
    assert len(queues) > 15
    assert set(queues.values()) == {1}
    again.log.on_committed(world.node.commit_index)
    again.turns()
    assert again.queue_bytes() == rebuilt(world.node)


def test_units_behind_the_checkpoint_are_not_served_before_they_are_dispatched():
    world = led(checkpoint_at=20)
    again = World(disk=world.disk, node=world.node)
    again.load(20)
    again.log.on_committed(20)
    model = World(node=log_of(world)).begin()
    model.node.commit(20)
    names = ("t0", "t1", "t2", "SCHEDULE_TOPIC_XXXX")
    for name in names:
        for queue_id in (0, 1):
            expected = model.store.reader.max_offset(name, queue_id)
            assert again.store.reader.max_offset(name, queue_id) == expected


damage = st.one_of(
    st.tuples(st.just("flip"), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 255)),
    st.tuples(st.just("zero"), st.integers(0, 10**6), st.integers(0, 10**6), st.just(0)),
    st.tuples(st.just("resize"), st.integers(0, 10**6), st.integers(0, 300), st.just(0)),
    st.tuples(st.just("remove"), st.integers(0, 10**6), st.just(0), st.just(0)),
    st.tuples(st.just("garbage"), st.integers(0, 10**6), st.integers(0, 10**6), st.just(0)),
)


def hurt(disk, kind, which, where, value):
    paths = sorted(disk.files)
    path = paths[which % len(paths)]
    data = disk.files[path]
    if kind == "flip" and data:
        data[where % len(data)] ^= value
    elif kind == "zero":
        at = where % (len(data) + 1)
        data[at:] = bytes(len(data) - at)
    elif kind == "resize":
        disk.files[path] = bytearray(data[:where] + bytes(max(0, where - len(data))))
    elif kind == "remove":
        del disk.files[path]
    elif kind == "garbage":
        name = ["t0/0/00000000000000000040", "t0/0/x", "t0/7/00000000000000000000", "t9", "t0/x/1"]
        target = f"/s/consumequeue/{name[where % len(name)]}"
        disk.make_directories(target.rpartition("/")[0])
        disk.files[target] = bytearray(b"garbage" * 10)


def without_strangers(files):
    """Leave out files whose names no queue has."""
    return {path: data for path, data in files.items() if re.search(r"/\d+/\d{20}$", path)}


@settings(max_examples=200)
@given(
    st.integers(0, 40),
    st.lists(damage, min_size=1, max_size=4),
    st.integers(-1, 40),
    st.integers(-1, 41),
    st.booleans(),
)
def test_queues_are_what_the_log_says_however_the_files_were_hurt(
    at, damages, commit, state, clean
):
    world = led(checkpoint_at=at)
    if clean:
        asyncio.run(world.store.stop())
    for kind, which, where, value in damages:
        hurt(world.disk, kind, which, where, value)
    logging.disable(logging.WARNING)
    try:
        again = World(disk=world.disk, node=world.node, dispatch_batch=16)
        again.load(state)
        again.log.on_committed(commit)
        again.turns()
        again.node.commit()
        again.turns()
        assert without_strangers(again.queue_bytes()) == rebuilt(world.node)
        # and the next start finds it in order
        third = restart(again)
        assert third.applied_index == 40
        assert without_strangers(third.queue_bytes()) == rebuilt(world.node)
    finally:
        logging.disable(logging.NOTSET)


@settings(max_examples=60)
@given(st.lists(st.integers(1, 8), min_size=2, max_size=9), st.integers(0, 80), st.data())
def test_queues_ahead_of_the_log_are_cut_back(steps, keep, data):
    """A power cut took the end of the log, and other entries came in its place."""
    world = World().begin()
    world.node.lead()
    for count in steps:
        fill(world, count)
        world.node.commit()
        assert world.store.checkpoints.write_now()
    node = world.node
    node.truncate(keep % (node.end_index + 1))
    node.commit_index = min(node.commit_index, node.end_index)
    logging.disable(logging.WARNING)
    try:
        if data.draw(st.booleans()):
            other = World(node=node).begin()
            node.lead()
            fill(other, data.draw(st.integers(0, 60)), queues=2)
            node.commit()
        again = restart(world)
        again.turns()
        assert again.queue_bytes() == rebuilt(node)
    finally:
        logging.disable(logging.NOTSET)


@settings(max_examples=60)
@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 6), st.integers(0, 100))
def test_a_checkpoint_may_find_some_queues_further_than_it_says(before, after, written, lost):
    world = led(before + after, checkpoint_at=before)
    index = before
    again = World(node=log_of(world)).begin()
    again.node.commit(index)
    applied = again.store._dispatcher.applied
    assert again.store._queues.flush()
    again.node.commit()
    assert again.store._queues.flush(written)
    checkpointer = again.store.checkpoints._queues
    work = checkpointer._work(checkpointer._picture_now(applied), is_last=False)
    assert checkpointer._sync(work)
    logging.disable(logging.WARNING)
    try:
        again.node.truncate(max(index + 1, again.node.end_index + 1 - lost))
        again.node.commit_index = again.node.end_index
        third = restart(again)
        third.turns()
        assert third.queue_bytes() == rebuilt(again.node)
    finally:
        logging.disable(logging.NOTSET)


@given(st.integers(0, 60))
def test_a_start_that_is_itself_cut_short_is_repeated(writes):
    world = led(checkpoint_at=30)
    hurt(world.disk, "flip", 3, 5, 1)
    world.disk.writes_left = writes
    logging.disable(logging.WARNING)
    try:
        broken = World(disk=world.disk, node=world.node, unflushed_units_max=3).begin()
        broken.store.checkpoints.write_now()
        world.disk.writes_left = None
        assert restart(world).queue_bytes() == rebuilt(world.node)
    finally:
        logging.disable(logging.NOTSET)


def test_other_file_size_means_new_files():
    world = led()
    assert world.store.checkpoints.write_now()
    again = restart(world, queue_file_bytes=400)
    model = World(node=world.node, queue_file_bytes=400).begin()
    assert again.queue_bytes() == model.queue_bytes()


def test_an_interrupted_rebuild_does_not_move_the_checkpoint_back():
    world = led()
    assert world.store.checkpoints.write_now()
    before = world.disk.files[CHECKPOINT]
    again = World(disk=world.disk, node=world.node, dispatch_batch=5)
    again.load(7)
    again.log.on_committed(40)
    assert again.applied_index == 12
    again.store.checkpoints._queues.tick(10**15, 12)
    assert world.disk.files[CHECKPOINT] == before


@pytest.mark.parametrize("is_hurt", [True, False])
def test_a_checkpoint_goes_when_a_queue_that_it_names_is_made_anew(is_hurt):
    """A crash meanwhile leaves files as it names them, of which nobody knows whether they stay."""
    world = led()
    assert world.store.checkpoints.write_now()
    if is_hurt:
        path = next(path for path in sorted(world.disk.files) if "/consumequeue/" in path)
        hurt(world.disk, "flip", sorted(world.disk.files).index(path), 0, 1)
    again = World(disk=world.disk, node=world.node)
    again.load(40)
    assert (CHECKPOINT in world.disk.files) is not is_hurt
    again.log.on_committed(40)
    again.turns()
    assert again.queue_bytes() == rebuilt(world.node)
    assert again.store.checkpoints.write_now()
    assert CHECKPOINT in world.disk.files


def test_an_empty_directory_and_an_empty_log_are_a_beginning():
    world = World().begin()
    assert world.applied_index == -1
    assert world.store.checkpoints.write_now()
    again = World(disk=world.disk).begin()
    assert again.applied_index == -1


def test_a_log_whose_head_was_removed_is_dispatched_from_what_is_left():
    world = led()
    assert world.store.checkpoints.write_now()
    node = world.node
    node.drop_before(41)
    again = World(disk=world.disk, node=node)
    again.load(40)
    again.log.on_committed(40)
    assert again.applied_index == 40
    assert again.queue_bytes() == world.queue_bytes()


marks = st.builds(LogMark, st.integers(-1, 10**9), st.integers(0, 99), st.integers(-1, 10**15))
queue_marks = st.builds(
    QueueMark,
    st.text(min_size=1, max_size=9),
    st.integers(0, 9),
    st.integers(0, 99),
    st.integers(0, 99),
    st.integers(0, 99),
    st.binary(),
    st.integers(0, 2**32 - 1),
)


@given(
    st.builds(
        CheckpointHead,
        file_bytes=st.integers(1, 99),
        block_bytes=st.integers(1, 99),
        store_timestamp=st.integers(0, 10**13),
        marks=st.lists(marks).map(tuple),
    ),
    st.lists(st.lists(queue_marks)),
    st.integers(0, 10**6),
    st.integers(1, 255),
)
def test_a_checkpoint_is_read_whole_or_not_at_all(head, parts, where, value):
    data = bytearray(join_checkpoint(head, map(encode_queues, parts)))
    found = maybe_decode_checkpoint(bytes(data))
    assert found is not None
    assert found.head == head
    assert found.queues == tuple(mark for part in parts for mark in part)
    assert maybe_decode_checkpoint(bytes(data[: where % len(data)])) is None
    data[where % len(data)] ^= value
    assert maybe_decode_checkpoint(bytes(data)) is None


def test_a_checkpoint_of_another_shape_is_none():
    import struct
    import zlib

    for payload in (b"", b"\0\0\0\1\xc0", b"\0\0\0\5\x90"):
        head = struct.pack(">4sII", b"LMQC", 2, zlib.crc32(payload))
        assert maybe_decode_checkpoint(head + payload) is None
    assert maybe_decode_checkpoint(b"%08x\n{}\n" % zlib.crc32(b"{}")) is None


def test_rocketmq_s_checkpoint_holds_the_last_store_timestamp():
    world = led()
    assert world.store.checkpoints.write_now()
    data = bytes(world.disk.files["/s/checkpoint"])
    assert len(data) == 4096
    assert data == encode_times(StoreTimes(*[int.from_bytes(data[:8], "big")] * 2, 0))
    assert 1_700_000_000_000 <= int.from_bytes(data[:8], "big") <= world.clock.now


def test_names_that_are_no_queue_s_are_left_alone(caplog):
    disk = FakeDisk()
    for path in ("/s/consumequeue/README", "/s/consumequeue/t/notes/00000000000000000000"):
        disk.make_directories(path.rpartition("/")[0])
        disk.files[path] = bytearray(b"mine")
    stranger = "/s/consumequeue/t/5/00000000000000000000"
    disk.make_directories("/s/consumequeue/t/5")
    disk.files[stranger] = bytearray(b"old")
    disk.files[CHECKPOINT] = bytearray(b"nonsense")
    World(disk=disk, node=FakeNode()).begin()
    assert stranger not in disk.files
    assert len(disk.files) == 3
    assert f"event=checkpoint_unreadable file={CHECKPOINT}" in caplog.text


@pytest.mark.parametrize(
    "mark",
    [
        QueueMark("../x", 0, 0, 5, 0, b"", 1),
        QueueMark("t", 0, 0, 50, 0, b"", 0),
        QueueMark("t", 0, 0, 0, 0, b"", 0),
        QueueMark("t", 0, 0, 5, 20, b"", 0),
    ],
)
def test_a_checkpoint_that_names_the_impossible_means_a_rebuild(mark):
    world = led()
    head = CheckpointHead(200, 60_000, 0, (LogMark(40, 1, world.node.entries[40][0]),))
    good = join_checkpoint(head, [encode_queues([mark])])
    world.disk.files[CHECKPOINT] = bytearray(good)
    again = restart(world)
    again.turns()
    assert again.queue_bytes() == rebuilt(world.node)


@pytest.mark.parametrize("beyond", [-3, 0, 3])
def test_a_queue_may_begin_anywhere_near_the_end_of_what_the_checkpoint_has(beyond):
    """Files below the base are gone, or about to be; units in them are not looked at any more."""
    world = led()
    assert world.store.checkpoints.write_now()
    lasts = {key: queue.max_offset for key, queue in world.store._queues.by_name.items()}
    bases = [(*key, last + beyond) for key, last in lasts.items() if last + beyond > 0]
    assert bases
    again = World(disk=world.disk, node=world.node)
    again.load(40, bases)
    again.log.on_committed(0)
    again.turns()
    for topic, queue_id, base in bases:
        assert again.store.reader.min_offset(topic, queue_id) == base
        assert again.store.reader.max_offset(topic, queue_id) == max(base, lasts[topic, queue_id])
