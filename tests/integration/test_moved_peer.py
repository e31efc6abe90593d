"""A member that has moved is dialled where it is now, and nowhere else."""

import asyncio
import contextlib
import socket

import uvloop

from dledger.config import DLedgerConfig
from dledger.peers.rpc import TcpTransport
from mutants.patches import BY_TESTS
from mutants.planting import planted

HEARD_S = 5.0


class Place(asyncio.Protocol):
    """An address at which the member is, or was."""

    def __init__(self):
        self.dialled, self.left = asyncio.Event(), asyncio.Event()
        self._connections = []

    def connection_made(self, transport):
        self._connections.append(transport)
        self.dialled.set()

    def connection_lost(self, _error):
        self.left.set()

    async def open(self):
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: self, "127.0.0.1", 0)
        return "{}:{}".format(*self._server.sockets[0].getsockname())

    async def close(self):
        for connection in self._connections:
            connection.abort()
        self._server.close()
        await self._server.wait_closed()


async def is_left(wait_s=HEARD_S):
    """Whether a member that moves is left alone where it was, once it is dialled elsewhere."""
    former, now = Place(), Place()
    was_at, is_at = await former.open(), await now.open()
    with socket.create_server(("127.0.0.1", 0)) as free:
        own = "{}:{}".format(*free.getsockname())
    config = DLedgerConfig(group="g", self_id="n0", peers={"n0": own}, directory="/nowhere")
    transport = TcpTransport(
        config, on_message=lambda _message: None, on_unreachable=lambda _peer: None
    )
    await transport.start()
    try:
        transport.set_members({"n0": own, "n1": was_at})
        await asyncio.wait_for(former.dialled.wait(), HEARD_S)
        transport.set_members({"n0": own, "n1": is_at})
        await asyncio.wait_for(now.dialled.wait(), HEARD_S)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(former.left.wait(), wait_s)
        assert not now.left.is_set()
        return former.left.is_set()
    finally:
        await transport.stop()
        await former.close()
        await now.close()


def test_a_member_that_has_moved_is_dialled_where_it_is_now_alone():
    assert uvloop.run(is_left())
    with planted(BY_TESTS["former-address-dialled-on"]):
        assert not uvloop.run(is_left(1.0))
