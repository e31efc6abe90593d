"""The tables of brokers that copy a log, of masters and of slaves, have what that log says.

A slave takes topics, offsets and the progress of delays from its log, and from what its master
tells it, which may be newer. So a row that the log states is there, whatever it says. A master puts
each change into its log: what the log states of the time since it has been the master is in its
tables exactly. Only a master that has been none but that, and has lost nothing, has no other row.
Source: docs/replication.md, tables; `sim.oracles.model`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from sim.oracles import pair_tables
from sim.oracles.base import Violation
from sim.oracles.model import HALF_TOPIC, Model, Statement, covers, read_statement, said_by
from sim.oracles.plain_truth import entry_of
from sim.oracles.records import ENTRY_HEADER_BYTES, entry_rows, parts_of
from sim.oracles.tables import difference, halves_of, own_topics, progress_of
from sim.oracles.truth import OP_TOPIC, WAITED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.controller import BrokerController
    from sim.oracles.copies import Book

NAME: Final = "A39 tables differ from the log"
STATED: Final = (b"KIND\x01", WAITED, OP_TOPIC, HALF_TOPIC.encode())
"""One of these is in each record that changes a table."""
NOTHING: Final = (-1, -1)


class Keeper(pair_tables.Keeper, Protocol):
    """One broker, of which is told since when it writes its log."""

    @property
    def own_from(self) -> int:
        """Return from where on a master has written its log itself; 0: all of it."""
        ...


class _Read:
    """How far the log of a broker has been read, and what it makes."""

    def __init__(self, running: BrokerController, number: int, own_from: int) -> None:
        self.running = running
        self.number = number
        """Of the line that was read."""
        self.own_from = own_from
        self.end = 0
        self.whole, self.own = Model(), Model()
        """Of all records, and of those that it has written as the master."""
        self.seen = NOTHING


class LineTables:
    """Judges the tables of all brokers.

    Args:
        book: their logs.
    """

    def __init__(self, book: Book) -> None:
        self._book = book
        self._reads: dict[str, _Read] = {}
        self._statements: dict[tuple[int, bytes], Statement | None] = {}
        """By place and bytes of a record: each is in the logs of several."""
        self.compared = 0

    def on_event(self, broker: Keeper) -> None:
        """Look at a broker whose log or tables may have changed. Errors: `Violation`."""
        if not broker.is_up or broker.copy.base or not broker.running._started:
            return
        running = broker.running
        read = self._read_of(broker)
        seen = (running.store.applied, running.tables.state.revisions.total())
        if read.seen == seen:
            return
        read.seen = seen
        self._read_on(read, running.store.applied)
        if running.store.applied - 1 < running.state_index or not read.whole.knows:
            return
        self.compared += 1
        self._check_there(broker, read.whole)
        if broker.is_master:
            self._check_own(broker, read)

    def _read_of(self, broker: Keeper) -> _Read:
        read, number = self._reads.get(broker.name), max(broker.copy.lines)
        is_same = (
            read is not None
            and read.running is broker.running
            and read.own_from == broker.own_from
            and read.number in broker.copy.lines
        )
        if read is None or not is_same:
            read = self._reads[broker.name] = _Read(broker.running, number, broker.own_from)
        return read

    def _read_on(self, read: _Read, applied: int) -> None:
        line = self._book.lines[read.number]
        for position in line.between(read.end, applied):
            statement = self._statement(position, line.rows[position].data)
            if statement is not None:
                read.whole.apply(statement)
                if position >= read.own_from:
                    read.own.apply(statement)
        read.end = max(read.end, applied)

    def _statement(self, position: int, record: bytes) -> Statement | None:
        if not any(mark in record for mark in STATED):
            return None
        key = (position, record)
        if key not in self._statements:
            self._statements[key] = statement_of(position, record)
        return self._statements[key]

    def _check_there(self, broker: Keeper, model: Model) -> None:
        tables = broker.running.tables
        self._check_rows(broker, "topics", own_topics(tables), model.topics)
        self._check_rows(broker, "groups", tables.groups._groups, model.groups)
        offsets = tables.offsets._applied
        for key, queues in model.offsets.items():
            self._check_rows(broker, f"offsets of {key}", offsets.get(key, {}), queues)
        progress = progress_of(broker.running)
        for queue_id, delivered in model.delivered.items():
            if progress.get(queue_id, 0) < delivered:
                text = f"level {queue_id + 1} at {progress.get(queue_id)}, the log says {delivered}"
                self._report(broker, text)

    def _check_own(self, broker: Keeper, read: _Read) -> None:
        """Compare what a master has put into its log itself."""
        tables, model = broker.running.tables, read.own
        topics, groups = own_topics(tables), tables.groups._groups
        for what, rows, stated in (
            ("topic", topics, model.topics),
            ("group", groups, model.groups),
        ):
            for key, config in stated.items():
                if not covers(rows[key], config):
                    self._report(broker, f"{what} {key} is {rows[key]}, the log says {config}")
        offsets = {key: dict(queues) for key, queues in tables.offsets._applied.items() if queues}
        if not read.own_from:
            self._say(broker, "offsets", offsets, model.offsets)
            self._say(broker, "delayed", progress_of(broker.running), model.delivered)
            self._say(broker, "open halves", halves_of(broker.running), model.halves)
            return
        for key, queues in model.offsets.items():
            held = {queue_id: offsets.get(key, {}).get(queue_id) for queue_id in queues}
            self._say(broker, f"offsets of {key}", held, queues)

    def _check_rows(
        self, broker: Keeper, what: str, rows: Mapping[Any, Any], stated: Mapping[Any, Any]
    ) -> None:
        missing = stated.keys() - rows.keys()
        if missing:
            self._report(broker, f"{what}: the log has {sorted(missing)[:5]}, the table has not")

    def _say(self, broker: Keeper, what: str, rows: dict[Any, Any], stated: dict[Any, Any]) -> None:
        if rows != stated:
            self._report(broker, f"{what}: {difference((rows,), (stated,))}")

    def _report(self, broker: Keeper, text: str) -> None:
        raise Violation(NAME, f"{broker.name}: {text}", node=broker.name)


def statement_of(position: int, record: bytes) -> Statement | None:
    """Return the record of state that a record of a plain log is, or stands for."""
    data = entry_of(position, position, record)
    row = next(entry_rows(data, position - ENTRY_HEADER_BYTES), None)
    if row is None:
        return None
    if row.type == "state":
        return read_statement(position, 0, data)
    said = said_by(row, parts_of(data)) if row.type == "message" else None
    return None if said is None else Statement(position, 0, *said)
