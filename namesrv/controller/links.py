"""Connections of a controller to the others, and what comes from them.

Each controller dials every other one and sends its messages there, one request a message that wants
no answer. With a shared key every message is signed for the one that is to take it, and counts once
(`ledgermq.remoting.protocol.signing`); a certificate does not count, since none names a controller.
Without a key only this machine is listened to. What is late or repeated is dropped.
"""

import asyncio
import logging
from typing import Final, Protocol

from ledgermq.remoting.protocol.certificates import Role
from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.errors import RemotingError
from ledgermq.remoting.protocol.hosts import is_loopback
from ledgermq.remoting.protocol.signing import BadSignature, sign, verify
from ledgermq.remoting.transport.client import RemotingClient
from ledgermq.remoting.transport.config import TransportConfig
from ledgermq.remoting.transport.connection import Connection
from ledgermq.remoting.transport.credentials import CredentialStore
from ledgermq.remoting.transport.requests import serves
from ledgermq.runtime.clock import Clock
from ledgermq.runtime.tasks import Supervisor
from namesrv.controller.config import ControllerConfig
from namesrv.controller.limits import MESSAGE_BYTES_MAX, UNSENT_BYTES_MAX
from namesrv.controller.wire import BadMessage, Envelope, Message, Order, decode, encode

_log: Final = logging.getLogger(__name__)

REDIAL_MS: Final = 200
CONNECT_MS: Final = 1_000


class Receiver(Protocol):
    """Who hears from peers."""

    def receive(self, peer: str, message: Message) -> None:
        """Take a message."""
        ...

    def on_link(self, peer: str, *, is_up: bool) -> None:
        """Learn that messages reach a peer, or do not."""
        ...


class Remote(Protocol):
    """A connection, as far as it is looked at."""

    remote: tuple[str, int]


class Links:
    """All connections of one controller to others.

    Args:
        boot: a number drawn for this start.
    """

    def __init__(
        self,
        config: ControllerConfig,
        credentials: CredentialStore,
        clock: Clock,
        tasks: Supervisor,
        boot: int,
    ) -> None:
        self._config = config
        self._credentials = credentials
        self._clock = clock
        self._tasks = tasks
        self._client = RemotingClient(
            config=TransportConfig(connect_timeout_ms=CONNECT_MS), on_disconnect=self._on_down
        )
        self._peer_at = {config.peers[peer]: peer for peer in config.others}
        self._receiver: Receiver | None = None
        self._order = Order()
        self._boot = boot
        self._number = 0
        self._told = ""

    def start(self, receiver: Receiver) -> None:
        """Dial all others, again and again."""
        self._receiver = receiver
        for peer in self._config.others:
            self._tasks.spawn(f"link to controller {peer}", self._dial(peer))

    async def stop(self) -> None:
        """Close all connections."""
        await self._client.close()

    def post(self, peer: str, message: Message) -> bool:
        """Send a message; False if there is no connection, or too much waits on it."""
        connection = self._client.maybe_connection(self._config.peers[peer])
        if connection is None:
            return False
        if connection.unsent_bytes > UNSENT_BYTES_MAX:
            connection.abort("the other controller does not read")
            return False
        self._number += 1
        body = encode(self._config.own_id, self._boot, self._number, message)
        command = RemotingCommand(RequestCode.CONTROLLER_MESSAGE, body=body)
        credentials = self._credentials.credentials
        if credentials is not None:
            command = sign(
                command, credentials, now_ms=self._clock.wall_ms(),
                nonce=f"{self._boot:x}-{self._number}", audience=self._audience(peer),
            )  # fmt: skip
        connection.send_oneway(command)
        return True

    @serves(
        RequestCode.CONTROLLER_MESSAGE,
        what="a message of another controller",
        limits=(MESSAGE_BYTES_MAX,),
    )
    def receive(self, connection: Remote, command: RemotingCommand) -> None:
        """31060. What is wrong with it is told once, and nobody is answered."""
        try:
            envelope = self._check(connection, command)
        except (BadSignature, BadMessage) as error:
            what = f"remote={connection.remote[0]} reason={str(error)!r}"
            if what != self._told:  # it comes twenty times a second
                self._told = what
                _log.warning("event=controller_message_refused %s", what)
            return
        is_new = self._order.take(envelope, self._clock.monotonic_ms())
        if self._receiver is not None and is_new:
            self._receiver.receive(envelope.sender, envelope.message)

    def _check(self, connection: Remote, command: RemotingCommand) -> Envelope:
        trust = self._credentials.trust
        if trust:
            own = self._audience(self._config.own_id)
            signer = verify(command, trust, now_ms=self._clock.wall_ms(), audience=own)
            if signer.role is not Role.KEY:
                raise BadSignature(f"{signer} signs with a certificate; controllers use the key")
        elif not is_loopback(connection.remote[0]):
            raise BadSignature("it comes from another machine, and there is no shared key")
        envelope = decode(command.body)
        if envelope.sender not in self._config.others:
            raise BadMessage(f"{envelope.sender} is not among controllerDLegerPeers")
        return envelope

    def _audience(self, peer: str) -> str:
        return f"controller/{self._config.group}/{peer}"

    async def _dial(self, peer: str) -> None:
        address = self._config.peers[peer]
        while True:
            if self._client.maybe_connection(address) is None:
                try:
                    await self._client.connect(address)
                except RemotingError:
                    pass
                else:
                    self._tell(peer, is_up=True)
            await asyncio.sleep(REDIAL_MS / 1000)

    def _on_down(self, address: str, _connection: Connection) -> None:
        self._tell(self._peer_at[address], is_up=False)

    def _tell(self, peer: str, *, is_up: bool) -> None:
        _log.info("event=controller_link peer=%s up=%s", peer, is_up)
        if self._receiver is not None:
            self._receiver.on_link(peer, is_up=is_up)
