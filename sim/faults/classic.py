"""Settings of a plan about a master and its slaves, instead of a Raft group. Pure.

Source: docs/replication.md.
"""

from typing import Annotated, Final, Literal

import msgspec

CLASSIC: Final = "classic"
"""The stream of chance that such plans are drawn from."""
SYNC_MASTER: Final = "sync-master"
ASYNC_MASTER: Final = "async-master"
MODES: Final = (SYNC_MASTER, ASYNC_MASTER)
MASTER: Final = "a0"
"""The machine that begins as the master."""
SLAVES: Final = ("a1", "a2")
"""Those that begin as slaves; a plan may have the first one alone."""


class Classic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Master and slaves; times are milliseconds. ``Options.flush_disk_type`` is the master's."""

    mode: Literal["sync-master", "async-master"] = "sync-master"
    slaves: Annotated[int, msgspec.Meta(ge=1, le=2)] = 1
    slave_flush: Literal["ASYNC_FLUSH", "SYNC_FLUSH"] = "ASYNC_FLUSH"
    slave_timeout_ms: Annotated[int, msgspec.Meta(ge=1)] = 1_000
    """How long a synchronous master waits for a slave."""
    behind_max: Annotated[int, msgspec.Meta(ge=1)] = 256 * 1024 * 1024
    """Bytes that a slave may lack and still counts as there."""
    heartbeat_ms: Annotated[int, msgspec.Meta(ge=10)] = 500
    """Of the stream; after four times as long without a word a connection is given up."""
    batch_bytes: Annotated[int, msgspec.Meta(ge=1024)] = 32 * 1024
    """Of the log in one transfer."""
    switches: bool = True
    """Whether the operator makes a slave the master that has more than the master has left; if
    not, the master goes on with what it has, and whoever has more is refused."""
    delay_p: float = 0.0
    """How many sends are to be delivered later."""

    @property
    def is_sync(self) -> bool:
        """Whether the master waits for a slave."""
        return self.mode == SYNC_MASTER

    @property
    def names(self) -> tuple[str, ...]:
        """Return the machines of its brokers; the first begins as the master."""
        return (MASTER, *SLAVES[: self.slaves])
