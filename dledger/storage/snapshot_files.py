"""The files of a snapshot in a replica's directory, and how one takes the place of a log.

| file | meaning |
|---|---|
| ``snapshot`` | the one that counts: it says where the log begins |
| ``snapshot.part`` | one that is being received |
| ``snapshot.install`` | which snapshot replaces the whole log; while it is there, the log is void |

Install: 1. the part is complete, synced and its CRC right. 2. ``snapshot.install`` is written. 3.
``snapshot`` is replaced: from here on the new state counts. 4. The log is removed. 5. The two other
files are removed. A crash before 3 leaves the old snapshot and log, one behind it finds at the next
start that the marker names the snapshot, and goes on with 4. Each file is replaced as a whole.

Trimming is 3 alone, without a marker: what lies before the new beginning is removed then, or at the
next start. Source: Raft paper 7.

Files are replaced in a thread, one at a time, and the log begins anew in the loop, a little later.
In between the one before is in force still (`SnapshotFiles.meta`): a leader may be sending it.
"""

import logging
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple

from dledger.codec.entry import HEADER_BYTES
from dledger.codec.snapshot import decode_head, decode_snapshot
from dledger.config import is_address
from dledger.core.configuration import FORMER_MAX, Configuration
from dledger.core.model import NO_INDEX, LogIndex, SnapshotId
from dledger.core.snapshot import SnapshotMeta, StageWork
from dledger.limits import (
    INDEX_MAX,
    NODE_ID,
    SNAPSHOT_INDEX_MAX,
    SNAPSHOT_POSITION_MAX,
    TERM_MAX,
)
from ledgermq.runtime.disk import NO_FILES, Disk, File
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError

if TYPE_CHECKING:
    from collections.abc import Callable

_log: Final = logging.getLogger(__name__)

NAME: Final = "snapshot"
PART_NAME: Final = "snapshot.part"
MARKER_NAME: Final = "snapshot.install"
MEMBERS_MAX: Final = 64
"""The most members of a group; a snapshot that names more is refused."""
ADDRESS_SHOWN: Final = 100
"""Characters of a bad address that a log line has."""


class Staged(NamedTuple):
    """What became of a chunk that was to be kept aside."""

    kept: bool
    installed: SnapshotMeta | None
    """After the last one: the snapshot that counts now, and whose log is empty."""


class SnapshotFiles:
    """The snapshot of one replica. `OSError` passes unless said otherwise."""

    def __init__(self, disk: Disk, directory: str, segment_bytes: int = 1) -> None:
        self._disk = disk
        self._segment_bytes = segment_bytes
        self._path = f"{directory}/{NAME}"
        self._part_path = f"{directory}/{PART_NAME}"
        self._marker_path = f"{directory}/{MARKER_NAME}"
        self._file: File | None = None
        self._file_id: SnapshotId | None = None
        self._part: File | None = None
        self._part_id: SnapshotId | None = None
        self._installed: tuple[SnapshotId, bytes] | None = None
        self._is_marked = False
        """Whether the marker may be there of an install that failed."""
        self._lock = Lock()
        """Held while the file is replaced: a large one is, for a trim, in a thread of its own."""
        self.meta: SnapshotMeta | None = None
        """What the snapshot in force says of itself; None if there is no snapshot."""
        self.newest: SnapshotMeta | None = None
        """What the one says that is in the file, or on its way there; see `put_in_force`."""
        self.validator: Callable[[bytes], str] = lambda _state: ""
        """Says what is wrong with a state, for whoever uses the log; not called in the loop."""

    @property
    def path(self) -> str:
        """Where the one that counts is."""
        return self._path

    def load(self) -> SnapshotMeta | None:
        """Read what is there. Errors: `FatalError` when it is damaged."""
        data = self._disk.read(self._path)
        if data is not None:
            self.meta = self.newest = self._decode(data)[0]
        return self.meta

    @property
    def replaces_log(self) -> bool:
        """Whether an install was begun that has yet to remove the log."""
        marker = self._disk.read(self._marker_path)
        return self.meta is not None and marker == _name_of(self.meta.id)

    def state(self) -> bytes:
        """Return the state in the snapshot that counts. Errors: `FatalError`: damaged.

        What was installed just now is at hand, once: to read it takes long.
        """
        installed, self._installed = self._installed, None
        if installed is not None and self.meta is not None and installed[0] == self.meta.id:
            return installed[1]
        data = self._disk.read(self._path)
        if data is None:
            raise FatalError(f"{self._path} is missing", EXIT_ENVIRONMENT)
        return self._decode(data)[1]

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of the file, to be shipped; none while another one takes its place.

        Nor while it is not open and no more files may be. Errors: `FatalError`.
        """
        assert self.meta is not None, "no snapshot"
        try:
            if self._file is None or self._file_id != self.meta.id:
                if self.newest is not self.meta:
                    return b""
                if self._file is not None:
                    self._file.close()
                    self._file = None
                self._file = self._disk.open(self._path, size=self.meta.id.size)
                self._file_id = self.meta.id
            return self._file.pread(offset, size)
        except OSError as error:
            if error.errno in NO_FILES:
                return b""
            raise FatalError(f"{self._path} cannot be read: {error}", EXIT_ENVIRONMENT) from error

    def save(self, data: bytes | bytearray) -> bool:
        """Write a snapshot whose log is trimmed next; False if a newer one is there already."""
        meta, _ = decode_head(data)
        with self._lock:
            if self.newest is not None and meta.id.last_index <= self.newest.id.last_index:
                return False
            self._drop_marker()
            self._replace(meta, data)
        return True

    def _drop_marker(self) -> None:
        """Remove what an install that failed has left: the same one may yet stand for a trim.

        Then it voids no log. Where no more files may be opened, it stays until the next call.
        """
        if self._is_marked:
            self._disk.remove(self._marker_path)
            self._is_marked = False

    def _replace(self, meta: SnapshotMeta, data: bytes | bytearray) -> None:
        """Put one in the place of the file. From before that on nobody opens it for another."""
        before, self.newest = self.newest, meta
        try:
            self._disk.replace(self._path, data)
        except BaseException:
            self.newest = before
            raise

    def put_in_force(self, last_index: LogIndex) -> None:
        """Have the snapshot in the file count, if it stands for what ends with ``last_index``.

        Called in the loop, just before the log begins behind that.
        """
        newest = self.newest
        if newest is not None and newest.id.last_index == last_index:
            self.meta = newest

    def stage(self, work: StageWork) -> None:
        """Keep aside bytes that have come."""
        if self._part_id != work.id or work.offset == 0:
            self.drop_part()
            self._part = self._disk.open(self._part_path, size=work.id.size)
            self._part_id = work.id
        assert self._part is not None, work.id
        self._part.pwrite(work.offset, (work.data,))

    def install(self, snapshot_id: SnapshotId) -> SnapshotMeta | None:
        """Let the received snapshot count, steps 1 to 3; None if it is not what was announced."""
        assert self._part is not None, snapshot_id
        self._part.fdatasync()
        data = self._part.pread(0, snapshot_id.size)
        found = self._verified(data, snapshot_id)
        if found is None:
            self.drop_part()
            return None
        meta, state = found
        with self._lock:
            self._disk.replace(self._marker_path, _name_of(meta.id))
            try:
                self._replace(meta, data)
            except OSError:  # no space
                self._is_marked = True
                self._drop_marker()
                raise
        self._installed = (meta.id, state)
        return meta

    def verify(self, data: bytes, announced: SnapshotId) -> SnapshotMeta | None:
        """Return what a peer's snapshot says of itself; None, and a log line, if it cannot be.

        It may take a while: not for the loop.
        """
        found = self._verified(data, announced)
        return None if found is None else found[0]

    def _verified(self, data: bytes, announced: SnapshotId) -> tuple[SnapshotMeta, bytes] | None:
        try:
            meta, state = decode_snapshot(data)
            problem = (
                f"it says {meta.id.describe()}"
                if meta.id != announced
                else (find_problem(meta, self._segment_bytes) or self.validator(state))
            )
        except ValueError as error:
            problem = str(error)
        if problem:
            _log.error(
                "event=snapshot_refused file=%s announced=%s reason=%r",
                self._path, announced.describe(), problem,
            )  # fmt: skip
            return None
        return meta, state

    def end_install(self) -> None:
        """The log is removed: the snapshot stands alone (step 5)."""
        self._disk.remove(self._marker_path)
        self._is_marked = False
        self.drop_part()

    def drop_part(self) -> None:
        """Forget what was received."""
        if self._part is not None:
            self._part.close()
        self._part = self._part_id = None
        self._disk.remove(self._part_path)

    def close(self) -> None:
        """Close the files."""
        for file in (self._file, self._part):
            if file is not None:
                file.close()
        self._file = self._part = None

    def _decode(self, data: bytes) -> tuple[SnapshotMeta, bytes]:
        try:
            return decode_snapshot(data)
        except ValueError as error:
            raise FatalError(
                f"{self._path} is damaged ({error}): where the log begins is unknown; move the"
                " directory away and start with an empty one, when the others have everything"
            ) from error


def find_problem(meta: SnapshotMeta, segment_bytes: int) -> str:
    """Return what cannot be true of a snapshot that a peer sends, empty for nothing."""
    entry, last = meta.configuration, meta.id
    is_room = last.last_index <= SNAPSHOT_INDEX_MAX and meta.position <= SNAPSHOT_POSITION_MAX
    if not is_room or meta.state_index > INDEX_MAX or last.last_term > TERM_MAX:
        return (
            f"nothing can follow entry {last.last_index} of term {last.last_term} at position"
            f" {meta.position}, with the state of entry {meta.state_index}"
        )
    if meta.position < (last.last_index + 1) * HEADER_BYTES or meta.position % segment_bytes:
        return f"entry {last.last_index} cannot end before position {meta.position}"
    if not (NO_INDEX <= entry.index <= last.last_index and 0 <= entry.term <= last.last_term):
        return f"its configuration is of entry {entry.index} and term {entry.term}"
    members = entry.configuration
    bad = [address for address in members.members.values() if not is_address(address)]
    if bad:
        return f"one of its members is at {bad[0][:ADDRESS_SHOWN]!r}"
    if not 0 <= members.version <= INDEX_MAX:
        return f"its configuration is version {members.version}"
    return find_problem_of_members(members)


def find_problem_of_members(found: Configuration) -> str:
    """Return what cannot be true of a configuration that a peer sends, empty for nothing."""
    if not 0 < len(found.members) <= MEMBERS_MAX or not found.voters:
        return f"it has {len(found.voters)} voters and {len(found.learners)} learners"
    if found.voters.keys() & found.learners.keys() or not all(map(NODE_ID.match, found.members)):
        return f"its members are {', '.join(found.members)}"
    former = found.former
    if len(former) > FORMER_MAX or found.members.keys() & set(former):
        return f"it has {len(former)} former members"
    return ""


def _name_of(snapshot_id: SnapshotId) -> bytes:
    return (
        f"lastIndex={snapshot_id.last_index}\nlastTerm={snapshot_id.last_term}\n"
        f"size={snapshot_id.size}\ncrc={snapshot_id.crc:08x}\n"
    ).encode()
