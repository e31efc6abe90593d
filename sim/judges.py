"""The oracles of kinds of messages that a plan may have: delayed, retried, in order, to everybody.

They listen to the committed log; members of the groups tell them what their listeners do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from sim.edging import lease_ms, refused_p
from sim.layout import GROUP
from sim.oracles.asking import Asking
from sim.oracles.broadcast import Broadcast
from sim.oracles.comes_back import ComesBack
from sim.oracles.delays import Delays, levels_of
from sim.oracles.further import Further
from sim.oracles.heard_ends import HeardEnds
from sim.oracles.held_table import HeldTable
from sim.oracles.order import Locks, Order
from sim.oracles.retries import Retries
from sim.oracles.shares import look_at_shares
from sim.oracles.transactions import Transactions
from sim.workload import PAY_TOPIC, STEP_GROUP, STEP_TOPIC, TASK_GROUP, TASK_TOPIC, TOPIC

if TYPE_CHECKING:
    from sim.alone_log import AloneLog
    from sim.context import Host
    from sim.faults.plan import Plan
    from sim.layout import Layout
    from sim.oracles.base import Findings
    from sim.oracles.clients import Clients
    from sim.oracles.watch import Watch
    from sim.record import Record


SHORT_MS: Final = 10_000
"""Messages of longer levels are not waited for."""


class World(Protocol):
    """Where it all happens; `sim.world.World`."""

    plan: Plan
    layout: Layout
    hosts: dict[str, Host]
    watch: Watch
    findings: Findings
    clients_oracle: Clients
    record: Record
    alone_log: AloneLog | None

    def leader(self) -> str | None:
        """Return who leads."""
        ...

    def written(self, name: str) -> bytes:
        """Return what the file of a broadcasting member holds."""
        ...


class Judges:
    """What there is to ask in the end, beside who is told what."""

    def __init__(self, world: World) -> None:
        self._world = world
        workload, options = world.plan.workload, world.plan.options
        truth, findings = world.watch.truth, world.findings
        dropped = world.clients_oracle.dropped
        truth.reads_parts = any((workload.retrying, workload.orderly, workload.transactional))
        are_refused = bool(refused_p(world.plan))
        levels_ms = levels_of(options.delay_levels)
        self.delays = Delays(truth, levels_ms, dropped, are_refused=are_refused)
        world.watch.applied.delays_ms = self.delays.delays_ms
        if not options.clock_spread_ms and not world.plan.moves_clocks:
            self.delays.sent_ns = world.record.sent_ns
        self.locks = Locks(truth, lease_ms(world.plan))
        self.retries: Retries | None = None
        self.order: Order | None = None
        self.broadcast: Broadcast | None = None
        if workload.retrying is not None:
            self.retries = Retries(
                truth, findings, (TASK_GROUP, TASK_TOPIC), workload.retrying.times_max,
                len(self.delays.delays_ms), dropped,
            )  # fmt: skip
            world.watch.brokers.on_heard = self.retries.hear
        if workload.orderly is not None:
            ordered = workload.orderly
            self.order = Order(
                truth, findings, (STEP_GROUP, STEP_TOPIC), ordered.queues, ordered.times_max,
                dropped,
            )  # fmt: skip
        if workload.broadcast is not None:
            is_first = workload.broadcast.start == "first"
            self.broadcast = Broadcast(
                truth, findings, (GROUP, TOPIC), is_first=is_first, dropped=dropped
            )
        world.watch.on_ticks += (HeldTable().on_tick, look_at_shares, ComesBack().on_tick)
        self.further = Further(truth, findings, world.record, dropped)
        self.transactions: Transactions | None = None
        if workload.transactional is not None:
            self.transactions = Transactions(
                truth,
                PAY_TOPIC,
                (workload.transactional.check_max, workload.transactional.check_ms),
                dropped,
            )
            if not refused_p(world.plan):  # an end that is not put is asked for again
                world.watch.brokers.ends = HeardEnds(truth, self.transactions)
                if self.delays.sent_ns is not None:  # by clocks that nobody moves
                    check_ms = workload.transactional.check_ms
                    world.watch.on_ticks.append(Asking(truth, self.transactions, check_ms).on_tick)
        self._horizon_ms: dict[str, int] = {}
        """By leader: until when what comes due is waited for."""

    def missing(self) -> str:
        """Say what is not done yet of what must be, once all is healed; empty for nothing."""
        alone = self._world.alone_log
        left = self._late() or self._undecided() or self._unfinished()
        return left or ("" if alone is None else alone.missing())

    def _undecided(self) -> str:
        halves = [] if self.transactions is None else self.transactions.open()
        return f"halves that are open: {halves[:3]}" if halves else ""

    def _late(self) -> str:
        leader = self._world.leader()
        if leader is None:
            return "nobody leads"
        wall_ms = self._world.hosts[leader].clock.wall_ms()
        # A clock that was wrong may have stamped messages with a time that is far off.
        usual_ms = max((ms for ms in self.delays.delays_ms if ms <= SHORT_MS), default=0)
        horizon_ms = self._horizon_ms.setdefault(leader, wall_ms + usual_ms)
        late = self.delays.waiting(horizon_ms)
        return f"levels and offsets of messages not delivered: {late[:3]}" if late else ""

    def _unfinished(self) -> str:
        if self.retries is not None and (left := self.retries.open()):
            return f"neither finished nor dead: {left[:3]}"
        if self.order is not None and (steps := self.order.open()):
            return f"not consumed in order: {steps[:3]}"
        for name in self._world.layout.members["v"] if self.broadcast is not None else ():
            assert self.broadcast is not None
            if lost := self.broadcast.missing(name):
                return f"{name} was not handed {lost[:3]}"
            if lost := self.broadcast.unwritten(name, self._world.written(name)):
                return f"{name} was handed {lost[:3]}, its file does not say so"
        return ""
