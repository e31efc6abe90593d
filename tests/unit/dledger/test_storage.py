"""The log on disk: what was written is read, what is torn is cut, what was committed is kept or
the node refuses to start.
"""

import contextlib
import errno
import json
import lzma
import os
import shutil
import tarfile
from base64 import b64decode
from pathlib import Path

import pytest

from dledger.codec.entry import HEADER_BYTES, encode_span
from dledger.codec.properties import Checkpoint
from dledger.core.model import HardState
from dledger.errors import DamagedEntry, DiskFull, EntryTooLarge
from dledger.storage.files import open_segments
from dledger.storage.log_store import ENDS_MAX
from dledger.storage.recovery import open_log_store
from dledger.storage.snapshot_files import SnapshotFiles
from dledger.storage.state_files import CheckpointFile, HardStateFile, claim_directory
from dledger.storage.walk import COPIED_ENTRIES_MIN, walk_bodies
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.errors import EXIT_BAD_INPUT, EXIT_ENVIRONMENT, FatalError
from ledgermq.runtime.rng import SystemRng

SEGMENT = 4096
INDEX_SEGMENT = 32 * 10
DISK = RealDisk()
NO_CHECKPOINT = Checkpoint()


def open_store(path, *, checkpoint=NO_CHECKPOINT, term=9, disk=DISK, recovery_bytes=1 << 20):
    data = open_segments(disk, f"{path}/data", SEGMENT)
    index = open_segments(disk, f"{path}/index", INDEX_SEGMENT)
    return open_log_store(
        data, index, checkpoint, term, recovery_bytes, SnapshotFiles(disk, str(path))
    )


def fill(store, terms, *, size=300):
    """Append one entry per term, each in a span of its own, all in one batch a segment."""
    for term in terms:
        index = store.last_index + 1
        body = (b"%d/%d " % (index, term)) * 300
        position = store.place(store.end_position, size + HEADER_BYTES)
        store.append([encode_span(index, term, position, [body[:size]])])
    return store


def contents(store):
    return [
        (*store.entry(index), bytes(store.body_view(index)))
        for index in range(store.first_index, store.last_index + 1)
    ]


TERMS = [1] * 8 + [2] * 9 + [5] * 8


def test_entries_are_read_back(tmp_path):
    store = fill(open_store(tmp_path), TERMS)
    found = contents(store)
    assert [entry[2] for entry in found] == TERMS
    assert store.term_runs() == [(0, 1), (8, 2), (17, 5)]
    assert store.end_position == found[-1][0] + found[-1][1]
    assert store.position_after(-1) == 0
    store.close()
    assert contents(open_store(tmp_path)) == found


def test_what_is_remembered_of_ends_goes_with_what_is_cut(tmp_path):
    store = fill(open_store(tmp_path), TERMS)
    for index in range(len(TERMS)):
        position, size, _ = store.entry(index)
        assert store.position_after(index) == position + size
    store.truncate(20)
    fill(store, [6] * 200, size=123)
    for index in range(store.first_index, store.last_index + 1):
        position, size, _ = store.entry(index)
        assert store.position_after(index) == position + size
    assert len(store._ends) == ENDS_MAX
    store.close()


def test_no_entry_crosses_a_segment(tmp_path):
    store = fill(open_store(tmp_path), TERMS)
    for position, size, _, _ in contents(store):
        assert position // SEGMENT == (position + size + 8 - 1) // SEGMENT
    ends = (Path(tmp_path) / "data" / f"{0:020}").read_bytes()
    last = max(p + s for p, s, _, _ in contents(store) if p < SEGMENT)
    assert ends[last:] == b"\xff\xff\xff\xff" + (SEGMENT - last).to_bytes(4, "big") + bytes(
        SEGMENT - last - 8
    )


def test_spans_are_read_by_term_segment_and_size(tmp_path):
    store = fill(open_store(tmp_path), TERMS)
    index, seen = 0, b""
    while index <= store.last_index:
        span = store.read(index, store.last_index, 1000)
        assert span.first_index == index
        assert len(span.data) <= 1000
        assert {store.entry(i)[2] for i in range(index, span.last_index + 1)} == {span.term}
        assert span.position // SEGMENT == (span.end_position - 1) // SEGMENT
        assert span.units == store._index.read(index * 32, len(span.units))
        seen += bytes(span.data)
        index = span.last_index + 1
    assert len(seen) == len(TERMS) * 348
    assert store.read(3, 4, 10).last_index == 3, "one entry at least"
    assert store.read(3, 4, 1 << 20).last_index == 4


def test_truncated_entries_do_not_come_back(tmp_path):
    store = fill(open_store(tmp_path), TERMS)
    before = contents(store)[:14]
    store.truncate(14)
    assert contents(store) == before
    store.close()
    store = open_store(tmp_path)
    assert contents(store) == before
    fill(store, [7])
    store.close()
    assert contents(open_store(tmp_path))[:-1] == before
    assert len(DISK.names(f"{tmp_path}/data")) == 2


def test_truncation_at_a_segments_first_entry(tmp_path):
    store = fill(open_store(tmp_path), TERMS)
    first = next(i for i in range(25) if store.entry(i)[0] == SEGMENT)
    store.truncate(first)
    assert store.end_position < SEGMENT
    fill(store, [6, 6])
    before = contents(store)
    store.close()
    assert contents(open_store(tmp_path)) == before


def test_spans_of_several_segments_are_one_batch(tmp_path):
    one = fill(open_store(tmp_path / "a"), TERMS)
    spans, index = [], 0
    while index <= one.last_index:
        spans.append(one.read(index, one.last_index, 1 << 20))
        index = spans[-1].last_index + 1
    other = open_store(tmp_path / "b")
    other.append(spans)
    assert contents(other) == contents(one)
    for name in DISK.names(f"{tmp_path}/a/data"):
        mine, its = (tmp_path / side / "data" / name for side in "ab")
        assert mine.read_bytes() == its.read_bytes()


def test_corrupt_entry_is_not_handed_on(tmp_path):
    store = fill(open_store(tmp_path), [1, 1, 1])
    with data_files(tmp_path)[0].open("r+b") as file:
        file.seek(store.entry(1)[0] + 100)
        file.write(b"\xff")
    assert store.read(0, 0, 1 << 20).last_index == 0
    assert store.read(0, 2, 1 << 20).last_index == 0, "what comes before it may go"
    assert store.read(1, 2, 1 << 20) is None
    assert store.read(2, 2, 1 << 20).last_index == 2
    with pytest.raises(DamagedEntry, match="entry 1 is damaged"):
        store.body_view(1)


def test_a_long_walk_over_the_disk_gives_copies_and_stops_before_damage(tmp_path):
    count = 3 * COPIED_ENTRIES_MIN
    fill(open_store(tmp_path), [1] * count).close()
    store = open_store(tmp_path)  # with nothing in memory
    assert store.last_index == count - 1
    expected = [bytes(store.body_view(index)) for index in range(count)]
    walked = list(walk_bodies(store, 0, count - 1))
    assert [bytes(chunk[at : at + size]) for _, chunk, at, size in walked] == expected
    places = [store.entry(index)[0] + HEADER_BYTES for index in range(count)]
    assert [physical for physical, *_ in walked] == places
    assert type(walked[0][1]) is bytes
    assert all(type(chunk) is memoryview for _, chunk, _, _ in walk_bodies(store, 5, 9))
    position = store.entry(20)[0] + 100
    with data_files(tmp_path)[position // SEGMENT].open("r+b") as file:
        file.seek(position % SEGMENT)
        file.write(b"\xff")
    found = walk_bodies(store, 0, count - 1)
    assert [next(found)[0] for _ in range(20)] == places[:20]
    with pytest.raises(DamagedEntry, match="entry 20 is damaged"):
        next(found)


def test_entry_larger_than_a_segment_is_refused(tmp_path):
    with pytest.raises(EntryTooLarge):
        open_store(tmp_path).place(0, SEGMENT - 7)


def test_span_at_an_impossible_place_is_fatal(tmp_path):
    store = fill(open_store(tmp_path), [1, 1])
    with pytest.raises(FatalError, match="are the segment sizes"):
        store.append([encode_span(2, 1, 1000, [b"x"])])


class FullDisk(RealDisk):
    """Writes that touch bytes at or behind ``limit`` of a data file find no space."""

    limit = None

    def open(self, path, *, size):
        file = super().open(path, size=size)
        disk, pwrite = self, file.pwrite

        class Limited(type(file)):
            __slots__ = ()

            def pwrite(self, offset, buffers):
                total = sum(map(len, buffers))
                if disk.limit is not None and offset + total > disk.limit:
                    pwrite(offset, [b"".join(buffers)[: max(0, disk.limit - offset)]])
                    raise OSError(disk.error, os.strerror(disk.error))
                pwrite(offset, buffers)

        return Limited(os.dup(file._fd), path, size)


@pytest.mark.parametrize("limit", [700, 1000, 1045])
def test_full_disk_takes_all_or_nothing(tmp_path, limit):
    disk = FullDisk()
    store = fill(open_store(tmp_path, disk=disk), [1, 1])
    before = contents(store)
    disk.limit, disk.error = limit, errno.ENOSPC
    with pytest.raises(DiskFull):
        store.append([encode_span(2, 1, store.end_position, [b"x" * 300] * 3)])
    assert contents(store) == before
    disk.limit = None
    assert store._data.nonzero_end(store.end_position) == store.end_position
    fill(store, [1])
    store.close()
    assert contents(open_store(tmp_path))[:2] == before


def test_failed_write_is_fatal(tmp_path):
    disk = FullDisk()
    store = fill(open_store(tmp_path, disk=disk), [1])
    disk.limit, disk.error = 0, errno.EIO
    with pytest.raises(FatalError) as caught:
        fill(store, [1])
    assert caught.value.exit_code == EXIT_ENVIRONMENT


# Recovery


@pytest.fixture(scope="module")
def small_store(tmp_path_factory):
    path = tmp_path_factory.mktemp("small")
    store = fill(open_store(path), [1, 1, 2, 2, 2, 4, 4], size=900)
    found = contents(store)
    store.close()
    return path, found


def data_files(path):
    return sorted((path / "data").iterdir())


def damaged_copies(small_store, tmp_path, step=61):
    """Copies of the store with one byte of its data flipped, and which entry that hits."""
    path, found = small_store
    for number, file in enumerate(data_files(path)):
        content = file.read_bytes()
        for offset in range(0, SEGMENT, step):
            position = number * SEGMENT + offset
            if position >= found[-1][0] + found[-1][1]:
                break
            copy = tmp_path / f"{position}"
            shutil.copytree(path, copy)
            flipped = bytearray(content)
            flipped[offset] ^= 0xFF
            (copy / "data" / file.name).write_bytes(flipped)
            yield copy, position
            shutil.rmtree(copy)


def test_flipped_byte_cuts_to_an_exact_prefix(small_store, tmp_path):
    _, found = small_store
    for copy, position in damaged_copies(small_store, tmp_path):
        store = open_store(copy, term=4)
        kept = contents(store)
        assert kept == found[: len(kept)]
        behind = [entry for entry in found if entry[0] + entry[1] <= position]
        assert len(kept) in (len(behind), len(found)), position
        if len(kept) == len(found):  # only padding behind an end record may be hit unnoticed
            assert all(not p <= position < p + s for p, s, _, _ in found)
        fill(store, [9])
        store.close()
        again = contents(open_store(copy))
        assert again[:-1] == kept, "nothing that was cut came back"


def readable(store):
    """Index and content of every entry that is not damaged."""
    whole = {}
    for index in range(store.first_index, store.last_index + 1):
        with contextlib.suppress(DamagedEntry):
            whole[index] = (*store.entry(index), bytes(store.body_view(index)))
    return whole


@pytest.mark.parametrize("committed", [True, False], ids=["committed", "synced only"])
def test_flipped_byte_of_a_synced_entry_loses_nothing_else(small_store, tmp_path, committed):
    """It is not a torn write: it may have been acknowledged, and is noted to be fetched."""
    _, found = small_store
    for copy, position in damaged_copies(small_store, tmp_path, step=127):
        hit = {i for i, (p, s, _, _) in enumerate(found) if p <= position < p + s}
        last = len(found) - 1
        store = open_store(copy, term=4, checkpoint=Checkpoint(last, last if committed else -1))
        expected = {i: entry for i, entry in enumerate(found) if i not in hit}
        assert readable(store) == expected, position
        assert set(store.corruption.damaged) == hit
        assert store.end_position == found[-1][0] + found[-1][1]
        store.close()


def test_damaged_entries_side_by_side_are_gone_past(small_store, tmp_path):
    path, found = small_store
    for first in range(len(found)):
        for last in range(first, len(found)):
            copy = tmp_path / f"{first}-{last}"
            shutil.copytree(path, copy)
            for position, size, _, _ in found[first : last + 1]:
                with data_files(copy)[position // SEGMENT].open("r+b") as file:
                    file.seek(position % SEGMENT)
                    file.write(b"\xa5" * size)
            store = open_store(copy, term=4, checkpoint=Checkpoint(len(found) - 1, 0))
            assert sorted(store.corruption.damaged) == list(range(first, last + 1))
            assert [store.entry(i)[:3] for i in range(len(found))] == [e[:3] for e in found]
            store.close()
            shutil.rmtree(copy)


def test_damage_of_which_nobody_knows_the_length_refuses(small_store, tmp_path):
    path, found = small_store
    shutil.copytree(path, tmp_path / "copy")
    position = found[2][0]
    for kind, offset in (("data", position), ("index", 2 * 32 + 12)):
        file = sorted((tmp_path / "copy" / kind).iterdir())[0]
        content = bytearray(file.read_bytes())
        content[offset : offset + 8] = b"\xff" * 8
        file.write_bytes(content)
    name = data_files(path)[0].name
    with pytest.raises(FatalError, match=rf"{name} offset {position}: entry 2 is dam") as caught:
        open_store(tmp_path / "copy", term=4, checkpoint=Checkpoint(6, 6))
    assert caught.value.exit_code == EXIT_BAD_INPUT


def test_zeroed_tail_is_cut_at_every_boundary(small_store, tmp_path):
    """A torn write: everything from some byte on never reached the disk."""
    path, found = small_store
    ends = [p + s for p, s, _, _ in found]
    for index, (position, size, _, _) in enumerate(found):
        for torn in (position, position + 1, position + 47, position + 48, position + size - 1):
            copy = tmp_path / f"{torn}"
            shutil.copytree(path, copy)
            for number, file in enumerate(data_files(copy)):
                content = bytearray(file.read_bytes())
                start = max(0, torn - number * SEGMENT)
                content[start:] = bytes(max(0, SEGMENT - start))
                file.write_bytes(content[:SEGMENT])
            store = open_store(copy)
            assert contents(store) == found[:index]
            assert store.end_position == (ends[index - 1] if index else 0)
            store.close()
            with pytest.raises(FatalError, match=f"entry {index} is damaged or missing"):
                open_store(copy, checkpoint=Checkpoint(index, index))


def test_file_cut_short_is_refused(small_store, tmp_path):
    path, _ = small_store
    shutil.copytree(path, tmp_path / "copy")
    os.truncate(data_files(tmp_path / "copy")[0], 100)
    with pytest.raises(FatalError, match="has 100 bytes, the configured size is 4096"):
        open_store(tmp_path / "copy")


def test_flipped_index_is_repaired_or_refused(small_store, tmp_path):
    path, found = small_store
    name = DISK.names(f"{path}/index")[0]
    content = (path / "index" / name).read_bytes()
    for offset in range(0, len(found) * 32, 3):
        copy = tmp_path / f"{offset}"
        shutil.copytree(path, copy)
        flipped = bytearray(content)
        flipped[offset] ^= 0xFF
        (copy / "index" / name).write_bytes(flipped)
        store = open_store(copy)
        kept = contents(store)
        assert kept == found[: len(kept)]
        if offset % 32 < 24:
            assert len(kept) == len(found)
            assert (copy / "index" / name).read_bytes() == content
        store.close()
        shutil.rmtree(copy)


def test_missing_index_is_rebuilt(small_store, tmp_path):
    path, found = small_store
    shutil.copytree(path, tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / "index")
    assert contents(open_store(tmp_path / "copy", checkpoint=Checkpoint(6, 6))) == found


def test_missing_middle_segment_is_refused(tmp_path):
    fill(open_store(tmp_path), TERMS).close()
    data_files(tmp_path)[1].unlink()
    with pytest.raises(FatalError, match="does not follow on its neighbours"):
        open_store(tmp_path)


def test_entry_of_a_term_nobody_voted_in_is_cut(small_store, tmp_path):
    path, found = small_store
    shutil.copytree(path, tmp_path / "copy")
    assert contents(open_store(tmp_path / "copy", term=3)) == found[:5]


def test_tail_behind_the_checkpoint_is_checked_however_short_the_budget(small_store, tmp_path):
    path, found = small_store
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    file = data_files(copy)[1]
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.write_bytes(content)
    store = open_store(copy, checkpoint=Checkpoint(2, 2), recovery_bytes=0)
    assert contents(store) == found[:4]


def test_cut_is_reported(small_store, tmp_path, caplog):
    path, found = small_store
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    file = data_files(copy)[1]
    content = bytearray(file.read_bytes())
    offset = found[-1][0] - SEGMENT + 100
    content[offset] ^= 1
    file.write_bytes(content)
    open_store(copy)
    (record,) = [r for r in caplog.records if "cut_tail" in r.getMessage()]
    message = record.getMessage()
    assert f"file={file}" in message
    assert "index=6" in message
    assert "dropped_bytes=948" in message


# Small files


def test_hard_state_survives(tmp_path):
    file = HardStateFile(DISK, str(tmp_path))
    assert file.load(log_is_empty=True) == HardState(0, None, fresh=True)
    file.save(HardState(7, "n1"))
    assert HardStateFile(DISK, str(tmp_path)).load(log_is_empty=False) == HardState(7, "n1")


def test_missing_or_damaged_hard_state_beside_a_log_refuses(tmp_path):
    file = HardStateFile(DISK, str(tmp_path))
    with pytest.raises(FatalError, match="currterm is missing"):
        file.load(log_is_empty=False)
    (tmp_path / "currterm").write_text("currTerm=abc\n")
    with pytest.raises(FatalError, match="currterm is damaged"):
        file.load(log_is_empty=False)


def test_unwritable_vote_is_fatal(tmp_path):
    with pytest.raises(FatalError) as caught:
        HardStateFile(DISK, str(tmp_path / "missing")).save(HardState(1, "n0"))
    assert caught.value.exit_code == EXIT_ENVIRONMENT


def test_checkpoint_survives(tmp_path):
    file = CheckpointFile(DISK, str(tmp_path))
    assert file.load() == Checkpoint(-1, -1)
    file.save(Checkpoint(5, 4), file.cuts)
    file.save(Checkpoint(5, 4), file.cuts)
    assert CheckpointFile(DISK, str(tmp_path)).load() == Checkpoint(5, 4)
    (tmp_path / "checkpoint").write_text("endIndex=\n")
    with pytest.raises(FatalError, match="checkpoint is damaged"):
        file.load()


def claim(path, group="g", self_id="n0"):
    return claim_directory(DISK, str(path), group=group, self_id=self_id, rng=SystemRng())


def test_directory_keeps_its_identity(tmp_path):
    first, lock = claim(tmp_path / "d")
    lock.close()
    HardStateFile(DISK, str(tmp_path / "d")).save(HardState(1, "n1"))
    again, lock = claim(tmp_path / "d")
    assert first == again
    lock.close()


def test_directory_that_lost_term_and_vote_is_another_one(tmp_path):
    first, lock = claim(tmp_path / "d")
    lock.close()
    again, lock = claim(tmp_path / "d")
    assert (first.group, first.self_id) == (again.group, again.self_id)
    assert first.store_id != again.store_id
    lock.close()


@pytest.mark.parametrize(("group", "self_id"), [("g", "n1"), ("other", "n0")])
def test_directory_of_another_node_is_refused_untouched(tmp_path, group, self_id):
    claim(tmp_path / "d")[1].close()
    (tmp_path / "d" / "lock").unlink()
    before = DISK.names(str(tmp_path / "d"))
    with pytest.raises(FatalError, match="belongs to node n0 of group g"):
        claim(tmp_path / "d", group, self_id)
    assert DISK.names(str(tmp_path / "d")) == before


# The store that real DLedger wrote

RECORDED = [
    Path(__file__).parents[2] / "fixtures" / "store" / "dledger-4.9.7.tar.xz",
    Path(__file__).parents[4] / "shared" / "fixtures" / "store" / "dledger-4.9.7.tar.xz",
]


@pytest.fixture(scope="module")
def recorded():
    found = next((path for path in RECORDED if path.exists()), None)
    assert found is not None, "the recorded store is missing"
    return found


def test_recorded_store_reads_equal_and_is_continued(recorded, tmp_path):
    with tarfile.open(recorded) as archive:
        members = [m for m in archive.getmembers() if "/dledger-n" in m.name]
        archive.extractall(tmp_path, members=members, filter="data")
    with lzma.open(recorded.with_name("dledger-4.9.7.messages.jsonl.xz"), "rt") as lines:
        messages = [line for line in map(json.loads, lines) if "commitLogOffset" in line]
    logs = []
    for number in range(3):
        path = tmp_path / f"store-n{number}" / f"dledger-n{number}"
        state = HardStateFile(DISK, str(path)).load(log_is_empty=False)
        checkpoint = CheckpointFile(DISK, str(path)).load()
        assert (state.term, checkpoint) == (2, Checkpoint(2616, 2616))
        data = open_segments(DISK, f"{path}/data", 1 << 20)
        index = open_segments(DISK, f"{path}/index", 167_772_160)
        store = open_log_store(
            data, index, checkpoint, state.term, 1 << 30, SnapshotFiles(DISK, str(path))
        )
        assert (store.first_index, store.last_index) == (0, 2616)
        assert [term for _, term in store.term_runs()] == [1, 2]
        logs.append(contents(store))
        position = store.place(store.end_position, 148)
        store.append([encode_span(2617, 3, position, [b"x" * 100])])
        store.close()
        data = open_segments(DISK, f"{path}/data", 1 << 20)
        index = open_segments(DISK, f"{path}/index", 167_772_160)
        again = open_log_store(data, index, checkpoint, 3, 1 << 30, SnapshotFiles(DISK, str(path)))
        assert bytes(again.body_view(2617)) == b"x" * 100
        again.close()
    assert logs[0] == logs[1] == logs[2]
    bodies = {position + HEADER_BYTES: body for position, _, _, body in logs[0]}
    assert len(messages) == 2614
    for message in messages:
        body = bodies[message["commitLogOffset"]]
        assert len(body) == message["storeSize"]
        assert int.from_bytes(body[8:12], "big") == message["bodyCRC"]
        assert int.from_bytes(body[20:28], "big") == message["queueOffset"]
        length = int.from_bytes(body[84:88], "big")
        if not message["sysFlag"] & 1:  # not compressed
            assert body[88 : 88 + length] == b64decode(message["bodyBase64"])
