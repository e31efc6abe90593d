"""The keys and certificates of one member, which must be those of this member."""

from dledger.config import DLedgerConfig
from ledgermq.remoting.protocol.certificates import Identity, node_identity
from ledgermq.remoting.transport.credentials import CredentialStore
from ledgermq.runtime.clock import Clock
from ledgermq.runtime.errors import FatalError


class MemberCredentials(CredentialStore):
    """A `CredentialStore` that takes no certificate of anybody else."""

    def __init__(self, config: DLedgerConfig, clock: Clock) -> None:
        super().__init__(config.security, f"{config.group}/{config.self_id}", clock.wall_ms)
        self.own = node_identity(config.group, config.self_id)
        """What the certificate must say."""

    def check_owner(self, identity: Identity) -> None:
        """Refuse the certificate of anybody else. Errors: `FatalError` names the file."""
        if identity != self.own:
            raise FatalError(
                f"peerTlsCertPath={self.settings.cert_path}: it is the certificate of"
                f" {identity}, and this is {self.own}"
            )
