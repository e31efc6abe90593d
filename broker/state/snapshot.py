"""The state machine's tables on disk, in RocketMQ's JSON, with the index they include.

``config/`` holds ``topics.json subscriptionGroup.json consumerOffset.json`` as RocketMQ writes
them, our ``queueLock.json``, and ``appliedIndex.json``: the highest log entry that is inside, and
which tables it is said of. A version that did not know a table yet passed over its records, and one
that knows no others may have passed over records of a table whose file an earlier one left: tables
that are not named are made from the log, and so are those that an image lacks.
Tables are written before the index, each by write, fsync, rename; the previous content is kept as
``.bak``, unless it could not be read. Tables are taken as they are at one moment and made into text
in slices, while entries go on changing them. A crash in between leaves tables newer than the index,
which is harmless: entries set absolute values and are applied again. If a table cannot be read its
backup is taken and the whole log is applied again.
Source: spec/disk.md 5.6; RocketMQ ConfigManager.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import msgspec

from broker.state.replicated_state import BAD_CONTENT
from broker.state.steps import at_once, drop_steps
from broker.table_text import documents_of
from ledgermq.remoting.protocol.errors import RemoteProtocolError
from ledgermq.remoting.protocol.tolerant_json import NOT_DECODED
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError
from ledgermq.runtime.regular import KEPT, check_link, check_replaced

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from broker.state.replicated_state import ReplicatedState
    from broker.state.table import ReplicatedTable, Text
    from ledgermq.runtime.disk import Disk

_log = logging.getLogger(__name__)

_INDEX_FILE: Final = "appliedIndex.json"
FIRST_TABLES: Final = frozenset(
    {"topics.json", "subscriptionGroup.json", "consumerOffset.json", "queueLock.json"}
)
"""Those of versions that named none: all of them had these."""


class _AppliedIndex(msgspec.Struct, rename="camel"):
    applied_index: int
    #: In order of name, so that the same state is the same text in every process.
    tables: tuple[str, ...] = tuple(sorted(FIRST_TABLES))


class Capture(msgspec.Struct, frozen=True):
    """Tables in their parts, ready to be written: as of an entry."""

    applied_index: int
    files: dict[str, list[bytes]]
    revisions: dict[str, int]


class Snapshot:
    """Loads and saves the tables of one broker.

    Args:
        directory: the ``config`` directory under storePathRootDir.
    """

    def __init__(self, directory: str, state: ReplicatedState, disk: Disk) -> None:
        self._directory = directory
        self._disk = disk
        self._revisions = state.revisions
        self._tables = state.tables
        self._empty = state.empty
        self.lacking: frozenset[str] = frozenset()
        """Tables that were not in what was loaded or restored last, so that the log has to tell."""
        #: By file, the number of records in it; missing before the first write.
        self._saved_revisions: dict[str, int] = {}
        self._saved_index = -1
        #: Tables whose file is no good as it is: the ``.bak`` beside it is all that there is.
        self._unread: set[str] = set()
        self._is_replaced = False
        """Whether the tables are being replaced: they are no state of the log meanwhile."""

    def load(self) -> int:
        """Restore the tables; returns the index they include, -1 if the log must be read again.

        It does not contain those that are `lacking`: they stay empty.

        Raises:
            FatalError: a file cannot be read.
        """
        try:
            self._check_replaced()
            saved = self._maybe_read_index()
            named = [n for n in self._tables if saved is None or n in saved.tables]
            found = {name: self._load_table(name, self._tables[name]) for name in named}
        except OSError as error:
            message = f"the tables in {self._directory} cannot be read: {error}"
            raise FatalError(message, EXIT_ENVIRONMENT) from error
        index = -1
        if saved is not None and False not in found.values():
            index = saved.applied_index
            self.lacking = frozenset(name for name in self._tables if not found.get(name))
        self._saved_index = index
        return index

    def _check_replaced(self) -> None:
        """Refuse a directory in which no table could be saved. Errors: `FatalError`, `OSError`."""
        check_link(self._directory)
        names = (_INDEX_FILE, *self._tables)
        paths = (f"{self._directory}/{name}" for name in names)
        check_replaced(self._disk.size, *paths, suffixes=KEPT)

    def _maybe_read_index(self) -> _AppliedIndex | None:
        """Return what is said of the tables. Errors: `OSError`."""
        data = self._disk.read(f"{self._directory}/{_INDEX_FILE}")
        if data is None:
            return None
        try:
            return msgspec.json.decode(data, type=_AppliedIndex)
        except NOT_DECODED as error:
            path = f"{self._directory}/{_INDEX_FILE}"
            _log.warning("event=snapshot_index_unreadable file=%s error=%s", path, error)
            return None

    @property
    def saved_index(self) -> int:
        """The index that the tables on disk include, -1 for none."""
        return self._saved_index

    def take(self) -> dict[str, bytes]:
        """Return all tables as they are now, by file name; see `take_steps`."""
        return {name: bytes(text) for name, text in at_once(self.take_steps()).items()}

    def take_steps(self) -> Generator[None, None, dict[str, bytearray]]:
        """Return all tables as they are at the first step, by file name; slice by slice."""
        taken = [(name, table.snapshot_steps()) for name, table in self._tables.items()]
        files = {}
        for name, steps in taken:
            text = files[name] = bytearray()
            for part in steps:
                if text:
                    yield
                text += part
        return files

    def restore(self, files: Mapping[str, Text]) -> None:
        """Replace the tables by those of `take`, see `restore_steps`."""
        at_once(self.restore_steps(files))

    def restore_steps(self, files: Mapping[str, Text]) -> Generator[None, None, None]:
        """Replace the tables by those of `take`; they are written the next time, all of them.

        Those that are not among them, as whoever took them did not know them, become empty. All
        tables are as they were until their turn comes, together, and none is saved meanwhile.

        Raises:
            RemoteProtocolError: a file is not what `take` returned.
        """
        self.lacking = frozenset(self._tables.keys() - files.keys())
        self._is_replaced = True
        self._saved_index = -1
        return self._restore_steps(files)

    def _restore_steps(self, files: Mapping[str, Text]) -> Generator[None, None, None]:
        exchanges = []
        for name, table in self._tables.items():
            exchange = yield from table.restore_steps(files.get(name, self._empty[name]))
            exchanges.append(exchange)
        former = [exchange() for exchange in exchanges]
        for table in self._tables.values():
            for kind in table.appliers():
                self._revisions[kind] += 1
        self._is_replaced = False
        exchanges.clear()
        for rows in former:
            yield from drop_steps(rows)

    def find_problem(self, files: Mapping[str, Text]) -> str:
        """Return why the tables cannot be replaced by ``files``, empty if they can; in any thread.

        Each text is read as `restore_steps` reads it, a slice at a time, and nothing of it is kept.
        It must be strict JSON: the reader of other dialects is too slow for the loop.
        """
        for name, table in self._tables.items():
            if name not in files:
                continue
            try:
                for document in documents_of(files[name]):
                    msgspec.json.decode(document)
                    table.check(document)
            except BAD_CONTENT as error:
                return f"its {name} is no table: {error}"
        return ""

    def fill(self, files: Mapping[str, Text]) -> None:
        """Restore the tables that are lacking, as far as there are older texts of them."""
        for name in self.lacking & files.keys():
            self._tables[name].restore(bytes(files[name]))

    def capture(self, applied_index: int) -> Capture:
        """Return what changed since the last write, see `capture_steps`."""
        return at_once(self.capture_steps(applied_index))

    def capture_steps(self, applied_index: int) -> Generator[None, None, Capture]:
        """Return what changed since the last write, in the order to write it; slice by slice.

        ``applied_index``: every state record up to this entry is in the tables at the first step.
        What is applied after that is not in them.
        """
        capture = Capture(applied_index, {}, {})
        if self._is_replaced:
            return capture
        changed: list[tuple[str, Iterator[bytes]]] = []
        for name, table in self._tables.items():
            revision = self._revision(table)
            if revision != self._saved_revisions.get(name):
                capture.revisions[name] = revision
                changed.append((name, self._parts(name, table.snapshot_steps(), applied_index)))
        for name, steps in changed:
            capture.files[name] = []
            yield from _collect(steps, capture.files[name])
        if capture.files or applied_index != self._saved_index:
            capture.files[_INDEX_FILE] = [
                msgspec.json.encode(_AppliedIndex(applied_index, tuple(sorted(self._tables))))
            ]
        return capture

    def _parts(self, name: str, steps: Iterator[bytes], applied_index: int) -> Iterator[bytes]:
        """Return the parts of a file, for a table's text."""
        del name, applied_index
        return steps

    def write(self, capture: Capture) -> None:
        """Write what was captured; may run in a thread.

        Raises:
            OSError: the disk refused; what was not written will be captured again.
        """
        if not capture.files:
            return
        self._disk.make_directories(self._directory)
        for name, parts in capture.files.items():
            path = f"{self._directory}/{name}"
            # A crash between the two would leave what could not be read in both.
            is_kept = name != _INDEX_FILE and name not in self._unread
            previous = self._disk.read(path) if is_kept else None
            if previous is not None:
                self._disk.replace(path + ".bak", previous)
            self._disk.replace(path, joined(parts))
            if name in self._tables:
                self._saved_revisions[name] = capture.revisions[name]
            self._unread.discard(name)
        self._saved_index = capture.applied_index

    def _revision(self, table: ReplicatedTable) -> int:
        return table.changes + sum(self._revisions[kind] for kind in table.appliers())

    def _load_table(self, name: str, table: ReplicatedTable) -> bool | None:
        """Restore one table; False if its file is there and unreadable, None if there is none."""
        path = f"{self._directory}/{name}"
        data = self._disk.read(path)
        if data is None:
            return None
        try:
            _restore(table, data)
        except RemoteProtocolError as error:
            _log.warning(
                "event=snapshot_unreadable file=%s error=%s action=use-backup", path, error
            )
        else:
            return True
        self._unread.add(name)
        backup = self._disk.read(path + ".bak")
        if backup is not None:
            try:
                _restore(table, backup)
            except RemoteProtocolError as error:
                _log.warning("event=snapshot_unreadable file=%s.bak error=%s", path, error)
        return False


def _collect(steps: Iterator[bytes], parts: list[bytes]) -> Generator[None, None, None]:
    """Take the parts of a text, each but the first in a step of its own."""
    for part in steps:
        if parts:
            yield
        parts.append(part)


def joined(parts: list[bytes]) -> bytearray:
    """Return a text of its parts; in a thread, that of the loop may run between any two of them."""
    text = bytearray()
    for part in parts:
        text += part
    return text


def _restore(table: ReplicatedTable, data: bytes) -> None:
    """Restore one table. Errors: `RemoteProtocolError`, for bytes that are no text as well."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"no UTF-8 at byte {error.start}") from error
    table.restore(data)
