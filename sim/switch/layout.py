"""Which machines a plan about controllers has, and the settings of the programs on them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ledgermq.remoting.transport.credentials import SecuritySettings
from namesrv.config import NamesrvConfig
from namesrv.controller.config import ControllerConfig
from sim.classic.plain_layout import PlainLayout
from sim.layout import NAMESRV_PORT, PEER_KEY, STORE

if TYPE_CHECKING:
    from ledgermq.client.config import ClientConfig
    from sim.faults.plan import Plan
    from sim.faults.switch import Switch
    from sim.settings import SimBrokerConfig

NAME: Final = "BrokerSet"
"""What the brokers are called."""
CLUSTER: Final = "DefaultCluster"
CONTROLLER_PORT: Final = 9_878
CONTROLLER_STORE: Final = "/controller"


class SwitchLayout(PlainLayout):
    """Names of hosts by what runs on them; a controller runs beside each name server."""

    def __init__(self, plan: Plan) -> None:
        switch = plan.options.switch
        assert switch is not None
        super().__init__(plan, switch, NAME, switch.flush)
        self.switch: Switch = switch

    def controller_addrs(self) -> tuple[str, ...]:
        """Return the addresses of all controllers."""
        return tuple(f"{self.hosts[name].address}:{CONTROLLER_PORT}" for name in self.namesrvs)

    def broker_at(self, address: str) -> str:
        """Return the broker that listens at ``host:port``."""
        return next(name for name in self.brokers if self.broker_address(name) == address)

    def client_config(self, name: str) -> ClientConfig:
        """Return the settings of a producer or consumer."""
        return replace(super().client_config(name), route_poll_ms=2_000)

    def namesrv_config(self, name: str) -> NamesrvConfig:
        """Return the settings of a name server."""
        return NamesrvConfig(
            listen_port=NAMESRV_PORT,
            bind_address=self.hosts[name].address,
            kv_config_path=f"{STORE}/kv.json",
            shared_key=PEER_KEY,
        )

    def controller_config(self, name: str) -> ControllerConfig:
        """Return the settings of the controller beside it."""
        return ControllerConfig(
            group="controllers",
            own_id=name,
            peers=dict(zip(self.namesrvs, self.controller_addrs(), strict=True)),
            store_path=CONTROLLER_STORE,
            bind_address=self.hosts[name].address,
            is_authenticated=True,
        )

    def security(self) -> SecuritySettings:
        """Return what controllers are known by."""
        return SecuritySettings(shared_key=PEER_KEY)

    def broker_config(self, name: str) -> SimBrokerConfig:
        """Return the settings of a broker, of whatever role."""
        switch = self.switch
        return replace(
            self._config(name),
            broker_cluster_name=CLUSTER,
            peer_shared_key=PEER_KEY,
            slave_timeout_ms=self.plan.options.max_wait_ack_ms,  # one time, however it flushes
            enable_controller_mode=True,
            controller_addr=";".join(self.controller_addrs()),
            controller_beat_ms=switch.beat_ms,
            controller_silence_ms=switch.silence_ms,
            controller_poll_ms=switch.poll_ms,
            behind_max_ms=switch.behind_max_ms,
            in_sync_min=switch.in_sync_min,
        )
