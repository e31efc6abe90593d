"""The tables of a broker that shares its directory with RocketMQ: either may have written last.

Each of our files begins with a member of its own, ``"ledgerIndex"``: the entry up to which the log
is inside. RocketMQ reads over it and writes its own files without it. So a file with the member is
ours, and state records behind that entry are applied to it; a file without is RocketMQ's, is the
truth as of the end of the log, and nothing that the log holds is applied over it.
``appliedIndex.json`` only saves reading the log again: it names an entry up to which nothing
changed the files whose members it lists.

What RocketMQ wrote and we do not know (members of later versions, its system topics) is kept and
written again. ``consumerFilter.json`` is never touched.
Source: spec/disk.md 5.6; RocketMQ ConfigManager, which takes the ``.bak`` where a file is missing,
empty or unreadable.
"""

from __future__ import annotations

import logging
import re
from codecs import BOM_UTF8
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import msgspec

from broker.state.extras import Extra, difference, with_extra
from broker.state.snapshot import Capture, Snapshot, joined
from broker.table_text import documents_of
from ledgermq.remoting.protocol.errors import RemoteProtocolError
from ledgermq.remoting.protocol.tolerant_json import FILE, NOT_DECODED, loads
from ledgermq.runtime.errors import FatalError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from broker.state.replicated_state import ReplicatedState
    from broker.state.table import ReplicatedTable, Text
    from ledgermq.runtime.disk import Disk

_log = logging.getLogger(__name__)

INDEX_FILE: Final = "appliedIndex.json"
MEMBER: Final = "ledgerIndex"
_OURS: Final = re.compile(rb'\s*\{\s*"ledgerIndex"\s*:\s*(-?\d{1,19})\s*[,}]')
_NUMBERED: Final = frozenset({"consumerOffset.json", "delayOffset.json"})
"""Files in which numbers are keys."""
_QUOTED_NUMBER: Final = re.compile(rb'"(-?\d+)":')

NOTHING: Final = -1


class _Index(msgspec.Struct, rename="camel"):
    applied_index: int
    tables: dict[str, int] = {}
    """What the files said in their first member when this was written."""


class SharedSnapshot(Snapshot):
    """A `Snapshot` in a directory that RocketMQ may have written to.

    Args:
        is_system: whether a topic is RocketMQ's or ours, so that what is said of it is kept.
    """

    def __init__(
        self, directory: str, state: ReplicatedState, disk: Disk, is_system: Callable[[str], bool]
    ) -> None:
        super().__init__(directory, state, disk)
        self._is_system = is_system
        self._extras: dict[str, Extra] = {}
        self.has_foreign = False
        """Whether RocketMQ wrote some table last."""
        #: By file, the entry up to which the log was inside when the broker started.
        self._floors: dict[str, int] = {}
        #: By file, its first member as it was or will be written last.
        self._marks_next: dict[str, int] = {}

    def load_for(self, end_index: int, is_entry: Callable[[int], bool]) -> int:
        """Restore the tables; return the index that all of them include, -1 for none.

        ``end_index``: last entry of the log; ``is_entry`` tells whether one before it ends there.
        Errors: `FatalError` for a table that RocketMQ left and that cannot be read.
        """
        self._check_replaced()
        index = self._read_index()
        marks = {name: self._load_file(name) for name in self._tables}
        self.has_foreign = "foreign" in marks.values()
        is_ours = index is not None or any(isinstance(mark, int) for mark in marks.values())
        if self.has_foreign or not is_ours:
            self._check_not_lost(marks)
        for name, mark in marks.items():
            if isinstance(mark, int):
                same = index is not None and index.tables.get(name) == mark
                floor = max(mark, index.applied_index) if index is not None and same else mark
            elif mark == "foreign":
                floor = end_index
                _log.info("event=table_taken_over file=%s/%s", self._directory, name)
            elif mark == "missing" and index is not None and name not in index.tables:
                floor = index.applied_index  # of a version without this table, and its records
            else:
                floor = NOTHING if is_ours else end_index
            is_of_another = NOTHING < floor < end_index and not is_entry(floor)
            self._tables[name].is_ahead = is_of_another or floor > end_index
            if is_of_another:
                # The file is of another log, or this one lost its end and was written anew.
                _log.warning("event=table_of_another_log file=%s/%s index=%d", self._directory,
                             name, floor)  # fmt: skip
                floor = NOTHING
            if floor > end_index and self._tables[name].is_told_by_log:
                _log.warning("event=table_ahead_of_the_log file=%s/%s index=%d log_end=%d",
                             self._directory, name, floor, end_index)  # fmt: skip
                self._tables[name].restore(self._empty[name])
                floor = NOTHING
            self._floors[name] = max(NOTHING, min(floor, end_index))
        self._saved_index = min(self._floors.values())
        return self._saved_index

    def _check_not_lost(self, marks: Mapping[str, int | str]) -> None:
        """Refuse tables of which nothing can be read and nothing else tells. Errors: `FatalError`.

        RocketMQ does not start with two unreadable files either: the next write of the table would
        be over it.
        """
        lost = [name for name, mark in marks.items() if mark == "lost"]
        if lost:
            raise FatalError(
                f"{self._directory}/{lost[0]} cannot be read, nor can {lost[0]}.bak, and the log"
                " has nothing of what RocketMQ kept there. Restore one of the two from a copy; or"
                " move both away, and this broker begins without"
            )

    def includes(self, kind: str, index: int) -> bool:
        """Tell whether a record of the log was in its table's file at the start."""
        name = self._kinds.get(kind)
        return name is not None and index <= self._floors[name]

    @cached_property
    def _kinds(self) -> dict[str, str]:
        """The file that holds what records of a kind change; all tables are registered by now."""
        return {
            str(kind): name for name, table in self._tables.items() for kind in table.appliers()
        }

    def restore(self, files: Mapping[str, Text]) -> None:
        """Replace the tables; see `Snapshot.restore`."""
        super().restore(files)
        self._floors = dict.fromkeys(self._floors, NOTHING)

    def capture_steps(self, applied_index: int) -> Generator[None, None, Capture]:
        """Return what changed since the last write; see `Snapshot.capture_steps`."""
        capture = yield from super().capture_steps(applied_index)
        if capture.files:
            index_file = _Index(applied_index, dict(self._marks_next))
            capture.files[INDEX_FILE] = [msgspec.json.encode(index_file)]
        return capture

    def _parts(self, name: str, steps: Iterator[bytes], applied_index: int) -> Iterator[bytes]:
        """Return the parts of a file, with our member in front and keys as Java writes them."""
        mark = self._marks_next[name] = max(applied_index, self._floors.get(name, NOTHING))
        is_final = self._extra(name) is None
        is_first = True
        for part in steps:
            text = _unquoted(name, part) if is_final else part
            yield _with_member(text, mark) if is_first else text
            is_first = False

    def write(self, capture: Capture) -> None:
        """Write what was captured, see `Snapshot.write`; in the thread, what is not ours is added.

        A slice of the text at a time: the thread of the loop may run between any two of them.
        """
        for name, parts in capture.files.items():
            extra = self._extra(name)
            if extra is not None:
                capture.files[name] = _merged(name, parts, extra)
        super().write(capture)

    def _extra(self, name: str) -> Extra | None:
        extra = self._extras.get(name)
        return extra if extra is not None and (extra.whole or extra.inside) else None

    def _read_index(self) -> _Index | None:
        data = self._disk.read(f"{self._directory}/{INDEX_FILE}")
        if data is None:
            return None
        try:
            return msgspec.json.decode(data, type=_Index)
        except NOT_DECODED as error:
            path = f"{self._directory}/{INDEX_FILE}"
            _log.warning("event=snapshot_index_unreadable file=%s error=%s", path, error)
            return _Index(NOTHING)

    def _load_file(self, name: str) -> int | str:
        """Restore one table, from its backup if need be.

        Returns what its file says about itself, or that it is foreign, missing or unreadable; lost
        if its backup is no better.
        """
        result: int | str = "missing"
        for path in (f"{self._directory}/{name}", f"{self._directory}/{name}.bak"):
            data = (self._disk.read(path) or b"").removeprefix(BOM_UTF8)
            if not data.strip():
                self._unread.add(name)
                continue
            try:
                self._restore_file(name, data, self._tables[name])
            except (RemoteProtocolError, UnicodeDecodeError) as error:
                _log.warning("event=snapshot_unreadable file=%s error=%s", path, error)
                result = "unreadable"
                self._unread.add(name)
                continue
            ours = _OURS.match(data)
            if path.endswith(".bak"):
                _log.warning("event=backup_taken file=%s", path)
                if ours is None and result == "unreadable":
                    return "unreadable"
            return int(ours.group(1)) if ours else "foreign"
        return "lost" if result == "unreadable" else result

    def _restore_file(self, name: str, data: bytes, table: ReplicatedTable) -> None:
        data.decode()
        theirs = loads(data, FILE)
        try:
            table.restore(data)
        except RemoteProtocolError:
            if not isinstance(theirs, dict):
                raise
            table.restore(self._completed(name, theirs))
        if isinstance(theirs, dict):
            theirs.pop(MEMBER, None)
            self._extras[name] = self._extra_of(name, theirs)

    def _completed(self, name: str, theirs: dict[str, Any]) -> bytes:
        """Return a table whose members that are not there are empty, as RocketMQ takes them.

        An operator may have written it.
        """
        there = {member: value for member, value in theirs.items() if value is not None}
        return msgspec.json.encode({**loads(self._empty[name], FILE), **there})

    def _extra_of(self, name: str, theirs: dict[str, Any]) -> Extra:
        """Return what a file holds and the table that was restored from it does not."""
        extra = difference(theirs, loads(self._tables[name].snapshot(), FILE))
        topics = extra.inside.get("topicConfigTable")
        if topics is not None:
            topics.whole = {
                topic: config for topic, config in topics.whole.items() if self._is_system(topic)
            }
        return extra


def _merged(name: str, parts: list[bytes], extra: Extra) -> list[bytes]:
    documents = documents_of(bytes(joined(parts)))
    return [_unquoted(name, text) for text in with_extra(documents, extra)]


def _unquoted(name: str, text: bytes) -> bytes:
    """Return a text as Java writes it: maps with integers as keys have no quotes around them."""
    return _QUOTED_NUMBER.sub(rb"\1:", text) if name in _NUMBERED else text


def _with_member(data: bytes, index: int) -> bytes:
    """Put our member in front of all others."""
    head, brace, rest = data.partition(b"{")
    separator = b"\n" if rest.strip() == b"}" else b",\n"
    return b'%b%b\n        "%b": %d%b%b' % (head, brace, MEMBER.encode(), index, separator,
                                         rest.lstrip(b"\n"))  # fmt: skip
