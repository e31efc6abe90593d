"""The plain log of a broker outside the group, and who judges what waits and is open in it.

Its delayed messages and transactions are judged as those of the group: by the log alone. What a
loss of power takes of it is gone for its judges, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from sim.edging import lease_ms
from sim.layout import ALONE_HOST
from sim.oracles.copies import Files
from sim.oracles.delays import Delays, levels_of
from sim.oracles.plain_tables import PlainTables
from sim.oracles.plain_truth import PlainFollower, PlainTruth
from sim.oracles.transactions import Transactions
from sim.workload import PAY_TOPIC
from store.plain import PlainLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.controller import BrokerController
    from chaos.history.segment import EntryRow
    from sim.context import Host
    from sim.disk import SimDisk
    from sim.faults.plan import Plan
    from sim.layout import Layout
    from sim.loop import SimLoop
    from sim.oracles.client_ends import ClientEnds
    from sim.oracles.model import Statement
    from sim.oracles.transactions import End
    from sim.record import Record
    from sim.validators import Validators

MS_PER_S: Final = 1_000
SHORT_MS: Final = 10_000
"""Messages of longer levels are not waited for."""


class World(Protocol):
    """Where it runs; `sim.world.World`."""

    plan: Plan
    loop: SimLoop
    layout: Layout
    hosts: dict[str, Host]
    record: Record
    validators: Validators
    ends: ClientEnds

    def disk(self, name: str) -> SimDisk:
        """Return the disk of a machine."""
        ...


class AloneLog:
    """Knows the log, and has judges listen to it.

    Args:
        decisions: how transactions end, by key; the user's own store, whichever broker has a half.
    """

    def __init__(self, world: World, decisions: dict[int, End]) -> None:
        self._decisions = decisions
        self._world = world
        self._horizon_ms = 0
        """Until when what comes due is waited for, in the end."""
        files = Files(world.disk(ALONE_HOST), world.layout.alone_log().segment_bytes)
        self._follower = PlainFollower(files, self._make)
        clock = world.hosts[ALONE_HOST].clock
        self._tables = PlainTables(ALONE_HOST, lambda: self.truth, clock.monotonic_ms)
        self._tables.lease_ms = lease_ms(world.plan)
        self._serves: BrokerController | None = None
        self._begin = 0

    @property
    def truth(self) -> PlainTruth:
        """What is in the log."""
        return self._follower.truth

    def follow(self, controller: BrokerController) -> Callable[[], None]:
        """Follow a process that starts; return what is to be called after each of its events."""
        log = controller._mode.log
        assert isinstance(log, PlainLog)
        if self._world.plan.workload.delayed is not None:
            self._save_sooner(controller)
        follow = self._follower.follow(log)
        self._tables.begin()
        self._serves = None

        def after_event() -> None:
            follow()
            if controller._started:
                self._serves, self._begin = controller, log.first_position
            if self.judged is not None:
                self._tables.look(controller)

        return after_event

    def _save_sooner(self, controller: BrokerController) -> None:
        """Have tables written as often as queues: they may be ahead of a log that loses its end."""
        saver, period_s = controller._mode.saver, self._world.plan.options.checkpoint_ms / MS_PER_S
        pause = saver._pause

        async def sooner(seconds: float) -> None:
            await pause(min(seconds, period_s))

        saver._pause = sooner

    def on_started(self, controller: BrokerController) -> None:
        """Judge what a start has made of the offsets of groups. Errors: `Violation`."""
        rows = dict(controller.tables.offsets.rows())
        self._world.ends.beyond.check_rows(
            "a broker alone that has started", rows, self.truth, excuses=True
        )

    def on_power_loss(self) -> None:
        """What is not synced may be gone when it comes again."""
        self._follower.on_power_loss()

    def end_of(self, queue: tuple[str, int]) -> int:
        """Return where a queue ends."""
        return len(self.truth.queues.get(queue, ()))

    @property
    def first_position(self) -> int:
        """Return where it begins."""
        return self._begin

    @property
    def judged(self) -> BrokerController | None:
        """Return the broker that serves, None where its log has lost its end, or nothing runs."""
        return None if self.ends_lost else self._serves

    @property
    def ends_lost(self) -> int:
        """How often a loss of power took the end of it."""
        return self._follower.ends_lost

    def missing(self) -> str:
        """Say what is not done yet of what must be, once all is healed; empty for nothing."""
        wall_ms = self._world.hosts[ALONE_HOST].clock.wall_ms()
        usual_ms = max((ms for ms in self._delays.delays_ms if ms <= SHORT_MS), default=0)
        self._horizon_ms = self._horizon_ms or wall_ms + usual_ms
        late = self._delays.waiting(self._horizon_ms)
        if late:
            return f"levels and offsets that a broker alone has not delivered: {late[:3]}"
        halves = [] if self._transactions is None else self._transactions.open()
        return f"halves that are open at a broker alone: {halves[:3]}" if halves else ""

    def note_end(self) -> None:
        """Note what there was of all this, for who reads the result."""
        record = self._world.record
        record.count("alone_copies", self._delays.copies)
        record.count("alone_ends_lost", self.ends_lost)

    def _make(self) -> PlainTruth:
        """Make what is known anew, with its judges."""
        world, truth = self._world, PlainTruth()
        truth.now_ns = lambda: world.loop.now_ns
        alone = world.validators.alone
        assert alone is not None
        options, payments = world.plan.options, world.plan.workload.transactional
        self._delays = Delays(truth, levels_of(options.delay_levels), alone.dropped)
        if not options.clock_spread_ms and not world.plan.moves_clocks:
            self._delays.sent_ns = world.record.sent_ns
        self._transactions: Transactions | None = None
        if payments is not None:
            checks = (payments.check_max, payments.check_ms)
            self._transactions = Transactions(truth, PAY_TOPIC, checks, alone.dropped)
            self._transactions.decisions = self._decisions
        truth.on_row.append(self._check_row)
        truth.on_statement.append(lambda statement: self._check_offsets(statement, truth))
        return truth

    def _check_row(self, row: EntryRow, before: int | None) -> None:
        assert row.topic is not None
        place = (row.topic, row.queue_id or 0, row.queue_offset or 0)
        self._world.ends.sent.check_row(place, row.msg_key, before)

    def _check_offsets(self, statement: Statement, truth: PlainTruth) -> None:
        self._world.ends.beyond.check(statement, truth, excuses=True)
