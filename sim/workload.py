"""What the clients of a run do: a list of operations, drawn from the seed before the run.

Each operation has a number, a time and a client; leaving one out changes no other, so that a
failing run can be shrunk. Pure. `sim.client_app` carries them out.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from sim.kinds import Odd

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sim.faults.plan import Workload
    from sim.rng import SplitRng

TOPIC: Final = "orders"
ORDERED_TOPIC: Final = "ledger"
ODD_TOPIC: Final = "odd"
"""What odd clients send to beside the others; further topics of theirs begin like it."""
GROUP: Final = "readers"
"""The group of the push consumers, which is judged for loss."""
PULL_GROUP: Final = "pullers"
LATER_TOPIC: Final = "later"
"""Of delayed messages."""
TASK_TOPIC: Final = "tasks"
TASK_GROUP: Final = "workers"
"""Of messages whose listeners fail."""
STEP_TOPIC: Final = "steps"
STEP_GROUP: Final = "steppers"
"""Of messages that are consumed in order."""
PAY_TOPIC: Final = "payments"
"""Of messages that are sent in transactions."""
PAY_GROUP: Final = "payers"
BROADCAST_GROUP: Final = "viewers"
"""Of which each member gets all of `TOPIC`."""
FEW_QUEUES: Final = 2
"""Of the first two of these topics."""
BATCH_MAX: Final = 8
QUEUES_MORE: Final = 2
"""Of a topic that grows."""
KEYS_PER_OP: Final = 256
BODY_BYTES_MIN: Final = 32
BATCH_BODY_MAX: Final = 256
"""Bodies of batches that are larger than usual."""
TAGS_DRAWN: Final = ("", "red", "blue", "Aa", "BB")
"""The last two have the same hash, by which brokers tell tags apart."""
COLOURS: Final = 7
SHARED_KEYS: Final = 5
"""So many further keys there are, each of many messages."""
NUMBERS_PER_STREAM: Final = 1 << 20
"""No stream draws so many operations."""


class Kind(Enum):
    """What a client does."""

    SEND = "send"
    BATCH = "batch"
    BURST = "burst"
    """Several sends at once, as if by so many callers; the producer groups them as it likes."""
    ORDERED = "ordered"
    PULL = "pull"
    COMMIT = "commit"
    SEARCH = "search"
    """Asks which message was stored at some time."""
    LOCK = "lock"
    """Locks a queue, as an orderly consumer does; every second time it gives the lock back."""
    CANCEL = "cancel"
    """Sends, and is cancelled a moment later; alone, or among others."""
    QUERY = "query"
    """Asks for messages by a key, by their unique key, and by their id."""
    READ_INDEX = "read_index"
    DELAY = "delay"
    """Sends a message that waits."""
    TASK = "task"
    """Sends one whose listener may fail."""
    STEP = "step"
    """Sends one of a key whose messages keep their order."""
    PAY = "pay"
    """Sends one in a transaction."""
    GROW = "grow"
    """Gives the topic two queues more, once; whoever comes later finds them there."""
    COMPACT = "compact"
    """An operator has a broker drop the beginning of its log, as far as may be."""
    EXPIRE = "expire"
    """An operator has a broker drop what is older than it is to be kept."""


AT_BROKERS: Final = frozenset({Kind.READ_INDEX, Kind.COMPACT, Kind.EXPIRE})
"""What is asked of a broker directly, not by a client."""
NOT_OF_PRODUCERS: Final = AT_BROKERS | {Kind.PAY}
"""What others than the ordinary clients do."""


class Op(NamedTuple):
    """One operation."""

    number: int
    at_ms: int
    kind: Kind | Odd
    client: int
    """Which of the clients that can do it."""
    size_bytes: int
    """Of a body."""
    messages: int
    """Messages of a batch or burst."""
    choice: int
    """Chooses a queue, or a node."""


def keys_of(key: int, *, is_rich: bool) -> str:
    """Return the KEYS of a message: its own, and perhaps some that others have, too."""
    return f"{key} k{key % SHARED_KEYS} k{key % SHARED_KEYS}x" if is_rich else str(key)


def colour_of(key: int | None, *, is_rich: bool) -> str | None:
    """Return a property of the user's that a message has, None for none."""
    return f"c{key % COLOURS}" if is_rich and key is not None else None


def draw_operations(rng: SplitRng, workload: Workload, until_ms: int) -> list[Op]:
    """Return the operations of a run up to ``until_ms``, in the order of their times.

    Searches, locks and odd operations have streams of their own: they come beside what there is
    without them.
    """
    rate_per_s = workload.rate_per_s
    operations = _draw(rng, workload, until_ms, _weights(workload), rate_per_s)
    for at, (kind, share) in enumerate(_beside(workload), 1):
        stream, first = rng.split(kind.value), at * NUMBERS_PER_STREAM
        operations += _draw(stream, workload, until_ms, {kind: 1.0}, rate_per_s * share, first)
    return sorted(operations, key=lambda op: (op.at_ms, op.number))


def _beside(workload: Workload) -> list[tuple[Kind | Odd, float]]:
    """Return the kinds that come beside the others, and how many there are for each other one.

    A new one goes to the end: its place makes the numbers of its operations.
    """
    odd = ((kind, workload.odd.get(kind, 0.0)) for kind in Odd)
    return [
        (Kind.SEARCH, workload.search_p),
        (Kind.LOCK, workload.lock_p),
        *odd,
        (Kind.CANCEL, workload.cancel_p),
        (Kind.QUERY, workload.query_p),
        (Kind.GROW, workload.grow_p),
        (Kind.EXPIRE, workload.expire_p),
        (Kind.DELAY, 0.0 if workload.delayed is None else workload.delayed.share),
        (Kind.TASK, 0.0 if workload.retrying is None else workload.retrying.share),
        (Kind.STEP, 0.0 if workload.orderly is None else workload.orderly.share),
        (Kind.PAY, 0.0 if workload.transactional is None else workload.transactional.share),
        (Kind.READ_INDEX, 0.0 if workload.strain is None else workload.strain.reads),
    ]


def _draw(
    rng: SplitRng,
    workload: Workload,
    until_ms: int,
    weights: Mapping[Kind, float] | Mapping[Kind | Odd, float],
    rate_per_s: float,
    number: int = 0,
) -> list[Op]:
    """Return operations of the kinds in ``weights``, numbered from ``number`` on."""
    operations: list[Op] = []
    at_ms = 0.0
    skip = frozenset(workload.skip)
    kinds, shares = list(weights), list(weights.values())
    while rate_per_s > 0:
        stream = rng.split(f"op{number}")
        at_ms += stream.exponential(1000.0 / rate_per_s)
        if at_ms >= until_ms:
            break
        op = Op(
            number=number,
            at_ms=int(at_ms),
            kind=stream.weighted(kinds, shares),
            client=stream.randint(0, 1 << 16),
            size_bytes=stream.randint(BODY_BYTES_MIN, max(BODY_BYTES_MIN, workload.body_max)),
            messages=stream.randint(2, BATCH_MAX),
            choice=stream.randint(0, 1 << 16),
        )
        if op.kind is Kind.BURST and workload.burst_max > BATCH_MAX:
            op = op._replace(messages=2 + op.choice % (workload.burst_max - 1))
        if op.kind is Kind.BATCH and workload.strain is not None and workload.strain.batch_max:
            count = 2 + op.choice % (workload.strain.batch_max - 1)
            op = op._replace(messages=count, size_bytes=min(op.size_bytes, BATCH_BODY_MAX))
        if number not in skip:
            operations.append(op)
        number += 1
    return operations


def _weights(workload: Workload) -> dict[Kind, float]:
    """Return how likely each kind is; a kind that nobody can do has no weight."""
    ordered = 0.15 if workload.ordered_queues else 0.0
    weights = {
        Kind.BATCH: workload.batch_p,
        Kind.BURST: workload.burst_p,
        Kind.ORDERED: ordered,
        Kind.PULL: 0.12,
        Kind.COMMIT: 0.08,
        Kind.READ_INDEX: 0.1,
        Kind.COMPACT: workload.compact_p,
    }
    weights[Kind.SEND] = max(0.1, 1.0 - sum(weights.values()))
    return weights


def topics_of(workload: Workload) -> dict[str, int]:
    """Return how many queues each topic has that clients make before they send."""
    topics = {TOPIC: workload.queues, ORDERED_TOPIC: workload.ordered_queues}
    if workload.delayed is not None:
        topics[LATER_TOPIC] = FEW_QUEUES
    if workload.retrying is not None:
        topics[TASK_TOPIC] = FEW_QUEUES
    if workload.transactional is not None:
        topics[PAY_TOPIC] = FEW_QUEUES
    if workload.orderly is not None:
        topics[STEP_TOPIC] = workload.orderly.queues
    return {topic: count for topic, count in topics.items() if count}
