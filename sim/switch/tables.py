"""What switched brokers know of offsets: not ahead of their logs, and never told lower.

An offset that is a record of the log and counts stands for good: whoever is the master of the
last epoch, and has dispatched that far, tells it, or what somebody has asked for since. Who asked
is read from the wire, what counts from the log; the tables are what is judged.
Source: docs/replication.md, automatic switch and tables.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from sim.oracles.base import Violation
from sim.oracles.pair_tables import PairTables
from sim.oracles.records import ENTRY_HEADER_BYTES, KIND, body_of, properties_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.oracles.copies import Row
    from sim.oracles.pair_tables import Offset
    from sim.switch.replica import Replica
    from sim.switch.replicas import Replicas

UNASKED_NS: Final = 10_000_000_000
"""Nobody was heard to ask for what counts: then whoever asked so long before may have."""
ASKS_MAX: Final = 2_000
"""Of one queue and group."""


class Ask(NamedTuple):
    """Somebody asks a broker to keep an offset."""

    at_ns: int
    offset: int
    is_of_slave: bool
    """A slave keeps it for itself, and gives it to its master later."""


class Settled(NamedTuple):
    """An offset that counts."""

    offset: int
    since_ns: int
    """When it was asked for last: what was asked for later may come behind it."""
    position: int
    """Of its record."""


class SwitchTables(PairTables):
    """Judges the tables of brokers that controllers switch."""

    lower_name: Final = "A24 offset that counts and is told lower"

    def __init__(self, replicas: Replicas, now_ns: Callable[[], int]) -> None:
        super().__init__(replicas, now_ns)
        self._replicas = replicas
        self.settled: dict[Offset, Settled] = {}
        self._forgotten: dict[Offset, int] = {}
        """Position of the last record that has an offset forgotten."""
        self._asks: dict[Offset, list[Ask]] = defaultdict(list)
        self._seen: dict[str, tuple[object, int]] = {}
        """By master: its broker, and how many changes its tables had when they were looked at."""
        self._excused = 0

    # What is asked for, and what counts

    def on_asked(self, name: str, key: Offset, offset: int) -> None:
        """A broker is asked to keep an offset, by itself or with a pull."""
        asks = self._asks[key]
        asks.append(Ask(self._now_ns(), offset, not self._replicas.brokers[name].is_master))
        del asks[:-ASKS_MAX]

    def on_counted(self, position: int, row: Row) -> None:
        """A record counts."""
        data = bytes(ENTRY_HEADER_BYTES) + row.data
        kind = properties_of(data).get(KIND)
        if kind not in {"offset", "forget-offsets"}:
            return
        content = json.loads(body_of(data))
        if kind == "forget-offsets":
            for name, queue_ids in content["offsets"].items():
                for queue_id in queue_ids:
                    self._forget(_key_of(name, int(queue_id)), position)
            return
        for name, rows in content.items():
            for queue_id, offset in rows.items():
                self._settle(_key_of(name, int(queue_id)), offset, position)

    def _forget(self, key: Offset, position: int) -> None:
        self._forgotten[key] = max(position, self._forgotten.get(key, -1))
        known = self.settled.get(key)
        if known is not None and known.position < position:
            del self.settled[key]

    def _settle(self, key: Offset, offset: int, position: int) -> None:
        known = self.settled.get(key)
        if known is not None and known.position >= position:
            return  # another broker counts the same
        if self._forgotten.get(key, -1) > position:
            return  # a broker that lags counts what the others have forgotten
        now_ns = self._now_ns()
        asked = [one.at_ns for one in self._asks[key] if one.offset == offset]
        since_ns = max(asked, default=now_ns - UNASKED_NS)
        self.settled[key] = Settled(offset, since_ns, position)

    def floor(self, key: Offset) -> int:
        """Return the lowest that may be told of a settled offset."""
        settled = self.settled[key]
        asks = [one.offset for one in self._asks[key] if _may_come(one, settled)]
        return min([settled.offset, *asks])

    # What is told

    def on_told(self, name: str, key: Offset, offset: int | None) -> None:
        """A broker answers the offset of a group; None: it knows none. Errors: `Violation`."""
        broker = self._replicas.brokers[name]
        if self._counts(broker):
            self._check_lower(broker, key, offset)

    def on_event(self, name: str) -> None:
        """Look at a broker whose tables may have changed. Errors: `Violation`."""
        super().on_event(name)
        broker = self._replicas.brokers[name]
        if not self._counts(broker):
            return
        running = broker.running
        seen = (running, running.tables.state.revisions.total())
        if self._seen.get(name) != seen:
            self._seen[name] = seen
            self._check_told(broker)

    def look(self) -> None:
        """Look at all. Errors: `Violation`."""
        super().look()
        for broker in self._replicas.brokers.values():
            if self._counts(broker):
                self._check_told(broker)

    def _counts(self, broker: Replica) -> bool:
        """Whether a broker is the master of the last epoch, and serves."""
        replicas = self._replicas
        if replicas.excused != self._excused:  # what was lost is as if it had never been
            self._excused = replicas.excused
            self.settled.clear()
            self._forgotten.clear()
        group = replicas.decisions.group
        is_last = group is not None and broker.epoch == group.master_epoch
        return is_last and broker.is_master and broker.is_up and broker.running._started

    def _check_told(self, broker: Replica) -> None:
        offsets = broker.running.tables.offsets
        for key in list(self.settled):
            group, topic, queue_id = key
            self._check_lower(broker, key, offsets.query(group, topic, queue_id))

    def _check_lower(self, broker: Replica, key: Offset, told: int | None) -> None:
        settled = self.settled.get(key)
        if settled is None or broker.running.store.applied <= settled.position:
            return
        floor = self.floor(key)
        if told is None or told < floor:
            raise Violation(
                self.lower_name,
                f"{broker.name} tells {told} of {key} as the master of epoch {broker.epoch}; "
                f"{settled.offset} counts, at {settled.position}, and since then nobody has asked "
                f"for less than {floor}",
            )


def _may_come(ask: Ask, settled: Settled) -> bool:
    return ask.is_of_slave or ask.at_ns > settled.since_ns


def _key_of(name: str, queue_id: int) -> Offset:
    topic, _, group = name.rpartition("@")
    return group, topic, queue_id
