"""The state machine's tables on disk, in RocketMQ's JSON, with the index they include.

``config/`` holds ``topics.json subscriptionGroup.json consumerOffset.json`` as RocketMQ writes
them, our ``queueLock.json``, and ``appliedIndex.json``: the highest log entry that is inside.
Tables are written before the index, each by write, fsync, rename; the previous content is kept as
``.bak``. A crash in between leaves tables newer than the index, which is harmless: entries set
absolute values and are applied again. If a table cannot be read its backup is taken and the whole
log is applied again.
Source: protocol.md 5.6; RocketMQ ConfigManager.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import msgspec

from remoting.protocol.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.replicated_state import ReplicatedState
    from runtime.clock import Clock
    from runtime.disk import Disk

_log = logging.getLogger(__name__)

_INDEX_FILE: Final = "appliedIndex.json"


class _AppliedIndex(msgspec.Struct, rename="camel"):
    applied_index: int


class Snapshot:
    """Loads and saves the tables of one broker.

    Args:
        directory: the ``config`` directory under storePathRootDir.
    """

    def __init__(self, directory: str, state: ReplicatedState, disk: Disk, clock: Clock) -> None:
        self._directory = directory
        self._disk = disk
        self._saved: dict[str, bytes] = {}
        self._tables: dict[str, tuple[Callable[[], bytes], Callable[[bytes], None]]] = {
            "topics.json": (state.topics.snapshot, state.topics.restore),
            "subscriptionGroup.json": (state.groups.snapshot, state.groups.restore),
            "consumerOffset.json": (state.offsets.snapshot, state.offsets.restore),
            "queueLock.json": (
                state.locks.snapshot,
                lambda data: state.locks.restore(data, clock.monotonic_ms()),
            ),
        }

    def load(self) -> int:
        """Restore the tables; returns the index they include, -1 if the log must be read again."""
        complete = True
        for name, (_, restore) in self._tables.items():
            complete = self._load_table(name, restore) and complete
        data = self._disk.read(f"{self._directory}/{_INDEX_FILE}")
        index = -1
        if data is not None and complete:
            try:
                index = msgspec.json.decode(data, type=_AppliedIndex).applied_index
            except msgspec.MsgspecError as error:
                _log.warning("snapshot index unreadable file=%s error=%s", _INDEX_FILE, error)
        return index

    def capture(self, applied_index: int) -> dict[str, bytes]:
        """Return the files that differ from what was saved last, in the order to write them.

        ``applied_index``: every state record up to this entry is in the tables now.
        """
        files = {name: take() for name, (take, _) in self._tables.items()}
        files[_INDEX_FILE] = msgspec.json.encode(_AppliedIndex(applied_index))
        return {name: data for name, data in files.items() if self._saved.get(name) != data}

    def write(self, files: dict[str, bytes]) -> None:
        """Write captured files; may run in a thread.

        Raises:
            OSError: the disk refused; what was not written will be captured again.
        """
        if not files:
            return
        self._disk.make_directories(self._directory)
        for name, data in files.items():
            path = f"{self._directory}/{name}"
            previous = None if name == _INDEX_FILE else self._disk.read(path)
            if previous is not None:
                self._disk.replace(path + ".bak", previous)
            self._disk.replace(path, data)
            self._saved[name] = data

    def _load_table(self, name: str, restore: Callable[[bytes], None]) -> bool:
        """Restore one table; False if its file is there and unreadable."""
        path = f"{self._directory}/{name}"
        data = self._disk.read(path)
        if data is None:
            return True
        try:
            restore(data)
        except RemoteProtocolError as error:
            _log.warning("snapshot unreadable file=%s error=%s action=use-backup", path, error)
        else:
            return True
        backup = self._disk.read(path + ".bak")
        if backup is not None:
            try:
                restore(backup)
            except RemoteProtocolError as error:
                _log.warning("snapshot unreadable file=%s.bak error=%s", path, error)
        return False
