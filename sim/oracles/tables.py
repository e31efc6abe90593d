"""The replicated tables of a broker are what the log makes of them.

They hold topics, groups, offsets, locks, open halves, and how far delayed messages are delivered.
Each replica is compared with a `Model` of its own that has taken the same records of state, and
with the other replicas where the log says something the model does not know.
Source: spec/proof.md 3.6 (A39); spec/wire.md 3.7 (a lease is a minute of the replica's own clock,
from when it applied it).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Final, Protocol

from sim.oracles.base import Violation
from sim.oracles.model import Model, covers

if TYPE_CHECKING:
    from broker.controller import BrokerController
    from dledger.core.model import SnapshotId
    from dledger.core.snapshot import SnapshotMeta
    from sim.oracles.replica import Change, Replica
    from sim.oracles.truth import Truth

LEASE_MS: Final = 60_000
"""How long a lock holds, by the clock of a replica, which may run at double speed or at half."""
NS_PER_MS: Final = 1_000_000
FASTEST: Final = 2
LEASE_NS_MIN: Final = LEASE_MS * NS_PER_MS // FASTEST
CALL_MS: Final = 2_000
"""A call that takes so long began that much earlier than its clock says at its end."""
LARGE: Final = 500
"""Tables with more rows than that are compared at every `LARGE_STEP`-th change only."""
LARGE_STEP: Final = 50
DIFFERENCE_CHARS: Final = 500

Rows = tuple[dict[Any, Any], ...]


class Judged(Protocol):
    """A broker whose tables are compared; see `sim.oracles.replica.Replica`."""

    name: str
    controller: BrokerController

    def now_ms(self) -> int:
        """Return the time by the monotonic clock of its machine."""
        ...


class Tables:
    """A39, for what is no message."""

    name = "A39 tables differ from the log"
    lease_name = "A21 lease of a lock"

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self.lease_ms = LEASE_MS
        """How long a lock holds in this run."""
        self._models: dict[str, Model] = {}
        self._highest: dict[str, int] = {}
        self._compared_from: dict[str, int] = {}
        """By replica, the index from which on its tables are as the log says."""
        self._metas: dict[str, SnapshotMeta | None] = {}
        """By replica, the snapshot that it had when it was looked at last."""
        self._included: dict[SnapshotId, int] = {}
        """How far snapshots go whose makers had tables ahead of what they had applied anew."""
        self._shown: dict[int, tuple[str, Rows]] = {}
        """Where the model knows nothing: by number of records, the tables of some replica."""

    def on_boot(self, replica: Replica) -> None:
        """Begin anew; the tables on the disk may be ahead of what is applied anew."""
        name = replica.name
        self._compared_from[name] = 0 if replica.is_wiped else self._highest.get(name, -1)
        self._models[name] = Model()
        self._metas[name] = replica.controller.node.reader.snapshot_meta

    def on_change(self, replica: Replica, change: Change) -> None:
        """Compare what was applied since the last look. Errors: `Violation`."""
        name, applied = replica.name, change.now[5]
        meta = replica.controller.node.reader.snapshot_meta
        if meta is not self._metas[name] and meta is not None:
            self._metas[name] = meta
            if meta.state_index < self.compared_from(replica):
                self._included.setdefault(meta.id, self.compared_from(replica))
        model, truth = self._models[name], self._truth
        count = bisect_right(truth.state_indexes, applied)
        if count < model.count:  # a snapshot took the place of its log
            model = self._models[name] = Model()
        if count <= model.count:
            return
        first = model.count
        for statement in truth.statements[first:count]:
            model.apply(statement)
        self._highest[name] = max(applied, self._highest.get(name, -1))
        if applied < self.compared_from(replica):
            return
        if model.rows > LARGE and count // LARGE_STEP == first // LARGE_STEP:
            return
        if model.knows:
            self._compare(replica, model)
        else:
            self._compare_replicas(replica, count)

    def model_of(self, replica: Replica) -> Model | None:
        """Return what the log makes of the tables of a replica, None while nobody can tell."""
        model = self._models.get(replica.name)
        applied = replica.applied_index
        is_whole = model is not None and model.knows and (
            bisect_right(self._truth.state_indexes, applied) == model.count
        )  # fmt: skip
        is_ahead = applied < self.compared_from(replica)
        return model if is_whole and not is_ahead else None

    def compared_from(self, replica: Replica) -> int:
        """Return the entry up to which the tables of a replica may include more than it applied."""
        meta = replica.controller.node.reader.snapshot_meta
        included = -1 if meta is None else self._included.get(meta.id, -1)
        return max(_ahead(replica), included, self._compared_from.get(replica.name, 0))

    def at_end(self, replica: Replica) -> None:
        """Compare once more: what changed without a record is seen at the next one, or here."""
        model = self.model_of(replica) if replica.is_up else None
        if model is not None:
            self._compare(replica, model)

    def _compare(self, replica: Judged, model: Model) -> None:
        state = replica.controller.tables
        topics, groups = own_topics(state), state.groups._groups
        self._check_rows(replica, "topic", topics, model.topics, extra=False)
        self._check_rows(replica, "group", groups, model.groups, extra=True)
        self._check_version(replica, "topics", state.topics.data_version, model.topic_version)
        self._check_version(replica, "groups", state.groups.data_version, model.group_version)
        offsets = {key: queues for key, queues in state.offsets._applied.items() if queues}
        if offsets != model.offsets:
            self._report(replica, f"offsets: {difference((offsets,), (model.offsets,))}")
        progress = progress_of(replica.controller)
        if progress != model.delivered:
            self._report(replica, f"delayed: {difference((progress,), (model.delivered,))}")
        halves = halves_of(replica.controller)
        if halves != model.halves:
            self._report(replica, f"open halves: {difference((halves,), (model.halves,))}")
        self._check_locks(replica, state.locks, model)

    def _check_rows(
        self, replica: Judged, what: str, rows: dict[str, Any], stated: dict[str, Any], *,
        extra: bool,
    ) -> None:  # fmt: skip
        """Compare rows; ``extra``: the replica may have some that the log does not make."""
        for key, config in stated.items():
            row = rows.get(key)
            if row is None or not covers(row, config):
                self._report(replica, f"{what} {key} is {row}, the log says {config}")
        if not extra and len(rows) > len(stated):
            self._report(
                replica, f"{what}s {sorted(rows.keys() - stated.keys())[:5]} are in no log"
            )

    def _check_version(
        self, replica: Judged, what: str, version: Any, stated: tuple[int, int]  # noqa: ANN401  # a private kind
    ) -> None:  # fmt: skip
        """The counter counts twice what is applied anew after a crash; its time does not."""
        is_time = version.timestamp == stated[0] or not stated[1]
        if version.counter < stated[1] or not is_time:
            self._report(replica, f"version of {what} is {version}, the log says {stated}")

    def _check_locks(self, replica: Judged, locks: Any, model: Model) -> None:  # noqa: ANN401  # a private kind
        now_ns = self._truth.now_ns()
        leases, now_ms = locks._leases, replica.now_ms()
        for key, lease in leases.items():
            held = model.locks.get(key)
            if held is None or held.owner != lease.client_id:
                self._report(replica, f"{key} is locked by {lease.client_id}, the log says {held}")
            left_ms = lease.until_ms - now_ms
            age_ms = 0 if held is None else (now_ns - held.since_ns) // NS_PER_MS
            if not self.lease_ms - FASTEST * age_ms - CALL_MS <= left_ms <= self.lease_ms + CALL_MS:
                raise Violation(
                    self.lease_name,
                    f"{replica.name} holds {key} for {lease.client_id} for another "
                    f"{left_ms} ms, {age_ms} ms after it was asked for last",
                    node=replica.name,
                )
        for key, held in model.locks.items():
            if key not in leases and now_ns - held.since_ns < self.lease_ms * NS_PER_MS // FASTEST:
                self._report(replica, f"{key} is free, the log says that {held} holds it")

    def _compare_replicas(self, replica: Replica, count: int) -> None:
        state = replica.controller.tables
        applied = {key: dict(queues) for key, queues in state.offsets._applied.items()}
        groups, progress = dict(state.groups._groups), progress_of(replica.controller)
        now: Rows = (own_topics(state), groups, applied, progress, halves_of(replica.controller))
        name, known = self._shown.setdefault(count, (replica.name, now))
        if known != now:
            self._report(
                replica, f"{name} applied the same {count} records: {difference(now, known)}"
            )

    def _report(self, replica: Judged, text: str) -> None:
        raise Violation(self.name, f"{replica.name}: {text}"[:DIFFERENCE_CHARS], node=replica.name)


def difference(now: Rows, known: Rows) -> str:
    """Say what differs."""
    parts = [
        f"{key}: {one.get(key)} against {other.get(key)}"
        for one, other in zip(now, known, strict=True)
        for key in sorted(one.keys() | other.keys())
        if one.get(key) != other.get(key)
    ]
    return "; ".join(parts)[:DIFFERENCE_CHARS]


def own_topics(state: Any) -> dict[str, Any]:  # noqa: ANN401  # the tables of a broker
    """Return the topics that somebody has made."""
    own = state.topics._system
    return {name: config for name, config in state.topics.configs().items() if name not in own}


def progress_of(controller: BrokerController) -> dict[int, int]:
    """Return how far each level of delayed messages is delivered, as a broker has it."""
    return dict(controller._services.delays.progress._offsets)


def halves_of(controller: BrokerController) -> dict[int, int]:
    """Return the open halves that a broker has, and how often was asked for each."""
    rows = controller._processors.transactions.table.rows
    return {half.offset: half.asked for half in rows} if len(rows) else {}


def _ahead(replica: Replica) -> int:
    """Return the entry up to which the tables may include more than was applied.

    That of a snapshot counts even where a start applies anew what it includes: the log did not
    reach that far when the process ended.
    """
    controller = replica.controller
    meta = controller.node.reader.snapshot_meta
    included = -1 if meta is None else meta.state_index
    return max(controller.state_index, included)
