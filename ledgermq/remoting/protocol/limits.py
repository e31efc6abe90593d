"""What a peer may use up: the type of a limit, and the limits of a request's content.

Every bound on what comes from outside is a `Limit`: an int that knows its name, its unit, what it
is counted over, and what whoever exceeds it gets. Packages above list theirs in a ``LIMITS`` tuple
of their own (`ledgermq.remoting.transport.config`, `dledger.limits`, `broker.limits`,
`namesrv.limits`, `namesrv.controller.limits`); docs/security.md shows all of them, and
`tests/architecture/test_limits.py` compares. Pure.
"""

from enum import StrEnum
from typing import Annotated, Final, Self

import msgspec

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""Java's int and long: a number outside is no number of the protocol."""


class Unit(StrEnum):
    """What a limit counts."""

    BYTES = "bytes"
    COUNT = "count"
    MILLISECONDS = "ms"
    VALUE = "value"
    """The largest number that a field may hold."""


class Scope(StrEnum):
    """What a limit is counted over."""

    REQUEST = "request"
    CONNECTION = "connection"
    ADDRESS = "address"
    GROUP = "group"
    """All state that the replicas of a group share."""
    PROCESS = "process"


class Limit(int):
    """A bound: usable as the int it is, and it can say what it bounds."""

    name: str
    unit: Unit
    scope: Scope
    beyond: str
    """What happens beyond it, in a few words: the answer's code, or what is closed or dropped."""

    def __new__(cls, value: int, name: str, unit: Unit, scope: Scope, beyond: str) -> Self:
        """Return a limit of ``value``."""
        limit = super().__new__(cls, value)
        limit.name, limit.unit, limit.scope, limit.beyond = name, unit, scope, beyond
        return limit


TOPIC_LENGTH_MAX: Final = Limit(
    127, "topic name", Unit.COUNT, Scope.REQUEST, "1, and nothing is stored"
)
GROUP_LENGTH_MAX: Final = Limit(
    255, "group name", Unit.COUNT, Scope.REQUEST, "1, and nothing is stored"
)
CLIENT_ID_LENGTH_MAX: Final = Limit(
    255, "client id", Unit.COUNT, Scope.REQUEST, "1, and nothing is stored"
)

REGISTER_BYTES_MAX: Final = Limit(
    8 * 1024 * 1024, "registration of a broker, inflated", Unit.BYTES, Scope.REQUEST,
    "1, and nothing changes",
)  # fmt: skip

SIGNER_LENGTH_MAX: Final = Limit(
    255, "signer, nonce of a signature", Unit.COUNT, Scope.REQUEST, "16, and nothing is done"
)
SIGN_CERTIFICATE_BYTES_MAX: Final = Limit(
    8 * 1024, "certificate in a signature", Unit.BYTES, Scope.REQUEST, "16, and nothing is done"
)
SIGN_WINDOW_MS: Final = Limit(
    60_000, "age of a signature", Unit.MILLISECONDS, Scope.REQUEST, "16, and nothing is done"
)
SIGN_NONCES_MAX: Final = Limit(
    65_536,
    "signatures remembered",
    Unit.COUNT,
    Scope.PROCESS,
    "16 for signed requests, until one is forgotten",
)
PROPERTIES_BYTES_MAX: Final = Limit(
    32_767, "properties of a message", Unit.BYTES, Scope.REQUEST, "13, and nothing is stored"
)
BATCH_MESSAGES_MAX: Final = Limit(
    1_024, "messages of a batch", Unit.COUNT, Scope.REQUEST, "13, and none is stored"
)
"""As many as a broker stores without keeping its other clients waiting for more than 20 ms."""
BATCH_PROPERTIES_BYTES_MAX: Final = Limit(
    1024**2,
    "properties of all messages of a batch, in bytes",
    Unit.BYTES,
    Scope.REQUEST,
    "13, and none is stored",
)
"""Those of the batch count once for each message, as they are stored."""
BATCH_PROPERTIES_MAX: Final = Limit(
    32_768,
    "properties of all messages of a batch",
    Unit.COUNT,
    Scope.REQUEST,
    "13, and none is stored",
)
KEY_WORDS_MAX: Final = Limit(
    4_096, "words of KEYS, of all messages", Unit.COUNT, Scope.REQUEST, "13, and none is stored"
)
"""Each is an entry in the index of keys."""
KEY_BYTES_MAX: Final = Limit(
    128 * 1024,
    "KEYS, TAGS and UNIQ_KEY over 96 bytes, of all messages",
    Unit.BYTES,
    Scope.REQUEST,
    "13, and none is stored",
)
"""For each of them Java's hash is computed. What is short needs no limit of its own."""
HEADER_BYTES_MAX: Final = Limit(
    256 * 1024, "header of a frame", Unit.BYTES, Scope.REQUEST, "1, for a message 13; not read"
)
"""RocketMQ's 32,767 bytes of properties, each escaped to six, and room for the rest."""
BODY_BYTES_MAX: Final = Limit(
    2 * 1024 * 1024, "JSON body of a client's request", Unit.BYTES, Scope.REQUEST,
    "1, and nothing changes",
)  # fmt: skip
BODY_VALUES_MAX: Final = Limit(
    50_000, "commas and braces in a client's JSON body", Unit.COUNT, Scope.REQUEST,
    "1, and nothing changes",
)  # fmt: skip
SETTINGS_BYTES_MAX: Final = Limit(
    8 * 1024, "settings that a request would change", Unit.BYTES, Scope.REQUEST,
    "1, and nothing changes",
)  # fmt: skip
"""Some two hundred. Lines of a properties file are read one by one, 5 us each."""
NESTING_MAX: Final = Limit(
    64, "nesting of JSON that is not strict", Unit.COUNT, Scope.REQUEST,
    "1; in a header, the connection is closed",
)  # fmt: skip
"""Real bodies have at most six levels."""
TOLERANT_BYTES_MAX: Final = Limit(
    64 * 1024, "JSON that is not strict", Unit.BYTES, Scope.REQUEST,
    "1; in a header, the connection is closed",
)  # fmt: skip
TOLERANT_VALUES_MAX: Final = Limit(
    4_000, "values in JSON that is not strict, references expanded", Unit.COUNT, Scope.REQUEST,
    "1; in a header, the connection is closed",
)  # fmt: skip
TOLERANT_ANSWER_VALUES_MAX: Final = Limit(
    50_000, "values in an answer to us that is not strict JSON", Unit.COUNT, Scope.REQUEST,
    "the request of ours fails",
)  # fmt: skip
ANSWER_VALUES_MAX: Final = Limit(
    1_000_000, "commas, braces and brackets in an answer to us", Unit.COUNT, Scope.REQUEST,
    "the request of ours fails",
)  # fmt: skip
"""A frame of nothing but ``[],`` would take 360 MB; this many values take 90 MB at most. The
largest tables that brokers tell have fewer."""

ROUTE_VALUES_MAX: Final = Limit(
    200_000, "commas and braces in a route", Unit.COUNT, Scope.REQUEST, "the request of ours fails"
)
"""Some six for each broker of a topic, and two for each address."""

LIMITS: Final = (
    TOPIC_LENGTH_MAX,
    GROUP_LENGTH_MAX,
    CLIENT_ID_LENGTH_MAX,
    REGISTER_BYTES_MAX,
    SIGNER_LENGTH_MAX,
    SIGN_CERTIFICATE_BYTES_MAX,
    SIGN_WINDOW_MS,
    SIGN_NONCES_MAX,
    PROPERTIES_BYTES_MAX,
    BATCH_MESSAGES_MAX,
    BATCH_PROPERTIES_BYTES_MAX,
    BATCH_PROPERTIES_MAX,
    KEY_WORDS_MAX,
    KEY_BYTES_MAX,
    HEADER_BYTES_MAX,
    BODY_BYTES_MAX,
    BODY_VALUES_MAX,
    SETTINGS_BYTES_MAX,
    NESTING_MAX,
    TOLERANT_BYTES_MAX,
    TOLERANT_VALUES_MAX,
    TOLERANT_ANSWER_VALUES_MAX,
    ANSWER_VALUES_MAX,
    ROUTE_VALUES_MAX,
)
"""What one request may contain, whoever serves it."""
