"""What clients may make a broker keep: the limits of its replicated tables. Pure."""

from typing import Final

from remoting.protocol.limits import Limit, Scope, Unit

TOPICS_MAX: Final = Limit(
    100_000, "topics", Unit.COUNT, Scope.GROUP, "2, and the topic is not created"
)
GROUPS_MAX: Final = Limit(
    100_000, "consumer groups", Unit.COUNT, Scope.GROUP, "2, and the group is not created"
)
OFFSETS_MAX: Final = Limit(
    1_000_000, "consumer offsets", Unit.COUNT, Scope.GROUP, "2, and the offset is not kept"
)
LOCKS_MAX: Final = Limit(
    200_000, "queue locks", Unit.COUNT, Scope.GROUP, "0, and the queue is not among those granted"
)

LIMITS: Final = (TOPICS_MAX, GROUPS_MAX, OFFSETS_MAX, LOCKS_MAX)
