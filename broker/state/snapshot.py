"""The state machine's tables on disk, in RocketMQ's JSON, with the index they include.

``config/`` holds ``topics.json subscriptionGroup.json consumerOffset.json`` as RocketMQ writes
them, our ``queueLock.json``, and ``appliedIndex.json``: the highest log entry that is inside.
Tables are written before the index, each by write, fsync, rename; the previous content is kept as
``.bak``. Tables are taken in slices, while entries behind the index go on changing them. That, and
a crash in between, leaves tables newer than the index, which is harmless: entries set
absolute values and are applied again. If a table cannot be read its backup is taken and the whole
log is applied again.
Source: spec/disk.md 5.6; RocketMQ ConfigManager.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, cast

import msgspec

from broker.state.replicated_state import StateKind
from ledgermq.remoting.protocol.errors import RemoteProtocolError
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from broker.state.replicated_state import ReplicatedState
    from ledgermq.runtime.clock import Clock
    from ledgermq.runtime.disk import Disk

_log = logging.getLogger(__name__)

_INDEX_FILE: Final = "appliedIndex.json"


class _AppliedIndex(msgspec.Struct, rename="camel"):
    applied_index: int


class _Table(msgspec.Struct):
    """One file: the kinds of records that change it, and how it is taken and restored."""

    kinds: tuple[StateKind, ...]
    parts: Callable[[], Iterator[bytes]]
    restore: Callable[[bytes], None]
    #: Number of records in the file on disk; -1 before the first write.
    saved_revision: int = -1


class Capture(msgspec.Struct, frozen=True):
    """Tables in their parts, ready to be written: as of an entry, or later."""

    applied_index: int
    files: dict[str, list[bytes]]
    revisions: dict[str, int]


class Snapshot:
    """Loads and saves the tables of one broker.

    Args:
        directory: the ``config`` directory under storePathRootDir.
    """

    def __init__(self, directory: str, state: ReplicatedState, disk: Disk, clock: Clock) -> None:
        self._directory = directory
        self._disk = disk
        self._revisions = state.revisions
        self._tables = {
            "topics.json": _Table(
                (StateKind.TOPIC,), state.topics.snapshot_steps, state.topics.restore
            ),
            "subscriptionGroup.json": _Table(
                (StateKind.GROUP,), state.groups.snapshot_steps, state.groups.restore
            ),
            "consumerOffset.json": _Table(
                (StateKind.OFFSET, StateKind.FORGET_OFFSETS),
                state.offsets.snapshot_steps,
                state.offsets.restore,
            ),
            "queueLock.json": _Table(
                (StateKind.LOCK, StateKind.UNLOCK),
                state.locks.snapshot_steps,
                lambda data: state.locks.restore(data, clock.monotonic_ms()),
            ),
        }
        self._saved_index = -1

    def load(self) -> int:
        """Restore the tables; returns the index they include, -1 if the log must be read again.

        Raises:
            FatalError: a file cannot be read.
        """
        try:
            sound = [self._load_table(name, table.restore) for name, table in self._tables.items()]
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
        """Return all tables as they are now, by file name."""
        return {name: b"".join(table.parts()) for name, table in self._tables.items()}

    def restore(self, files: dict[str, bytes]) -> None:
        """Replace the tables by those of `take`; they are written the next time, all of them.

        Raises:
            RemoteProtocolError: a file is not what `take` returned.
        """
        for name, table in self._tables.items():
            if name in files:
                table.restore(files[name])
            for kind in table.kinds:
                self._revisions[kind.value] += 1
        self._saved_index = -1

    def capture(self, applied_index: int) -> Capture:
        """Return what changed since the last write, see `capture_steps`."""
        steps = self.capture_steps(applied_index)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return cast("Capture", end.value)

    def capture_steps(self, applied_index: int) -> Generator[None, None, Capture]:
        """Return what changed since the last write, in the order to write it; slice by slice.

        ``applied_index``: every state record up to this entry is in the tables now. What is applied
        while this goes on may be in them or not.
        """
        capture = Capture(applied_index, {}, {})
        for name, table in self._tables.items():
            revision = self._revision(table)
            if revision != table.saved_revision:
                capture.revisions[name] = revision
                parts = capture.files[name] = []
                for part in table.parts():
                    if parts:
                        yield
                    parts.append(part)
        if capture.files or applied_index != self._saved_index:
            capture.files[_INDEX_FILE] = [msgspec.json.encode(_AppliedIndex(applied_index))]
        return capture

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
                self._tables[name].saved_revision = capture.revisions[name]
        self._saved_index = capture.applied_index

    def _revision(self, table: _Table) -> int:
        return sum(self._revisions[kind.value] for kind in table.kinds)

    def _load_table(self, name: str, restore: Callable[[bytes], None]) -> bool:
        """Restore one table; False if its file is there and unreadable."""
        path = f"{self._directory}/{name}"
        data = self._disk.read(path)
        if data is None:
            return True
        try:
            _restore(restore, data)
        except RemoteProtocolError as error:
            _log.warning(
                "event=snapshot_unreadable file=%s error=%s action=use-backup", path, error
            )
        else:
            return True
        backup = self._disk.read(path + ".bak")
        if backup is not None:
            try:
                _restore(restore, backup)
            except RemoteProtocolError as error:
                _log.warning("event=snapshot_unreadable file=%s.bak error=%s", path, error)
        return False


def _restore(restore: Callable[[bytes], None], data: bytes) -> None:
    """Restore one table. Errors: `RemoteProtocolError`, for bytes that are no text as well."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"no UTF-8 at byte {error.start}") from error
    restore(data)
