"""A master of RocketMQ's classic replication: its log is sent to slaves over the HA stream.

An asynchronous one acknowledges by its own flush mode. A synchronous one waits for a slave
(`store.ha.gate`), and answers 11 or 12 where none has the message.
Source: spec/disk.md 7.2; RocketMQ BrokerRole, HAService; docs/adr/0019.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from broker.config import Role
from broker.modes.copied import anomalies_of
from broker.modes.over_plain import OverPlain, ha_door, is_open_to_strangers
from broker.modes.plain import PlainMode
from broker.ports import check_port_free
from store.ha.gate import Gate
from store.ha.master import HaMaster
from store.ha.master_log import MasterLog

if TYPE_CHECKING:
    from broker.core import Core

_log = logging.getLogger(__name__)


class MasterMode(OverPlain):
    """The parts of a broker that slaves may follow."""

    def __init__(self, core: Core) -> None:
        config = core.config
        disk, clock, _, on_fatal = core.machine
        gate = None
        if config.broker_role == Role.SYNC_MASTER:
            gate = Gate(config.slave_timeout_ms, config.ha_behind_max)
        log = MasterLog(config.plain_log_config(), gate, disk=disk, clock=clock, on_fatal=on_fatal)
        super().__init__(PlainMode(core, log, anomalies_of(config, disk)))
        self._config = config
        self._address = (config.listen_host, config.ha_port)
        door = ha_door(config, self.credentials, core.rng)
        self._ha = HaMaster(config.ha_config(), log, clock, self._address, door)

    async def check(self) -> None:
        """Find out whether this broker may start here. Errors: `FatalError`."""
        await check_port_free("haListenPort", *self._address)
        await super().check()

    async def begin(self) -> None:
        """Let slaves come. Errors: `FatalError`."""
        await super().begin()
        if is_open_to_strangers(self._config):
            _log.warning(
                "event=slaves_not_authenticated address=%s:%d: whoever reaches it can read all"
                " messages; set peerSharedKeyFile, or peerTlsCertPath, peerTlsKeyPath and"
                " peerTlsCaPath, on master and slaves; or keep the port to their machines",
                *self._address,
            )
        await self._ha.start()

    async def end(self) -> None:
        """Leave the slaves."""
        await self._ha.stop()

    def status(self) -> dict[str, Any]:
        """Return the log's view of itself, and who follows it."""
        return {
            **super().status(),
            "mode": self._config.broker_role,
            "slaves": self._ha.status(),
        }
