"""Hints: what a leader says of its entries beside them, so that dispatch need not look into them.

A leader knows queue, offset, tags code and key hashes of what it appends; a follower would have to
read all that out of the records again. A hint is about one span of the log. It lives in frames and
in memory, never on disk, is compared with one record of its span (`store.dispatch.sample`), and
says nothing that the records do not say; where they lie and how large they are is not in it: that
is what the span's own index units are for.

A *run* is entries that follow each other and were stored at the same time. Big-endian::

    0 version u8 (2)   1 has keys u8   2 queues u16   4 runs u32
    queues, each:  topic length u8, topic, queue id i32
    runs, each:    entries u32, kind u8, keys u8, queue u16, queue offset i64, store time i64 (ms),
                   tags code i64
    columns, for each run:  for messages of several queues: numbers of the queues u16, their queue
                            offsets i64, tags codes i64;
                            keys: their hashes u32; before them, if not each entry has one key, how
                            many of them each has u16

Pure. Source: `store.dispatch.read_back`, which gives the same from the records.
"""

import struct
from itertools import repeat
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from store.layout import LONG_TEXT_BYTES
from store.write.uncommitted import OwnBatch, OwnMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store.layout import Keyed, Row
    from store.ports import KeySink
    from store.queues.consume_queue import ConsumeQueue
    from store.write.uncommitted import Own

VERSION: Final = 2
"""Who wrote version 1 did not check its records: what they hold is read back."""
LOOKED_INTO: Final = 0
"""Entries that are read: state, halves of transactions, delayed messages, whose unit depends on
settings, and their copies, which stand for state."""
ALIKE: Final = 1
"""Messages that follow each other in one queue, all with the same tags code."""
EACH: Final = 2
"""Messages, each with a queue, a queue offset and a tags code of its own."""
NO_KEYS: Final = 0
ONE_KEY: Final = 1
"""Each entry has one."""
KEYS: Final = 2

_HEAD: Final = struct.Struct(">BBHI")
_RUN: Final = struct.Struct(">IBBHqqq")
_QUEUE_ID: Final = struct.Struct(">i")
_ENTRIES_MAX: Final = 0xFFFF
"""What has more is not written about; a span of small messages has a tenth."""
_pack_run: Final = _RUN.pack
_value_of: "Callable[[Row], int]" = itemgetter(0)
_physical_of: "Callable[[Row], int]" = itemgetter(1)
_offset_of: "Callable[[OwnMessage], int]" = attrgetter("queue_offset")
_place_of: "Callable[[OwnMessage], int]" = attrgetter("physical")
_code_of: "Callable[[OwnMessage], int]" = attrgetter("code")
_keyed_of: "Callable[[OwnMessage], Keyed]" = attrgetter("keyed")


class Run(NamedTuple):
    """Entries of the same kind."""

    entries: int
    kind: int
    queue: int
    """Its number among `DispatchHint.queues`; this and the next are of `ALIKE` ones."""
    queue_offset: int
    code: int
    stored: int
    queues: tuple[int, ...]
    """Of each; this and the next two are of `EACH`."""
    queue_offsets: tuple[int, ...]
    codes: tuple[int, ...]
    hashes: tuple[int, ...]
    """Of their keys."""
    counts: tuple[int, ...] | None
    """How many keys each has; None: one, or none at all."""


class DispatchHint(NamedTuple):
    """What a hint says."""

    has_keys: bool
    """Whether the hashes of keys are in it."""
    queues: list[tuple[bytes, int]]
    runs: list[Run]


class _Writer:
    """Makes one hint."""

    def __init__(self, keys: "KeySink | None") -> None:
        self._keys = keys
        self.numbers: dict[ConsumeQueue, int] = {}
        self.singles: list[OwnMessage] = []
        """Messages that were put one by one, to be written as one run."""
        self._looked_into = 0
        """Entries behind those of the last run, which say themselves what they are."""
        self._runs: list[bytes] = []
        self._columns: list[bytes] = []

    def add_batch(self, batch: OwnBatch) -> None:
        """Add the messages of a batch."""
        queue, offset, code = batch.queue, batch.queue_offset, batch.codes[0]
        count = len(batch.physicals)
        if not queue.is_plain:
            self.add_looked_into(count)
            return
        self.end_singles()
        number = self.numbers.setdefault(queue, len(self.numbers))
        kind = ALIKE if batch.codes.count(code) == count else EACH
        if kind == EACH:
            self._add_columns([number] * count, list(range(offset, offset + count)), batch.codes)
        keys, stored = self._add_keys(batch.rows, batch.physicals)
        self._end_looked_into()
        self._runs.append(_pack_run(count, kind, keys, number, offset, stored, code))

    def add_looked_into(self, count: int) -> None:
        """Add entries that say themselves what they are."""
        self.end_singles()
        self._looked_into += count

    def _end_looked_into(self) -> None:
        if self._looked_into:
            self._runs.append(_pack_run(self._looked_into, LOOKED_INTO, NO_KEYS, 0, 0, 0, 0))
            self._looked_into = 0

    def end_singles(self) -> None:
        """Write a run of messages, or one for each time at which some of them were stored."""
        items, self.singles = self.singles, []
        numbers = self.numbers
        left = [] if self._keys is None else self._keys.rows_of(map(_keyed_of, items))
        while items:
            rows, left = left, []
            count = len(items)
            if rows and rows[0][2] != rows[-1][2]:
                stored = rows[0][2]
                at = next(at for at, row in enumerate(rows) if row[2] != stored)
                rows, left = rows[:at], rows[at:]
                end = left[0][1]
                count = next(at for at, item in enumerate(items) if item.physical == end)
            run = items[:count]
            queues = [numbers.setdefault(one.queue, len(numbers)) for one in run if one.queue]
            self._add_columns(queues, list(map(_offset_of, run)), list(map(_code_of, run)))
            keys, stored = self._add_keys(rows, list(map(_place_of, run)))
            self._end_looked_into()
            self._runs.append(_pack_run(count, EACH, keys, 0, 0, stored, 0))
            items = items[count:]

    def _add_columns(
        self, queues: list[int], queue_offsets: list[int], codes: "Sequence[int]"
    ) -> None:
        count = len(queues)
        self._columns += (
            struct.pack(f">{count}H", *queues),
            struct.pack(f">{count}q", *queue_offsets),
            struct.pack(f">{count}q", *codes),
        )

    def _add_keys(self, rows: "list[Row]", physicals: list[int]) -> tuple[int, int]:
        """Add hashes to the columns; return how they are written, and their store time."""
        if not rows:
            return NO_KEYS, 0
        keys = ONE_KEY
        if list(map(_physical_of, rows)) != physicals:
            keys = KEYS
            counts = dict.fromkeys(physicals, 0)
            for row in rows:
                counts[row[1]] += 1
            self._columns.append(struct.pack(f">{len(counts)}H", *counts.values()))
        self._columns.append(struct.pack(f">{len(rows)}I", *map(_value_of, rows)))
        return keys, rows[0][2]

    def finish(self) -> bytes:
        """Return the hint."""
        self.end_singles()
        self._end_looked_into()
        queues = [queue.topic_field + _QUEUE_ID.pack(queue.queue_id) for queue in self.numbers]
        has_keys = self._keys is not None
        head = _HEAD.pack(VERSION, has_keys, len(queues), len(self._runs))
        return b"".join((head, *queues, *self._runs, *self._columns))


def encode_hint(items: "Sequence[Own]", keys: "KeySink | None") -> bytes:
    """Return the hint about own entries that follow each other, empty if they are too many."""
    entries = sum([len(own.physicals) if isinstance(own, OwnBatch) else 1 for own in items])
    if entries > _ENTRIES_MAX:
        return b""
    writer = _Writer(keys)
    for own in items:
        if isinstance(own, OwnBatch):
            writer.add_batch(own)
            continue
        # Who applies the hint looks into long properties itself, within the bounds of its turns.
        if (
            isinstance(own, OwnMessage)
            and own.queue is not None
            and own.queue.is_plain
            and len(own.keyed[1]) <= LONG_TEXT_BYTES
        ):
            writer.singles.append(own)
        else:
            writer.add_looked_into(1)
    return writer.finish()


def is_sound_hint(data: bytes, entries: int) -> bool:
    """Tell whether ``data`` is a hint about so many entries."""
    hint = maybe_decode_hint(data)
    return hint is not None and sum(run.entries for run in hint.runs) == entries > 0


def maybe_decode_hint(data: bytes) -> DispatchHint | None:
    """Read a hint, which may come from anyone; None if it is none."""
    try:
        version, has_keys, queue_count, run_count = _HEAD.unpack_from(data)
        at = _HEAD.size
        queues: list[tuple[bytes, int]] = []
        for _ in range(queue_count):
            name = at + 1
            at = name + data[at]
            queues.append((data[name:at], _QUEUE_ID.unpack_from(data, at)[0]))
            at += _QUEUE_ID.size
        columns_at = at + run_count * _RUN.size
        if version != VERSION or has_keys > 1 or columns_at > len(data):
            return None
        runs: list[Run] = []
        for fields in _RUN.iter_unpack(data[at:columns_at]):
            run, columns_at = _read_run(fields, data, columns_at)
            if not _is_sound(run, queue_count) or (run.hashes and not has_keys):
                return None
            runs.append(run)
    except (struct.error, IndexError):
        return None
    return DispatchHint(bool(has_keys), queues, runs) if columns_at == len(data) else None


def _read_run(fields: tuple[int, ...], data: bytes, at: int) -> tuple[Run, int]:
    """Read the columns of a run at ``at``; return it, and where they end.

    Errors: `struct.error`.
    """
    entries, kind, keys, queue, queue_offset, stored, code = fields
    queues: tuple[int, ...] = ()
    queue_offsets: tuple[int, ...] = ()
    codes: tuple[int, ...] = ()
    hashes: tuple[int, ...] = ()
    counts: tuple[int, ...] | None = None
    if kind == EACH:
        queues = struct.unpack_from(f">{entries}H", data, at)
        at += 2 * entries
        queue_offsets = struct.unpack_from(f">{entries}q", data, at)
        at += 8 * entries
        codes = struct.unpack_from(f">{entries}q", data, at)
        at += 8 * entries
    if keys:
        total = entries
        if keys == KEYS:
            counts = struct.unpack_from(f">{entries}H", data, at)
            at += 2 * entries
            total = sum(counts)
        hashes = struct.unpack_from(f">{total}I", data, at)
        at += 4 * total
    run = Run(
        entries, kind, queue, queue_offset, code, stored, queues, queue_offsets, codes, hashes,
        counts,
    )  # fmt: skip
    return run, at


def _is_sound(run: Run, queue_count: int) -> bool:
    if not run.entries or run.kind > EACH:
        return False
    if run.kind == ALIKE:
        return run.queue < queue_count and run.queue_offset >= 0
    if run.kind == EACH:
        return max(run.queues) < queue_count and min(run.queue_offsets) >= 0
    return not run.hashes


def rows_of(run: Run, physicals: "list[int]") -> "list[Row]":
    """Return the rows of the key index for the first entries of a run, which lie there."""
    if run.counts is not None:
        physicals = [
            physical
            for physical, count in zip(physicals, run.counts, strict=False)
            for _ in range(count)
        ]
    return list(zip(run.hashes, physicals, repeat(run.stored), strict=False))
