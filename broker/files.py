"""What a broker reads of keys and certificates: once for all roles of a process.

What is wrong with such a file at the start is fatal. Later it is told in one line, and what was
read before goes on to count: a renewal that is half done must not end a broker at a change of role.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from ledgermq.remoting.transport.credentials import CredentialStore
from ledgermq.runtime.errors import FatalError

if TYPE_CHECKING:
    import ssl

    from broker.config import BrokerConfig
    from ledgermq.remoting.transport.tls import ServerTls
    from ledgermq.runtime.clock import Clock

_log: Final = logging.getLogger(__name__)


class Files(NamedTuple):
    """What was read, or is when a role begins first."""

    credentials: CredentialStore
    """Keys and certificates of this broker among those of its name."""
    server_tls: ServerTls | None
    """Of the port for clients, None without TLS."""
    client_tls: ssl.SSLContext | None
    """Of connections to name servers and the master, None without TLS."""

    def again(self, config: BrokerConfig) -> Files:
        """Return what the next role has: what looks for changes by itself is the same."""
        try:
            return self._replace(client_tls=config.client_tls())
        except FatalError as error:
            _log.warning("event=tls_not_read error=%r", error.message)
            return self


def files_of(config: BrokerConfig, clock: Clock) -> Files:
    """Return the files of a process that begins. Errors: `FatalError`."""
    return Files(
        CredentialStore(config.security, config.owner, clock.wall_ms),
        config.server_tls(),
        config.client_tls(),
    )
