"""What the cluster has committed, as far as any replica has shown: the log that all must agree on.

It is built from the bytes of the replicas' disks, in the order in which commits became visible, and
it decodes records with the checkers' own reader, not with the store's.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from operator import attrgetter
from typing import TYPE_CHECKING, Final
from zlib import crc32

from sim.oracles.base import Violation
from sim.oracles.model import Statement, read_statement, said_by
from sim.oracles.records import (
    ENTRY_HEADER_BYTES,
    Parts,
    body_of,
    entry_rows,
    parts_of,
    stored_ms,
    tags_of,
)
from sim.oracles.replica import HEADER

if TYPE_CHECKING:
    from collections.abc import Callable

    from chaos.history.segment import EntryRow
    from sim.oracles.replica import Mark, Replica

CONFIGURATION_CHANNEL: Final = 1
"""DLedger's ``channel`` field marks the entries that hold a configuration of the group."""

WAITED: Final = b"REAL_TOPIC\x01"
"""In the properties of what waits, or has waited."""
OP_TOPIC: Final = b"RMQ_SYS_TRANS_OP_HALF_TOPIC"
"""Of messages that say which halves are over."""

NO_CLOCK: Final = 1 << 62
Place = tuple[str, int, int]
"""Topic, queue id, queue offset."""


class Truth:
    """Entries by (index, term), who held them, and the committed log."""

    def __init__(self, voters: tuple[str, ...]) -> None:
        self.first_voters = voters
        self.holders: dict[tuple[int, int], int] = {}
        """Replicas that hold an entry, one bit each."""
        self.ever: dict[tuple[int, int], int] = {}
        """Replicas that have ever held it."""
        self.marks: dict[tuple[int, int], Mark] = {}
        self.rows: dict[tuple[int, int], EntryRow] = {}
        self.configurations: dict[tuple[int, int], tuple[str, ...]] = {}
        """Voters by the entry that made them."""
        self.committed: list[Mark] = []
        self.commit_terms: list[int] = []
        """By index, the term in which the entry was first seen committed."""
        self.queues: dict[tuple[str, int], list[EntryRow]] = defaultdict(list)
        """Committed messages by queue, in the order of the log."""
        self.keys: dict[int, list[Place]] = defaultdict(list)
        """Where each of our messages lies, in the committed log."""
        self.state_indexes: list[int] = []
        """Committed entries of replicated state."""
        self.statements: list[Statement] = []
        """What they say."""
        self._stated: dict[tuple[int, int], Statement] = {}
        """By (index, term), of those that are not committed yet, too."""
        self.now_ns: Callable[[], int] = lambda: 0
        """The virtual time."""
        self.latest_ms: Callable[[], int] = lambda: NO_CLOCK
        """The latest time that the clock of any broker has shown."""
        self.ahead_ms = 1_000
        """How far a store time may be ahead of that."""
        self.times: dict[tuple[int, int], int] = {}
        """Store times (ms) of records."""
        self.crcs: dict[tuple[int, int], int] = {}
        """Of the records of messages, all their bytes."""
        self.positions: dict[int, EntryRow] = {}
        """Committed messages by the physical offset of their record."""
        self.tags: dict[tuple[int, int], str] = {}
        """Of messages that have any."""
        self.reads_parts = False
        """Whether all that records of messages say is kept, not only of those that waited."""
        self.parts: dict[tuple[int, int], Parts] = {}
        """What they say."""
        self.on_row: list[Callable[[EntryRow, int | None], None]] = []
        """Hear of committed messages, and of the key of what lies before each in its queue."""
        self.on_message: list[Callable[[EntryRow, Parts], None]] = []
        """Hear of committed messages whose parts are kept."""
        self.on_statement: list[Callable[[Statement], None]] = []
        """Hear of committed records of state."""
        self.stored_last = self._latest_ms = 0
        """Store time of the last committed record."""
        self.may_fall = False
        """Whether store times may: who cannot read its last entry does not know its time."""

    @property
    def commit_index(self) -> int:
        """Highest index that any replica has shown as committed."""
        return len(self.committed) - 1

    def learn(self, replica: Replica, index: int, mark: Mark) -> None:
        """Take that ``replica`` holds an entry that nobody was seen to hold before."""
        data = replica.entry_bytes(mark)
        place = (index, mark.term)
        self.marks[place] = mark
        row = next(entry_rows(data, mark.position), None)
        if row is not None:
            self.rows[place] = row
            self._read_record(place, row.type, data)
        if HEADER.unpack_from(data)[5] == CONFIGURATION_CHANNEL:
            voters = voters_in(data)
            if voters is not None:
                self.configurations[place] = voters

    def commit(self, index: int, mark: Mark, term: int) -> None:
        """Append an entry to the committed log; ``term`` is that of the replica that showed it."""
        assert index == len(self.committed), (index, len(self.committed))
        self.committed.append(mark)
        self.commit_terms.append(term)
        row = self.rows.get((index, mark.term))
        if row is None:
            return
        self._check_time(index, mark.term)
        if row.type == "message":
            assert row.topic is not None
            assert row.queue_id is not None
            queue = self.queues[row.topic, row.queue_id]
            if row.queue_offset != len(queue):
                raise Violation(
                    "A39 queue offset",
                    f"entry {index} is message {row.queue_offset} of {row.topic}/{row.queue_id}, "
                    f"which has {len(queue)}",
                    index=index,
                )
            before = queue[-1].msg_key if queue else None
            queue.append(row)
            for listener in self.on_row:
                listener(row, before)
            self.positions[row.pos + ENTRY_HEADER_BYTES] = row
            if row.msg_key is not None and row.queue_offset is not None:
                self.keys[row.msg_key].append((row.topic, row.queue_id, row.queue_offset))
            parts = self.parts.get((index, mark.term))
            if parts is not None:
                self._commit_parts(index, row, parts)
        elif row.type == "state":
            self.state_indexes.append(index)
            statement = self._stated.pop((index, mark.term))
            self._state(statement._replace(committed_ns=self.now_ns()))

    def _state(self, statement: Statement) -> None:
        self.statements.append(statement)
        for listener in self.on_statement:
            listener(statement)

    def _commit_parts(self, index: int, row: EntryRow, parts: Parts) -> None:
        for listener in self.on_message:
            listener(row, parts)
        said = said_by(row, parts)
        if said is not None:
            self.state_indexes.append(index)
            self._state(Statement(index, self.now_ns(), *said))

    def _read_record(self, place: tuple[int, int], kind: str, data: bytes) -> None:
        stored = stored_ms(data) if kind in {"message", "state"} else None
        if stored is not None:
            self.times[place] = stored
        if kind == "state":
            self._stated[place] = read_statement(place[0], 0, data)
        elif kind == "message":
            self.crcs[place] = crc32(memoryview(data)[ENTRY_HEADER_BYTES:])
            tags = tags_of(data)
            if tags:
                self.tags[place] = tags
            if self.reads_parts or WAITED in data or OP_TOPIC in data:
                self.parts[place] = parts_of(data)

    def _check_time(self, index: int, term: int) -> None:
        stored = self.times.get((index, term))
        if stored is None:
            return
        if stored < self.stored_last and not self.may_fall:
            raise Violation(
                "A39 store time",
                f"entry {index} of term {term} was stored at {stored}, the one before at "
                f"{self.stored_last}",
                index=index,
            )
        if stored > self._latest_ms + self.ahead_ms:
            self._latest_ms = self.latest_ms()
            if stored > self._latest_ms + self.ahead_ms:
                raise Violation(
                    "A39 store time ahead of all clocks",
                    f"entry {index} of term {term} was stored at {stored}, and no clock has shown "
                    f"more than {self._latest_ms}",
                    index=index,
                )
        self.stored_last = stored

    def row(self, topic: str, queue_id: int, offset: int) -> EntryRow | None:
        """Return the committed message at a place."""
        rows = self.queues.get((topic, queue_id), ())
        return rows[offset] if 0 <= offset < len(rows) else None

    def end_of(self, topic: str, queue_id: int, applied: int) -> int:
        """Return where a queue ends for who has applied the log up to an entry."""
        rows = self.queues.get((topic, queue_id), [])
        return bisect_right(rows, applied, key=attrgetter("entry_index"))

    def voters_of(self, replica: Replica, last_index: int | None = None) -> tuple[str, ...]:
        """Return the voters by the last configuration in the log of ``replica``.

        ``last_index``: as long as the log ended there.
        """
        found = self.configuration_of(replica, last_index)
        return self.first_voters if found is None else found

    def configuration_of(
        self, replica: Replica, last_index: int | None = None
    ) -> tuple[str, ...] | None:
        """Return the same, but None where the log has no configuration."""
        if self.configurations:
            for (index, term), voters in sorted(self.configurations.items(), reverse=True):
                if last_index is not None and index > last_index:
                    continue
                mark = replica.mark(index)
                if mark is None and index < min(replica.base, len(self.committed)):
                    mark = self.committed[index]  # in the snapshot that it stands on
                if mark is not None and mark.term == term:
                    return voters
        return None

    def committed_configuration(self, last_index: int) -> tuple[int, tuple[str, ...] | None]:
        """Return which entry said who the members are when the committed log ended there.

        And the voters that it names; -1 and None as long as none has.
        """
        for (index, term), voters in sorted(self.configurations.items(), reverse=True):
            if index <= last_index < len(self.committed) and self.committed[index].term == term:
                return index, voters
        return -1, None


def voters_in(data: bytes) -> tuple[str, ...] | None:
    """Return the voters that a configuration entry names."""
    try:  # before the body there are numbers, which may look like anything
        payload = json.loads(body_of(data))
    except ValueError:
        return None
    return tuple(sorted(payload["voters"]))
