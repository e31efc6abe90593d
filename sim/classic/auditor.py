"""The end of a run of master and slaves: is all there that is to be there?

One more client sends until a message is told SEND_OK, waits until each slave has the whole log and
the tables of its master, reads every queue at the master, and looks whether the group has consumed
all. Source: docs/replication.md.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from chaos.history.payload import encode_body, make_key
from ledgermq.client import (
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    RemotingError,
    SendStatus,
)
from sim.machines import NS_PER_MS
from sim.oracles.base import Violation
from sim.oracles.records import KEYS
from sim.record import AUDITOR
from sim.workload import GROUP, LATER_TOPIC, TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from broker.controller import BrokerController
    from ledgermq.client import ClientConfig
    from sim.classic.clients import Sender
    from sim.context import Host
    from sim.faults.plan import Plan
    from sim.loop import SimLoop
    from sim.oracles.base import Findings
    from sim.oracles.copies import Book, Copy
    from sim.record import Record
    from store.plain import PlainLog

RETRY_S: Final = 0.1
AUDITOR_PID: Final = 1 << 20
PULL_COUNT: Final = 64
REFUSED_MS: Final = 8_000
"""After so long an operator takes the log of a slave away that is not its master's any more."""
READ: Final = (TOPIC, LATER_TOPIC)


class Addresses(Protocol):
    """Settings of clients."""

    def client_config(self, name: str) -> ClientConfig:
        """Return those of a client."""
        ...


class Audit(Protocol):
    """One broker; see `sim.oracles.pair.Broker`."""

    copy: Copy
    controller: BrokerController | None
    is_up: bool

    @property
    def running(self) -> BrokerController:
        """Return the production object."""
        ...

    @property
    def log(self) -> PlainLog:
        """Return its log."""
        ...

    @property
    def is_following(self) -> bool:
        """Return whether it follows a master."""
        ...


class Known(Protocol):
    """What is known of the brokers; see `sim.oracles.pair.Pair`."""

    replaced: set[tuple[str, int, int]]

    @property
    def brokers(self) -> Mapping[str, Audit]:
        """Return them by host."""
        ...

    @property
    def book(self) -> Book:
        """Return their logs."""
        ...


class Audited(Protocol):
    """A world with a master and slaves."""

    plan: Plan
    loop: SimLoop
    record: Record
    findings: Findings
    hosts: dict[str, Host]
    senders: dict[str, Sender]
    done: dict[int, None]

    @property
    def layout(self) -> Addresses:
        """Return where everything is."""
        ...

    @property
    def master(self) -> str:
        """Return the host of the master."""
        ...

    @property
    def pair(self) -> Known:
        """Return what is known of the brokers."""
        ...

    def brokers(self) -> Sequence[str]:
        """Return the hosts of brokers."""
        ...

    def begin_anew(self, name: str) -> None:
        """Take the log of a slave away."""
        ...


class ClassicAuditor:
    """Runs on the host ``auditor`` of the world."""

    def __init__(self, world: Audited) -> None:
        self._world = world
        self._host: Host = world.hosts[AUDITOR]
        self.stage = "clients are busy"
        self.is_done = False
        self._sequence = 0
        self._producer: Producer
        self._refused_ms: dict[str, int] = {}

    def start(self) -> None:
        """Begin, in virtual time."""
        loop = self._world.loop
        loop.spawn(loop.boot(self._host), self._run())

    def describe(self) -> str:
        """Say what is still missing."""
        world = self._world
        states = []
        for name in world.brokers():
            broker = world.pair.brokers[name]
            if not world.hosts[name].alive or broker.controller is None:
                states.append(f"{name} down")
                continue
            states.append(f"{name} {broker.controller._mode.status()}")
        return f"{self.stage}; master {world.master}; {'; '.join(states)}"

    def look(self) -> None:
        """Be the operator: a slave whose log is another than its master's begins anew."""
        world, book = self._world, self._world.pair.book
        now_ms = world.loop.now_ns // NS_PER_MS
        for name in world.brokers():
            copy = world.pair.brokers[name].copy
            if name == world.master or not copy.end or book.is_of_line(copy):
                self._refused_ms.pop(name, None)
            elif now_ms - self._refused_ms.setdefault(name, now_ms) > REFUSED_MS:
                world.begin_anew(name)

    async def _run(self) -> None:
        world, host = self._world, self._host
        config = world.layout.client_config(AUDITOR)
        rng = host.rng.split("auditor")
        self._producer = producer = Producer(config, clock=host.clock, rng=rng.split("producer"))
        puller = PullConsumer(config, clock=host.clock, rng=rng.split("pull"))
        await producer.start()
        await puller.start()
        await _until(lambda: not any(one.is_busy for one in self._senders()))
        self.stage = "the master takes no message"
        await self._send_until_told(producer)
        self.stage = "slaves do not have the log of the master"
        await _until(self._is_level)
        self.stage = "queues are not readable to their ends"
        held = {row.queue[0] for row in world.pair.book.line.rows.values()}
        for topic in READ:
            if topic in held:  # a topic without messages may be lost with the master's disk
                await self._read(puller, topic)
        await _until(self._is_drained)
        await _until(self._has_tables)
        self.is_done = True

    def _senders(self) -> list[Sender]:
        world = self._world
        return [one for name, one in world.senders.items() if world.hosts[name].alive]

    async def _send_until_told(self, producer: Producer) -> None:
        """Send messages until one is told SEND_OK."""
        while True:
            if await self._send(producer):
                return
            await asyncio.sleep(RETRY_S)

    async def _send(self, producer: Producer) -> bool:
        """Send a message; return whether it was told SEND_OK."""
        record = self._world.record
        key = make_key(AUDITOR_PID, self._sequence)
        self._sequence += 1
        body = encode_body(bytes.fromhex(record.tag), key, 64)
        rows = record.sending(-self._sequence, TOPIC, [(key, body)])
        try:
            result = await producer.send(Message(TOPIC, body, keys=str(key)))
        except RemotingError:
            return False
        is_ok = result.status is SendStatus.SEND_OK
        place = {"queue_id": result.queue.queue_id, "queue_offset": result.queue_offset}
        record.sent(rows, "ok" if is_ok else "info", **place)
        return is_ok

    def _is_level(self) -> bool:
        """Whether each slave has and serves all that the master has."""
        world = self._world
        ends = set()
        for name in world.brokers():
            broker = world.pair.brokers[name]
            if not world.hosts[name].alive or not broker.is_up:
                return False
            log = broker.log
            ends |= {log.end_position, log.own_position, broker.running.store.applied}
            if name != world.master and not broker.is_following:
                return False
        return len(ends) == 1

    async def _read(self, puller: PullConsumer, topic: str) -> None:
        while True:
            try:
                for queue in await puller.fetch_subscribe_queues(topic):
                    await self._read_queue(puller, queue)
            except RemotingError:
                await asyncio.sleep(RETRY_S)
            else:
                return

    async def _read_queue(self, puller: PullConsumer, queue: MessageQueue) -> None:
        offset = first = await puller.min_offset(queue)
        end = await puller.max_offset(queue)
        found: dict[int, str | None] = {}
        while offset < end:
            result = await puller.pull(queue, offset=offset, max_count=PULL_COUNT)
            found |= {one.queue_offset: one.maybe_property(KEYS) for one in result.messages}
            offset = max(offset, result.next_offset)
        line = self._world.pair.book.line
        place = (queue.topic, queue.queue_id)
        held = {
            row.offset: str(row.key)
            for row in line.rows.values()
            if row.queue == place and first <= row.offset < end
        }
        if held != found:
            lacking = sorted(held.keys() ^ found.keys())[:5]
            self._fail(
                "A22 gap in a queue", f"{place} {first}..{end}: {lacking} are not read as held"
            )

    def _is_drained(self) -> bool:
        """Whether listeners have finished all messages of the log, and the group has committed."""
        world = self._world
        if not world.plan.workload.consumers:
            return True
        pair, broker = world.pair, world.pair.brokers[world.master]
        for row in pair.book.line.rows.values():
            if row.key is None or row.queue[0] not in READ or row.key in world.done:
                continue
            if (*row.queue, row.offset) not in pair.replaced:
                self.stage = f"the group has not consumed {row.queue}@{row.offset}"
                return False
        assert broker.controller is not None
        offsets = broker.controller.tables.offsets
        for (topic, queue_id), end in broker.copy.queue_ends.items():
            if topic in READ and (offsets.query(GROUP, topic, queue_id) or 0) < end:
                self.stage = f"the group has not committed {topic}/{queue_id} up to {end}"
                return False
        return True

    def _has_tables(self) -> bool:
        """Whether slaves have the topics and offsets of their master."""
        world = self._world
        controllers = {name: world.pair.brokers[name].controller for name in world.brokers()}
        main = controllers[world.master]
        if main is None:
            self.stage = f"{world.master} is the master, and away"
            return False
        wanted = dict(main.tables.offsets.rows())
        for name, controller in controllers.items():
            if controller is None:
                self.stage = f"{name} is away"
                return False
            held = {key: rows for key, rows in controller.tables.offsets.rows() if key in wanted}
            if held != wanted:
                self.stage = f"{name} has the offsets {held}, and not {wanted}"
                return False
            if set(main.tables.topics.entries) - set(controller.tables.topics.entries):
                self.stage = f"{name} lacks topics"
                return False
        return True

    def _fail(self, oracle: str, text: str) -> None:
        self._world.findings.report(Violation(oracle, text))


async def _until(holds: Callable[[], bool]) -> None:
    """Ask again and again: what is asked about has no event."""
    while not holds():  # noqa: ASYNC110 - see above
        await asyncio.sleep(RETRY_S)
