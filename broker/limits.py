"""What clients may make a broker keep: the limits of its replicated tables. Pure."""

from typing import Final

from remoting.protocol.limits import Limit, Scope, Unit

TOPICS_MAX: Final = Limit(
    100_000, "topics", Unit.COUNT, Scope.GROUP, "2, and the topic is not created"
)
GROUPS_MAX: Final = Limit(
    100_000, "consumer groups", Unit.COUNT, Scope.GROUP, "2, and the group is not created"
)
OFFSETS_BYTES_MAX: Final = Limit(
    64 * 1024 * 1024, "consumer offsets", Unit.BYTES, Scope.GROUP,
    "2, and the offset is not kept; one consumer group gets a quarter of what is free",
)  # fmt: skip
LOCKS_MAX: Final = Limit(
    200_000,
    "queue locks",
    Unit.COUNT,
    Scope.GROUP,
    "0, and it is not among those granted; one consumer group gets a quarter of what is free",
)
LOCK_QUEUES_MAX: Final = Limit(
    10_000, "queues in a lock request", Unit.COUNT, Scope.REQUEST, "1, and nothing is locked"
)
STATE_ENTRY_BYTES_MAX: Final = Limit(
    128 * 1024, "entry of replicated state", Unit.BYTES, Scope.REQUEST, "split into several"
)

LIMITS: Final = (
    TOPICS_MAX, GROUPS_MAX, OFFSETS_BYTES_MAX, LOCKS_MAX, LOCK_QUEUES_MAX, STATE_ENTRY_BYTES_MAX,
)  # fmt: skip
