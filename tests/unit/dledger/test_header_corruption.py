"""No bit of an entry's header is corrupted unseen: each is flipped, under each reader.

The header has no CRC of its own. What it says is compared with what else says so: the index unit,
the place at which it lies, the body, and for a configuration the second mark of it.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from typing import NamedTuple

import msgspec
import pytest

from dledger.codec.configuration import (
    encode_configuration,
    encode_configuration_span,
    encode_membership,
)
from dledger.codec.entry import HEADER_BYTES, encode_span, index_units
from dledger.codec.properties import Checkpoint
from dledger.core.configuration import ConfigEntry, Configuration
from dledger.core.model import UNIT_BYTES
from dledger.errors import CorruptEntry, DamagedEntry
from dledger.storage.files import open_segments
from dledger.storage.log_store import LogStore
from dledger.storage.membership_file import MembershipFile
from dledger.storage.recovery import open_log_store
from dledger.storage.snapshot_files import SnapshotFiles
from dledger.storage.walk import walk_bodies
from ledgermq.runtime.errors import FatalError
from mutants.patches import ALL
from mutants.planting import planted
from sim.disk import SimDisk
from sim.rng import SplitRng

SEGMENT, INDEX_SEGMENT = 1024, UNIT_BYTES * 64
DATA, INDEX = "/n/data", "/n/index"
NO_CHECKPOINT = Checkpoint()
BODY_BYTES = 260
"""Three entries fill a segment."""
KINDS = "mncncmcmnmmm"
"""Message, no-op, configuration: each is first, between and last of a segment."""
TERMS = [1, 1, 1, 1, 3, 3, 3, 3, 3, 4, 6, 6]
LAST = len(KINDS) - 1
MEMBERS = Configuration({"n0": "a:1", "n1": "b:2"}, {"n2": "c:3"}, 7)

FIELDS = {
    "magic": (0, 4), "size": (4, 8), "index": (8, 16), "term": (16, 24), "position": (24, 32),
    "channel": (32, 36), "chain CRC": (36, 40), "body CRC": (40, 44), "body length": (44, 48),
}  # fmt: skip
UNUSED_BY_BODY_AT = ("index", "term")
"""It finds a body by its place, and gives nothing else: neither is part of what is given."""
UNUSED_BY_WALK = ("term",)
"""Nor does a walk give terms. It compares that of the first entry of a piece all the same."""


class Flip(NamedTuple):
    """One bit of the header of one entry."""

    index: int
    field: str
    byte: int
    mask: int


class Stored(NamedTuple):
    """What lies on the disk, and where the entries are."""

    files: dict[str, bytes]
    entries: list[tuple[int, int, int, bytes]]
    """Position, size, term and body."""


def body_of(index: int) -> bytes:
    kind = KINDS[index]
    if kind == "c":
        return encode_configuration(MEMBERS).ljust(BODY_BYTES)
    return (b"no-op" if kind == "n" else b"message %d" % index).ljust(BODY_BYTES, b".")


@cache
def stored() -> Stored:
    disk = SimDisk(SplitRng(1))
    store = open_store(disk)
    for index in range(LAST + 1):
        body, term = body_of(index), TERMS[index]
        position = store.place(store.end_position, HEADER_BYTES + len(body))
        span = encode_span(index, term, position, (body,))
        if KINDS[index] == "c":
            span = encode_configuration_span(index, term, position, body, MEMBERS)
        store.append([span])
    configurations = tuple(
        ConfigEntry(index, TERMS[index], MEMBERS) for index in range(LAST) if KINDS[index] == "c"
    )
    disk.replace("/n/membership", encode_membership(configurations))
    entries = [(*store.entry(i), bytes(store.body_view(i))) for i in range(LAST + 1)]
    paths = [f"{place}/{name}" for place in (DATA, INDEX) for name in disk.names(place)]
    files = {path: disk.read(path) for path in (*paths, "/n/membership")}
    assert len(disk.names(DATA)) == 4
    return Stored(files, entries)


def disk_of(flip: Flip | None) -> SimDisk:
    """Return a disk with that log, one bit of it flipped."""
    disk = SimDisk(SplitRng(1))
    disk.make_directories(DATA)
    disk.make_directories(INDEX)
    for path, data in stored().files.items():
        file = disk.open(path, size=len(data))
        file.pwrite(0, (data,))
        file.fdatasync()
    if flip is not None:
        position = stored().entries[flip.index][0] + flip.byte
        path = f"{DATA}/{position - position % SEGMENT:020}"
        assert disk.corrupt(path, position % SEGMENT, flip.mask)
    return disk


def open_store(disk, checkpoint=NO_CHECKPOINT, recovery_bytes=1 << 20):
    data, index = open_segments(disk, DATA, SEGMENT), open_segments(disk, INDEX, INDEX_SEGMENT)
    return open_log_store(data, index, checkpoint, 9, recovery_bytes, SnapshotFiles(disk, "/n"))


def flips(index: int) -> Iterator[Flip]:
    for field, (first, end) in FIELDS.items():
        for byte in range(first, end):
            for bit in range(8):
                yield Flip(index, field, byte, 1 << bit)


def flipped(index: int, disk: SimDisk, bits: Iterable[Flip]) -> Iterator[Flip]:
    """Flip one bit after the other on that disk; the index must stay as it is."""
    begin = stored().entries[index][0]
    path = f"{DATA}/{begin - begin % SEGMENT:020}"
    for flip in bits:
        assert disk.corrupt(path, begin % SEGMENT + flip.byte, flip.mask)
        yield flip
        assert disk.corrupt(path, begin % SEGMENT + flip.byte, flip.mask)
        for name in disk.names(INDEX):
            assert disk.read(f"{INDEX}/{name}") == stored().files[f"{INDEX}/{name}"], flip


def running(index: int, *, is_committed: bool = True) -> Iterator[tuple[Flip, LogStore]]:
    """Give each flip with a store that was opened before it."""
    disk = disk_of(None)
    store = open_store(disk)
    if is_committed:
        store.corruption.term_at = TERMS.__getitem__
    for flip in flipped(index, disk, flips(index)):
        yield flip, store
        store.corruption.damaged.clear()


every_entry = pytest.mark.parametrize("index", range(LAST + 1))
whoever_knows = pytest.mark.parametrize("is_committed", [True, False])


@every_entry
@whoever_knows
def test_a_body_by_its_index_is_refused(index, is_committed):
    for flip, store in running(index, is_committed=is_committed):
        with pytest.raises(DamagedEntry):
            store.body_view(index)
        assert list(store.corruption.damaged) == [index], flip


@every_entry
@whoever_knows
def test_a_body_by_its_place_is_refused_or_is_what_was_written(index, is_committed):
    position, size, _, body = stored().entries[index]
    for flip, store in running(index, is_committed=is_committed):
        try:
            found = store.body_at(position + HEADER_BYTES, size - HEADER_BYTES)
        except DamagedEntry:
            continue
        assert flip.field in UNUSED_BY_BODY_AT, flip
        assert found == body


@whoever_knows
def test_a_planted_read_without_a_checksum_is_seen(is_committed):
    with planted(ALL["bit-rot-served"]), pytest.raises(AssertionError):
        test_a_body_by_its_place_is_refused_or_is_what_was_written(0, is_committed)


@every_entry
@whoever_knows
def test_a_walk_stops_or_gives_what_was_written(index, is_committed):
    for flip, store in running(index, is_committed=is_committed):
        found = []
        try:
            for physical, chunk, at, size in walk_bodies(store, 0, LAST):
                found.append((physical, bytes(chunk[at : at + size])))
        except DamagedEntry:
            assert len(found) == index, flip
        else:
            assert flip.field in UNUSED_BY_WALK, flip
            assert index % 3, "the first of a piece is compared"
        for number, (physical, body) in enumerate(found):
            place = stored().entries[number]
            assert (physical, body) == (place[0] + HEADER_BYTES, place[3])


@every_entry
@whoever_knows
def test_nothing_of_it_is_sent_to_a_peer(index, is_committed):
    for flip, store in running(index, is_committed=is_committed):
        assert store.read(index, LAST, 1 << 20) is None, flip
        first = index - index % 3
        if first < index:
            span = store.read(first, LAST, 1 << 20)
            assert span.last_index < index, flip
            assert span.data in stored().files[f"{DATA}/{first // 3 * SEGMENT:020}"]


@every_entry
def test_a_receiver_takes_nothing_else_either(index):
    """Whoever sent it did not look: the position alone, which it tells, is believed."""
    position, size, term, _ = stored().entries[index]
    data = stored().files[f"{DATA}/{position - position % SEGMENT:020}"]
    entry = data[position % SEGMENT : position % SEGMENT + size]
    for flip in flips(index):
        if flip.field in ("position", "body CRC"):
            continue
        corrupt = bytearray(entry)
        corrupt[flip.byte] ^= flip.mask
        with pytest.raises(CorruptEntry):
            index_units(bytes(corrupt), index, index, term)


@every_entry
@pytest.mark.parametrize("committed", [-1, LAST])
def test_a_start_notes_it(index, committed):
    disk = disk_of(None)
    for flip in flipped(index, disk, flips(index)):
        store = open_store(disk, Checkpoint(LAST, committed))
        assert list(store.corruption.damaged) == [index], flip
        for other, entry in enumerate(stored().entries):
            assert store.entry(other) == entry[:3], flip
            if other != index:
                assert store.body_view(other) == entry[3]


@every_entry
def test_a_start_cuts_what_was_not_synced(index):
    for flip in islice(flips(index), index % 3, None, 3):
        store = open_store(disk_of(flip), Checkpoint(index - 1, -1))
        assert store.last_index == index - 1, flip
        assert not store.corruption.damaged


@every_entry
def test_a_peers_copy_repairs_it(index):
    copies = open_store(disk_of(None))
    copy = copies.read(index, index, 1 << 20)
    for flip in islice(flips(index), index % 3, None, 3):
        store = open_store(disk_of(flip), Checkpoint(LAST, LAST))
        assert store.restore(copy) == [index], flip
        assert store.body_view(index) == stored().entries[index][3]


@pytest.mark.parametrize(
    ("index", "is_committed"),
    [*((index, True) for index in range(LAST + 1)), (2, False), (5, False)],
)
def test_a_peers_copy_repairs_what_is_damaged_in_both_files(index, is_committed):
    """The core knows its term; how long the last one of a segment is, the record behind it."""
    copy = open_store(disk_of(None)).read(index, index, 1 << 20)
    disk = disk_of(None)
    store = open_store(disk)
    if is_committed:
        store.corruption.term_at = TERMS.__getitem__
    begin = stored().entries[index][0]
    assert disk.corrupt(f"{DATA}/{begin - begin % SEGMENT:020}", begin % SEGMENT + 3, 4)
    assert disk.corrupt(f"{INDEX}/{0:020}", index * UNIT_BYTES + 8, 4)
    with pytest.raises(DamagedEntry):
        store.body_view(index)
    assert store.restore(copy) == [index]
    assert store.body_view(index) == stored().entries[index][3]


@every_entry
def test_a_corrupt_copy_repairs_nothing(index):
    """A sender looks, too (`test_nothing_of_it_is_sent_to_a_peer`): these bytes are taken raw."""
    span = open_store(disk_of(None)).read(index, index, 1 << 20)
    store = open_store(disk_of(Flip(index, "body", HEADER_BYTES, 1)), Checkpoint(LAST, LAST))
    for flip in flips(index):
        corrupt = bytearray(span.data)
        corrupt[flip.byte] ^= flip.mask
        assert store.restore(msgspec.structs.replace(span, data=bytes(corrupt))) == [], flip
    assert store.restore(span) == [index]


def test_configurations_in_force_stay_in_force():
    """The start reads them from the file ``membership``, and looks whether the log has them."""
    expected = [index for index in range(LAST) if KINDS[index] == "c"]
    disk = disk_of(None)
    for index in range(LAST + 1):
        for flip in flipped(index, disk, flips(index)):
            store = open_store(disk, Checkpoint(LAST, LAST), recovery_bytes=0)  # walks the last
            found = MembershipFile(disk, "/n").load(store)
            assert [entry.index for entry in found] == expected, flip
            assert list(store.corruption.damaged) in ([index], []), flip
            if KINDS[index] == "c":
                assert list(store.corruption.damaged) == [index], flip


@pytest.mark.parametrize("index", range(0, LAST, 3))
def test_no_log_is_trimmed_at_a_wrong_index(index):
    heads = [(index // 3 * SEGMENT, index) for index in range(0, LAST, 3)]
    for flip, store in running(index):
        found = [tuple(head) for head in store.segment_heads(LAST)]
        assert found in (heads, [head for head in heads if head[1] != index]), flip
        plan = store.plan_trim(index)
        assert plan is None or (plan.position, plan.first_index) in heads, flip


def test_a_log_without_its_beginning_is_refused_or_begins_where_it_did():
    """DLedger removes the first files and leaves nothing that says which entry is the first."""
    gone = f"{DATA}/{0:020}"
    for flip in (None, *flips(3)):
        disk = disk_of(flip)
        disk.remove(gone)
        if flip is not None and flip.field not in ("term", "body CRC"):
            with pytest.raises(FatalError, match="offset 0: the first entry is damaged"):
                open_store(disk, Checkpoint(LAST, LAST))
            continue
        store = open_store(disk, Checkpoint(LAST, LAST))
        assert (store.first_index, store.last_index) == (3, LAST), flip
        assert list(store.corruption.damaged) == ([] if flip is None else [3])


def test_a_log_without_its_beginning_and_its_index_begins_where_it_did():
    for flip in (None, Flip(3, "index", 15, 1), Flip(3, "index", 8, 128)):
        disk = disk_of(flip)
        disk.remove(f"{DATA}/{0:020}")
        for name in disk.names(INDEX):
            disk.remove(f"{INDEX}/{name}")
        if flip is None:
            assert open_store(disk).first_index == 3
        else:
            with pytest.raises(FatalError, match="first entry"):
                open_store(disk)
