"""What worlds without a Raft group have in common: clients, and who runs where."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final

from sim.classic.clients import Reader, Sender
from sim.classic.no_group import NoGroup
from sim.classic.plain_known import PlainKnown
from sim.layout import BROKER_PORT
from sim.machines import NS_PER_MS, Machines
from sim.oracles.base import Findings, Violation
from sim.oracles.client_ends import ClientEnds
from sim.oracles.streams import Streams
from sim.oracles.wire import Tap
from sim.record import Record
from sim.workload import draw_operations

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from broker.controller import BrokerController
    from sim.classic.plain_layout import PlainLayout
    from sim.faults.plan import Plan
    from sim.transport import SimTransport


LOOK_NS: Final = 100 * NS_PER_MS


class PlainWorld(NoGroup, Machines):
    """All machines of one run.

    Args:
        layout: of the plan.
        delay_p: share of messages that are delayed.
        keep_lines: keep the trace as lines, not only as a digest.
    """

    def __init__(
        self, plan: Plan, layout: PlainLayout, delay_p: float, *, keep_lines: bool
    ) -> None:
        super().__init__(plan, layout, keep_lines=keep_lines)
        self._places = layout
        self._delay_p = delay_p
        self.findings = Findings()
        self.loop.findings = self.findings.all
        self.record = Record(f"sim-{plan.seed}", self.trace)
        self.ends = ClientEnds(self.findings, PlainKnown(self))
        self._streams = Streams(self.is_held_up, self.record.count)
        self.record.follow_consumer = self.ends.polls.follow
        self.senders: dict[str, Sender] = {}
        self.readers: dict[str, Reader] = {}
        self.done: dict[int, None] = {}
        """Keys of the messages that listeners of the group have finished."""
        self.operations = draw_operations(
            self.rng.split("workload"), plan.workload, plan.options.safety_ms
        )

    # What the faults need, see `sim.faults.target.Target`

    def brokers(self) -> tuple[str, ...]:
        """Return the hosts of brokers."""
        return self._places.brokers

    def namesrvs(self) -> tuple[str, ...]:
        """Return the hosts of name servers."""
        return self._places.namesrvs

    def clients(self) -> tuple[str, ...]:
        """Return the hosts of producers and consumers."""
        return self._places.clients

    @property
    @abstractmethod
    def pair(self) -> Any:  # noqa: ANN401  # who inherits says of what kind
        """What is known of the brokers."""

    @abstractmethod
    def leader(self) -> str | None:
        """Return the master, None while none runs."""

    def is_synced(self, name: str) -> bool:
        """Tell whether a broker promises only what it has synced."""
        return self._places.is_synced(name)

    def is_held_up(self, name: str) -> bool:
        """Tell whether a host stands still, or may wait for its disk."""
        process = self.hosts[name].process
        if process is None or not process.alive or process.is_blocked or process.pauses > 0:
            return True
        return self.disk(name).is_disturbed

    def begin_anew(self, name: str) -> None:
        """Take a log away, as an operator does where it is not its master's any more."""
        self.record.count("begun_anew")
        self.wipe(name)
        self.start(name)

    def wipe(self, name: str) -> None:
        """Kill the process of a host and empty its disk."""
        self._forget_order()
        super().wipe(name)

    def _loses_power(self, name: str) -> None:
        del name
        self._forget_order()

    def _forget_order(self) -> None:
        """Take that what was acknowledged may be lost, by the contract."""
        self.ends.sent.forget("", self.loop.now_ns)

    def _listen_to_client(self, near: SimTransport, far: SimTransport) -> None:
        """Listen to a connection that a client has opened to a broker."""
        asker = None if near.process is None else near.process.host.name
        if far.local[1] == BROKER_PORT and asker in self.clients():
            now_ns = lambda: self.loop.now_ns  # noqa: E731 - as taps have it
            near.tap = Tap(self.ends.listener, near, now_ns, self.findings, asks=True)

    # The life of the run

    def start_all(self) -> None:
        """Start every machine."""
        for name in (*self.namesrvs(), *self.brokers(), *self.clients()):
            self.start(name)

    def look_at_streams(
        self, running: Callable[[], Iterable[tuple[str, BrokerController]]]
    ) -> None:
        """Look at what goes between brokers, again and again."""
        try:
            self._streams.look(running())
        except Violation as found:
            self.findings.report(found)
        self.at(self.loop.now_ns + LOOK_NS, lambda: self.look_at_streams(running))

    def _main_of(self, name: str) -> Coroutine[Any, Any, None]:
        if name in self.brokers():
            return self._broker(name)
        if name in self.namesrvs():
            return self._namesrv(name)
        return self._client(name)

    @abstractmethod
    async def _broker(self, name: str) -> None:
        """Run a broker."""

    @abstractmethod
    async def _namesrv(self, name: str) -> None:
        """Run a name server."""

    async def _client(self, name: str) -> None:
        host, config = self.hosts[name], self._places.client_config(name)
        workload, producers = self.plan.workload, self._places.producers
        if name not in producers:
            reader = Reader(name, config, host, self.record, self.done, workload)
            self.readers[name] = reader
            await reader.run()
            return
        number = producers.index(name)
        sender = Sender(
            name, number, config, host, self.record, workload, delay_p=self._delay_p
        )  # fmt: skip
        self.senders[name] = sender
        now_ms = self.loop.now_ns // NS_PER_MS
        count = len(producers)
        await sender.run(
            [op for op in self.operations if op.client % count == number and op.at_ms >= now_ms]
        )
