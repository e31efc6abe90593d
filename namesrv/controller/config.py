"""Settings of a controller: who its peers are, where its files lie, what it may do."""

from dataclasses import dataclass

from ledgermq.remoting.protocol.errors import LocalProtocolError
from ledgermq.remoting.protocol.hosts import is_loopback, parse_address
from ledgermq.remoting.protocol.signing import CONTROLLER_AUDIENCE
from ledgermq.runtime.errors import FatalError

PEERS_MAX = 7
_ID_LENGTH_MAX = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """What one controller is told; names of the settings in the messages are RocketMQ's."""

    group: str
    """``controllerDLegerGroup``: of this name all controllers that belong together."""
    own_id: str
    """``controllerDLegerSelfId``."""
    peers: dict[str, str]
    """``controllerDLegerPeers``: ``host:port`` of each controller by id, the own one too."""
    store_path: str
    """``controllerStorePath``: a directory."""
    bind_address: str
    """Address to listen on; the port is that of the own peer."""
    elect_unclean: bool = False
    """``enableElectUncleanMaster``: elect one that may lack acknowledged messages, if no other
    lives."""
    is_authenticated: bool = False
    """Whether there is a shared key: without one all addresses are of this machine."""

    def __post_init__(self) -> None:
        """Check what concerns more than one field; raises `FatalError`."""
        if self.own_id not in self.peers:
            raise FatalError(
                f"controllerDLegerSelfId={self.own_id} is not among controllerDLegerPeers"
            )
        if not self.group or not self.store_path:
            raise FatalError(
                "enableControllerInNamesrv: controllerDLegerGroup and controllerStorePath are"
                " needed"
            )
        if not self.is_authenticated:
            hosts = [self.bind_address, *(parse_address(one)[0] for one in self.peers.values())]
            far = [host for host in hosts if not is_loopback(host)]
            if far:
                raise FatalError(
                    f"a controller at {far[0]}, which other machines may reach, needs a key:"
                    " set peerSharedKeyFile at every controller (make one with: ledgermq certs key)"
                )

    @property
    def others(self) -> tuple[str, ...]:
        """Ids of the other controllers, sorted."""
        return tuple(sorted(set(self.peers) - {self.own_id}))

    @property
    def audience(self) -> str:
        """Whom a signed request must name: this controller, by its address among the peers.

        It may have been heard on its way to another one, and what is used up there is not known
        here. So brokers and tools call controllers as ``controllerDLegerPeers`` does.
        """
        return CONTROLLER_AUDIENCE + self.peers[self.own_id]

    @property
    def port(self) -> int:
        """The port that this controller listens on."""
        return parse_address(self.peers[self.own_id])[1]

    @property
    def peers_text(self) -> str:
        """The peers as RocketMQ writes them."""
        return ";".join(f"{one}-{address}" for one, address in sorted(self.peers.items()))


def parse_peers(text: str) -> dict[str, str]:
    """Read ``n0-host:port;n1-host:port``. Errors: `FatalError`."""
    peers: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        peer, _, address = part.partition("-")
        try:
            _, port = parse_address(address)
        except LocalProtocolError as error:
            raise FatalError(f"controllerDLegerPeers: {part!r} is not id-host:port") from error
        if not 0 < len(peer) <= _ID_LENGTH_MAX or peer in peers or port == 0:
            raise FatalError(f"controllerDLegerPeers: {part!r}: an id once, and a port above 0")
        peers[peer] = address
    if not 0 < len(peers) <= PEERS_MAX:
        raise FatalError(f"controllerDLegerPeers: 1 to {PEERS_MAX} peers, id-host:port;id-...")
    return peers
