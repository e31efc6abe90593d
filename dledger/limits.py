"""What peers may send and what may be appended, so that it can be sent. Pure."""

import re
from typing import Final

from ledgermq.remoting.protocol.frame import MAX_FRAME_BYTES
from ledgermq.remoting.protocol.limits import Limit, Scope, Unit

ENTRY_BYTES_MAX: Final = Limit(
    12 * 1024 * 1024, "log entry", Unit.BYTES, Scope.REQUEST, "13, and nothing is appended"
)
PEER_FRAME_BYTES_MAX: Final = Limit(
    32 * 1024 * 1024, "frame between members", Unit.BYTES, Scope.CONNECTION, "closed"
)
"""Twice what a leader sends: versions before had no bound, and what they appended must reach all
members still. An entry that is larger keeps its replica from leading, see `dledger.repair`."""

PEER_PENDING_MAX: Final = Limit(
    128, "peer connections of nobody known", Unit.COUNT, Scope.PROCESS, "the oldest is closed"
)
PEER_PENDING_PER_ADDRESS_MAX: Final = Limit(
    32,
    "peer connections of nobody known at one address",
    Unit.COUNT,
    Scope.ADDRESS,
    "the oldest is closed",
)
PEER_STRANGERS_MAX: Final = Limit(
    16, "servers that speak and are no members", Unit.COUNT, Scope.PROCESS, "the oldest is closed"
)
PEER_HANDSHAKE_MS: Final = Limit(
    3_000, "peer that has not proven who it is", Unit.MILLISECONDS, Scope.CONNECTION, "closed"
)

TERM_MAX: Final = Limit(1 << 53, "term", Unit.VALUE, Scope.GROUP, "the message is dropped")
TERM_STEP_MAX: Final = Limit(
    1 << 20, "term of a message ahead of ours", Unit.VALUE, Scope.REQUEST, "the message is dropped"
)
INDEX_MAX: Final = Limit(
    1 << 53, "index of an entry", Unit.VALUE, Scope.GROUP, "the message is dropped"
)
SNAPSHOT_INDEX_MAX: Final = Limit(
    INDEX_MAX >> 1, "last entry of a snapshot", Unit.VALUE, Scope.GROUP,
    "it is not taken, and that is told",
)  # fmt: skip
"""What comes behind it has as many indexes again."""
SNAPSHOT_POSITION_MAX: Final = Limit(
    1 << 62, "position behind a snapshot", Unit.VALUE, Scope.GROUP,
    "it is not taken, and that is told",
)  # fmt: skip
SNAPSHOT_BYTES_MAX: Final = Limit(
    512 * 1024 * 1024, "snapshot", Unit.BYTES, Scope.GROUP, "it is not taken, and that is told"
)
"""It is checked as a whole, in memory. What a broker keeps for its clients is far less."""

LIMITS: Final = (
    ENTRY_BYTES_MAX,
    PEER_FRAME_BYTES_MAX,
    PEER_PENDING_MAX,
    PEER_PENDING_PER_ADDRESS_MAX,
    PEER_STRANGERS_MAX,
    PEER_HANDSHAKE_MS,
    TERM_MAX,
    TERM_STEP_MAX,
    INDEX_MAX,
    SNAPSHOT_INDEX_MAX,
    SNAPSHOT_POSITION_MAX,
    SNAPSHOT_BYTES_MAX,
)

NODE_ID: Final = re.compile(r"[A-Za-z0-9_]{0,63}[0-9]\Z")
"""What an id of a replica looks like: the number is the broker's, messages bear all of it."""
PEER_MESSAGE_BYTES: Final = 4 * 1024
"""More than a frame with entries has besides them: prefix, header, fields, names."""


def entry_bytes_max(span_bytes_max: int) -> int:
    """Return the largest entry that fits into a frame behind a span that is just not full."""
    return min(ENTRY_BYTES_MAX, MAX_FRAME_BYTES - PEER_MESSAGE_BYTES - span_bytes_max)
