"""What the clients of a run do: a list of operations, drawn from the seed before the run.

Each operation has a number, a time and a client; leaving one out changes no other, so that a
failing run can be shrunk. Pure. `sim.client_app` carries them out.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from sim.faults.plan import Workload
    from sim.rng import SplitRng

TOPIC: Final = "orders"
ORDERED_TOPIC: Final = "ledger"
GROUP: Final = "readers"
"""The group of the push consumers, which is judged for loss."""
PULL_GROUP: Final = "pullers"
BATCH_MAX: Final = 8
KEYS_PER_OP: Final = 16
BODY_BYTES_MIN: Final = 32


class Kind(Enum):
    """What a client does."""

    SEND = "send"
    BATCH = "batch"
    BURST = "burst"
    """Several sends at once, as if by so many callers; the producer groups them as it likes."""
    ORDERED = "ordered"
    PULL = "pull"
    COMMIT = "commit"
    READ_INDEX = "read_index"
    COMPACT = "compact"
    """An operator has a broker drop the beginning of its log, as far as may be."""


AT_BROKERS: Final = frozenset({Kind.READ_INDEX, Kind.COMPACT})
"""What is asked of a broker directly, not by a client."""


class Op(NamedTuple):
    """One operation."""

    number: int
    at_ms: int
    kind: Kind
    client: int
    """Which of the clients that can do it."""
    size_bytes: int
    """Of a body."""
    messages: int
    """Messages of a batch or burst."""
    choice: int
    """Chooses a queue, or a node."""


def draw_operations(rng: SplitRng, workload: Workload, until_ms: int) -> list[Op]:
    """Return the operations of a run up to ``until_ms``, in the order of their times."""
    operations: list[Op] = []
    at_ms = 0.0
    number = 0
    skip = frozenset(workload.skip)
    kinds, weights = _weights(workload)
    while workload.rate_per_s > 0:
        stream = rng.split(f"op{number}")
        at_ms += stream.exponential(1000.0 / workload.rate_per_s)
        if at_ms >= until_ms:
            break
        op = Op(
            number=number,
            at_ms=int(at_ms),
            kind=stream.weighted(kinds, weights),
            client=stream.randint(0, 1 << 16),
            size_bytes=stream.randint(BODY_BYTES_MIN, max(BODY_BYTES_MIN, workload.body_max)),
            messages=stream.randint(2, BATCH_MAX),
            choice=stream.randint(0, 1 << 16),
        )
        if number not in skip:
            operations.append(op)
        number += 1
    return operations


def _weights(workload: Workload) -> tuple[list[Kind], list[float]]:
    """Return how likely each kind is; a kind that nobody can do has no weight."""
    ordered = 0.15 if workload.ordered_queues else 0.0
    weights = {
        Kind.BATCH: workload.batch_p,
        Kind.BURST: workload.burst_p,
        Kind.ORDERED: ordered,
        Kind.PULL: 0.12,
        Kind.COMMIT: 0.08,
        Kind.READ_INDEX: 0.1,
        Kind.COMPACT: 0.03,
    }
    weights[Kind.SEND] = max(0.1, 1.0 - sum(weights.values()))
    return list(weights), list(weights.values())
