"""How long a send waits, and for whom; who is master, where controllers say it. RocketMQ's keys."""

from __future__ import annotations

from dataclasses import dataclass

from broker.trace_settings import TraceSettings
from ledgermq.remoting.protocol.errors import LocalProtocolError
from ledgermq.remoting.protocol.hosts import parse_address
from ledgermq.runtime.config import key
from ledgermq.runtime.errors import FatalError

SYNC_MASTER_COPIES = 2
"""What a SYNC_MASTER acknowledges with SEND_OK is in so many places."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings(TraceSettings):
    """What is said about acknowledgements and controllers; times are milliseconds."""

    sync_flush_timeout_ms: int = key("syncFlushTimeout", 5_000, low=1, high=600_000)
    """How long a send waits for its sync under SYNC_FLUSH."""
    slave_timeout_ms: int = key("slaveTimeout", 3_000, low=1, high=600_000)
    """How long a send waits for a slave of a synchronous master, or for the in-sync set."""
    in_sync_replicas: int = key("inSyncReplicas", 1, low=0, high=16)
    """How many, the master included, have what a synchronous master acknowledges: two, ever."""

    enable_controller_mode: bool = key("enableControllerMode", default=False)
    """Whether controllers say who is master; ``brokerRole`` and ``brokerId`` say nothing then."""
    controller_addr: str = key("controllerAddr", "")
    """``host:port`` of every controller, separated by ``;``."""
    controller_beat_ms: int = key("brokerHeartbeatInterval", 1_000, low=50, high=60_000)
    controller_silence_ms: int = key(
        "controllerHeartBeatTimeoutMills", 10_000, low=500, high=60_000
    )
    """After so long without a word the controllers take this broker for dead; a master that has
    not reached them for so long takes nothing more."""
    controller_poll_ms: int = key("syncBrokerMetadataPeriod", 500, low=50, high=60_000)
    """How often the controllers are asked who is master; RocketMQ's default is 5,000."""
    behind_max_ms: int = key("haMaxTimeSlaveNotCatchup", 15_000, low=100, high=600_000)
    """A slave that has not caught up for so long is taken out of the in-sync set."""
    in_sync_min: int = key("minInSyncReplicas", 1, low=1, high=16)
    """With fewer in-sync replicas, the master included, nothing is acknowledged."""
    all_ack: bool = key("allAckInSyncStateSet", default=True)

    @property
    def controllers(self) -> list[str]:
        """Addresses of the controllers. Errors: `FatalError`."""
        found = [part.strip() for part in self.controller_addr.split(";") if part.strip()]
        for address in found:
            try:
                parse_address(address)
            except LocalProtocolError as error:
                raise FatalError(f"controllerAddr: {address!r} is not host:port") from error
        return found

    def ack_wait_ms(self, *, is_synced: bool, is_sync_master: bool) -> int:
        """Return how long a send waits at most until it is answered that it is stored only.

        ``is_synced``: whether the own disk has to have it. With controllers nobody else counts in
        the place of the in-sync set, so without that the disk's time says nothing.
        """
        if self.enable_controller_mode and not is_synced:
            return self.slave_timeout_ms
        waits_for_others = is_sync_master or self.enable_controller_mode
        return max(self.sync_flush_timeout_ms, self.slave_timeout_ms if waits_for_others else 0)

    def check_in_sync(self, *, is_sync_master: bool) -> None:
        """Refuse to promise more than is done. Errors: `FatalError`."""
        wanted = self.in_sync_replicas
        if is_sync_master and wanted > SYNC_MASTER_COPIES and not self.enable_controller_mode:
            raise FatalError(
                f"inSyncReplicas={wanted}: a SYNC_MASTER acknowledges what it and one slave have;"
                " remove the line, or have controllers (enableControllerMode=true) and"
                f" minInSyncReplicas={wanted}"
            )

    def check_controllers(self, *, in_group: bool, ha_heartbeat_ms: int) -> None:
        """Check what concerns more than one key. Errors: `FatalError`.

        ``ha_heartbeat_ms``: how often an idle slave says what it has.
        """
        if not self.enable_controller_mode:
            return
        if in_group:
            raise FatalError(
                "enableControllerMode=true with enableDLegerCommitLog=true: the members of a Raft"
                " group elect their leader; remove one of the two lines"
            )
        if not self.controllers:
            raise FatalError(
                "enableControllerMode=true: controllerAddr is needed, host:port of every controller"
            )
        if not self.all_ack:
            raise FatalError(
                "allAckInSyncStateSet=false: a master with controllers acknowledges what the whole"
                " in-sync set has; remove the line"
            )
        if self.behind_max_ms <= ha_heartbeat_ms:
            raise FatalError(
                f"haMaxTimeSlaveNotCatchup={self.behind_max_ms}: more than"
                f" haSendHeartbeatInterval={ha_heartbeat_ms} is expected, or a slave that has"
                " nothing to get leaves the in-sync set between two heartbeats"
            )
        if self.controller_silence_ms <= 2 * self.controller_beat_ms:
            raise FatalError(
                f"controllerHeartBeatTimeoutMills={self.controller_silence_ms}: more than twice"
                f" brokerHeartbeatInterval={self.controller_beat_ms} is expected"
            )
