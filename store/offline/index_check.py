"""Checks the key index: each file by itself, and then that each key of each message is found.

Entries lie in the order of the log, so that both are walked side by side and nothing is kept. In a
file, the chain of a slot is what putting the entries in order gives; a key is then found exactly if
its entry is there. Source: spec/disk.md 5.4; RocketMQ IndexService.buildIndex.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final, NamedTuple

from ledgermq.remoting.protocol.message import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from store.offline.files import FileInfo, ReadError
from store.offline.findings import Findings, Part
from store.offline.index_files import (
    IndexHead,
    IndexReader,
    NoIndexError,
    index_files,
    key_hash,
    keys_of,
    seconds_since,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from store.index.marks import FileMark
    from store.offline.records import Record

REMEDY: Final = "ledgermq store rebuild makes the index anew from the log"
CHAIN_SLOTS_MAX: Final = 1 << 26
"""Chains are followed in files of at most so many slots (4 bytes of memory each)."""


class _Key(NamedTuple):
    """One entry of the index."""

    key_hash: int
    physical: int
    seconds: int
    begin_ms: int | None
    """What ``seconds`` count from; None for a file's first entry, where RocketMQ counts from the
    end of the file before."""
    path: str
    offset: int


class IndexTrust(NamedTuple):
    """Which slots the next start rebuilds; the check skips those. It checks entries always."""

    is_clean: bool
    """The last stop was clean: no slots are."""
    marks: Mapping[str, FileMark] | None
    """Our checkpoint: those behind what it says of a file. None: there is none."""
    until_ms: int
    """Without it: those of files that end later, which go as a whole."""

    def covers(self, name: str, head: IndexHead, expected: int, found: int) -> bool:
        """Tell whether a slot that should be ``expected`` and is ``found`` was so for sure."""
        if self.is_clean:
            return True
        if self.marks is None:
            return head.end_ms <= self.until_ms
        mark = self.marks.get(name)
        if mark is None or mark.slots_count < mark.count:
            return False
        return found < head.count and expected < mark.slots_count


class IndexCheck:
    """The check. It is told each record of the log in order, then `finish`."""

    def __init__(
        self, directory: str, findings: Findings, log_begin: int, trust: IndexTrust
    ) -> None:
        self._findings = findings
        self._trust = trust
        self.files, strangers = index_files(directory)
        for name in strangers:
            findings.note(Part.INDEX, "stranger", f"{directory}/{name}", "no index file")
        self._log_begin = log_begin
        self._keys = self._all_keys()
        self._ahead: _Key | None = next(self._keys, None)
        self._from = self._ahead.physical if self._ahead is not None else 0
        self._last: tuple[int, list[_Key]] = (-1, [])
        self._damaged_before = -1
        self.entries = 0
        """Entries that are right."""
        self.behind = 0
        """Messages behind the last entry."""
        self._behind_at: tuple[str, int] = ("", 0)
        self.before = 0
        """Messages before the first entry."""

    def _all_keys(self) -> Iterator[_Key]:
        """Yield the entries of all files in order; what cannot be right is noted and left out."""
        for info in self.files:
            if info.size == 0 and info is self.files[-1]:
                self._findings.harmless(
                    Part.INDEX, "not made", info.path, 0,
                    "a file without bytes: a crash came while it was made",
                    "the next start removes it",
                )  # fmt: skip
                continue
            try:
                reader = IndexReader(info)
            except ReadError as error:
                self._damage("unreadable", error.path, error.offset, error.reason)
                continue
            except NoIndexError as error:
                self._damage("no index file", info.path, 0, str(error))
                continue
            try:
                yield from self._keys_of_file(reader, info)
            except ReadError as error:
                self._damage("unreadable", error.path, error.offset, error.reason)
            finally:
                reader.close()

    def _keys_of_file(self, reader: IndexReader, info: FileInfo) -> Iterator[_Key]:
        head = reader.head
        if head.count <= 1:
            return
        chains = array("i", bytes(4 * head.slots)) if head.slots <= CHAIN_SLOTS_MAX else None
        low, used = head.begin_physical, 0
        for number, (hashed, physical, seconds, previous) in enumerate(reader.entries(), 1):
            offset = head.entry_at(number)
            slot = hashed % head.slots
            if hashed < 0 or not low <= physical <= head.end_physical:
                self._damage(
                    "wrong entry", info.path, offset,
                    f"entry {number}: hash {hashed}, message at {physical}; expected one between"
                    f" {low} and {head.end_physical}",
                )  # fmt: skip
            else:
                low = physical
                begin_ms = head.begin_ms if number > 1 else None
                yield _Key(hashed, physical, seconds, begin_ms, info.path, offset)
            if chains is not None and hashed >= 0:
                used += not chains[slot]
                if chains[slot] != previous:
                    self._damage(
                        "broken chain", info.path, offset + 16,
                        f"entry {number} follows entry {previous} in slot {slot}, not"
                        f" {chains[slot]}: what lies before it is not found",
                    )  # fmt: skip
                chains[slot] = number
        if chains is not None:
            self._check_slots(reader, info, chains, used)

    def _check_slots(
        self, reader: IndexReader, info: FileInfo, chains: array[int], used: int
    ) -> None:
        table = reader.slot_table()
        head, name = reader.head, info.path.rpartition("/")[2]
        behind = 0
        if table != chains:
            for slot, (found, expected) in enumerate(zip(table, chains, strict=False)):
                if found == expected or not (expected or 0 < found < head.count):
                    continue
                if not self._trust.covers(name, head, expected, found):
                    behind += 1
                    continue
                self._damage(
                    "wrong slot", info.path, head.slot_at(slot),
                    f"slot {slot} begins with entry {found}, not {expected}",
                )  # fmt: skip
        if used != head.used_slots and self._trust.covers(name, head, head.count - 1, 0):
            self._damage("header", info.path, 32, f"{head.used_slots} slots in use, counted {used}")
        if behind:
            self._findings.harmless(
                Part.INDEX, "slots not written", info.path, head.slot_at(0),
                f"{behind} slots are older or newer than the entries", "the next start makes them",
            )  # fmt: skip

    def on_damage(self, end: int) -> None:
        """Messages before ``end`` of the log are damaged: entries may be theirs."""
        self._damaged_before = end

    def on_record(self, record: Record) -> None:
        """Check the entries of one message."""
        if not self.files or record.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
            return
        keys = keys_of(record.properties) if not record.is_state else []
        found = self._take(record.physical)
        for key in found:
            if key.begin_ms is None:
                continue
            if key.seconds != seconds_since(key.begin_ms, record.stored):
                self._damage(
                    "wrong time", key.path, key.offset + 12,
                    f"entry of the message at {record.physical} says {key.seconds} s, not"
                    f" {seconds_since(key.begin_ms, record.stored)}",
                )  # fmt: skip
        hashes = [key.key_hash for key in found]
        missing = [key for key in keys if key_hash(record.name, key) not in hashes]
        self.entries += len(found)
        if not missing:
            return
        if record.physical < self._from:
            self.before += 1
        elif self._ahead is None:
            if not self.behind:
                self._behind_at = (record.path, record.offset)
            self.behind += 1
        else:
            self._damage(
                "key not found", self._ahead.path, self._ahead.offset,
                f"no entry for key {missing[0]!r} of the message at {record.physical}",
            )  # fmt: skip

    def _take(self, physical: int) -> list[_Key]:
        """Return the entries of the message at ``physical``; earlier ones belong to none."""
        found: list[_Key] = []
        while self._ahead is not None and self._ahead.physical <= physical:
            key = self._ahead
            self._ahead = next(self._keys, None)
            if key.physical == physical:
                found.append(key)
            elif key.physical == self._last[0]:
                self._last[1].append(key)  # dispatched twice, by the start after a crash
            else:
                self._on_dangling(key)
        if found:
            self._last = (physical, found)
        return found

    def _on_dangling(self, key: _Key) -> None:
        if key.physical >= max(self._log_begin, self._damaged_before):
            self._damage(
                "entry without a message", key.path, key.offset,
                f"it says a message at {key.physical}, where none begins",
            )  # fmt: skip

    def finish(self, log_end: int, *, tail_may_be_lost: bool) -> None:
        """Look at what is left."""
        ahead = 0
        first: _Key | None = None
        while self._ahead is not None:
            key, self._ahead = self._ahead, next(self._keys, None)
            if key.physical >= log_end:
                ahead += 1
                first = first or key
            elif key.physical != self._last[0]:
                self._on_dangling(key)
        if self.behind:
            path, offset = self._behind_at
            self._findings.harmless(
                Part.INDEX, "behind the log", path, offset,
                f"{self.behind} messages from here on are not in the key index yet",
                "dispatch comes to it, at the latest at the next start",
            )  # fmt: skip
        if first is not None:
            what = f"{ahead} entries of messages at {first.physical} and behind: the log ends there"
            if tail_may_be_lost:
                self._findings.harmless(
                    Part.INDEX, "ahead of the log", first.path, first.offset, what,
                    "left out at the next start",
                )  # fmt: skip
            else:
                self._damage("ahead of the log", first.path, first.offset, what)

    def _damage(self, kind: str, path: str, offset: int | None, what: str) -> None:
        self._findings.damage(Part.INDEX, kind, path, offset, what, REMEDY)
