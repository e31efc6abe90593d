"""What replicas make of the committed log: A33 (nothing applied is taken back) and A39.

A39: a consume queue holds exactly the committed messages of its queue, in the order of the log,
and the replicated tables are equal wherever the same entries have been applied.
Source: chaos.md 3.6.
"""

from __future__ import annotations

from bisect import bisect_right
from struct import Struct
from typing import TYPE_CHECKING, Final

from dledger.core.model import LEADER
from sim.oracles.base import Violation
from sim.oracles.records import tags_code
from sim.oracles.replica import HEADER_BYTES
from store.layout import UNIT

if TYPE_CHECKING:
    from sim.oracles.replica import Change, Replica
    from sim.oracles.truth import Truth

KEYS_STEP: Final = 4
"""Every so manieth message of a queue is asked for by its key, at each replica."""
ALL_TIMES: Final = (0, (1 << 63) - 1)
_place: Final = Struct(">i4xq").unpack_from
"""Queue id and queue offset of a record, from byte 12 on."""


class Monotonic:
    """A33: within a life, commit and applied index never fall.

    A follower that took a peer's snapshot for the damaged beginning of its log applies anew what
    follows, as after a restart.
    """

    name = "A33 applied regress"

    def __init__(self) -> None:
        self._bases: dict[str, int] = {}
        """By replica, where its log began at the last look."""

    def on_boot(self, replica: Replica) -> None:
        """A new life may begin below where the last one ended."""
        self._bases[replica.name] = replica.base

    def on_change(self, replica: Replica, change: Change) -> None:
        """Compare with the last look."""
        _, _, _, _, _, applied, told = change.before
        now = change.now
        base = self._bases.get(replica.name, replica.base)
        self._bases[replica.name] = replica.base
        begins_anew = now[0] is not LEADER and replica.base > base
        if now[6] < told or (now[5] < applied and not begins_anew):
            raise Violation(
                self.name,
                f"{replica.name}: applied went from {applied} to {now[5]}, told commit from {told} "
                f"to {now[6]}",
                node=replica.name,
            )


class Applied:
    """A39: consume queues and tables are what the committed log says."""

    name = "A39 applied differs from the log"

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._seen: dict[str, int] = {}
        self._tables: dict[int, tuple[str, object]] = {}
        """By number of state entries applied: what the tables were, and on which replica."""
        self._highest: dict[str, int] = {}
        self._tables_from: dict[str, int] = {}
        """By replica, the index from which on its tables are as the log says."""

    def on_boot(self, replica: Replica) -> None:
        """Look at everything again; the tables on disk may be ahead of what is applied anew."""
        name = replica.name
        self._tables_from[name] = 0 if replica.is_wiped else self._highest.get(name, -1)
        self._seen[name] = -1

    def on_change(self, replica: Replica, change: Change) -> None:
        """Check what was applied since the last look."""
        applied = change.now[5]
        seen = self._seen[replica.name]
        if applied <= seen:
            return
        truth = self._truth
        if applied > truth.commit_index:
            raise Violation(
                self.name,
                f"{replica.name} applied {applied}, only {truth.commit_index} is committed",
                node=replica.name,
            )
        self._check_units(replica, seen + 1, applied)
        before, now = (bisect_right(truth.state_indexes, index) for index in (seen, applied))
        if now > before and applied >= max(_ahead(replica), self._tables_from[replica.name]):
            self._check_tables(replica, now)
        self._seen[replica.name] = applied
        self._highest[replica.name] = max(applied, self._highest.get(replica.name, -1))

    def _check_units(self, replica: Replica, first: int, last: int) -> None:
        truth = self._truth
        by_name = replica.controller.store._queues.by_name
        for index in range(first, last + 1):
            mark = truth.committed[index]
            row = truth.rows.get((index, mark.term))
            if row is None or row.type != "message":
                continue
            assert row.topic is not None
            assert row.queue_id is not None
            assert row.queue_offset is not None
            queue = by_name.get((row.topic, row.queue_id))
            if queue is not None and row.queue_offset < queue.min_offset:
                continue
            found = None
            if queue is not None and row.queue_offset < queue.max_offset:
                found = UNIT.unpack(queue.read(row.queue_offset, 1))
            expected = (mark.position + HEADER_BYTES, row.size)
            tags = tags_code(truth.tags.get((index, mark.term), ""))
            if found is None or found != (*expected, tags):
                raise Violation(
                    self.name,
                    f"{replica.name}: {row.topic}/{row.queue_id}@{row.queue_offset} of entry "
                    f"{index} is {found} in the consume queue, expected {expected}",
                    node=replica.name,
                    index=index,
                )

    def _check_tables(self, replica: Replica, applied_states: int) -> None:
        state = replica.controller.tables.state
        own = state.topics._system
        now = (
            {n: config for n, config in state.topics.configs().items() if n not in own},
            dict(state.groups._groups),
            {key: dict(queues) for key, queues in state.offsets._applied.items()},
        )
        name, known = self._tables.setdefault(applied_states, (replica.name, now))
        if known != now:
            raise Violation(
                self.name,
                f"{replica.name} and {name} applied the same {applied_states} state entries and "
                f"have other tables: {_difference(now, known)}",
                node=replica.name,
            )


def _ahead(replica: Replica) -> int:
    """Return the entry up to which the tables may include more than was applied.

    That of a snapshot counts even where a start applies anew what it includes: the log did not
    reach that far when the process ended.
    """
    controller = replica.controller
    meta = controller.node.snapshot_meta
    included = -1 if meta is None else meta.state_index
    return max(controller.store._dispatcher.state_applied_index, included)


def _difference(now: object, known: object) -> str:
    """Say what differs, in at most 500 characters."""
    assert isinstance(now, tuple)
    assert isinstance(known, tuple)
    parts = [
        f"{key}: {one.get(key)} against {other.get(key)}"
        for one, other in zip(now, known, strict=True)
        for key in sorted(one.keys() | other.keys())
        if one.get(key) != other.get(key)
    ]
    return "; ".join(parts)[:500]


def check_keys(truth: Truth, replica: Replica) -> None:
    """Ask a replica for messages by key that it has dispatched. Errors: `Violation`."""
    store = replica.controller.store
    if replica.is_rotten or store._index is None:
        return
    # A removed member that starts again knows nothing to be committed but what its checkpoint says.
    readable = min(store.applied_index, replica.controller.node.commit_index)
    for (topic, queue_id), rows in truth.queues.items():
        queue = store._queues.by_name.get((topic, queue_id))
        if queue is None:
            continue
        for row in rows[queue.min_offset :: KEYS_STEP]:
            if row.msg_key is None or row.entry_index > readable:
                continue
            found = store.messages_of_key(topic, str(row.msg_key), 64, ALL_TIMES).records
            if (queue_id, row.queue_offset) not in [_place(record, 12) for record in found]:
                raise Violation(
                    "A39 key index",
                    f"{replica.name}: {topic}/{queue_id}@{row.queue_offset} of entry "
                    f"{row.entry_index} is not found by its key {row.msg_key}",
                    node=replica.name,
                    index=row.entry_index,
                )
