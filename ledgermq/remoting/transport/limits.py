"""What connections may take up: of a server, of an address, of the process. Pure."""

from typing import Final

from ledgermq.remoting.protocol.frame import MAX_FRAME_BYTES
from ledgermq.remoting.protocol.limits import Limit, Scope, Unit

FRAME_BYTES_MAX: Final = Limit(
    MAX_FRAME_BYTES, "frame of a client", Unit.BYTES, Scope.REQUEST, "the connection is closed"
)
CONNECTIONS_MAX: Final = Limit(
    4096, "connections of a server", Unit.COUNT, Scope.PROCESS,
    "one of the address that has most goes: a silent one, else an idle one; else such a one of any "
    "address; else the new one",
)  # fmt: skip
ACCEPTED_MAX: Final = Limit(
    16, "connections taken in a turn of the loop", Unit.COUNT, Scope.PROCESS,
    "the rest waits for the next turn",
)  # fmt: skip
HANDSHAKES_MAX: Final = Limit(
    256, "connections that have not shown yet whether they carry TLS", Unit.COUNT, Scope.PROCESS,
    "the oldest of the address that has most of them is closed",
)  # fmt: skip
HANDSHAKE_MS: Final = Limit(
    5_000, "time until a connection is through its TLS handshake", Unit.MILLISECONDS,
    Scope.CONNECTION, "closed",
)  # fmt: skip
HANDSHAKES_PER_S: Final = Limit(
    250, "TLS handshakes begun in a second", Unit.COUNT, Scope.PROCESS,
    "the rest waits; addresses take turns",
)  # fmt: skip
IDLE_TIMEOUT_MS: Final = Limit(
    120_000, "time without anything on a connection", Unit.MILLISECONDS, Scope.CONNECTION, "closed"
)
TURN_FRAMES_MAX: Final = Limit(
    256, "frames of a connection in one turn of the loop", Unit.COUNT, Scope.CONNECTION,
    "the rest waits for the next turn",
)  # fmt: skip
TURN_MS_MAX: Final = Limit(
    10, "frames in one turn of the loop", Unit.MILLISECONDS, Scope.PROCESS,
    "the rest waits for a later turn; these go round addresses, then round their connections",
)  # fmt: skip
RECEIVE_BYTES_MAX: Final = Limit(
    256 * 1024 * 1024, "buffers of a server, or of a client, for frames that come in",
    Unit.BYTES, Scope.PROCESS,
    "the connection with the largest part of a frame is closed",
)  # fmt: skip
WRITE_PAUSE_BYTES: Final = Limit(
    4 * 1024 * 1024, "answers that wait, before no more is read", Unit.BYTES, Scope.CONNECTION,
    "nothing is read, and pulls get no data",
)  # fmt: skip
WRITE_CLOSE_BYTES: Final = Limit(
    64 * 1024 * 1024, "answers that wait", Unit.BYTES, Scope.CONNECTION, "closed"
)
UNSENT_BYTES_MAX: Final = Limit(
    256 * 1024 * 1024, "answers that wait, of all connections that are not read", Unit.BYTES,
    Scope.PROCESS,
    "the connection for which most waits is closed",
)  # fmt: skip
SENDING_BYTES_MAX: Final = Limit(
    1024 * 1024 * 1024, "answers on their way, also to peers that read them", Unit.BYTES,
    Scope.PROCESS,
    "the connection for which most waits is closed, of the address for which most does",
)  # fmt: skip
REQUESTS_IN_PROGRESS_MAX: Final = Limit(
    256,
    "requests under way, with those of closed connections of its address",
    Unit.COUNT,
    Scope.CONNECTION,
    "2, and nothing is done",
)
BODIES_BYTES_MAX: Final = Limit(
    256 * 1024 * 1024, "bodies of requests under way", Unit.BYTES, Scope.PROCESS,
    "2, and nothing is done; an address gets a quarter of what is free",
)  # fmt: skip

LIMITS: Final = (
    FRAME_BYTES_MAX,
    CONNECTIONS_MAX,
    ACCEPTED_MAX,
    HANDSHAKES_MAX,
    HANDSHAKE_MS,
    HANDSHAKES_PER_S,
    IDLE_TIMEOUT_MS,
    TURN_FRAMES_MAX,
    TURN_MS_MAX,
    RECEIVE_BYTES_MAX,
    WRITE_PAUSE_BYTES,
    WRITE_CLOSE_BYTES,
    UNSENT_BYTES_MAX,
    SENDING_BYTES_MAX,
    REQUESTS_IN_PROGRESS_MAX,
    BODIES_BYTES_MAX,
)
