"""What clients may have a broker remember and hold for them while they are connected. Pure."""

from typing import Final

from ledgermq.remoting.protocol.limits import Limit, Scope, Unit

HEARTBEAT_GROUPS_MAX: Final = Limit(
    2_000, "groups in a heartbeat", Unit.COUNT, Scope.REQUEST, "1, and nothing changes"
)
SUBSCRIPTIONS_PER_GROUP_MAX: Final = Limit(
    1_000, "subscriptions of a group in a heartbeat", Unit.COUNT, Scope.REQUEST,
    "1, and nothing changes",
)  # fmt: skip
SUBSCRIPTIONS_MAX: Final = Limit(
    4_000, "subscriptions in a heartbeat", Unit.COUNT, Scope.REQUEST, "1, and nothing changes"
)
TAGS_MAX: Final = Limit(
    1_000, "tags in a subscription", Unit.COUNT, Scope.REQUEST, "1; 23 in a pull"
)
EXPRESSION_LENGTH_MAX: Final = Limit(
    16_384, "expression of a subscription", Unit.COUNT, Scope.REQUEST, "1; 23 in a pull"
)
CHANNELS_PER_GROUP_MAX: Final = Limit(
    20_000, "connected members of a group", Unit.COUNT, Scope.PROCESS, "not made a member"
)
CONNECTION_GROUPS_MAX: Final = Limit(
    2_000, "groups of a connection", Unit.COUNT, Scope.CONNECTION, "not made a member"
)
CLIENTS_BYTES_MAX: Final = Limit(
    64 * 1024 * 1024, "memberships and subscriptions of clients", Unit.BYTES, Scope.PROCESS,
    "not made a member; one address gets a quarter of what is free",
)  # fmt: skip
CLAIMS_MAX: Final = Limit(
    100_000, "queues that members claim", Unit.COUNT, Scope.PROCESS,
    "not kept, and the queue changes hands at once; one address gets a quarter of what is free",
)  # fmt: skip
EXPRESSIONS_MAX: Final = Limit(
    4_096, "remembered expressions of pulls", Unit.COUNT, Scope.PROCESS,
    "forgotten, worked out again",
)  # fmt: skip
SQL_LENGTH_MAX: Final = Limit(
    4_096, "SQL92 expression", Unit.COUNT, Scope.REQUEST, "23; 27 in a pull"
)
SQL_DEPTH_MAX: Final = Limit(
    64, "depth of an SQL92 expression", Unit.COUNT, Scope.REQUEST, "23; 27 in a pull"
)
SQL_TOKENS_MAX: Final = Limit(
    500, "words and signs of an SQL92 expression", Unit.COUNT, Scope.REQUEST, "23; 27 in a pull"
)
SQL_FILTERS_MAX: Final = Limit(
    128, "remembered SQL92 filters of pulls", Unit.COUNT, Scope.PROCESS,
    "forgotten, compiled again",
)  # fmt: skip
HELD_MAX: Final = Limit(
    100_000, "held pulls", Unit.COUNT, Scope.PROCESS,
    "19 at once; one address gets a quarter of what is free",
)  # fmt: skip
HELD_OF_CONNECTION_MAX: Final = Limit(
    5_000, "held pulls of a connection", Unit.COUNT, Scope.CONNECTION, "19 at once"
)
HELD_TAGS_BYTES_MAX: Final = Limit(
    64 * 1024 * 1024, "tags and filters that held pulls wait for", Unit.BYTES, Scope.PROCESS,
    "19 at once; one address gets a quarter of what is free",
)  # fmt: skip

LIMITS: Final = (
    HEARTBEAT_GROUPS_MAX,
    SUBSCRIPTIONS_PER_GROUP_MAX,
    SUBSCRIPTIONS_MAX,
    TAGS_MAX,
    EXPRESSION_LENGTH_MAX,
    CHANNELS_PER_GROUP_MAX,
    CONNECTION_GROUPS_MAX,
    CLIENTS_BYTES_MAX,
    CLAIMS_MAX,
    EXPRESSIONS_MAX,
    SQL_LENGTH_MAX,
    SQL_DEPTH_MAX,
    SQL_TOKENS_MAX,
    SQL_FILTERS_MAX,
    HELD_MAX,
    HELD_OF_CONNECTION_MAX,
    HELD_TAGS_BYTES_MAX,
)
