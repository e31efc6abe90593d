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

LIMITS: Final = (
    ROUTE_QUEUES_MAX,
    ROUTE_BROKERS_MAX,
    BROKERS_KNOWN_MAX,
    PULLED_CONTENT_BYTES_MAX,
)
