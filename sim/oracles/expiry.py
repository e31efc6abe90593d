"""What is older than it is to be kept is gone some time later, once nothing hinders that.

Nobody misses anything while it stays, until the disk is full. A segment is as old as the first
message behind it; it may go when tables and queues on disk include it and each follower that lives
has it, all of which takes moments where nothing happens. Source: spec/disk.md 5.8; docs/storage.md.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Protocol

from sim.oracles.base import Violation

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.context import Host
    from sim.faults.plan import Plan
    from sim.loop import SimLoop
    from sim.oracles.replica import Replica
    from sim.oracles.watch import Watch

NAME: Final = "A22 kept too long"
NS_PER_MS: Final = 1_000_000
CALM_MS: Final = 5_000
"""So long after the last fault, and after a start, all replicas are as they should be."""
SLACK_MS: Final = 4_000
"""Retention looks every half second, and writes tables and queues down before it drops."""
DROPPING_MS: Final = 2_000
"""It drops only so many segments at a time: who has dropped some just now goes on with others."""
SETTLE_MS: Final = CALM_MS + SLACK_MS + 2_000
"""So long after everything was healed what has to go is gone, but for what is young still."""
_position: Final = attrgetter("position")


class Disturbed(Protocol):
    """Who knows of faults; `sim.health.Health`."""

    faults_ms: Callable[[int], int]
    """Returns when any fault was on, began or ended, before a time."""


class World(Protocol):
    """What is looked at; `sim.world.World`."""

    plan: Plan
    loop: SimLoop
    hosts: dict[str, Host]
    watch: Watch

    @property
    def health(self) -> Disturbed:
        """Who knows of faults."""
        ...


class Expiry:
    """Judges what the brokers of a group keep."""

    def __init__(self, world: World) -> None:
        self._world = world
        plan = world.plan
        options = plan.options
        is_kept_by_age = options.retention_ms > 0 and options.retention_by == "hour"
        clocks_agree = not options.clock_spread_ms and not plan.moves_clocks
        self.is_on = is_kept_by_age and clocks_agree
        """Whether anything goes by age, whoever asks, and all clocks agree."""
        self._begins: dict[str, tuple[int, int]] = {}
        """By replica: where its log begins, and since when."""

    @property
    def until_ms(self) -> int:
        """Until when a run goes on after it was healed, so that there is something to see."""
        options = self._world.plan.options
        return options.safety_ms + SETTLE_MS + options.retention_ms if self.is_on else 0

    def look(self) -> None:
        """Look at all replicas. Errors: `Violation`."""
        world = self._world
        now_ns, replicas = world.loop.now_ns, world.watch.replicas
        dropping = {
            name
            for name, replica in replicas.items()
            if replica.is_up and self._drops(name, replica.node.first_position)
        }
        calm_ns = now_ns - world.health.faults_ms(now_ns // NS_PER_MS) * NS_PER_MS
        if not self.is_on or calm_ns < CALM_MS * NS_PER_MS:
            return
        for name, replica in replicas.items():
            is_new = now_ns - replica.boot_ns < CALM_MS * NS_PER_MS
            if not replica.is_up or is_new or replica.is_corrupt or replica.disk.is_watched:
                continue
            stored_ms = self._closed_ms(replica)
            if stored_ms is None:
                continue
            age_ms = world.hosts[name].clock.wall_ms() - stored_ms
            limit_ms = world.plan.options.retention_ms
            if age_ms > limit_ms + SLACK_MS and name not in dropping:
                raise Violation(
                    NAME,
                    f"{name} has a log from {replica.node.first_position} on; what lies in its "
                    f"first segment is {age_ms} ms old, and is to be kept for {limit_ms}",
                    node=name,
                )

    def _drops(self, name: str, first_position: int) -> bool:
        """Tell whether a replica has dropped something just now."""
        now_ns = self._world.loop.now_ns
        known, since_ns = self._begins.setdefault(name, (first_position, 0))
        if known != first_position:
            self._begins[name] = known, since_ns = first_position, now_ns
        return now_ns - since_ns < DROPPING_MS * NS_PER_MS

    def _closed_ms(self, replica: Replica) -> int | None:
        """Return when the first segment of a log was closed; None while it is the last one."""
        truth, segment_bytes = self._world.watch.truth, self._world.plan.options.segment_bytes
        first = replica.node.first_position
        end = first - first % segment_bytes + segment_bytes
        applied = min(replica.applied_index + 1, len(truth.committed))
        for index in range(bisect_left(truth.committed, end, key=_position), applied):
            stored_ms = truth.times.get((index, truth.committed[index].term))
            if stored_ms:
                return stored_ms
        return None
