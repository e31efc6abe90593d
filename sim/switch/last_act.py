"""The last act of a run with controllers: a broker is killed, and nothing else happens.

All is healed, all replicas are in sync. By the seed it is the master, and then another one has to
acknowledge a message within three seconds; or it is a slave, which has to leave the in-sync set,
and then its master waits for it no more. Time is counted from the kill to the answer.
Source: docs/replication.md, automatic switch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.machines import NS_PER_MS
from sim.oracles.base import Violation
from sim.stepping import CHUNK_MS, run_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.switch.auditor import SwitchAuditor
    from sim.switch.world import SwitchWorld

SWITCHED_MS: Final = 3_000
"""From the kill of a master to the first send that is acknowledged by another one."""
GONE_MS: Final = 1_000
"""After so long without a connection a slave is gone."""
DECIDED_MS: Final = 3_000
"""For the request to leave it out, and what is decided."""
WHOLE_MS: Final = 20_000
"""Within so long all replicas are in the set, once all follow."""


class LastAct:
    """Kills one broker and looks at what becomes of it."""

    slow_name: Final = "A41 switch that takes too long"
    kept_name: Final = "A36 set that keeps who is gone"
    waits_name: Final = "A41 waits for who left the set"
    grown_name: Final = "A36 set that never grows again"

    def __init__(self, world: SwitchWorld, auditor: SwitchAuditor) -> None:
        self._world = world
        self._auditor = auditor

    def run(self) -> None:
        """Run it. Errors: `Violation`."""
        world = self._world
        self._until(self._is_whole, WHOLE_MS, self.grown_name, "not all replicas are in the set")
        master = world.master
        if world.plan.seed % 2:
            self._kill_slave(next(name for name in world.layout.brokers if name != master))
        elif world.switch.brokers - 1 >= world.switch.in_sync_min:
            self._kill_master(master)

    def _kill_master(self, name: str) -> None:
        world, auditor = self._world, self._auditor
        begun_ns = world.loop.now_ns
        world.crash(name)
        auditor.ask_again()
        limit_ms = SWITCHED_MS + CHUNK_MS
        self._until(lambda: auditor.told_ns > 0, limit_ms, self.slow_name, f"{name} was killed")
        took_ms = (auditor.told_ns - begun_ns) // NS_PER_MS
        world.record.count("switched_ms", took_ms)
        if took_ms > SWITCHED_MS:
            text = f"{name} was killed; the next send is acknowledged after {took_ms} ms"
            raise Violation(self.slow_name, text)

    def _kill_slave(self, name: str) -> None:
        world = self._world
        replica = world.replicas.brokers[name].disk_id
        world.crash(name)
        self._until(
            lambda: replica not in self._in_sync(),
            GONE_MS + world.switch.poll_ms + DECIDED_MS,
            self.kept_name,
            f"{name} was killed, and is in sync",
        )
        if world.switch.brokers - 1 >= world.switch.in_sync_min:
            auditor = self._auditor
            auditor.ask_again()
            what = f"{name} has left the set, and no send is acknowledged"
            self._until(lambda: auditor.told_ns > 0, SWITCHED_MS, self.waits_name, what)

    def _in_sync(self) -> tuple[int, ...]:
        group = self._world.decisions.group
        return () if group is None else tuple(group.in_sync)

    def _is_whole(self) -> bool:
        return len(self._in_sync()) == self._world.switch.brokers

    def _until(self, holds: Callable[[], bool], limit_ms: int, name: str, what: str) -> None:
        """Go on until something holds. Errors: `Violation`: it takes too long."""
        world = self._world
        end_ms = world.loop.now_ns // NS_PER_MS + limit_ms
        while not holds():
            now_ms = world.loop.now_ns // NS_PER_MS
            if now_ms >= end_ms:
                text = f"{what} after {limit_ms} ms, with nothing else disturbed"
                raise Violation(name, f"{text}: {self._auditor.describe()}")
            run_until(world, min(end_ms, now_ms + CHUNK_MS), _nothing)


def _nothing() -> None:
    """Nothing is looked at between two pieces."""
