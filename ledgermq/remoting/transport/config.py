"""Limits and times of connections; everything a peer could use up has a name here."""

from dataclasses import dataclass
from typing import Final

from ledgermq.remoting.transport.limits import (
    CONNECTIONS_MAX,
    FRAME_BYTES_MAX,
    IDLE_TIMEOUT_MS,
    RECEIVE_BYTES_MAX,
    REQUESTS_IN_PROGRESS_MAX,
    SENDING_BYTES_MAX,
    UNSENT_BYTES_MAX,
    WRITE_CLOSE_BYTES,
    WRITE_PAUSE_BYTES,
)

NOTED_BYTES: Final = 64 * 1024
"""A server counts a connection on which more than this waits to be sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportConfig:
    """Settings of a `RemotingServer` or a `RemotingClient`; times are milliseconds."""

    connections_max: int = CONNECTIONS_MAX
    """Connections a server holds; for one more, `shares` picks one that goes."""
    backlog: int = 1024
    """Connections that the kernel may hold before they are accepted."""
    frame_bytes_max: int = FRAME_BYTES_MAX
    """Largest frame taken from a peer; a larger one closes its connection."""
    idle_timeout_ms: int = IDLE_TIMEOUT_MS
    """A server closes a connection on which nothing moves, or no frame ends, for this long."""
    write_pause_bytes: int = WRITE_PAUSE_BYTES
    """While more than this waits to be sent, a server reads nothing from the same connection."""
    write_close_bytes: int = WRITE_CLOSE_BYTES
    """A connection on which more than this waits to be sent is closed: its peer does not read."""
    requests_in_progress_max: int = REQUESTS_IN_PROGRESS_MAX
    """Requests of one connection whose handlers are awaiting something; more are answered busy."""
    receive_bytes_max: int = RECEIVE_BYTES_MAX
    """Bytes of the buffers into which all connections of a server read."""
    unsent_bytes_max: int = UNSENT_BYTES_MAX
    """Bytes that wait on all connections of a server that it reads nothing from; beyond, the
    slowest is closed."""
    sending_bytes_max: int = SENDING_BYTES_MAX
    """Bytes that wait on all connections, also those that are read; what is little of each counts,
    too: thousands of peers that leave a bit less unread than stops a server are a lot."""
    connect_timeout_ms: int = 3_000
    dead_after_ms: int = 15_000
    """A client gives a connection up whose peer acknowledges nothing for so long, where the kernel
    can be told so. By itself it repeats itself for a quarter of an hour, at last every two minutes,
    also where the way is open again. RocketMQ's client closes one with each answer that is late."""
    close_timeout_ms: int = 3_000
    """How long a connection being closed may take to send what was written before."""

    def __post_init__(self) -> None:
        """Check the relations between the limits; raises `ValueError`."""
        if not 0 < self.write_pause_bytes <= self.write_close_bytes:
            raise ValueError("write_pause_bytes must be above 0 and not above write_close_bytes")
        if min(self.connections_max, self.idle_timeout_ms, self.requests_in_progress_max) <= 0:
            raise ValueError("connections_max, idle_timeout_ms, requests_in_progress_max: above 0")


def connections_within(open_files_max: int, wanted: int = CONNECTIONS_MAX) -> int:
    """Return how many connections a server may take in a process that may open so many files.

    Half of them stay for everything else: connections of its own, logs, queues.
    """
    return max(min(wanted, open_files_max // 2), 1)
