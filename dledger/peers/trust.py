"""The keys and certificates of one member, which must be those of this member."""

from dledger.config import DLedgerConfig
from ledgermq.remoting.protocol.certificates import node_identity
from ledgermq.remoting.transport.credentials import CredentialStore
from ledgermq.runtime.clock import Clock
from ledgermq.runtime.errors import FatalError


class MemberCredentials(CredentialStore):
    """A `CredentialStore` that takes no certificate of anybody else."""

    def __init__(self, config: DLedgerConfig, clock: Clock) -> None:
        super().__init__(config.security, f"{config.group}/{config.self_id}", clock.wall_ms)
        self.own = node_identity(config.group, config.self_id)
        """What the certificate must say."""

    def load(self) -> None:
        """Read everything. Errors: `FatalError` names the file and what is wrong."""
        super().load()
        if self.identity not in {None, self.own}:
            raise FatalError(
                f"peerTlsCertPath={self.settings.cert_path}: it is the certificate of"
                f" {self.identity}, and this is {self.own}"
            )
