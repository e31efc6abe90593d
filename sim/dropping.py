"""What brokers drop of their logs: noted for those who judge clients, and judged itself.

What goes by age was old enough when it was decided, by the clock of who decided; above the level of
a disk at which a broker makes room whatever the age of its segments, nothing is to be said. Where
retention waits to be asked, nothing goes before. Source: spec/disk.md 5.8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from broker.retention.compaction import NO_LIMIT
from ledgermq.runtime.errors import FatalError
from sim.layout import STORE
from sim.oracles.base import Violation
from sim.settings import RETENTION_INTERVAL_MS

if TYPE_CHECKING:
    from broker.controller import BrokerController
    from broker.retention.retained_log import Dropped
    from sim.context import Host
    from sim.disk import SimDisk
    from sim.faults.plan import Plan
    from sim.layout import Layout
    from sim.loop import SimLoop
    from sim.oracles.base import Findings
    from sim.oracles.clients import Clients
    from sim.record import Record
    from sim.validators import Validators

NS_PER_MS: Final = 1_000_000
HIGH_RATIO: Final = 0.75
"""Used part of a disk above which what is old goes without being asked for."""
FORCED_RATIO: Final = 0.85
"""Likewise above which segments go whatever their age."""
CLOCK: Final = "A22 dropped by a clock that may be wrong"
UNSURE_MS: Final = 25 * 3_600_000
"""A clock that is ahead of the log by a day, when a broker begins, is not believed for an hour."""
ASKED_ROUNDS: Final = 20
"""Rounds that look after a request."""


class World(Protocol):
    """Where brokers run; `sim.world.World`."""

    plan: Plan
    loop: SimLoop
    layout: Layout
    hosts: dict[str, Host]
    controllers: dict[str, BrokerController]
    record: Record
    validators: Validators
    findings: Findings
    clients_oracle: Clients

    def disk(self, name: str) -> SimDisk:
        """Return the disk of a machine."""
        ...


class Dropping:
    """Listens to all brokers of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._asked_ns: dict[str, int] = {}
        self.has_forced = False
        """Whether some disk was ever so full that age did not count; whoever takes a snapshot of
        that broker drops the same."""
        self._cut_short: set[str] = set()
        """Brokers that ended while they dropped: whether they did is seen when they are back."""
        self._unsure: dict[str, int] = {}
        """By broker: how far its clock was ahead of its log when it began, if by a day."""

    def listen(self, name: str, controller: BrokerController) -> None:
        """Note and judge what a broker drops during one life."""
        options, validators = self._world.plan.options, self._world.validators
        is_alone = name in self._world.layout.alone
        age_ms = options.alone_retention_ms if is_alone else options.retention_ms
        clock, store = self._world.hosts[name].clock, controller.store
        retained = controller._retention._retained
        drop, trimmed = retained.drop_before, store.log_start.advance_to
        loop = self._world.loop
        own: list[tuple[int, int] | None] = []
        """While a round drops: the store time before which it may, by the clock of who decided and
        in virtual time; None for any."""

        def oldest() -> tuple[int, int]:
            past_ns = loop.now_ns + clock.lag_ns - age_ms * NS_PER_MS
            return clock.wall_ms() - age_ms, past_ns + NS_PER_MS  # stamps are whole milliseconds

        async def dropping(position: int) -> Dropped:
            is_forced = self._check_round(name)
            self._check_clock(name, is_forced=is_forced)
            own.append(None if is_forced else oldest())
            self._cut_short.add(name)
            try:
                dropped = await drop(position)
            finally:
                own.clear()
            self._cut_short.discard(name)
            return dropped

        def noting(position: int) -> None:
            trimmed(position)
            limit = own[0] if own else oldest()
            places = _beginnings(controller)
            self._world.record.count("trimmed_alone" if is_alone else "trimmed")
            if validators.alone is not None and is_alone:
                # Clocks that are apart are set right when all is healed: then ages leap.
                since_ns = limit[1] if limit and not options.clock_spread_ms else None
                validators.alone.on_dropped(places, since_ns)
                return
            self._note(places)
            is_checked = age_ms and self._world.plan.checks_age
            if is_checked and limit is not None and (own or not self.has_forced):
                validators.group_answers.on_expired(name, position, limit[0])

        retained.drop_before = dropping  # type: ignore[method-assign]  # to listen to it
        store.log_start.advance_to = noting  # type: ignore[method-assign]  # likewise

    def ask(self, name: str) -> None:
        """Have a broker drop what is old, as an operator does."""
        world, controller = self._world, self._world.controllers.get(name)
        if controller is not None and world.hosts[name].alive:
            self._asked_ns[name] = world.loop.now_ns
            controller._retention.ask()
            world.record.count("retention_asked")

    async def compact(self, name: str, controller: BrokerController) -> None:
        """Have a broker drop all that a snapshot may stand for."""
        world = self._world
        before = controller.node.first_index
        self._cut_short.add(name)
        try:
            await controller.compactor.compact(NO_LIMIT)
        except FatalError as error:  # as the dispatcher of requests does
            world.loop.call_exception_handler({"message": str(error), "exception": error})
            return
        self._cut_short.discard(name)
        self._note(_beginnings(controller))
        world.record.count("compactions", int(controller.node.first_index > before))

    def on_started(self, name: str, controller: BrokerController) -> None:
        """Note what a broker dropped that ended in the midst of it: its queues begin there now."""
        if name in self._cut_short:
            self._cut_short.discard(name)
            self._note(_beginnings(controller))
        self._unsure.pop(name, None)
        segments = controller._retention._retained.segments()
        closed = [one.closed_ms for one in segments if one.closed_ms is not None]
        if closed and self._world.hosts[name].clock.wall_ms() - max(closed) > UNSURE_MS:
            self._unsure[name] = self._world.hosts[name].clock.wall_ms() - max(closed)

    def _check_clock(self, name: str, *, is_forced: bool) -> None:
        """Judge who drops what is old by a clock that may be wrong."""
        ahead_ms = self._unsure.get(name)
        if ahead_ms is not None and not is_forced and name not in self._asked_ns:
            text = (
                f"{name} drops what is old, and began with a clock {ahead_ms} ms ahead of its log"
            )
            self._world.findings.report(Violation(CLOCK, text, node=name))

    def _note(self, places: dict[tuple[str, int], int]) -> None:
        dropped = self._world.clients_oracle.dropped
        for place, offset in places.items():
            dropped[place] = max(offset, dropped.get(place, 0))

    def _check_round(self, name: str) -> bool:
        """Look at a round that is about to drop something; return whether age does not count."""
        world = self._world
        used = 1.0 - world.disk(name).space(STORE).free_ratio
        is_forced = used > FORCED_RATIO
        self.has_forced |= is_forced
        asked_ns = self._asked_ns.get(name)
        limit_ns = (ASKED_ROUNDS + 1) * RETENTION_INTERVAL_MS * NS_PER_MS
        was_asked = asked_ns is not None and world.loop.now_ns - asked_ns <= 2 * limit_ns
        if world.plan.options.retention_by == "request" and used <= HIGH_RATIO and not was_asked:
            text = f"{name} drops the beginning of its log, and nobody has asked for it"
            world.findings.report(Violation("A22 dropped without a request", text, node=name))
        return is_forced


def _beginnings(controller: BrokerController) -> dict[tuple[str, int], int]:
    """Return where the queues of a broker begin, by topic and queue id."""
    queues = controller.store._queues.by_key.values()
    return {(queue.topic, queue.queue_id): queue.min_offset for queue in queues}
