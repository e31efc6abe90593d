"""Settings of the name server."""

from dataclasses import dataclass

from ledgermq.remoting.transport.credentials import SecuritySettings
from ledgermq.remoting.transport.tls import ServerTlsSettings
from ledgermq.runtime.config import key
from ledgermq.runtime.errors import FatalError
from namesrv.controller.config import ControllerConfig, parse_peers

PORT_MAX = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesrvConfig(ServerTlsSettings):
    """Settings under RocketMQ's names; other keys that RocketMQ knows are accepted and unused."""

    listen_port: int = key("listenPort", 9876, low=0, high=PORT_MAX)
    """0 lets the system choose."""
    bind_address: str = key("bindAddress", "127.0.0.1")
    """Address to listen on: this machine alone, unless it is told another one."""
    kv_config_path: str = key("kvConfigPath", "")
    """File of the key-value configuration; empty keeps it in memory only."""
    order_message_enable: bool = key("orderMessageEnable", default=False)
    """Put the order configuration of a topic into its route."""
    return_order_topic_config: bool = key("returnOrderTopicConfigToBroker", default=True)
    """Answer a registration with the order configuration of all topics."""
    scan_interval_ms: int = key("scanNotActiveBrokerInterval", 5_000, low=100, high=60_000)
    """How often brokers that fell silent are looked for."""
    shared_key: str = key("peerSharedKey", "")
    """Ours: the key that brokers sign registrations with; better in a file."""
    shared_key_file: str = key("peerSharedKeyFile", "")
    """Ours: file with such keys, one a line; the first is used, all count."""
    tls_ca_path: str = key("peerTlsCaPath", "")
    """Ours: the CA whose certificates brokers sign registrations with."""
    enable_controller: bool = key("enableControllerInNamesrv", default=False)
    """Run a controller of master/slave groups as well."""
    controller_group: str = key("controllerDLegerGroup", "DefaultController")
    """Ours is the default: of this name all controllers that belong together."""
    controller_peers: str = key("controllerDLegerPeers", "")
    """``n0-127.0.0.1:9878;n1-...``: where each controller listens, this one too."""
    controller_id: str = key("controllerDLegerSelfId", "")
    """Which of the peers it is."""
    controller_store_path: str = key("controllerStorePath", "")
    """Directory of the controller's files."""
    elect_unclean: bool = key("enableElectUncleanMaster", default=False)
    """Elect a replica that may lack acknowledged messages, if no other lives."""
    connections_max: int = key("serverConnectionsMax", 4_096, low=1, high=1_000_000)
    """Ours: connections held at the same time."""

    @property
    def controller(self) -> ControllerConfig | None:
        """What the controller is told, None without one. Errors: `FatalError`."""
        if not self.enable_controller:
            return None
        if self.tls_ca_path and not self.security.has_key:
            raise FatalError(
                "enableControllerInNamesrv: controllers sign with a key, and certificates alone are"
                " believed here: set peerSharedKeyFile beside peerTlsCaPath"
            )
        return ControllerConfig(
            group=self.controller_group,
            own_id=self.controller_id,
            peers=parse_peers(self.controller_peers),
            store_path=self.controller_store_path,
            bind_address=self.bind_address,
            elect_unclean=self.elect_unclean,
            is_authenticated=self.security.has_key,
        )

    @property
    def security(self) -> SecuritySettings:
        """Where keys and certificates are. Errors: `FatalError` if they contradict each other."""
        return SecuritySettings(
            ca_path=self.tls_ca_path,
            shared_key=self.shared_key,
            shared_key_file=self.shared_key_file,
        )
