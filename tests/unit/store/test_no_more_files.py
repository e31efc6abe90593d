"""A process that may open no more files waits, as for a full disk: real files, a real limit."""

import os
import resource
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from dledger.codec.entry import HEADER_BYTES
from dledger.errors import DiskFull
from dledger.segments.row import Segments
from ledgermq.runtime.disk import RealDisk
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.config import IndexConfig, StoreConfig
from store.index.key_index import KeyIndex
from store.layout import UNIT
from store.queues.consume_queue import ConsumeQueues
from store.queues.files import Unsynced
from tests.unit.dledger.test_storage import SEGMENT, contents, fill, open_store
from tests.unit.store.fakes import HOST, FakeClock
from tests.unit.store.index.support import find, keyed

SIZE = 400
"""Of an entry."""


@contextmanager
def no_more_files(but=0):
    """Let this process open as many files as it has, and no more ``but`` some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    held = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + but, hard))
    try:
        try:
            while True:
                held.append(os.dup(0))
        except OSError:
            pass
        for _ in range(but):
            os.close(held.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in held:
            os.close(fd)


@pytest.mark.parametrize("spare", range(4))
def test_what_is_refused_was_not_done(tmp_path, spare):
    disk, path = RealDisk(), str(tmp_path / "small")
    disk.replace(path, b"before")
    with no_more_files(spare):
        try:
            disk.replace(path, b"behind")
            is_done = True
        except OSError:
            is_done = False
    assert disk.read(path) == (b"behind" if is_done else b"before")
    assert disk.names(str(tmp_path)) == ["small"]
    with no_more_files(spare):
        try:
            disk.remove(path)
            is_done = True
        except OSError:
            is_done = False
    assert (disk.read(path) is None) == is_done
    assert is_done == (spare > 0)


def content_after_a_refusal(tmp_path, monkeypatch):
    """Return what a file holds, and whether its replacement was refused, as others take the rest.

    Whoever accepts connections takes each descriptor that comes free.
    """
    disk, path, rename, held = RealDisk(), str(tmp_path / "small"), os.rename, ExitStack()
    disk.replace(path, b"before")

    def renamed(*names):
        rename(*names)
        held.enter_context(no_more_files())

    monkeypatch.setattr(os, "rename", renamed)
    try:
        disk.replace(path, b"behind")
        is_refused = False
    except OSError:
        is_refused = True
    finally:
        held.close()
        monkeypatch.undo()
    return disk.read(path), is_refused


def test_who_takes_the_last_descriptor_makes_no_refusal_of_what_was_done(tmp_path, monkeypatch):
    assert content_after_a_refusal(tmp_path, monkeypatch) == (b"behind", False)
    with planted(BY_TESTS["directory-opened-behind-the-rename"]):
        assert content_after_a_refusal(tmp_path, monkeypatch) == (b"behind", True)


def test_the_key_index_waits(tmp_path):
    index = KeyIndex(IndexConfig(slots=16, entries=10), str(tmp_path), RealDisk(), FakeClock())
    index.put_all([keyed(n, keys=f"k{n}") for n in range(3)])
    with no_more_files():
        assert not index.flush()
    assert index.flush()
    assert find(index, "k2")
    index.close()


def test_queues_wait(tmp_path):
    config = StoreConfig(directory=str(tmp_path), store_host=HOST, queue_file_bytes=100)
    queues = ConsumeQueues(config, RealDisk())
    queue = queues.maybe_make(b"t", 0)
    for number in range(12):  # more than two files
        queues.take(queue, UNIT.pack(number * 1000, 10, -1), 1)
    with no_more_files():
        assert not queues.flush()
    assert queues.flush()
    assert queues.unwritten_units == 0
    assert len(list((tmp_path / "consumequeue" / "t" / "0").iterdir())) == 3


def test_a_log_takes_nothing_until_it_may_begin_its_next_file(tmp_path):
    store = open_store(tmp_path)
    while store.place(store.end_position, SIZE) < SEGMENT:
        fill(store, [1], size=SIZE - HEADER_BYTES)
    before = contents(store)
    with no_more_files(), pytest.raises(DiskFull):
        fill(store, [1], size=SIZE - HEADER_BYTES)
    assert contents(store) == before
    fill(store, [1], size=SIZE - HEADER_BYTES)
    assert contents(store)[:-1] == before
    store.close()


def queue_files_that_may_not_be_opened(tmp_path):
    """Return whether queue files count as synced while none may be opened, and afterwards."""
    config = StoreConfig(directory=str(tmp_path), store_host=HOST, queue_file_bytes=100)
    queues = ConsumeQueues(config, RealDisk())
    queues.take(queues.maybe_make(b"t", 0), UNIT.pack(1000, 10, -1), 1)
    assert queues.flush()
    unsynced = Unsynced(queues.files.take_unsynced().paths, has_new=False)
    with no_more_files():
        told = queues.files.sync(unsynced)
    return told, queues.files.sync(unsynced)


def test_a_sync_of_queues_waits(tmp_path):
    assert queue_files_that_may_not_be_opened(tmp_path) == (False, True)


def test_planted_promise_of_what_could_not_be_opened_is_found(tmp_path):
    with planted(BY_TESTS["unopened-queue-counts-as-synced"]):
        assert queue_files_that_may_not_be_opened(tmp_path) == (True, True)


def test_a_queue_file_is_read_in_the_place_of_another(tmp_path):
    config = StoreConfig(directory=str(tmp_path), store_host=HOST, queue_file_bytes=100)
    queues = ConsumeQueues(config, RealDisk())
    queue = queues.maybe_make(b"t", 0)
    for number in range(12):
        queues.take(queue, UNIT.pack(number * 1000, 10, -1), 1)
    assert queues.flush()
    queues.files.close()
    assert queue.read(0, 1) == UNIT.pack(0, 10, -1)
    with no_more_files():
        assert queue.read(11, 1) == UNIT.pack(11_000, 10, -1)
        assert len(queues.files) == 1
        queues.files.close()


@pytest.mark.parametrize("open_max", [3, None])
def test_a_segment_is_read_in_the_place_of_another(tmp_path, open_max):
    bases = range(0, 6 * 4096, 4096)
    segments = Segments(RealDisk(), str(tmp_path), 4096, range(0), open_max=open_max)
    for base in bases:
        segments.write(base, (b"%d" % base,))
        segments.sync(segments.take_dirty())
    with no_more_files():
        for base in bases:
            assert segments.view(base, 9).tobytes().rstrip(b"\0") == b"%d" % base
    segments.close()


def closed_while_it_is_synced(tmp_path):
    """Return whether a file that waits for its sync is closed for another one."""
    tmp_path.mkdir()
    segments = Segments(RealDisk(), str(tmp_path), 4096, range(0))
    for base in (0, 4096, 8192):
        segments.write(base, (b"x",))
    taken = segments.take_dirty()
    segments.sync({4096: taken[4096]})
    with no_more_files():
        segments.view(8192, 1)  # its map
        is_closed = segments.open_count == 2 and segments._open.get(0) is None
    segments.sync(taken)
    segments.close()
    return is_closed


def test_what_waits_for_a_sync_stays_open(tmp_path):
    assert not closed_while_it_is_synced(tmp_path / "a")
    with planted(BY_TESTS["synced-files-closed"]):
        assert closed_while_it_is_synced(tmp_path / "b")


def test_a_row_with_none_to_close_says_so(tmp_path):
    with (tmp_path / f"{0:020}").open("wb") as file:
        file.truncate(4096)
    kept = Segments(RealDisk(), str(tmp_path), 4096, range(0, 4096, 4096), open_max=3)
    with no_more_files(), pytest.raises(OSError, match="open files"):
        kept.view(0, 4)
    kept.close()
