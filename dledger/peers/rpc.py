"""Messages between replicas over TCP: one connection for each *directed* pair.

Node i dials node j to carry everything i says to j, and only that; the answers come on the
connection that j dialled. So a link can fail in one direction alone, as networks do, and so can a
proxy in between. On connections with a shared key or TLS the acceptor speaks, too, until both know
who is there; then a message counts only if its sender is the member that proved itself.

Nothing here waits for anyone. A message that cannot leave now (not connected, or too much waits in
the socket already) is dropped: the core repeats what matters. A broken connection is reported,
because it is the fastest hint that a peer died. Frames that no replica sends end a connection with
one log line.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from dledger.codec.handshake import NotProven
from dledger.codec.peer import Hello, PeerCodec
from dledger.config import DLedgerConfig, is_address
from dledger.core.messages import Message
from dledger.core.model import NodeId
from dledger.limits import (
    PEER_PENDING_MAX,
    PEER_PENDING_PER_ADDRESS_MAX,
    PEER_STRANGERS_MAX,
)
from dledger.peers.door import Door, Mode
from dledger.peers.inbound import Inbound
from dledger.peers.link import Link, split_address
from dledger.peers.tls_listener import TlsListener
from ledgermq.remoting.protocol.errors import LocalProtocolError
from ledgermq.remoting.protocol.hosts import is_loopback, party_of
from ledgermq.remoting.transport.credentials import CredentialStore
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.errors import FatalError

_log: Final = logging.getLogger(__name__)

ANY_HOST: Final = frozenset({"", "0.0.0.0", "::", "[::]"})  # noqa: S104  # compared, not bound
LINKS_MAX: Final = 64
"""Most servers dialled."""
SWEEP_S: Final = 10.0
"""How often connections are looked after: one on which a frame has begun and nothing came for so
long is closed, and so is one whose certificate or key counts no more."""


class PeerTransport(Protocol):
    """What a node needs of the network."""

    async def start(self) -> None:
        """Listen and begin to dial. Errors: `FatalError` when the address cannot be had."""
        ...

    async def stop(self) -> None:
        """Close everything."""
        ...

    def send(self, message: Message) -> None:
        """Send, or drop."""
        ...

    def set_members(self, addresses: Mapping[NodeId, str]) -> None:
        """Keep connections to these, by id -> ``host:port``."""
        ...

    def validate_hints(self, is_sound: Callable[[bytes, int], bool]) -> None:
        """Refuse entries whose hint `is_sound` rejects, see `DLedgerListener.is_sound_hint`."""
        ...

    def validate_senders(self, is_shut_out: Callable[[NodeId], bool]) -> None:
        """Close connections of former members, see `Membership.is_shut_out`."""
        ...


class TcpTransport:
    """A `PeerTransport` over asyncio."""

    def __init__(
        self,
        config: DLedgerConfig,
        credentials: CredentialStore | None = None,
        *,
        on_message: Callable[[Message], None],
        on_unreachable: Callable[[NodeId], None],
        make_nonce: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """Make it; ``credentials`` have been read, None where ``config`` names none."""
        self._config = config
        if credentials is None:
            credentials = CredentialStore(config.security, config.self_id, SystemClock().wall_ms)
        self.door = Door((config.group, config.self_id), credentials, make_nonce)
        self.on_message = on_message
        self._on_unreachable = on_unreachable
        others = tuple(peer for peer in config.peers if peer != config.self_id)
        self.codec = PeerCodec(config.group, config.self_id, others)
        self.members: Mapping[NodeId, str] = {peer: config.peers[peer] for peer in others}
        self._is_shut_out: Callable[[NodeId], bool] = lambda _peer: False
        self._told_removed: set[NodeId] = set()
        self._links: dict[NodeId, Link] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._inbound: dict[Inbound, None] = {}
        self._has_stopped = False
        self._by_sender: dict[NodeId, Inbound] = {}
        self._server: asyncio.Server | None = None
        self._tls: TlsListener | None = None
        self._sweep: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Listen on the own address and dial the others; without an address do neither."""
        if not self._config.listen_address:
            return
        host, port = split_address(self._config.listen_address)
        self._maybe_warn(host)
        loop = asyncio.get_running_loop()
        try:
            if self.door.mode is Mode.TLS:
                self._tls = TlsListener(self)
                await self._tls.start(host, port)
            else:
                self._server = await loop.create_server(lambda: Inbound(self), host, port)
        except OSError as error:
            raise FatalError(f"cannot listen for peers on {host}:{port}: {error}") from error
        self._sweep = loop.call_later(SWEEP_S, self._sweep_requests)
        self.set_members(self.members)

    def _maybe_warn(self, host: str) -> None:
        """Say that anybody is believed, where others than this machine can speak here."""
        hosts = [host, *(address.rpartition(":")[0] for address in self.members.values())]
        if self.door.mode is Mode.OPEN and not all(is_loopback(one.strip("[]")) for one in hosts):
            _log.warning(
                "event=peers_not_authenticated address=%s: whoever reaches it can speak as a member"
                " and change the log; set peerTlsCertPath, peerTlsKeyPath and peerTlsCaPath (see:"
                " ledgermq certs), or at least peerSharedKeyFile",
                self._config.listen_address,
            )

    def set_members(self, addresses: Mapping[NodeId, str]) -> None:
        """Dial who is new, or has moved; who is a member no more is given up by and by.

        Addresses in the settings of this node win. Before `start` nothing is dialled.
        """
        known = self._config.peers
        self.members = {
            peer: known.get(peer, address)
            for peer, address in addresses.items()
            if peer != self._config.self_id
        }
        self._told_removed.difference_update(self.members)
        if self._sweep is not None:
            for peer, address in self.members.items():
                self._link(peer, address)

    def validate_hints(self, is_sound: Callable[[bytes, int], bool]) -> None:
        """Hang up on peers that send entries with a hint that `is_sound` rejects."""
        self.codec.is_sound_hint = is_sound

    def validate_senders(self, is_shut_out: Callable[[NodeId], bool]) -> None:
        """Hang up on who was removed, each time that it speaks."""
        self._is_shut_out = is_shut_out

    def _link(self, peer: NodeId, address: str) -> None:
        """Make sure that ``peer`` is dialled there."""
        link = self._links.get(peer)
        if link is not None and link.address == address:
            return
        if link is not None:
            self._unlink(peer)
        if is_address(address):
            hello = self.codec.encode_hello(peer, self._config.listen_address)
            link = Link(peer, address, self._config, self.door, self._on_unreachable)
            self._links[peer] = link
            link.start(hello)

    def _unlink(self, peer: NodeId) -> None:
        task = asyncio.get_running_loop().create_task(self._links.pop(peer).stop())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def stop(self) -> None:
        """Close all connections; nothing is reported any more."""
        self._has_stopped = True
        if self._sweep is not None:
            self._sweep.cancel()
        if self._server is not None:
            self._server.close()
        if self._tls is not None:
            await self._tls.close()
        for inbound in list(self._inbound):
            inbound.close()
        self._inbound.clear()
        self._by_sender.clear()
        self._sweep = None
        await asyncio.gather(*(link.stop() for link in self._links.values()), *self._closing)
        self._links.clear()

    def send(self, message: Message) -> None:
        """Send to the receiver named in the message, or drop."""
        link = self._links.get(message.receiver)
        transport = None if link is None else link.maybe_transport()
        if link is None or transport is None:
            return
        try:
            buffers = self.codec.encode(message)
        except LocalProtocolError as error:  # from a version that appended what it liked
            _log.error("event=message_too_large peer=%s error=%s", message.receiver, error)
            return
        sealer = link.sealer
        transport.writelines(buffers if sealer is None else sealer.seal(buffers))

    # Called by the connections

    def on_stranger(self, inbound: Inbound, message: Message | Hello) -> None:
        """Hang up on a former member; to anybody else this one may lack what made it a member."""
        sender = message.sender
        if not self._is_shut_out(sender):
            if isinstance(message, Hello):
                self._on_hello(inbound, message)
            return
        if sender not in self._told_removed:
            self._told_removed.add(sender)
            _log.warning(
                "event=peer_removed peer=%s remote=%s: it was removed from the group and speaks"
                " still; its messages are ignored: stop it, or add it again",
                sender, inbound.host,
            )  # fmt: skip
        if not isinstance(message, Hello):
            inbound.close()

    def on_proven(self, inbound: Inbound, sender: NodeId) -> None:
        """Take who is at the other end: the newest connection of each counts."""
        inbound.sender = sender
        previous = self._by_sender.pop(sender, None)
        self._by_sender[sender] = inbound
        if previous is not None:
            previous.close()
        strangers = [one for one in self._by_sender if one not in self.members]
        if len(strangers) > PEER_STRANGERS_MAX:
            oldest = self._by_sender.pop(strangers[0])
            self._drop(oldest)

    def _on_hello(self, inbound: Inbound, hello: Hello) -> None:
        """Dial a server that is no member as far as this one knows: it needs answers."""
        if len(self._links) < LINKS_MAX:
            host, _, port = hello.address.rpartition(":")
            if host in ANY_HOST:  # it listens everywhere: it is where it dialled from
                host = inbound.remote.rpartition(":")[0]
            self._link(hello.sender, self._config.peers.get(hello.sender, f"{host}:{port}"))

    def on_opened(self, inbound: Inbound) -> None:
        """Take a new connection; where there are too many of nobody known, the oldest goes.

        Whoever holds connections open cannot keep the members out: theirs are the newest, or known.
        A silent one of a member that is closed so is dialled anew.
        """
        if self._has_stopped:  # it was accepted in the turn of the stop, which did not see it
            inbound.close()
            return
        pending = [one for one in self._inbound if one.sender is None]
        party = party_of(inbound.host)
        of_host = [one for one in pending if party_of(one.host) == party]
        if len(of_host) >= PEER_PENDING_PER_ADDRESS_MAX:
            self._drop(of_host[0])
        elif len(pending) >= PEER_PENDING_MAX:
            self._drop(pending[0])
        self._inbound[inbound] = None

    def _drop(self, inbound: Inbound) -> None:
        """Close a connection to make room for others."""
        error = NotProven("too many connections of nobody known")
        self.door.complain("too_many_connections", f"closed={inbound.host}", error)
        self._inbound.pop(inbound, None)
        inbound.close()

    def on_closed(self, inbound: Inbound) -> None:
        """Report a peer whose connection broke, unless it has a newer one or we closed it."""
        if self._inbound.pop(inbound, inbound) is inbound:
            return
        sender = inbound.sender
        if sender is not None and self._by_sender.get(sender) is inbound:
            del self._by_sender[sender]
            self._on_unreachable(sender)

    def _sweep_requests(self) -> None:
        """Close connections that are stuck, or whose key or certificate is not valid any more."""
        self.door.refresh()
        for link in self._links.values():
            link.check()
        for inbound in list(self._inbound):
            inbound.check()
            if inbound.is_stuck():
                _log.warning("event=half_peer_frame remote=%s", inbound.remote)
                inbound.close()
        for peer in [peer for peer in self._links if peer not in self.members]:
            if peer not in self._by_sender:
                self._unlink(peer)
        loop = asyncio.get_running_loop()
        self._sweep = loop.call_later(SWEEP_S, self._sweep_requests)
