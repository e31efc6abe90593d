"""A slave of RocketMQ's classic replication: its log is its master's, byte for byte.

It refuses writes, and answers reads from what it has dispatched. Topics, groups, offsets and delays
it takes over from its master every few seconds (`broker.slave_sync`), as long as it follows the log
of that very broker. Who the master is it learns, as RocketMQ's slaves do, from what name servers
answer to its registrations, unless it is told.
Source: spec/disk.md 7.1; RocketMQ HAClient, BrokerController.registerBrokerAll; docs/adr/0019.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.modes.copied import note_copied
from broker.modes.over_plain import OverPlain, ha_door
from broker.modes.plain import PlainMode
from broker.slave_sync.build import build_slave_sync
from broker.slave_sync.service import NOBODY
from broker.slave_sync.signed import calls_of
from ledgermq.remoting.protocol.errors import LocalProtocolError
from ledgermq.remoting.protocol.hosts import parse_address
from ledgermq.remoting.transport.client import RemotingClient
from store.dispatch.anomalies import Copied
from store.ha.slave import HaSlave
from store.ha.slave_log import SlaveLog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.core import Core

HA_ADDRESS_FIELD: Final = "haServerAddr"
MASTER_FIELD: Final = "masterAddr"


class SlaveMode(OverPlain):
    """The parts of a broker that follows a master."""

    def __init__(self, core: Core) -> None:
        config = self._config = core.config
        disk, clock, _, on_fatal = core.machine
        log = SlaveLog(config.plain_log_config(), disk=disk, clock=clock, on_fatal=on_fatal)
        super().__init__(PlainMode(core, log, Copied))
        self._core = core
        self._client = RemotingClient(tls=core.files.client_tls)
        door = ha_door(config, self.credentials, core.rng)
        self._ha = HaSlave(config.ha_config(), log, clock, door)
        self.master_address = ""
        """Where the master answers requests, as name servers say; empty: not known."""
        self._registered_ha = ""
        """Where that same master has its HA service, as it registered."""

    @property
    def broker_id(self) -> int:
        """Id under which the broker registers."""
        return self._config.broker_id

    async def begin(self) -> None:
        """Follow. Errors: `FatalError`."""
        await super().begin()
        note_copied(self._config, self._core.machine.disk)
        self._ha.set_master(self._config.ha_master_address)
        tasks = self._core.tasks
        tasks.spawn("follow the master", self._ha.run())
        client = calls_of(self._core, self._client, self.credentials)
        sync = build_slave_sync(
            self._core, client, self.followed_master, self.on_applied, self.why_no_master
        )
        tasks.spawn("follow the master's tables", sync.run())

    async def end(self) -> None:
        """Ask the master nothing more."""
        await self._client.close()
        await super().end()

    def on_registered(self, answer: Mapping[str, str]) -> bool:
        """Take who the master is; a name server that does not know one changes nothing."""
        ha_address = answer.get(HA_ADDRESS_FIELD, "")
        if address := answer.get(MASTER_FIELD):
            self.master_address, self._registered_ha = address, ha_address
        elif ha_address:
            self._registered_ha = ""  # of which broker it is, is not said
        if ha_address and not self._config.ha_master_address:
            self._ha.set_master(ha_address)
        return bool(self.master_address) and self._ha.is_connected

    def followed_master(self) -> str:
        """Return where the master answers whose log is followed, and is the same; empty: nowhere.

        Tables belong to a log: those of another broker would take away what this log speaks of.
        With `haMasterAddress` the log may be another broker's than name servers call the master.
        """
        is_same = self._ha.is_following and self._is_peer(self._registered_ha)
        return self.master_address if is_same else ""

    def why_no_master(self) -> str:
        """Return why nobody is asked for tables: behind NAT one broker has two addresses."""
        told, ha_address = self.master_address, self._registered_ha
        if not (self._ha.is_following and told and ha_address and not self._is_peer(ha_address)):
            return NOBODY
        return (
            f"the log comes from haMasterAddress={self._config.ha_master_address}, and the master"
            f" {told} has registered {ha_address} for that. If these are one broker, leave"
            f" haMasterAddress out, or have the master register that address (its brokerIP2)"
        )

    def _is_peer(self, address: str) -> bool:
        """Tell whether the log comes from an address that name servers told."""
        if not address:
            return False
        if address == (self._config.ha_master_address or address):
            return True
        try:
            return self._ha.peer == parse_address(address)
        except LocalProtocolError:
            return False

    def status(self) -> dict[str, Any]:
        """Return the log's view of itself, and how it follows."""
        return {
            **super().status(),
            "mode": self._config.broker_role,
            "leader": self.master_address or None,
            "following": self._ha.status(),
        }
