"""What a master and a slave have of a broker on its own: directory, tables and log are handled so.

They differ from it by the log that they bring along, and by what they do while it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dledger.peers.door import Door
from ledgermq.remoting.protocol.hosts import is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from broker.config import BrokerConfig
    from broker.modes.plain import PlainMode
    from ledgermq.remoting.transport.credentials import CredentialStore
    from ledgermq.runtime.rng import Rng
    from store.queues.start import QueueStart


class OverPlain:
    """Hands everything on to a `PlainMode`; see `broker.modes.mode.Mode`."""

    def __init__(self, plain: PlainMode) -> None:
        self._plain: Final = plain
        self.log = plain.log
        self.saver = plain.saver
        self.retained = plain.retained
        self.processors: tuple[object, ...] = plain.processors
        self.guard = plain.guard
        self.credentials = plain.credentials
        self.boot_id = plain.boot_id

    @property
    def broker_id(self) -> int:
        """Id under which the broker registers."""
        return self._plain.broker_id

    @property
    def term(self) -> int:
        """Term that name servers are told: none."""
        return self._plain.term

    @property
    def applied_index(self) -> int:
        """Last byte of what the store has dispatched."""
        return self._plain.applied_index

    @property
    def state_index(self) -> int:
        """Last byte of the log of which the tables had the state when they were loaded."""
        return self._plain.state_index

    async def check(self) -> None:
        """Find out whether this broker may start here. Errors: `FatalError`."""
        await self._plain.check()

    def open(self) -> None:
        """Take the directory, and open the log. Errors: `FatalError`."""
        self._plain.open()

    def load(self) -> None:
        """Load tables and queues. Errors: `FatalError`."""
        self._plain.load()

    async def start_log(self) -> None:
        """Let the log run. Errors: `FatalError`."""
        await self._plain.start_log()

    async def begin(self) -> None:
        """Mark the tables as ours."""
        await self._plain.begin()

    async def end(self) -> None:
        """End what `begin` has begun."""
        await self._plain.end()

    def leave(self) -> None:
        """Give the directory up."""
        self._plain.leave()

    def includes(self, position: int, kind: str) -> bool:
        """Tell whether the tables include a record that the store hands out."""
        return self._plain.includes(position, kind)

    def on_applied(self, kind: str) -> None:
        """Take that a record was applied."""
        self._plain.on_applied(kind)

    def on_failed(self) -> None:
        """Take that log or store cannot go on."""
        self._plain.on_failed()

    def on_registered(self, answer: Mapping[str, str]) -> bool:
        """Take what a name server says to a registration."""
        return self._plain.on_registered(answer)

    def restore(self, state: bytes) -> tuple[list[QueueStart], Iterator[None]]:
        """Refuse."""
        return self._plain.restore(state)

    def status(self) -> dict[str, Any]:
        """Return the log's view of itself."""
        return self._plain.status()


def ha_door(config: BrokerConfig, credentials: CredentialStore, rng: Rng) -> Door:
    """Return how master and slaves of one name know each other: as the members of a group do.

    Their ids there are those of the brokers; a certificate is of any other broker of that name.
    """
    return Door((config.broker_name, str(config.broker_id)), credentials, rng.token)


def is_open_to_strangers(config: BrokerConfig) -> bool:
    """Tell whether other machines can follow without proving who they are."""
    settings = config.security
    return not (settings.has_certificate or settings.has_key or is_loopback(config.listen_host))
