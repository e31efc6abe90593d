"""Settings of both sides of the HA stream; RocketMQ's own keys are bound to them by the broker."""

from dataclasses import dataclass

from store.limits import HA_TRANSFER_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class HaConfig:
    """Times are milliseconds."""

    heartbeat_ms: int = 5_000
    """``haSendHeartbeatInterval``: without anything else to say, each side says so that often."""
    housekeeping_ms: int = 20_000
    """``haHousekeepingInterval``: after so long without a word the connection is given up."""
    batch_bytes: int = 32 * 1024
    """``haTransferBatchSize``: most of the log that one transfer holds."""

    def __post_init__(self) -> None:
        if not 0 < self.batch_bytes <= HA_TRANSFER_BYTES_MAX:
            message = f"haTransferBatchSize={self.batch_bytes}: at most {HA_TRANSFER_BYTES_MAX:d}"
            raise ValueError(message)
        if self.heartbeat_ms >= self.housekeeping_ms:
            message = (
                f"haSendHeartbeatInterval={self.heartbeat_ms}: less than"
                f" haHousekeepingInterval={self.housekeeping_ms} is expected, or sound"
                " connections are closed"
            )
            raise ValueError(message)
