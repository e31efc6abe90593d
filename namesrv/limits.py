"""What a name server takes from brokers and clients at most; docs/security.md shows it."""

from typing import Final

from ledgermq.remoting.protocol.limits import Limit, Scope, Unit

_REFUSED: Final = "1, and nothing changes"

NAME_LENGTH_MAX: Final = Limit(
    255, "name of a broker or cluster", Unit.COUNT, Scope.REQUEST, _REFUSED
)
ADDRESS_LENGTH_MAX: Final = Limit(300, "address of a broker", Unit.COUNT, Scope.REQUEST, _REFUSED)
BROKER_ID_MAX: Final = Limit(2**63 - 1, "broker id", Unit.VALUE, Scope.REQUEST, _REFUSED)
RAFT_TERM_MAX: Final = Limit(2**48, "term of a registration", Unit.VALUE, Scope.REQUEST, _REFUSED)
QUEUES_MAX: Final = Limit(
    65_536, "queues of a registered topic", Unit.COUNT, Scope.REQUEST, "the topic is left out"
)
BROKERS_MAX: Final = Limit(10_000, "registered brokers", Unit.COUNT, Scope.PROCESS, _REFUSED)
MEMBERS_MAX: Final = Limit(256, "brokers of one name", Unit.COUNT, Scope.GROUP, _REFUSED)
BROKERS_PER_CONNECTION_MAX: Final = Limit(
    64, "brokers registered over one connection", Unit.COUNT, Scope.CONNECTION, _REFUSED
)
BROKER_NAMES_BYTES_MAX: Final = Limit(
    4 * 1024 * 1024, "names and addresses of all brokers", Unit.BYTES, Scope.PROCESS, _REFUSED
)
"""As the answer of one request (106) has them, which must fit into a frame."""
TOPIC_ROWS_MAX: Final = Limit(
    400_000, "topics, counted once for each broker name", Unit.COUNT, Scope.PROCESS, _REFUSED
)
TOPIC_NAMES_BYTES_MAX: Final = Limit(
    12 * 1024 * 1024, "names of all topics", Unit.BYTES, Scope.PROCESS, _REFUSED
)
"""All names go into the answer of one request (206), which must fit into a frame."""
REGISTRATIONS_MAX: Final = Limit(
    64, "registrations being worked through", Unit.COUNT, Scope.PROCESS,
    "2, try again; an address gets a quarter of what is free",
)  # fmt: skip
REGISTRATIONS_PER_CONNECTION_MAX: Final = Limit(
    2, "registrations of one connection being worked through", Unit.COUNT, Scope.CONNECTION,
    "2, try again",
)  # fmt: skip
ROUTES_BYTES_MAX: Final = Limit(
    16 * 1024 * 1024, "remembered routes", Unit.BYTES, Scope.PROCESS, "forgotten, worked out again"
)
KV_NAMES_MAX: Final = Limit(
    255, "namespace or key of a configuration value", Unit.COUNT, Scope.REQUEST, _REFUSED
)
KV_VALUE_BYTES_MAX: Final = Limit(
    64 * 1024, "configuration value", Unit.BYTES, Scope.REQUEST, _REFUSED
)
KV_BYTES_MAX: Final = Limit(
    1024 * 1024, "all configuration values with their names", Unit.BYTES, Scope.PROCESS, _REFUSED
)

LIMITS: Final = (
    NAME_LENGTH_MAX,
    ADDRESS_LENGTH_MAX,
    BROKER_ID_MAX,
    RAFT_TERM_MAX,
    QUEUES_MAX,
    BROKERS_MAX,
    MEMBERS_MAX,
    BROKERS_PER_CONNECTION_MAX,
    BROKER_NAMES_BYTES_MAX,
    TOPIC_ROWS_MAX,
    TOPIC_NAMES_BYTES_MAX,
    REGISTRATIONS_MAX,
    REGISTRATIONS_PER_CONNECTION_MAX,
    ROUTES_BYTES_MAX,
    KV_NAMES_MAX,
    KV_VALUE_BYTES_MAX,
    KV_BYTES_MAX,
)
