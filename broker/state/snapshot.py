"""The state machine's tables on disk, in RocketMQ's JSON, with the index they include.

``config/`` holds ``topics.json subscriptionGroup.json consumerOffset.json`` as RocketMQ writes
them, our ``queueLock.json``, and ``appliedIndex.json``: the highest log entry that is inside.
Tables are written before the index, each by write, fsync, rename; the previous content is kept as
``.bak``. Tables are taken as they are at one moment and made into text in slices, while entries go
on changing them. A crash in between leaves tables newer than the index, which is harmless: entries
set absolute values and are applied again. If a table cannot be read its backup is taken and the
whole log is applied again.
Source: spec/disk.md 5.6; RocketMQ ConfigManager.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, TypeVar, cast

import msgspec

from ledgermq.remoting.protocol.errors import RemoteProtocolError
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from broker.state.replicated_state import ReplicatedState
    from broker.state.table import ReplicatedTable
    from ledgermq.runtime.disk import Disk

_log = logging.getLogger(__name__)
T = TypeVar("T")

_INDEX_FILE: Final = "appliedIndex.json"


class _AppliedIndex(msgspec.Struct, rename="camel"):
    applied_index: int


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
        #: By file, the number of records in it; missing before the first write.
        self._saved_revisions: dict[str, int] = {}
        self._saved_index = -1

    def load(self) -> int:
        """Restore the tables; returns the index they include, -1 if the log must be read again.

        Raises:
            FatalError: a file cannot be read.
        """
        try:
            sound = [self._load_table(name, table) for name, table in self._tables.items()]
            data = self._disk.read(f"{self._directory}/{_INDEX_FILE}")
        except OSError as error:
            message = f"the tables in {self._directory} cannot be read: {error}"
            raise FatalError(message, EXIT_ENVIRONMENT) from error
        index = -1
        if data is not None and all(sound):
            try:
                index = msgspec.json.decode(data, type=_AppliedIndex).applied_index
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                _log.warning("event=snapshot_index_unreadable file=%s error=%s", _INDEX_FILE, error)
        self._saved_index = index
        return index

    @property
    def saved_index(self) -> int:
        """The index that the tables on disk include, -1 for none."""
        return self._saved_index

    def take(self) -> dict[str, bytes]:
        """Return all tables as they are now, by file name; see `take_steps`."""
        return at_once(self.take_steps())

    def take_steps(self) -> Generator[None, None, dict[str, bytes]]:
        """Return all tables as they are at the first step, by file name; slice by slice."""
        taken = [(name, table.snapshot_steps()) for name, table in self._tables.items()]
        files = {}
        for name, steps in taken:
            parts: list[bytes] = []
            yield from _collect(steps, parts)
            files[name] = b"".join(parts)
        return files

    def restore(self, files: dict[str, bytes]) -> None:
        """Replace the tables by those of `take`; they are written the next time, all of them.

        Raises:
            RemoteProtocolError: a file is not what `take` returned.
        """
        for name, table in self._tables.items():
            if name in files:
                table.restore(files[name])
            for kind in table.appliers():
                self._revisions[kind] += 1
        self._saved_index = -1

    def capture(self, applied_index: int) -> Capture:
        """Return what changed since the last write, see `capture_steps`."""
        return at_once(self.capture_steps(applied_index))

    def capture_steps(self, applied_index: int) -> Generator[None, None, Capture]:
        """Return what changed since the last write, in the order to write it; slice by slice.

        ``applied_index``: every state record up to this entry is in the tables at the first step.
        What is applied after that is not in them.
        """
        capture = Capture(applied_index, {}, {})
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
            capture.files[_INDEX_FILE] = [msgspec.json.encode(_AppliedIndex(applied_index))]
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
            previous = None if name == _INDEX_FILE else self._disk.read(path)
            if previous is not None:
                self._disk.replace(path + ".bak", previous)
            self._disk.replace(path, b"".join(parts))
            if name in self._tables:
                self._saved_revisions[name] = capture.revisions[name]
        self._saved_index = capture.applied_index

    def _revision(self, table: ReplicatedTable) -> int:
        return sum(self._revisions[kind] for kind in table.appliers())

    def _load_table(self, name: str, table: ReplicatedTable) -> bool:
        """Restore one table; False if its file is there and unreadable."""
        path = f"{self._directory}/{name}"
        data = self._disk.read(path)
        if data is None:
            return True
        try:
            _restore(table, data)
        except RemoteProtocolError as error:
            _log.warning(
                "event=snapshot_unreadable file=%s error=%s action=use-backup", path, error
            )
        else:
            return True
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


def at_once(steps: Generator[None, None, T]) -> T:
    """Return what is made in steps, made in one."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast("T", end.value)


async def in_turns(steps: Generator[None, None, T]) -> T:
    """Return what is made in steps, each in a turn of the loop, the first in this one."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast("T", end.value)
        await asyncio.sleep(0)


def _restore(table: ReplicatedTable, data: bytes) -> None:
    """Restore one table. Errors: `RemoteProtocolError`, for bytes that are no text as well."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"no UTF-8 at byte {error.start}") from error
    table.restore(data)
