"""A replica with open transactions, over a real store; the test is clock, loop and log."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from broker.groups.client_registry import Client, ProducerRegistry
from broker.processor.transaction import TransactionProcessor
from broker.sends.schedule import scheduled_if_delayed
from broker.state.consumer_offset import ConsumerOffsetTable
from broker.transactions.records import ops_of
from broker.transactions.service import Settings, Transactions
from broker.transactions.takeover import HALF_TOPIC, OP_TOPIC
from ledgermq.remoting.protocol.message import decode_record
from tests.unit.broker.fakes import FakeConnection, frame, free_room
from tests.unit.store.fakes import HOST, World, message

if TYPE_CHECKING:
    from broker.transactions.halves import Half
    from ledgermq.remoting.protocol.command import RemotingCommand
    from ledgermq.remoting.protocol.message import MessageExt

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
TIMEOUT_MS, INTERVAL_MS, CHECK_MAX = 6_000, 60_000, 3
PARK_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
PROPERTIES = b"KEYS\x01c\x02TRAN_MSG\x01true\x02UNIQ_KEY\x01U%d\x02PGROUP\x01payers\x02TAGS\x01T"


class FakeTimer:
    def __init__(self) -> None:
        self.due_ms: float | None = None

    def set(self, delay_ms: float) -> None:
        self.due_ms = delay_ms

    def cancel(self) -> None:
        self.due_ms = None


class Replica:
    """A store, the service over it and the requests; the test is clock, loop and log."""

    def __init__(self, world: World | None = None, **settings: Any) -> None:
        self.world = world or World(queue_file_bytes=20_000, delay_levels_ms=(1_000, 5_000))
        self.timer, self.ends = FakeTimer(), FakeTimer()
        self.producers, self.offsets = ProducerRegistry(), ConsumerOffsetTable()
        kept = Settings("b", HOST, TIMEOUT_MS, INTERVAL_MS, CHECK_MAX, rejected=False,
                        takes_over=False)._replace(**settings)  # fmt: skip
        self.service = Transactions(
            kept,
            self.world.store,  # type: ignore[arg-type]
            self.producers,
            self.offsets,
            lambda name, _function: self.timer if name == "transactions" else self.ends,
        )
        self.appliers = self.service.table.appliers()
        self.puts: defaultdict[str, int] = defaultdict(int)
        self.processor = TransactionProcessor(
            transactions=self.service,
            store=self.world.store,
            schedule=lambda one: scheduled_if_delayed(one, 2),
            clock=self.world.clock,  # type: ignore[arg-type]
            puts=self.puts,
            room=free_room(),
        )
        listener: Any = self.world.listener
        listener.apply_state = self._apply
        listener.on_message = self._on_message
        listener.on_writable = self._on_writable
        self.sent = 0

    def begin(self, state_index: int = -1) -> Replica:
        self.world.begin(state_index)
        return self

    def _apply(self, _position: int, kind: str, payload: bytes) -> None:
        if kind in self.appliers:
            self.appliers[kind](payload)

    def _on_message(self, topic: str, _queue_id: int, _max_offset: int) -> None:
        if topic == HALF_TOPIC:
            self.service.on_half()

    def _on_writable(self, writable: bool, term: int) -> None:
        self.service.stop()
        if writable:
            self.service.start(term)

    @property
    def rows(self) -> list[Half]:
        return list(self.service.table.rows)

    def send(self, body: bytes = b"pay", properties: bytes = b"", **fields: Any) -> Half:
        """Store a half, and commit it; return its row."""
        self.put_half(body, properties, **fields)
        self.commit()
        return self.rows[-1]

    def put_half(self, body: bytes = b"pay", properties: bytes = b"", **fields: Any) -> None:
        text = PROPERTIES % self.sent + properties
        one = message(topic="orders", queue_id=2, body=body, properties=text, **fields)
        self.sent += 1
        self.world.store.writer.put(self.service.let_in(one), lambda *_: None)

    def end(self, half: Half, end: int = COMMIT, **fields: object) -> list[RemotingCommand]:
        """Say how a half ends; return the answers that come, now or later."""
        connection = FakeConnection()
        header = {
            "producerGroup": "payers", "tranStateTableOffset": half.offset,
            "commitLogOffset": half.physical, "commitOrRollback": end,
        } | fields  # fmt: skip
        self.processor.handle(connection, frame(37, b"", 0, **header))  # type: ignore[arg-type]
        return connection.answers

    def turn(self) -> None:
        """Let the op messages that came together be put."""
        if self.ends.due_ms is not None:
            self.ends.due_ms = None
            self.service.endings.put_ops()

    def put_ops(self, *offsets: int) -> None:
        """Put op messages that no end has asked for."""
        ignored = [lambda *_: None for _ in offsets]
        self.world.store.writer.put_each(ops_of(offsets, HOST, 5), ignored)

    def commit(self, index: int | None = None) -> None:
        self.turn()
        self.world.node.commit(index)
        self.world.turns()

    def settle(self) -> int:
        """Let time stand still until nothing is due; return the turns that this took."""
        turns = 0
        while self.timer.due_ms == 0:
            self.timer.due_ms = None
            self.service.run()
            self.commit()
            turns += 1
            assert turns < 10_000
        return turns

    def wait(self, ms: int = INTERVAL_MS) -> None:
        """Let time pass, with a turn where the timer is due."""
        end = self.world.clock.now + ms
        while self.timer.due_ms is not None and self.world.clock.now + self.timer.due_ms <= end:
            self.world.clock.now += int(self.timer.due_ms)
            self.timer.due_ms = 0
            self.settle()
        if self.timer.due_ms is not None:
            self.timer.due_ms -= end - self.world.clock.now
        self.world.clock.now = end

    def connect(self, group: str = "payers", number: int = 1) -> FakeConnection:
        connection = FakeConnection(number)
        self.producers.register(group, Client(connection, f"c{number}", 0, 400, 0))  # type: ignore[arg-type]
        return connection

    def follow(self, other: Replica) -> None:
        """Take over the log of another replica, and what is committed of it."""
        mine, theirs = self.world.node, other.world.node
        for position, term, body in theirs.entries[mine.end_index + 1 : theirs.commit_index + 1]:
            mine.add(position, term, body)
        mine.term = theirs.term
        mine.commit(theirs.commit_index)
        self.world.turns()

    def lead(self) -> None:
        self.world.node.lead()
        self.settle()

    @property
    def records(self) -> list[MessageExt]:
        return [decode_record(body) for _, _, body in self.world.node.entries]

    def copies(self, topic: str = "orders") -> list[int]:
        """Which halves have a copy in a topic, by their place in the log."""
        return [one.prepared_offset & (1 << 48) - 1 for one in self.records if one.topic == topic]

    def ops(self) -> list[bytes]:
        return [one.body for one in self.records if one.topic == OP_TOPIC]
