"""The small files of a replica's directory: who owns it, its term and vote, its checkpoint.

Each is replaced as a whole, so a crash leaves the old one or the new one. Term and vote are the two
facts Raft's safety rests on: when they cannot be written, or are missing beside a log, nothing goes
on. (DLedger deletes the old file before it renames the new one, and survives neither.)
"""

import logging
from threading import Lock
from typing import Final

from dledger.codec.properties import (
    Checkpoint,
    Identity,
    decode_checkpoint,
    decode_hard_state,
    decode_identity,
    encode_checkpoint,
    encode_hard_state,
    encode_identity,
)
from dledger.core.model import NO_INDEX, HardState, LogIndex, Rng
from dledger.errors import DiskFull
from dledger.limits import TERM_MAX
from dledger.storage.synced_file import SyncedFile
from ledgermq.runtime.disk import NO_SPACE, Closeable, Disk
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError
from ledgermq.runtime.regular import check_replaced

_log: Final = logging.getLogger(__name__)

REPLACED: Final = (
    "identity", "currterm", "checkpoint", "membership", "snapshot", "snapshot.install"
)  # fmt: skip
"""Files of a replica that are replaced as a whole."""


class HardStateFile:
    """``currterm``: term and vote."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/currterm"

    def load(self, *, log_is_empty: bool) -> HardState:
        """Return what was saved; the start of time for a new replica, which is fresh.

        Errors: `FatalError` when it is unreadable, or missing beside entries.
        """
        data = self._disk.read(self._path)
        if data is None:
            if log_is_empty:
                return HardState(fresh=True)
            raise FatalError(f"{self._path} is missing beside a log: the last vote is unknown")
        try:
            state = decode_hard_state(data)
        except ValueError as error:
            raise FatalError(f"{self._path} is damaged: {error}") from error
        if state.term > TERM_MAX:
            raise FatalError(
                f"{self._path}: no group gets to term {state.term} by elections, so a forged"
                " message has raised it; nothing is lost. Stop all members of the group, let only"
                " members reach their peer ports (docs/security.md), and write one and the same"
                " currTerm, above every term of raftStatus before, and an empty voteLeader into"
                " this file of each member; see operations.md, An absurd term"
            )
        return state

    def save(self, state: HardState) -> None:
        """Make ``state`` durable.

        Errors: `DiskFull`, then the file is as before; `FatalError` for any other failure.
        """
        try:
            self._disk.replace(self._path, encode_hard_state(state))
        except OSError as error:
            if error.errno in NO_SPACE:
                raise DiskFull from error
            raise FatalError(f"{self._path} is unwritable: {error}", EXIT_ENVIRONMENT) from error


class CheckpointFile:
    """``checkpoint``: how far the log is synced and committed. Never ahead of the truth.

    Beside it, ``synced`` says how far the log was synced since (`SyncedFile`).
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/checkpoint"
        self._synced_file = SyncedFile(disk, directory)
        self._marked: LogIndex = NO_INDEX
        """The highest index that the file ``synced`` can name."""
        self._mark_lock = Lock()
        """Guards the above and ``_saved``; nobody holds it during a sync."""
        self._saved = Checkpoint()
        self._is_late = False
        """Whether the last one found no space."""
        self._lock = Lock()
        self.cuts = 0
        """How often the log has been cut."""

    def load(self) -> Checkpoint:
        """Return what was saved, and synced since.

        Errors: `FatalError` when it is unreadable; `OSError`.
        """
        data = self._disk.read(self._path)
        if data is not None:
            try:
                self._saved = decode_checkpoint(data)
            except ValueError as error:
                raise FatalError(f"{self._path} is damaged: {error}") from error
        self._marked = self._synced_file.load(self._saved)
        return self._saved._replace(end_index=max(self._saved.end_index, self._marked))

    def mark(self, index: LogIndex) -> None:
        """Note that a sync has returned and entries up to ``index`` are synced; waits for nothing.

        Errors: `FatalError`; a full disk leaves the old mark, which is still true.
        """
        with self._mark_lock:
            if index > max(self._marked, self._saved.end_index):
                self._marked = index
                self._write_mark()

    def save(self, checkpoint: Checkpoint, cuts: int) -> None:
        """Write it if it changed. A full disk leaves the old one, which is still true.

        ``cuts``: what the attribute was when the checkpoint was made; it is dropped if the log has
        been cut since. Errors: `FatalError` for other failures than a full disk.
        """
        with self._lock:
            if checkpoint == self._saved or cuts != self.cuts:
                return
            try:
                self._write(checkpoint)
            except DiskFull:
                if not self._is_late:
                    _log.warning("event=checkpoint_waits file=%s reason=disk_full", self._path)
                self._is_late = True

    def lower(self, index: LogIndex) -> None:
        """Note, before the log is cut, that nothing behind ``index`` counts as synced any more.

        What is synced must be there at the next start, or it is damaged. In another thread than
        `save`. Errors: `DiskFull`, then nothing may be cut; `FatalError`.
        """
        with self._lock:
            self.cuts += 1
            self._lower_mark(index)
            saved = self._saved
            if saved.end_index > index:
                self._write(Checkpoint(index, min(saved.committed_index, index)))

    def _write(self, checkpoint: Checkpoint) -> None:
        try:
            self._disk.replace(self._path, encode_checkpoint(checkpoint))
        except OSError as error:
            if error.errno in NO_SPACE:
                raise DiskFull from error
            message = f"{self._path} is unwritable: {error}"
            raise FatalError(message, EXIT_ENVIRONMENT) from error
        self._is_late = False
        with self._mark_lock:
            self._saved = checkpoint
            if self._marked > checkpoint.end_index:
                self._write_mark()  # it went with the old one

    def _lower_mark(self, index: LogIndex) -> None:
        """Have ``synced`` say no more than ``index``, for good. Errors: `DiskFull`, `FatalError`.

        What `mark` writes meanwhile is no more either: whoever cuts the log has seen to that.
        """
        with self._mark_lock:
            if self._marked <= index:
                return
            before, self._marked = self._marked, index
            if not self._write_mark():
                self._marked = before
                raise DiskFull
        try:
            self._synced_file.sync()
        except OSError as error:
            raise FatalError(
                f"{self._synced_file.path} is unwritable: {error}", EXIT_ENVIRONMENT
            ) from error

    def _write_mark(self) -> bool:
        """Write ``synced``; False if the disk is full. Errors: `FatalError`."""
        try:
            return self._synced_file.write(self._saved, self._marked)
        except OSError as error:
            raise FatalError(
                f"{self._synced_file.path} is unwritable: {error}", EXIT_ENVIRONMENT
            ) from error

    def close(self) -> None:
        """Close what is open."""
        self._synced_file.close()


def claim_directory(
    disk: Disk, directory: str, *, group: str, self_id: str, rng: Rng
) -> tuple[Identity, Closeable]:
    """Lock the directory and make sure that it belongs to this node, or to nobody yet.

    Errors: `FatalError` when it is another node's or in use; then nothing was changed.
    """
    path = f"{directory}/identity"
    check_replaced(disk.size, *(f"{directory}/{name}" for name in (*REPLACED, "synced")))
    _check_owner(disk, path, group, self_id)
    disk.make_directories(directory)
    lock = disk.lock(f"{directory}/lock")
    try:
        identity = _check_owner(disk, path, group, self_id)
        is_new = disk.read(f"{directory}/currterm") is None
        if identity is None or is_new:  # what was here may be lost: it is another one now
            if not is_new:
                _log.warning("event=adopted directory=%s group=%s", directory, group)
            store_id = f"{rng.randint(0, (1 << 64) - 1):016x}"
            # Without currterm no start gets further, but it may be put back.
            was_adopted = identity is not None and identity.adopted
            is_adopted = bool(disk.names(f"{directory}/data")) if was_adopted else not is_new
            identity = Identity(group, self_id, store_id, adopted=is_adopted)
            disk.replace(path, encode_identity(identity))
    except BaseException:
        lock.close()
        raise
    return identity, lock


def _check_owner(disk: Disk, path: str, group: str, self_id: str) -> Identity | None:
    data = disk.read(path)
    if data is None:
        return None
    try:
        identity = decode_identity(data)
    except ValueError as error:
        raise FatalError(f"{path} is damaged: {error}") from error
    if (identity.group, identity.self_id) != (group, self_id):
        raise FatalError(
            f"{path}: the directory belongs to node {identity.self_id} of group {identity.group},"
            f" not to {self_id} of {group}"
        )
    return identity
