"""Settings of a plan about brokers whose role controllers say, instead of a Raft group. Pure.

Source: docs/replication.md, automatic switch; docs/adr/0020.
"""

from typing import Annotated, Final, Literal

import msgspec

SWITCH: Final = "switch"
"""The stream of chance that such plans are drawn from."""
CONTROLLER: Final = "controller"
"""The mode, as `ledgermq sim --mode` calls it."""
REPLICAS: Final = ("a0", "a1", "a2")
"""The machines of the brokers; a plan may have the first two alone."""

Ms = Annotated[int, msgspec.Meta(ge=50)]


class Switch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Brokers and controllers; times are milliseconds. ``Options.namesrvs`` all run a controller.

    ``Options.flush_disk_type`` is that of the first broker.
    """

    brokers: Annotated[int, msgspec.Meta(ge=2, le=3)] = 2
    flush: Literal["ASYNC_FLUSH", "SYNC_FLUSH"] = "ASYNC_FLUSH"
    """How the other brokers flush."""
    silence_ms: Annotated[int, msgspec.Meta(ge=500)] = 2_000
    """After so long without a heartbeat a replica is dead; a master gives up, too."""
    beat_ms: Ms = 300
    poll_ms: Ms = 300
    behind_max_ms: Annotated[int, msgspec.Meta(ge=100)] = 3_000
    """A slave that has not caught up for so long is taken out of the in-sync set."""
    in_sync_min: Annotated[int, msgspec.Meta(ge=1)] = 1
    """With fewer in-sync replicas nothing is acknowledged."""
    slave_timeout_ms: Annotated[int, msgspec.Meta(ge=1)] = 1_000
    """How long a send waits for the in-sync set."""
    heartbeat_ms: Annotated[int, msgspec.Meta(ge=10)] = 500
    """Of the HA stream; after four times as long without a word a connection is given up."""
    batch_bytes: Annotated[int, msgspec.Meta(ge=1024)] = 32 * 1024
    delay_p: float = 0.0
    """How many sends are to be delivered later."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the machines of the brokers."""
        return REPLICAS[: self.brokers]
