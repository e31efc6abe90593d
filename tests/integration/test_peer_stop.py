"""A peer transport that stops leaves no connection open, however far it has come with it."""

import asyncio
import socket

import uvloop

from dledger.config import DLedgerConfig
from dledger.peers.rpc import TcpTransport
from mutants.patches import BY_TESTS
from mutants.planting import planted

TURNS = 6
"""A loop accepts a connection, and tells of it, each in a turn of its own."""
HEARD_S = 1.0


async def is_left_open(turns: int) -> bool:
    """Whether a peer hears nothing of a stop so many turns after it has connected."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = free.getsockname()
    config = DLedgerConfig(
        group="g", self_id="n0", peers={"n0": f"127.0.0.1:{address[1]}"}, directory="/nowhere"
    )
    transport = TcpTransport(
        config, on_message=lambda _message: None, on_unreachable=lambda _peer: None
    )
    await transport.start()
    with socket.create_connection(address) as peer:
        peer.setblocking(False)
        for _ in range(turns):
            await asyncio.sleep(0)
        await transport.stop()
        try:
            heard = asyncio.get_running_loop().sock_recv(peer, 1)
            return bool(await asyncio.wait_for(heard, HEARD_S))
        except ConnectionResetError:
            return False
        except TimeoutError:
            return True


def left_open() -> list[int]:
    """After which of the turns a stop leaves a connection open."""
    return [turns for turns in range(TURNS) if uvloop.run(is_left_open(turns))]


def test_a_stop_closes_what_is_accepted_in_its_turn():
    assert left_open() == []
    with planted(BY_TESTS["accepted-at-the-stop-stays"]):
        assert left_open()
