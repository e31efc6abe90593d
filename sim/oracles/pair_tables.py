"""What a slave knows of offsets and delays, looked at whenever it changes, and now and then.

It is never ahead of the slave's own log: a slave that is made the master would pass over messages
that are still to come. A log that follows catches up in no time, so each change is looked at. What
groups have committed to a slave stays until its master knows better.
Source: docs/replication.md, tables; RocketMQ SlaveSynchronize.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from broker.delays.progress import DelayProgress
from sim.oracles.base import Violation
from sim.oracles.delays import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker.controller import BrokerController
    from sim.oracles.copies import Book, Copy

FORGOTTEN_NS: Final = 3_000_000_000
"""So long a slave may know neither what it took nor what its master has instead."""
NS_PER_MS: Final = 1_000_000

Offset = tuple[str, str, int]
"""Group, topic, queue."""


class Keeper(Protocol):
    """One broker; see `sim.oracles.pair.Broker` and `sim.switch.replica.Replica`."""

    name: str
    copy: Copy
    is_up: bool

    @property
    def is_master(self) -> bool:
        """Return whether it is the master."""
        ...

    @property
    def running(self) -> BrokerController:
        """Return the production object."""
        ...


class Keepers(Protocol):
    """All brokers; see `sim.oracles.pair.Pair` and `sim.switch.replicas.Replicas`."""

    replaced: set[tuple[str, int, int]]

    @property
    def brokers(self) -> Mapping[str, Keeper]:
        """Return them by host."""
        ...

    @property
    def book(self) -> Book:
        """Return their logs."""
        ...


class Taken:
    """The last offset of a queue that a slave took, and what it had of its master then."""

    def __init__(self, offset: int, base: int | None, lines: int) -> None:
        self.offset = offset
        self.base = base
        self.lines = lines
        """How many lines there were: a master that has lost something may know less."""
        self.lost_ns = 0
        """Since when the slave does not tell it any more; 0: it does."""


class PairTables:
    """Judges the tables of slaves."""

    ahead_name = "A39 slave's tables ahead of its log"
    forgotten_name = "A24 offset that a slave took and forgot"
    unasked_name = "A24 offset that nobody committed"

    def __init__(self, pair: Keepers, now_ns: Callable[[], int]) -> None:
        self._pair = pair
        self._now_ns = now_ns
        self._taken: dict[str, dict[Offset, Taken]] = {name: {} for name in pair.brokers}
        self._offered: dict[str, set[tuple[Offset, int]]] = {name: set() for name in pair.brokers}
        self._changes: dict[str, int] = {}
        """By broker: how many records its tables had taken when they were looked at."""

    def on_offered(self, name: str, key: Offset, offset: int) -> None:
        """A broker is asked to keep an offset."""
        self._offered[name].add((key, offset))

    def on_taken(self, name: str, key: Offset, offset: int) -> None:
        """A broker says that it keeps it."""
        broker = self._pair.brokers[name]
        if not broker.is_master:
            group, topic, queue_id = key
            base = broker.running.tables.offsets.applied_offset(f"{topic}@{group}", queue_id)
            self._taken[name][key] = Taken(offset, base, len(self._pair.book.lines))

    def forget(self, name: str) -> None:
        """A broker ends: what it has not written is gone with it."""
        self._taken[name].clear()

    def on_event(self, name: str) -> None:
        """Look at a slave whose tables may have changed. Errors: `Violation`."""
        broker = self._pair.brokers[name]
        if broker.is_master or not broker.is_up or not broker.running._started:
            return
        changes = broker.running.tables.state.revisions.total()
        if changes != self._changes.get(name):
            self._changes[name] = changes
            self._check_ahead(broker)

    def look(self) -> None:
        """Look at all slaves. Errors: `Violation`."""
        for broker in self._pair.brokers.values():
            if broker.is_up and not broker.is_master and broker.running._started:
                self._check_ahead(broker)
                self._check_pending(broker)
                self._check_kept(broker)

    def _check_ahead(self, broker: Keeper) -> None:
        copy, pair = broker.copy, self._pair
        if copy.base:
            return  # what lies before its beginning is not known
        lost = {place[:2] for place in pair.replaced}
        offsets, delays = broker.running.tables.offsets, _delays_of(broker)
        for key in offsets._applied:
            topic = key.rpartition("@")[0]
            for queue_id, offset in offsets._applied[key].items():
                end = copy.queue_ends.get((topic, queue_id), 0)
                if offset > end and (topic, queue_id) not in lost:
                    raise Violation(
                        self.ahead_name,
                        f"{broker.name} knows offset {offset} of {key}/{queue_id}, which ends at "
                        f"{end} in its log",
                    )
        for queue_id in delays._offsets:
            told = delays.delivered_before(queue_id)
            end = copy.queue_ends.get((SCHEDULE_TOPIC, queue_id), 0)
            if told > end and (SCHEDULE_TOPIC, queue_id) not in lost:
                raise Violation(
                    self.ahead_name,
                    f"{broker.name} has delivered level {queue_id + 1} up to {told}; its log has "
                    f"{end} of them",
                )

    def _check_pending(self, broker: Keeper) -> None:
        """What a slave keeps for itself was committed to it by a request that says so."""
        offered = self._offered[broker.name]
        for key, rows in broker.running.tables.offsets._pending.items():
            topic, _, group = key.rpartition("@")
            for queue_id, offset in rows.items():
                if ((group, topic, queue_id), offset) not in offered:
                    raise Violation(
                        self.unasked_name,
                        f"{broker.name} keeps {offset} of {key}/{queue_id}, which nobody has "
                        f"committed to it",
                    )

    def _check_kept(self, broker: Keeper) -> None:
        """What a slave took it tells, as long as its master says what it said before."""
        now_ns, offsets = self._now_ns(), broker.running.tables.offsets
        for key, taken in list(self._taken[broker.name].items()):
            group, topic, queue_id = key
            applied = offsets.applied_offset(f"{topic}@{group}", queue_id)
            if applied != taken.base or taken.lines != len(self._pair.book.lines):
                del self._taken[broker.name][key]
                continue
            if offsets.query(group, topic, queue_id) == taken.offset:
                taken.lost_ns = 0
            elif not taken.lost_ns:
                taken.lost_ns = now_ns
            elif now_ns - taken.lost_ns > FORGOTTEN_NS:
                raise Violation(
                    self.forgotten_name,
                    f"{broker.name} took {taken.offset} of {key} and tells "
                    f"{offsets.query(group, topic, queue_id)}, as before, for "
                    f"{(now_ns - taken.lost_ns) // NS_PER_MS} ms",
                )


def _delays_of(broker: Keeper) -> DelayProgress:
    table = broker.running.tables.state.tables[DelayProgress.file]
    assert isinstance(table, DelayProgress)
    return table
