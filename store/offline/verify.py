"""Checks a whole store: each record of the log, and everything that is derived from it, against it.

One walk over the log; queues, key index and DLedger index are looked at beside it, so that memory
does not grow with the log. Source: spec/disk.md 5, 6.1; what a start repairs: `docs/storage.md`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from dledger.codec.entry import HEADER_BYTES
from dledger.codec.index import UNIT, UNIT_MAGIC
from dledger.core.model import UNIT_BYTES
from store.offline import small_files
from store.offline.bytes_row import BlockCache, ByteRow
from store.offline.files import FileRow, ReadError, can_list, is_directory
from store.offline.findings import Findings, Part
from store.offline.folder import REBUILD_DIRECTORY, REPLACED, LogFolder, LogKind, StoreFolder
from store.offline.index_check import IndexCheck, IndexTrust
from store.offline.log import LogEnd, LogWalk, Progress
from store.offline.queue_check import UNMADE, QueueCheck, check_queue_files
from store.offline.queues import GAP_SIZE, Queues
from store.offline.records import Damage, Record
from store.plain.files import IGNORED_NAMES
from store.recovery.known import synced_by

if TYPE_CHECKING:
    from store.offline.small_files import Promises

SAFE_MS: Final = 3000
"""RocketMQ goes back so far behind its checkpoint."""
LOG_REMEDY: Final = "a replica fetches it from its peers; without peers, what lies there is lost"
_UNIT_BLOCK_BYTES: Final = 1 << 16


@dataclass(slots=True)
class Report:
    """What was checked and what was found."""

    folder: StoreFolder
    findings: Findings
    in_use_by: int | None
    totals: dict[str, int] = field(default_factory=dict)

    def as_row(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "path": self.folder.root,
            "kind": self.folder.kind,
            "health": self.findings.health,
            "abort": self.folder.was_aborted,
            "inUseBy": self.in_use_by,
            **self.totals,
            "findings": [finding.as_row() for finding in self.findings.listed],
            "omitted": [
                {"severity": severity, "part": part, "kind": kind, "count": count}
                for (severity, part, kind), count in self.findings.omitted.items()
            ],
        }


def verify(folder: StoreFolder, progress: Progress | None = None) -> Report:
    """Check everything. Errors: none of the store; what cannot be read is a finding."""
    findings = Findings()
    check = _Check(folder, findings, progress)
    try:
        check.run()
    finally:
        check.close()
    return Report(folder, findings, check.in_use_by, check.totals)


class _Check:
    """One check of one store."""

    def __init__(self, folder: StoreFolder, findings: Findings, progress: Progress | None) -> None:
        self._folder = folder
        self._findings = findings
        self._progress = progress
        self.in_use_by = folder.locked_by()
        self.totals: dict[str, int] = {}
        self._promises = small_files.read_promises(folder, findings)
        self._queues = Queues(folder.path("consumequeue"))
        self._tail_may_be_lost = (
            folder.was_aborted or self.in_use_by is not None or folder.dledger is not None
        )
        self._log_begin = folder.logs[0].segments.start
        if self._promises.begin is not None and folder.logs[0] is folder.dledger:
            self._log_begin = self._promises.begin[0]  # segments before it may be there yet

    def close(self) -> None:
        """Close the files."""
        self._queues.close()

    def run(self) -> None:
        """Check everything."""
        self._check_directory()
        tables = {} if self._folder.is_lone else small_files.check_tables(
            self._folder, self._findings
        )  # fmt: skip
        check_queue_files(self._queues, self._findings)
        topics = small_files.configured_queues(tables)
        queue_check = QueueCheck(
            self._queues,
            self._findings,
            redispatched_from=self._redispatched_from(),
            is_rewritten=self._promises.dispatched is not None or self._makes_queues_anew,
            topics=frozenset(os.fsencode(topic) for topic in topics) if topics else None,
        )
        index_check = IndexCheck(
            self._folder.path("index"), self._findings, self._log_begin, self._index_trust()
        )
        if self._folder.is_lone:
            index_check.files.clear()
        ends = [self._check_log(log, queue_check, index_check) for log in self._folder.logs]
        self._check_end(ends)
        log_end = ends[-1].position
        if not self._folder.is_lone:
            begin = self._log_begin
            queue_check.finish(begin, log_end, tail_may_be_lost=self._tail_may_be_lost)
            index_check.finish(log_end, tail_may_be_lost=self._tail_may_be_lost)
        self.totals |= {
            "logBegin": self._log_begin,
            "logEnd": log_end,
            "queues": len(self._queues.by_key),
            "queueUnits": queue_check.units,
            "indexFiles": len(index_check.files),
            "indexEntries": index_check.entries,
        }

    def _check_directory(self) -> None:
        folder, findings = self._folder, self._findings
        if self.in_use_by is not None:
            who = f"process {self.in_use_by}" if self.in_use_by else "a process"
            findings.note(
                Part.DIRECTORY, "in use", folder.root,
                f"{who} has it open: what is written meanwhile may look unfinished",
            )  # fmt: skip
        elif folder.was_aborted:
            findings.harmless(
                Part.DIRECTORY, "not stopped cleanly", folder.path("abort"), None,
                "the broker that had it open was killed, or the machine",
                "the next start goes through the end of the log",
            )  # fmt: skip
        for name in ("consumequeue", "index", "config"):
            path = folder.path(name)
            if not is_directory(path) and os.path.lexists(path):
                findings.damage(
                    Part.DIRECTORY, "in the way", path, None, "no directory, and one must be here",
                    "a broker refuses to start: move it away",
                )  # fmt: skip
            elif name != "consumequeue" and is_directory(path) and not can_list(path):
                findings.damage(Part.DIRECTORY, "unreadable", path, None, "it cannot be listed")
        if os.path.lexists(folder.path(REBUILD_DIRECTORY)):
            findings.harmless(
                Part.DIRECTORY, "rebuild interrupted", folder.path(REBUILD_DIRECTORY), None,
                "a rebuild did not come to its end", "run ledgermq store rebuild again",
            )  # fmt: skip
        for name in folder.strangers():
            what = "moved aside by a rebuild" if name.endswith(REPLACED) else "no part of a store"
            findings.note(Part.DIRECTORY, "stranger", folder.path(name), what)
        for log in folder.logs:
            _check_row(log.segments, Part.LOG, findings, is_alone=log.kind is LogKind.PLAIN)
            _check_row(log.units, Part.LOG_INDEX, findings)

    def _index_trust(self) -> IndexTrust:
        promises, folder = self._promises, self._folder
        is_closed = self.in_use_by is None and not folder.was_aborted
        if folder.dledger is not None and folder.is_ours:
            is_closed = is_closed and promises.was_clean
        until_ms = 0 if self._makes_queues_anew else promises.indexed_ms
        return IndexTrust(is_closed, promises.index_marks, until_ms)

    def _redispatched_from(self) -> int:
        """Return the position from which on the next start dispatches all messages again.

        A broker of ours goes by its checkpoint. RocketMQ goes on behind the last message that any
        queue has; in a plain store that was not stopped cleanly, it begins with a segment that its
        checkpoint knows as done.
        """
        dispatched = self._promises.dispatched
        if dispatched is not None and dispatched.head.marks:
            mark = dispatched.head.marks[0]
            header = HEADER_BYTES if self._folder.dledger is not None else 0
            return mark.position + header + 1 if mark.index >= 0 else 0
        if self._makes_queues_anew:
            return 0
        position = 0
        for queue in self._queues.by_key.values():
            try:
                unit = queue.unit(queue.end - 1)
            except ReadError:
                continue
            if unit is not None and 0 < unit[1] < GAP_SIZE:
                position = max(position, unit[0] + unit[1])
        log = self._folder.logs[-1]
        if log.kind is LogKind.PLAIN and self._folder.was_aborted:
            position = min(position, _safe_segment(log, self._safe_ms))
        return position

    @property
    def _makes_queues_anew(self) -> bool:
        """Whether the next start takes no queue as it is: a group's, without our checkpoint."""
        is_group = self._folder.dledger is not None and not self._folder.is_lone
        return is_group and self._folder.is_ours and self._promises.dispatched is None

    def _check_log(
        self, log: LogFolder, queue_check: QueueCheck, index_check: IndexCheck
    ) -> LogEnd:
        begin = self._promises.begin if log.kind is LogKind.DLEDGER else None
        units = _UnitCheck(log, self._promises, self._findings)
        walk = LogWalk(log, begin=begin, progress=self._progress)
        records = messages = size = 0
        last_index = -1
        damage: Damage | None = None
        for item in walk.run():
            if isinstance(item, Damage):
                queue_check.on_damage()
                index_check.on_damage(item.end)
                damage = item
                continue
            if damage is not None:
                self._on_damage(log, damage, last_index, item)
                damage = None
            if item.problem:
                self._on_no_message(item)
                queue_check.on_damage()
                index_check.on_damage(item.end)
            records += 1
            messages += item.is_queued
            size += item.end - item.position
            last_index = item.entry_index
            queue_check.on_record(item)
            index_check.on_record(item)
            units.on_record(item)
        units.finish(walk.end)
        for name, count in (("records", records), ("messages", messages), ("logBytes", size)):
            self.totals[name] = self.totals.get(name, 0) + count
        return walk.end

    def _on_damage(self, log: LogFolder, damage: Damage, last_index: int, behind: Record) -> None:
        """Judge damage behind entry ``last_index``; ``behind`` is the first sound record after it.

        It is a torn write if nothing that was lost, nor what follows, is known to be on disk.
        """
        what = f"{damage.end - damage.position} bytes are no entry: {damage.reason}"
        if log.kind is LogKind.DLEDGER:
            is_torn = last_index >= self._synced_index
        else:
            has_crashed = self._folder.was_aborted and self.in_use_by is None
            is_torn = has_crashed and not self._is_synced(behind)
        if is_torn:
            self._findings.harmless(
                Part.LOG, "torn", damage.path, damage.offset,
                f"{what}; nothing from there on is known to be synced",
                "the next start cuts the log there",
            )  # fmt: skip
            return
        self._findings.damage(
            Part.LOG, "damaged", damage.path, damage.offset, what,
            LOG_REMEDY if log.kind is LogKind.DLEDGER else
            "our broker refuses to start, RocketMQ drops what lies behind: keep a copy",
        )  # fmt: skip

    def _on_no_message(self, record: Record) -> None:
        """Name what was written and is no message: it was acknowledged, and cannot be delivered."""
        where = f"entry {record.entry_index}" if record.entry_index >= 0 else "the record"
        self._findings.damage(
            Part.LOG, "no message", record.path, record.offset,
            f"{where} at {record.position} is what was written, but no message: {record.problem}",
            "a broker leaves it out (event=record_quarantined) and goes on behind it",
        )  # fmt: skip

    @property
    def _synced_index(self) -> int:
        """Last entry that is on disk for sure; a log in its first second has no checkpoint yet."""
        if self._promises.synced_index is not None:
            return self._promises.synced_index
        dispatched = self._promises.dispatched
        marks = () if dispatched is None else dispatched.head.marks
        return marks[0].index if marks else -1

    def _is_synced(self, record: Record) -> bool:
        """Tell whether a record of a plain log is on disk for sure, as a start sees it."""
        dispatched = self._promises.dispatched
        synced = synced_by(self._promises.flushed_ms, dispatched.head if dispatched else None)
        return record.stored < synced.before_ms or record.position < synced.before

    @property
    def _safe_ms(self) -> int:
        """Messages stored before then are in log and queues on disk, as RocketMQ sees it."""
        return min(self._promises.flushed_ms, self._promises.queued_ms) - SAFE_MS

    def _check_end(self, ends: list[LogEnd]) -> None:
        """Judge what lies behind the log, and whether it ends too early."""
        end, findings, promises = ends[-1], self._findings, self._promises
        for one in ends:
            if one.unread:
                what = f"what lies here or behind cannot be read: {one.unread}"
                findings.damage(Part.LOG, "unreadable", one.path, one.offset, what)
        if end.tail_bytes and self.in_use_by is not None and not end.unread:
            what = f"{end.tail_bytes} bytes behind {end.position} were written meanwhile"
            findings.note(Part.LOG, "growing", end.path, what)
        elif (end.tail_bytes or end.reason) and not end.unread:
            reason = end.reason or "nothing there, but bytes behind it"
            findings.harmless(
                Part.LOG, "tail", end.path, end.offset,
                f"the log ends here, {end.tail_bytes} bytes behind it are no entry: {reason}",
                "cut at the next start",
            )  # fmt: skip
        synced = promises.synced_index
        last = promises.begin[1] - 1 if end.last_index < 0 and promises.begin else end.last_index
        if self._folder.dledger is not None and synced is not None and synced > last:
            findings.damage(
                Part.LOG, "ends too early", end.path, end.offset,
                f"the log ends with entry {last}, but was synced up to entry {synced}", LOG_REMEDY,
            )  # fmt: skip
        stored = max(end.last_stored for end in ends)
        has_begun = stored > 0 or self._folder.dledger is None
        if has_begun and promises.flushed_ms > stored and self.in_use_by is None:
            findings.damage(
                Part.LOG, "ends too early", end.path, end.offset,
                f"its last message was stored at {stored}, but the checkpoint says that messages"
                f" of {promises.flushed_ms} were flushed", LOG_REMEDY,
            )  # fmt: skip


class _UnitCheck:
    """Checks the DLedger index beside its log."""

    def __init__(self, log: LogFolder, promises: Promises, findings: Findings) -> None:
        self._findings = findings
        self._synced = -1 if promises.synced_index is None else promises.synced_index
        self._is_there = log.kind is LogKind.DLEDGER
        self._row = ByteRow(log.units, BlockCache(_UNIT_BLOCK_BYTES, open_max=4))
        self._missing = 0

    def on_record(self, record: Record) -> None:
        """Check the unit of one entry."""
        if not self._is_there:
            return
        position = record.entry_index * UNIT_BYTES
        expected = UNIT.pack(
            UNIT_MAGIC, record.position, record.end - record.position, record.entry_index,
            record.term,
        )  # fmt: skip
        try:
            found = self._row.read(position, UNIT_BYTES)
        except ReadError as error:
            self._findings.damage(
                Part.LOG_INDEX, "unreadable", error.path, error.offset, error.reason
            )
            return
        if found == expected:
            return
        path, offset = self._row.place(position)
        if any(found):
            self._findings.damage(
                Part.LOG_INDEX, "wrong unit", path, offset,
                f"unit of entry {record.entry_index} says {UNIT.unpack(found.ljust(32, b'0'))}",
                "written anew from the entry at the next start",
            )  # fmt: skip
            return
        self._missing += 1
        note = self._findings.harmless if record.entry_index > self._synced else (
            self._findings.damage
        )  # fmt: skip
        note(
            Part.LOG_INDEX, "missing unit", path, offset,
            f"no unit of entry {record.entry_index}", "written anew at the next start",
        )  # fmt: skip

    def finish(self, end: LogEnd) -> None:
        """Look at what lies behind the last unit."""
        if not self._is_there or not self._row.row.files:
            return
        try:
            units = -(-self._row.nonzero_end() // UNIT_BYTES)
        except ReadError as error:
            self._findings.damage(
                Part.LOG_INDEX, "unreadable", error.path, error.offset, error.reason
            )
            return
        behind = max(end.last_index + 1, self._row.row.start // UNIT_BYTES)
        if units > behind and end.last_index >= 0:
            path, offset = self._row.place(behind * UNIT_BYTES)
            self._findings.harmless(
                Part.LOG_INDEX, "ahead of the log", path, offset,
                f"{units - behind} units behind the last entry", "cut at the next start",
            )  # fmt: skip


def _check_row(row: FileRow, part: Part, findings: Findings, *, is_alone: bool = False) -> None:
    """Check sizes and names of a row of files; ``is_alone``: nothing else may lie beside them."""
    remedy = "a broker refuses to start with it"
    expected: int | None = None
    for info in row.files:
        if info.size == 0 and info is row.files[-1]:
            findings.harmless(part, "not made", info.path, 0, UNMADE, "the next start removes it")
            break
        if info.size != row.file_bytes or not info.size:
            what = f"{info.size} bytes, the others have {row.file_bytes}"
            findings.damage(part, "size", info.path, info.size, what, remedy)
        elif info.base % info.size:
            what = f"files of {info.size} bytes do not begin at {info.base}"
            findings.damage(part, "name", info.path, None, what, remedy)
        elif expected not in (None, info.base):
            what = f"no file for {expected}, which it should follow on"
            findings.damage(part, "gap", info.path, None, what, remedy)
        expected = info.base + row.file_bytes
    for name in row.strangers:
        path, what = f"{row.directory}/{name}", "not one of its files"
        if is_alone and name not in IGNORED_NAMES:
            findings.damage(part, "stranger", path, None, what, remedy)
        else:
            findings.note(part, "stranger", path, what)


def _safe_segment(log: LogFolder, safe_ms: int) -> int:
    """Return where the last segment begins whose first message was stored before ``safe_ms``."""
    for info in reversed(log.segments.files):
        walk = LogWalk(log, begin=(info.base, -1), check=False)
        for item in walk.run():
            if isinstance(item, Record) and item.stored <= safe_ms:
                return info.base
            break
    return log.segments.start
