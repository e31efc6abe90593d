"""Settings of the name server."""

from dataclasses import dataclass

from ledgermq.remoting.transport.credentials import SecuritySettings
from ledgermq.runtime.config import key

PORT_MAX = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesrvConfig:
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
    connections_max: int = key("serverConnectionsMax", 4_096, low=1, high=1_000_000)
    """Ours: connections held at the same time."""

    @property
    def security(self) -> SecuritySettings:
        """Where keys and certificates are. Errors: `FatalError` if they contradict each other."""
        return SecuritySettings(
            ca_path=self.tls_ca_path,
            shared_key=self.shared_key,
            shared_key_file=self.shared_key_file,
        )
