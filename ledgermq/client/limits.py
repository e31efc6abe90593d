"""What a client takes from name servers and brokers; beyond, the request of ours fails. Pure."""

from typing import Final

from ledgermq.remoting.protocol.limits import Limit, Scope, Unit

_FAILS: Final = "the request of ours fails"

ROUTE_QUEUES_MAX: Final = Limit(262_144, "queues in a route", Unit.COUNT, Scope.REQUEST, _FAILS)
ROUTE_BROKERS_MAX: Final = Limit(
    1_000, "broker names in a route", Unit.COUNT, Scope.REQUEST, _FAILS
)
BROKERS_KNOWN_MAX: Final = Limit(
    4_000, "broker names of all routes", Unit.COUNT, Scope.PROCESS,
    "those that no route names any more are forgotten",
)  # fmt: skip
PULLED_CONTENT_BYTES_MAX: Final = Limit(
    64 * 1024 * 1024, "bodies of a pull, decompressed", Unit.BYTES, Scope.REQUEST,
    "the rest is pulled again, one message at least is taken",
)  # fmt: skip
CHECKS_WAITING_MAX: Final = Limit(
    2_000, "transactions that brokers ask a producer about", Unit.COUNT, Scope.PROCESS,
    "not answered; the broker asks again",
)  # fmt: skip
CHECKS_WAITING_BYTES_MAX: Final = Limit(
    64 * 1024 * 1024, "messages of these transactions", Unit.BYTES, Scope.PROCESS,
    "not answered; the broker asks again",
)  # fmt: skip
TOOL_ROWS_MAX: Final = Limit(
    10_000, "queues in what a consumer tells a tool", Unit.COUNT, Scope.REQUEST,
    "the others are left out",
)  # fmt: skip
STACKS_BYTES_MAX: Final = Limit(
    65_536, "stacks of tasks in what a consumer tells a tool", Unit.BYTES, Scope.REQUEST,
    "the rest is left out",
)  # fmt: skip
DIRECT_CALLS_MAX: Final = Limit(
    4, "messages that tools have a consumer consume at once", Unit.COUNT, Scope.PROCESS, "2"
)
TOLD_ERROR_BYTES_MAX: Final = Limit(
    1_000, "text of a listener's error that a tool is told", Unit.BYTES, Scope.REQUEST,
    "the rest is left out",
)  # fmt: skip
REQUESTS_WAITING_MAX: Final = Limit(
    10_000, "requests of a producer that wait for a reply", Unit.COUNT, Scope.PROCESS,
    "the request of ours fails",
)  # fmt: skip
TRACES_WAITING_MAX: Final = Limit(
    2_048, "trace records of a client that wait", Unit.COUNT, Scope.PROCESS, "dropped and counted"
)
TRACES_WAITING_BYTES_MAX: Final = Limit(
    4 * 1024 * 1024, "these records, in characters", Unit.COUNT, Scope.PROCESS,
    "dropped and counted",
)  # fmt: skip

MEMBERS_MAX: Final = Limit(
    20_000, "members of a group, as a broker tells a consumer", Unit.COUNT, Scope.REQUEST, _FAILS
)
REBALANCES_IN_A_SECOND_MAX: Final = Limit(
    8, "rebalances of a consumer in a second, however often brokers order one", Unit.COUNT,
    Scope.PROCESS, "the next one waits",
)  # fmt: skip

LIMITS: Final = (
    ROUTE_QUEUES_MAX,
    ROUTE_BROKERS_MAX,
    BROKERS_KNOWN_MAX,
    MEMBERS_MAX,
    REBALANCES_IN_A_SECOND_MAX,
    PULLED_CONTENT_BYTES_MAX,
    CHECKS_WAITING_MAX,
    CHECKS_WAITING_BYTES_MAX,
    TOOL_ROWS_MAX,
    STACKS_BYTES_MAX,
    DIRECT_CALLS_MAX,
    TOLD_ERROR_BYTES_MAX,
    REQUESTS_WAITING_MAX,
    TRACES_WAITING_MAX,
    TRACES_WAITING_BYTES_MAX,
)
