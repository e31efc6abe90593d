"""Starts the leader's services with its term, and stops them with it.

It knows neither what they do nor who leads: it is told by `on_writable`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ledgermq.runtime.tasks import attempt, report_serving_failure

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from broker.leader.service import LeaderService
    from broker.state.table import ReplicatedTable
    from ledgermq.runtime.tasks import Supervisor


class LeaderServices:
    """All services of one broker, in the order in which they start, tick and stop.

    Their replicated tables are registered here, so it is made before the tables are loaded.

    Args:
        add_table: registers one, see `broker.tables`.
    """

    def __init__(
        self,
        services: Sequence[LeaderService],
        add_table: Callable[[ReplicatedTable], object],
        tasks: Supervisor,
    ) -> None:
        self._services = services
        self._tasks = tasks
        self._begun: dict[LeaderService, asyncio.Task[None] | None] = {}
        """Those to be stopped, with what is left of their start."""
        self._running: set[LeaderService] = set()
        """Those whose start has ended well."""
        for service in services:
            for table in service.tables():
                add_table(table)

    def schedule(self) -> None:
        """Set the timers; they do nothing on a replica that does not lead."""
        for service in self._services:
            if service.period_ms:
                self._tasks.tend(service.name, service.period_ms, partial(self._tick, service))

    def on_writable(self, writable: bool, term: int) -> None:  # noqa: FBT001 - the store's event
        """Take or lose the leadership."""
        self.stop()
        if writable:
            for service in self._services:
                self._start(service, term)

    def stop(self) -> None:
        """Stop those that have begun; one that fails does not keep the others."""
        begun, self._begun = self._begun, {}
        self._running.clear()
        for service, starting in begun.items():
            if starting is not None:
                starting.cancel()
            attempt(f"the end of {service.name}", service.stop)

    def before_hand_over(self) -> None:
        """Let those that run propose what they hold back."""
        for service in self._services:
            if service in self._running:
                attempt(f"the hand-over of {service.name}", service.before_hand_over)

    def _start(self, service: LeaderService, term: int) -> None:
        self._begun[service] = None
        what = f"the start of {service.name} in term {term}"
        try:
            rest = service.start(term)
        except Exception as error:  # noqa: BLE001 - the others go on
            report_serving_failure(what, error)
            return
        if rest is None:
            self._running.add(service)
            return
        task = self._begun[service] = self._tasks.serve(what, rest)
        task.add_done_callback(partial(self._started, service))

    def _started(self, service: LeaderService, task: asyncio.Task[None]) -> None:
        is_whole = not task.cancelled() and task.exception() is None
        if is_whole and self._begun.get(service) is task:
            self._running.add(service)

    def _tick(self, service: LeaderService) -> None:
        if service in self._running:
            service.tick()
