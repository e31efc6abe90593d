"""Writes down what a replica does: the table ``raft_event`` of a history, kept on at all times.

Rare events (roles, votes, truncations, configurations, snapshots) are on file before anything that
follows from them leaves. Appends, one a span, and advances of the commit index are collected and
written when the node wakes up, or when they fill a block: a process that is killed loses at most
two ticks of them. Both kinds have files of their own, so that a busy hour does not wash away the
last election.

What each kind puts into the columns:

| kind | term | index | prev_index | peer | hash, extra |
|---|---|---|---|---|---|
| boot | at start | last entry | commit index | | who, and when by the wall clock |
| become_* | new term | | | leader | |
| vote_granted, vote_refused | term of the vote | candidate's last index | and term | candidate | |
| append | of the entries | last entry | the one before the first | | CRC of the last body |
| truncate | current | first entry cut | last entry before | leader | |
| commit | current | commit index | the one before | | |
| config, snapshot, transfer | current | see `extra` | | target | words |

Nothing depends on these files. When they cannot be written the node says so once and goes on.
Source: spec/proof.md 4.3, raft_event.
"""

import logging
import struct
from typing import Final

from dledger.codec.events import EXTRA_BYTES_MAX, KIND_CODES, RECORD
from dledger.config import DLedgerConfig
from dledger.core.model import LogIndex, Role, Span, Term
from dledger.core.ready import Event, EventKind, Ready
from dledger.storage.event_ring import EventRing
from ledgermq.runtime.clock import Clock
from ledgermq.runtime.disk import Disk
from ledgermq.runtime.errors import FatalError

_log: Final = logging.getLogger(__name__)

BLOCK_BYTES: Final = 4096
"""Appends and commits are written when they fill so much, or at the next tick or two."""
_APPEND: Final = KIND_CODES["append"]
_COMMIT: Final = KIND_CODES["commit"]
_OTHER: Final = KIND_CODES["other"]
_SIZE: Final = RECORD.size
_pack: Final = RECORD.pack
_unit_position: Final = struct.Struct(">q").unpack_from
_body_crc: Final = struct.Struct(">I").unpack_from
_LAST_UNIT_POSITION: Final = 32 - 4
_BODY_CRC_AT: Final = 40
_ROLES: Final = {role: KIND_CODES[f"become_{role.value.lower()}"] for role in Role}
_KINDS: Final[dict[EventKind, int]] = {
    EventKind.VOTE: KIND_CODES["vote_granted"],
    **{
        kind: KIND_CODES.get(kind.value, _OTHER) for kind in EventKind if kind is not EventKind.VOTE
    },
}


class Recorder:
    """The events of one process of one node."""

    def __init__(self, config: DLedgerConfig, disk: Disk, clock: Clock, boot_id: str) -> None:
        self._config = config
        self._disk = disk
        self._clock = clock
        self._boot_id = boot_id
        self._rare_ring: EventRing | None = None
        self._entries_ring: EventRing | None = None
        self._seq = 0
        self._boot = 0
        self._head = b""
        self._rare = bytearray()
        self._entries = bytearray()
        self._term: Term = 0
        self._commit_index: LogIndex = -1

    def open(self, term: Term, last_index: LogIndex, commit_index: LogIndex) -> None:
        """Go on where the last process ended; events before that are not recorded."""
        config, directory = self._config, f"{self._config.directory}/raft_event"
        if config.event_file_bytes == 0:
            return
        try:
            self._disk.make_directories(directory)
            self._rare_ring = EventRing(self._disk, f"{directory}/rare", config.event_file_bytes)
            self._entries_ring = EventRing(
                self._disk, f"{directory}/entries", config.event_file_bytes
            )
        except (OSError, FatalError, ValueError) as error:
            self._give_up(error)
            return
        rings = (self._rare_ring, self._entries_ring)
        self._seq = max(ring.last_seq for ring in rings)
        self._boot = max(ring.last_boot for ring in rings) + 1
        self._term, self._commit_index = term, commit_index
        extra = (
            f"boot={self._boot_id} node={config.self_id} group={config.group}"
            f" wall_ms={self._clock.wall_ms()}"
        )
        self._head = self._encode(
            KIND_CODES["boot"], term, last_index, commit_index, b"", extra.encode()
        )
        self._rare += self._head
        self.flush()

    def note(self, *events: Event) -> None:
        """Write rare events down at once."""
        if self._rare_ring is None:
            return
        for event in events:
            self._term = event.term  # every change of it is an event
            kind = _ROLES[event.role] if event.kind is EventKind.ROLE else _KINDS[event.kind]
            extra = event.extra if kind != _OTHER else f"event={event.kind.value} {event.extra}"
            self._rare += self._encode(
                kind, event.term, event.index, event.prev_index, (event.peer or "").encode(),
                extra.encode()[:EXTRA_BYTES_MAX],
            )  # fmt: skip
        self.flush()

    def on_done(self, ready: Ready) -> None:
        """Take that the entries of ``ready`` are written and its commit index is in force."""
        if self._entries_ring is None:
            return
        now = self._clock.monotonic_ns()
        seq = self._seq
        entries = self._entries
        for span in ready.entries:
            seq += 1
            entries += _pack(
                _SIZE, _APPEND, 0, seq, now, span.term, span.last_index, span.first_index - 1,
                last_body_crc(span),
            )  # fmt: skip
        self._seq = seq
        if ready.committed is not None:
            self.on_commit(ready.committed)
        elif len(entries) >= BLOCK_BYTES:
            self.flush()

    def on_commit(self, commit_index: LogIndex) -> None:
        """Take that a commit index is in force."""
        if self._entries_ring is None:
            return
        entries = self._entries
        self._seq = seq = self._seq + 1
        now = self._clock.monotonic_ns()
        entries += _pack(
            _SIZE, _COMMIT, 0, seq, now, self._term, commit_index, self._commit_index, 0
        )
        self._commit_index = commit_index
        if len(entries) >= BLOCK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hand everything to the kernel."""
        try:
            if self._entries and self._entries_ring is not None:
                self._entries_ring.write(self._boot, self._entries, self._head)
                self._entries.clear()
            if self._rare and self._rare_ring is not None:
                self._rare_ring.write(self._boot, self._rare, self._head)
                self._rare.clear()
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        """Write what is left and close the files; a second call does nothing."""
        self.flush()
        for ring in (self._rare_ring, self._entries_ring):
            if ring is not None:
                ring.close()
        self._rare_ring = self._entries_ring = None

    def _encode(
        self, kind: int, term: Term, index: LogIndex, prev_index: LogIndex, peer: bytes,
        extra: bytes,
    ) -> bytes:  # fmt: skip
        self._seq += 1
        size = _SIZE + len(peer) + len(extra)
        now = self._clock.monotonic_ns()
        head = _pack(size, kind, len(peer), self._seq, now, term, index, prev_index, 0)
        return head + peer + extra

    def _give_up(self, error: Exception) -> None:
        _log.warning("event=events_not_recorded node=%s error=%r", self._config.self_id, str(error))
        self._rare.clear()
        self._entries.clear()
        self.close()


def last_body_crc(span: Span) -> int:
    """Return the CRC that the last entry's header has of its body (0 in stores of DLedger 0.3)."""
    units = span.units
    (position,) = _unit_position(units, len(units) - _LAST_UNIT_POSITION)
    crc: int = _body_crc(span.data, position - span.position + _BODY_CRC_AT)[0]
    return crc
