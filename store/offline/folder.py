"""What kind of store a folder is, RocketMQ's plain one or a Raft group's, and where its parts lie.

A plain store has ``commitlog/``; one of a Raft group has ``dledger-<id>/`` with ``data/`` and
``index/``, beside the same ``consumequeue/ index/ config/ checkpoint``. A folder may have both: a
broker that went over to DLedger kept its old log, and the new one begins where that ends. All sizes
are taken from the files. Source: spec/disk.md 5.1, 6.1; `docs/storage.md`.
"""

from __future__ import annotations

import fcntl
import os
import struct
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final

from ledgermq.runtime.printable import shown
from store.offline.files import (
    FileRow,
    ReadError,
    StoreFile,
    directories_in,
    is_directory,
    maybe_info,
    names_in,
    read_row,
)

EXPECTED: Final = (
    "a storePathRootDir (with commitlog/ or dledger-<id>/) or a dledger-<id> folder (with data/)"
)
DLEDGER_PREFIX: Final = "dledger-"
ROOT_NAMES: Final = frozenset(
    {
        "abort", "checkpoint", "lock", "commitlog", "consumequeue", "consumequeue_ext", "index",
        "config", "consumequeue.checkpoint", "consumequeue.clean", "index.checkpoint",
        "batchconsumequeue", "timerwheel", "timerlog", "ha", "epochFileCheckpoint", "timermetrics",
        "transactionCheckpoint", "copied", "brokerIdentity", "brokerIdentity-temp",
        "brokerIdentity.json", "confirmedPosition",
    }
)  # fmt: skip
"""What a ``storePathRootDir`` holds, ours or RocketMQ's."""
REBUILD_DIRECTORY: Final = "rebuild"
"""Where a rebuild makes its files."""
REPLACED: Final = ".replaced"
"""Ending of what a rebuild moved aside."""
_NAMES_SHOWN: Final = 8
_FLOCK: Final = struct.Struct("hhqqi4x")


class UnusableError(Exception):
    """A path that is no store; the message says what was expected there and what was found."""


class LogKind(StrEnum):
    """Whose format a log has."""

    PLAIN = "plain"
    DLEDGER = "dledger"


@dataclass(frozen=True, slots=True)
class LogFolder:
    """One log: a row of segments, for DLedger with the index of its entries."""

    kind: LogKind
    directory: str
    """``commitlog``, or the ``dledger-<id>`` folder."""
    segments: FileRow
    units: FileRow
    """The DLedger index; no files for a plain log."""


@dataclass(frozen=True)
class StoreFolder:
    """Where the parts of a store lie; parts may be missing."""

    root: str
    """``storePathRootDir``; for a lone ``dledger-<id>`` folder, that."""
    logs: tuple[LogFolder, ...]
    """Oldest first."""

    @property
    def dledger(self) -> LogFolder | None:
        """The log of a Raft group."""
        return next((log for log in self.logs if log.kind is LogKind.DLEDGER), None)

    @property
    def kind(self) -> str:
        """``plain``, ``dledger``, or both."""
        return "+".join(log.kind for log in self.logs)

    @property
    def is_lone(self) -> bool:
        """Whether there is a log and nothing beside it."""
        return any(log.directory == self.root for log in self.logs)

    @cached_property
    def was_aborted(self) -> bool:
        """Whether the file is there that a clean stop removes."""
        return maybe_info(self.path("abort")) is not None

    @cached_property
    def is_ours(self) -> bool:
        """Whether a broker of ours has worked on it."""
        names = [self.path("consumequeue.checkpoint"), self.path("config/appliedIndex.json")]
        names += [f"{log.directory}/identity" for log in self.logs]
        return any(maybe_info(name) is not None for name in names)

    @property
    def lock_files(self) -> list[str]:
        """The files that a broker locks."""
        places = dict.fromkeys([self.root, *(log.directory for log in self.logs)])
        return [f"{place}/lock" for place in places if maybe_info(f"{place}/lock") is not None]

    def path(self, name: str) -> str:
        """Return the path of a part."""
        return f"{self.root}/{name}"

    def strangers(self) -> list[str]:
        """Return names in the root that are no part of a store."""
        if self.is_lone:
            return []
        return [
            name
            for name in names_in(self.root)
            if name not in ROOT_NAMES
            and not name.startswith(DLEDGER_PREFIX)
            and name != REBUILD_DIRECTORY
            and not name.endswith((".bak", ".tmp"))
        ]

    def locked_by(self) -> int | None:
        """Return the process that has the store open, None if none has; 0 if it is unknown."""
        for path in self.lock_files:
            holder = _lock_holder(path)
            if holder is not None:
                return holder
        return None


def open_folder(path: str) -> StoreFolder:
    """Find out what ``path`` is. Errors: `UnusableError`."""
    path = path.rstrip("/") or "/"
    if not is_directory(path):
        found = "a file" if os.path.lexists(path) else "nothing"
        raise UnusableError(f"{shown(path)}: expected {EXPECTED}, found {found}")
    if is_directory(f"{path}/data") and not is_directory(f"{path}/commitlog"):
        log = _dledger(path)
        parent = os.path.dirname(os.path.abspath(path))  # noqa: PTH100  # plain strings here
        has_queues = is_directory(f"{parent}/consumequeue")
        is_named = os.path.basename(path).startswith(DLEDGER_PREFIX)
        return _checked(StoreFolder(parent if has_queues and is_named else path, (log,)), path)
    members = [
        name
        for name in directories_in(path)
        if name.startswith(DLEDGER_PREFIX) and is_directory(f"{path}/{name}/data")
    ]
    if len(members) > 1:
        names = ", ".join(shown(name) for name in members)
        raise UnusableError(f"{shown(path)}: expected one dledger-<id> folder, found {names}")
    logs = [_dledger(f"{path}/{name}") for name in members]
    if is_directory(f"{path}/commitlog"):
        plain = LogFolder(
            LogKind.PLAIN, f"{path}/commitlog", read_row(f"{path}/commitlog"), FileRow("")
        )
        if plain.segments.files or not logs:
            logs.insert(0, plain)
    if not logs:
        raise UnusableError(f"{shown(path)}: expected {EXPECTED}, found {_found_in(path)}")
    return _checked(StoreFolder(path, tuple(logs)), path)


def _dledger(directory: str) -> LogFolder:
    return LogFolder(
        LogKind.DLEDGER, directory, read_row(f"{directory}/data"), read_row(f"{directory}/index")
    )


def _checked(folder: StoreFolder, path: str) -> StoreFolder:
    """Refuse a store without a log: nothing can be said about the rest."""
    if not any(log.segments.files for log in folder.logs) and not folder.is_ours:
        where = ", ".join(shown(log.segments.directory) for log in folder.logs)
        queues = directories_in(f"{folder.root}/consumequeue")
        if queues or not os.access(folder.logs[0].segments.directory, os.R_OK | os.X_OK):
            raise UnusableError(
                f"{shown(path)}: expected segments (files named by 20 digits) in {where},"
                " found none that can be read"
            )
    return folder


def _found_in(path: str) -> str:
    """Say what a folder holds, and where a store is near by."""
    if not os.access(path, os.R_OK | os.X_OK):
        return "a folder that cannot be read"
    names = names_in(path)
    if not names:
        return "an empty folder"
    listed = ", ".join(shown(name) for name in names[:_NAMES_SHOWN])
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    hint = ""
    for near in [os.path.dirname(os.path.abspath(path))] + [f"{path}/{n}" for n in names]:  # noqa: PTH100  # plain strings here
        if is_directory(f"{near}/commitlog") or any(
            name.startswith(DLEDGER_PREFIX) for name in directories_in(near)
        ):
            hint = f"; {shown(near)} looks like a store"
            break
    return f"a folder with {listed}{more}{hint}"


def _lock_holder(path: str) -> int | None:
    """Return who holds a lock on the file, None if nobody does."""
    try:
        file = StoreFile(path)
    except ReadError:
        return None
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, process = _FLOCK.unpack(fcntl.fcntl(file.descriptor, fcntl.F_GETLK, asked))
    except OSError:
        return None
    finally:
        file.close()
    return None if kind == fcntl.F_UNLCK else max(0, process)
