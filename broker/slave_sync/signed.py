"""What a slave asks its master, signed as a member's: a master with access control wants that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledgermq.remoting.protocol.signing import sign

if TYPE_CHECKING:
    from broker.core import Core
    from broker.slave_sync.giving_back import MasterClient
    from ledgermq.remoting.protocol.command import RemotingCommand
    from ledgermq.remoting.transport.credentials import CredentialStore


def calls_of(core: Core, client: MasterClient, credentials: CredentialStore) -> MasterClient:
    """Return what a slave asks through; where access control is off, the client itself."""
    return SignedCalls(client, core, credentials) if core.config.acl_enable else client


class SignedCalls:
    """Signs for the brokers of this broker's name, with its certificate or the shared key.

    Without either nothing is signed; a master with access control has to trust the address then.
    """

    def __init__(self, client: MasterClient, core: Core, credentials: CredentialStore) -> None:
        self._client = client
        self._core = core
        self._credentials = credentials

    async def request(
        self, addr: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        """Send a request and return its answer."""
        credentials = self._credentials.credentials
        if credentials is not None:
            core = self._core
            nonce = "".join(f"{core.rng.randint(0, 2**31 - 1):08x}" for _ in range(4))
            command = sign(
                command, credentials, now_ms=core.clock.wall_ms(), nonce=nonce,
                audience=core.config.registered_name,
            )  # fmt: skip
        return await self._client.request(addr, command, timeout_ms)
