"""The log, vote and snapshot of a controller on disk, synced before anything is said of them.

PySyncObj 0.3.17 writes its journal through a map that nobody syncs, its term and vote by a rename
that nobody syncs, and its snapshot likewise; it removes the end of a log before it compares it, and
clears a journal that a crash left longer than its snapshot. This takes the journal's place:

- `add` and `setCurrentTerm` return when the disk has it: before a message or a count rests on it;
- entries that are removed and added again unchanged never leave the file, so that a crash between
  loses none that was confirmed; entries that differ replace the file as a whole;
- what was committed is never replaced: that ends the process, since the logs have diverged;
- a snapshot is synced before the entries that it stands for are removed;
- a start tells a record that was being written from damage: how far the log was synced stands in a
  file beside it, which follows it unsynced, so it never says more than is there;
- a start refuses a log and a vote of which one is behind the other: what was confirmed, or whom it
  voted for, is forgotten then.

An error of the disk passes: nothing may be said after it.

```
record  crc32 (4) of all behind it, size (4), index (8), term (8), kind (1), payload (size)
kind    0 no-op, 1 command; big-endian. Zeros end the file.
synced  where the synced records end (8), crc32 of that (4)
```
"""

import pickle
import struct
import zlib
from typing import Any, Final

import msgspec
from pysyncobj.journal import Journal

from ledgermq.remoting.protocol.tolerant_json import NOT_DECODED
from ledgermq.runtime.disk import Disk, File
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError
from ledgermq.runtime.regular import check_replaced
from namesrv.controller.limits import COMMAND_BYTES_MAX, PLACE_MAX
from namesrv.controller.snapshot import Snapshot, read_snapshot
from namesrv.controller.wire import Entry

JOURNAL_BYTES: Final = 2 * 1024 * 1024
_HEAD: Final = struct.Struct(">IIQQB")
_CRC: Final = struct.Struct(">I")
_SIZE: Final = struct.Struct(">I")
_RECORD_BYTES_MAX: Final = _HEAD.size + int(COMMAND_BYTES_MAX)
_SYNCED: Final = struct.Struct(">QI")
_SYNCED_FILE_BYTES: Final = 512
_SECTOR_BYTES: Final = 512
"""What a disk writes as a whole, or not at all."""
_NO_OP: Final = b"\x01"
_COMMAND: Final = b"\x00"
_PICKLE_PROTOCOL: Final = 2
"""PySyncObj's kinds of commands, and the protocol that it pickles with."""

_LOST: Final = (
    ": what was confirmed may be lost; start with another controllerStorePath while all others run"
)

Raw = tuple[bytes, int, int]
"""PySyncObj's entry: command, index, term."""


class _Vote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    term: int
    voted_for: str | None


class SyncedJournal(Journal):  # type: ignore[misc]  # the library has no types
    """The log and the vote of one controller, as PySyncObj's journal. Its names are PySyncObj's.

    Args:
        directory: exists already, and is locked by the caller.

    Errors: `FatalError` for files that cannot be; `OSError` passes.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/journal"
        self._vote_path = f"{directory}/vote"
        self.snapshot_path = f"{directory}/snapshot"
        dump, synced = f"{directory}/dump", f"{directory}/synced"
        names = (self._path, self._vote_path, self.snapshot_path, synced, dump, f"{dump}.tmp")
        check_replaced(disk.size, *names)
        self._vote = _read_vote(disk, self._vote_path)
        self._entries: list[Raw] = []
        self._hidden: list[Raw] = []
        """Removed from the end, and still in the file."""
        self._committed = 1
        self._file: File | None = self._open(self._path, JOURNAL_BYTES)
        self._synced = self._open(synced, _SYNCED_FILE_BYTES)
        self._end = 0
        self._load()
        if not self._entries and self._vote.term:
            raise FatalError(
                f"{self._path} is empty beside a vote of term {self._vote.term}{_LOST}"
            )
        self._fit(read_snapshot(disk, self.snapshot_path))
        if self._entries and self.last[1] > self._vote.term:
            found = f"{self._vote_path} is missing or of term {self._vote.term}"
            raise FatalError(f"{found}, and the log of term {self.last[1]}{_LOST}")

    # What the transport asks

    @property
    def last(self) -> tuple[int, int]:
        """Index and term of the last entry."""
        _, index, term = self._entries[-1]
        return index, term

    def term_of(self, index: int) -> int | None:
        """Return the term of an entry, None if it is not here."""
        if not self._entries:
            return None
        place = index - self._entries[0][1]
        return self._entries[place][2] if 0 <= place < len(self._entries) else None

    # PySyncObj's journal

    def add(self, command: bytes, idx: int, term: int) -> None:
        """Append an entry; it is on the disk when this returns."""
        raw = (bytes(command), idx, term)
        if self._hidden and self._hidden[0] == raw:
            self._entries.append(self._hidden.pop(0))
            return
        if self._hidden and idx <= self._committed:
            raise _diverged(idx)
        self._entries.append(raw)
        if self._hidden or self._end == 0:
            self._rewrite()
            return
        data = encode_record(raw)
        if self._end + len(data) > JOURNAL_BYTES:
            raise FatalError(f"{self._path} is full: entries are not committed", EXIT_ENVIRONMENT)
        assert self._file is not None
        self._file.pwrite(self._end, (data,))
        self._file.fdatasync()
        self._end += len(data)
        self._note_synced()

    def clear(self) -> None:
        """Forget all entries; the file has them until the next one is added."""
        self._entries, self._hidden, self._end = [], [], 0

    def deleteEntriesFrom(self, entryFrom: int) -> None:  # noqa: N802, N803 - its names
        """Remove entries from a place on; the file keeps them until another one comes."""
        self._hidden = self._entries[entryFrom:] + self._hidden
        del self._entries[entryFrom:]

    def deleteEntriesTo(self, entryTo: int) -> None:  # noqa: N802, N803 - its names
        """Remove entries before a place, for which a snapshot stands, synced already.

        A place behind the end is one of a log that is here no more: nothing is removed.
        """
        if entryTo < len(self._entries):
            self._entries = self._entries[entryTo:]
            self._rewrite()

    def __getitem__(self, item: Any) -> Any:  # noqa: ANN401 - a place or a slice
        return self._entries[item]

    def __len__(self) -> int:
        return len(self._entries)

    def _destroy(self) -> None:
        self._close()
        self._synced.close()

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:  # noqa: N802, N803 - its names
        """Note how far the log is committed; it is found anew after a start."""
        self._committed = max(self._committed, raftCommitIndex)

    def getRaftCommitIndex(self) -> int:  # noqa: N802 - its name
        """Return how far the log is known to be committed: as far as the snapshot."""
        return self._committed

    def setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:  # noqa: N802, N803 - its names
        """Keep term and vote; they are on the disk when this returns."""
        if term < self._vote.term:
            raise FatalError(f"term {term} after {self._vote.term}", EXIT_ENVIRONMENT)
        vote = _Vote(1, term, votedForNodeId)
        self._disk.replace(self._vote_path, msgspec.json.encode(vote))
        self._vote = vote

    def getCurrentTerm(self) -> int:  # noqa: N802 - its name
        """Return the last term."""
        return self._vote.term

    def getVotedForNodeId(self) -> str | None:  # noqa: N802 - its name
        """Return whom it voted for in that term."""
        return self._vote.voted_for

    # The file

    def _open(self, path: str, size: int) -> File:
        try:
            return self._disk.open(path, size=size)
        except IsADirectoryError as error:
            raise FatalError(f"{path} is a directory, no log of a controller") from error

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _note_synced(self, end: int | None = None) -> None:
        """Note how far the log is synced; that may be lost, and says less then."""
        place = (self._end if end is None else end).to_bytes(8, "big")
        self._synced.pwrite(0, (place, _CRC.pack(zlib.crc32(place))))

    def _synced_end(self) -> int:
        """Return up to where the log was synced for sure, 0 where that is not known."""
        data = self._synced.pread(0, _SYNCED.size)
        end, crc = _SYNCED.unpack(data)
        return int(end) if crc == zlib.crc32(data[:8]) else 0

    def _rewrite(self) -> None:
        """Replace the file by one with the entries that there are, as a whole."""
        records = b"".join(map(encode_record, self._entries))
        if len(records) > JOURNAL_BYTES:
            raise FatalError(f"{self._path} is full: entries are not committed", EXIT_ENVIRONMENT)
        self._note_synced(0)  # of the file that goes
        self._synced.fdatasync()
        self._close()
        self._disk.replace(self._path, records.ljust(JOURNAL_BYTES, b"\0"))
        self._file, self._hidden = self._open(self._path, JOURNAL_BYTES), []
        self._end = len(records)
        self._note_synced()

    def _load(self) -> None:
        assert self._file is not None
        data = self._file.pread(0, JOURNAL_BYTES)
        entries, end = decode_records(data)
        self._entries, self._end = [to_raw(entry) for entry in entries], end
        rest = self._file.nonzero_end(end) - end
        if rest > 0 and not is_torn(data[end : end + rest], end):
            raise FatalError(f"{self._path} is damaged at {end}, {rest} bytes from its end{_LOST}")
        synced = self._synced_end()
        if 0 < end < synced:
            raise FatalError(f"{self._path} is damaged at {end}: it was synced to {synced}{_LOST}")
        if rest > 0 and not end and self._vote.term:
            # Not torn: no vote is written before the first record is synced. It may be mended yet.
            raise FatalError(f"{self._path} is damaged at 0, beside a vote of term"
                             f" {self._vote.term}{_LOST}")  # fmt: skip
        if rest > 0:  # the last record was being written when the power went
            self._file.zero_from(end)
        self._file.fdatasync()
        self._note_synced()

    def _fit(self, snapshot: Snapshot | None) -> None:
        """Let the log begin with the entries of the snapshot, whenever a crash came."""
        if snapshot is None:
            if self._entries and self._entries[0][1] != 1:
                raise FatalError(f"{self.snapshot_path} is gone: the log begins behind it")
            return
        before, last = to_raw(snapshot.before), to_raw(snapshot.last)
        self._committed = last[1]
        places = [place for place, raw in enumerate(self._entries) if raw == before]
        if places and self._entries[places[0] + 1 : places[0] + 2] == [last]:
            if places[0]:
                self._entries = self._entries[places[0] :]
                self._rewrite()
            return
        if self._entries and self._entries[0][1] > before[1]:
            raise FatalError(f"{self._path} begins behind {self.snapshot_path}")
        self._entries = [before, last]
        self._rewrite()


def encode_record(raw: Raw) -> bytes:
    """Return the bytes of an entry in the file."""
    entry = to_entry(raw)
    payload = entry.payload or b""
    kind = entry.payload is not None
    rest = _HEAD.pack(0, len(payload), entry.index, entry.term, kind)[_CRC.size :] + payload
    return _CRC.pack(zlib.crc32(rest)) + rest


def decode_records(data: bytes) -> tuple[list[Entry], int]:
    """Return the entries at the beginning of a file, and where they end."""
    entries: list[Entry] = []
    offset = 0
    while offset + _HEAD.size <= len(data):
        crc, size, index, term, kind = _HEAD.unpack_from(data, offset)
        end = offset + _HEAD.size + size
        if size > COMMAND_BYTES_MAX or end > len(data):
            break
        if not 0 < index <= PLACE_MAX or crc != zlib.crc32(data[offset + _CRC.size : end]):
            break
        if entries and (index != entries[-1].index + 1 or term < entries[-1].term):
            break
        entries.append(Entry(index, term, data[offset + _HEAD.size : end] if kind else None))
        offset = end
    return entries, offset


def is_torn(rest: bytes, offset: int = 0) -> bool:
    """Return whether what is left of a file may be one record, cut short while it was written.

    Nothing lies behind such a record; how long it is it says itself, if that part was written.

    Args:
        rest: from where the record begins to the last byte that is not zero.
        offset: where it begins in the file.
    """
    size_begin, size_end = offset + _CRC.size, offset + _CRC.size + _SIZE.size
    is_whole = size_begin // _SECTOR_BYTES == (size_end - 1) // _SECTOR_BYTES
    size = _SIZE.unpack_from(rest.ljust(_HEAD.size, b"\0"), _CRC.size)[0]
    most = _HEAD.size + size if size and is_whole else _RECORD_BYTES_MAX
    if len(rest) > min(most, _RECORD_BYTES_MAX):
        return False
    padded = rest.ljust(_RECORD_BYTES_MAX, b"\0")
    return not any(decode_records(padded[at:])[0] for at in range(_HEAD.size, len(rest)))


def to_entry(raw: Raw) -> Entry:
    """Return the entry that PySyncObj's is; its pickle was made here (`to_raw`)."""
    command, index, term = raw
    if command == _NO_OP:
        return Entry(index, term, None)
    assert command[:1] == _COMMAND, command[:8]
    number, (payload,) = pickle.loads(command[1:])  # noqa: S301 - of this process, never of a peer
    assert number == 0, number
    return Entry(index, term, bytes(payload))


def to_raw(entry: Entry) -> Raw:
    """Return PySyncObj's entry: a call of its only replicated method, pickled as it does."""
    if entry.payload is None:
        return _NO_OP, entry.index, entry.term
    call = pickle.dumps((0, (entry.payload,)), _PICKLE_PROTOCOL)
    return _COMMAND + call, entry.index, entry.term


def _read_vote(disk: Disk, path: str) -> _Vote:
    data = disk.read(path)
    if data is None:
        return _Vote(1, 0, None)
    try:
        vote = msgspec.json.decode(data, type=_Vote)
    except NOT_DECODED as error:
        raise FatalError(f"{path}: no vote of a controller: {error}") from error
    if vote.version != 1 or not 0 <= vote.term <= PLACE_MAX:
        raise FatalError(f"{path} has version {vote.version}, term {vote.term}: no vote{_LOST}")
    return vote


def _diverged(index: int) -> FatalError:
    return FatalError(
        f"entry {index} of the controller was committed, and another one takes its place: the logs"
        " have diverged; move controllerStorePath away to take over what the others have",
        EXIT_ENVIRONMENT,
    )
