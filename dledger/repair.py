"""Damaged entries are fetched from a peer and written over, in place.

Committed entries are the same on every replica (State Machine Safety), so any member may give them,
whatever its role and term; only the index, term, position and size that this replica knows of an
entry, and its CRC, decide whether the copy is taken. One request is out at a time, to one peer
after the other.

A peer that has trimmed its log has the entries no more. It sends its snapshot instead, which takes
the place of the beginning of the own log, damaged entries included; what comes behind stays.

An entry that is not committed cannot be had so. A replica that holds such a one damaged does not
lead: a leader would have to send it. It goes on following, until the entry is committed, and then
fetched, or cut off.
"""

import logging
from typing import Final, get_args

from dledger.config import DLedgerConfig
from dledger.core.messages import FetchedEntries, FetchedSnapshot, FetchEntries, FetchSnapshot
from dledger.core.model import NO_INDEX, LogIndex, NodeId, Role, SnapshotId
from dledger.core.raft import Raft
from dledger.core.snapshot import SNAPSHOT_CHUNK_BYTES
from dledger.driver import Send
from dledger.errors import DamagedEntry
from dledger.limits import PEER_FRAME_BYTES_MAX, PEER_MESSAGE_BYTES, SNAPSHOT_BYTES_MAX
from dledger.storage.log_store import LogStore

_log: Final = logging.getLogger(__name__)

RETRY_MS: Final = 250
"""A peer that has not answered for this long is passed over."""
RUN_MAX: Final = 1024
"""Most damaged entries asked for at a time; the answer is bounded by bytes, too."""
UNREPAIRED_LOG_INTERVAL_MS: Final = 10_000

RepairMessage = FetchEntries | FetchedEntries | FetchSnapshot | FetchedSnapshot
SENDABLE_BYTES_MAX: Final = PEER_FRAME_BYTES_MAX - PEER_MESSAGE_BYTES

REPAIR_MESSAGES: Final = frozenset(get_args(RepairMessage))
"""Their types: looking one up costs less than asking what a message is an instance of."""


class Repairer:
    """Gives committed entries to peers, and replaces the own ones that are damaged."""

    def __init__(self, config: DLedgerConfig, raft: Raft, store: LogStore, send: Send) -> None:
        self._self_id = config.self_id
        self._bytes_max = config.span_bytes_max
        self._raft = raft
        self._store = store
        self._send = send
        self._asked_ms: int | None = None
        self._now_ms = 0
        self._attempts = 0
        self._passed: LogIndex = NO_INDEX
        """Of this damaged entry, the last that was asked for, no peer has given a copy."""
        self._chunk_bytes = min(config.span_bytes_max, SNAPSHOT_CHUNK_BYTES)
        self._snapshot_id: SnapshotId | None = None
        self._snapshot = bytearray()
        self.replacement: tuple[SnapshotId, bytes] | None = None
        """A peer's snapshot, all of it; `dledger.trimming` checks it and puts it in its place."""
        self._is_behind = False
        """Whether a peer has trimmed what is damaged here."""
        self._silent_until_ms = 0
        self._unsendable = self._find_unsendable()

    @property
    def must_not_lead(self) -> str | None:
        """Why this replica should not lead, None if it may.

        An entry is damaged that no peer can be asked for, or only a snapshot can replace; or one is
        too large for any frame, and the others, who do not have it, must go on without it.
        """
        if self._unsendable is not None:
            if self._is_unsendable(self._unsendable):
                return "entry_too_large"
            self._unsendable = None
        damaged = self._store.corruption.damaged
        if not damaged:
            return None
        if max(damaged) > self._raft.state.log.commit_index:
            return "uncommitted_corruption"
        return "corruption_below_peers" if self._is_behind else None

    def _find_unsendable(self) -> LogIndex | None:
        """Return an uncommitted entry, of a version that had no bound, which no frame carries."""
        log, store = self._raft.state.log, self._store
        begin = log.commit_index + 1
        if store.end_position - store.position_after(begin - 1) <= SENDABLE_BYTES_MAX:
            return None
        found = filter(self._is_unsendable, range(begin, store.last_index + 1))
        return next(found, None)

    def _is_unsendable(self, index: LogIndex) -> bool:
        log = self._raft.state.log
        is_open = self._raft.state.others and log.commit_index < index <= self._store.last_index
        try:
            return bool(is_open) and self._store.entry(index)[1] > SENDABLE_BYTES_MAX
        except DamagedEntry:
            return False  # that keeps it from leading, too

    def pass_time(self, now_ms: int) -> None:
        """Ask the next peer for what is damaged, if none is being asked."""
        self._now_ms = now_ms
        if not self._store.corruption.damaged:
            self._asked_ms, self._attempts, self._passed = None, 0, NO_INDEX
            self._is_behind, self._snapshot_id = False, None
            self._snapshot.clear()
        elif self._asked_ms is None or now_ms - self._asked_ms >= RETRY_MS:
            self._ask(now_ms)

    def on_message(self, message: RepairMessage) -> bool:
        """Take a message; True if entries were repaired, and are to be synced."""
        state = self._raft.state
        if message.sender not in state.others or message.receiver != self._self_id:
            return False
        match message:
            case FetchedEntries():
                return self._restore(message)
            case FetchedSnapshot():
                self._collect(message)
            case FetchSnapshot():
                self._send_chunk(message.sender, message.last_index, message.offset)
            case FetchEntries():
                self._give(message)
        return False

    def _give(self, message: FetchEntries) -> None:
        state = self._raft.state
        first, last = message.first_index, message.last_index
        snapshot = self._store.snapshot
        if first < self._store.first_index and snapshot is not None:
            self._send_chunk(message.sender, snapshot.last_index, 0)
            return
        span = None
        if self._store.first_index <= first <= last <= state.delivered_index:
            span = self._store.read(first, last, self._bytes_max)
        self._send(FetchedEntries(self._self_id, message.sender, state.term, first, span))

    def _send_chunk(self, receiver: NodeId, last_index: LogIndex, offset: int) -> None:
        found = self._store.snapshot
        if found is not None and found.last_index == last_index and 0 <= offset < found.size:
            data = self._store.read_snapshot(offset, min(self._chunk_bytes, found.size - offset))
            term = self._raft.state.term
            if data:  # else another one takes its place just now: the peer asks again, later
                self._send(FetchedSnapshot(self._self_id, receiver, term, found, offset, data))

    def _collect(self, message: FetchedSnapshot) -> None:
        """Take a chunk of a snapshot that stands for damaged entries, and ask for the next."""
        state, wanted = self._raft.state, message.id
        damaged = self._store.corruption.damaged
        if not damaged or wanted.last_index < min(damaged) or self.replacement is not None:
            return
        if state.log.term_at(wanted.last_index) != wanted.last_term:
            return
        self._is_behind = True
        fits = wanted.last_index < min(state.log.commit_index, self._store.last_index)
        if state.role is Role.LEADER or not fits or wanted.size > SNAPSHOT_BYTES_MAX:
            return  # a leader gives up leadership first
        if wanted != self._snapshot_id:
            self._snapshot_id = wanted
            self._snapshot.clear()
        if message.offset == len(self._snapshot):
            self._snapshot += message.data
        elif message.offset:
            return  # it comes a second time
        # Else a chunk was lost, and this answers the question that was asked anew: go on there.
        self._asked_ms = self._now_ms
        if len(self._snapshot) < wanted.size:
            place = (wanted.last_index, len(self._snapshot))
            self._send(FetchSnapshot(self._self_id, message.sender, state.term, *place))
        else:
            self.replacement = (wanted, bytes(self._snapshot))
            self._snapshot_id = None
            self._snapshot.clear()

    def _ask(self, now_ms: int) -> None:
        state = self._raft.state
        wanted = sorted(i for i in self._store.corruption.damaged if i <= state.log.commit_index)
        if not wanted:
            return
        others = state.others
        if self._attempts >= max(len(others), 1) and now_ms >= self._silent_until_ms:
            self._silent_until_ms = now_ms + UNREPAIRED_LOG_INTERVAL_MS
            self._complain(wanted)
        if others:
            number = self._attempts % len(others)
            # What no peer has holds up nothing that lies behind it; its turn comes again.
            wanted = [index for index in wanted if index > self._passed] or wanted
            place = (wanted[0], _end_of_run(wanted))
            self._send(FetchEntries(self._self_id, others[number], state.term, *place))
            if number + 1 == len(others):
                self._passed = wanted[0]
        self._attempts += 1
        self._asked_ms = now_ms

    def _restore(self, message: FetchedEntries) -> bool:
        log, span = self._raft.state.log, message.span
        if span is None or span.last_index > log.commit_index:
            return False
        if {log.term_at(span.first_index), log.term_at(span.last_index)} != {span.term}:
            _log.warning("event=corruption_not_replaced peer=%s reason=other_term", message.sender)
            return False
        restored = self._store.restore(span)
        if restored:
            self._asked_ms, self._attempts = None, 0
        return bool(restored)

    def _complain(self, wanted: list[LogIndex]) -> None:
        corruption = self._store.corruption
        place = corruption.describe(corruption.damaged[wanted[0]].position)
        _log.error(
            "event=unrepaired node=%s entries=%d first=%d %s: no peer has given a sound copy;"
            " requests that need it are refused",
            self._self_id, len(wanted), wanted[0], place,
        )  # fmt: skip


def _end_of_run(indexes: list[LogIndex]) -> LogIndex:
    """Return the last of the indexes that follow the first without a gap."""
    first = indexes[0]
    for number, index in enumerate(indexes[:RUN_MAX]):
        if index != first + number:
            return first + number - 1
    return first + min(len(indexes), RUN_MAX) - 1
