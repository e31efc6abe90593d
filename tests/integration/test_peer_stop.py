"""A peer transport that stops leaves no connection open that it has accepted."""

import asyncio
import socket

from dledger.config import DLedgerConfig
from dledger.peers.rpc import TcpTransport


async def heard_after_stop(address: tuple[str, int]) -> bytes:
    """What a peer hears whose connection is accepted in the turn in which the transport stops."""
    name = f"{address[0]}:{address[1]}"
    config = DLedgerConfig(group="g", self_id="n0", peers={"n0": name}, directory="/nowhere")
    transport = TcpTransport(
        config, on_message=lambda _message: None, on_unreachable=lambda _peer: None
    )
    await transport.start()
    with socket.socket() as peer:
        peer.setblocking(False)
        peer.connect_ex(address)
        opened = transport.on_opened

        def open_late(inbound):
            """The stop comes first: asyncio accepts in one turn, and tells of it in the next."""
            transport._has_stopped, now = True, transport._has_stopped
            opened(inbound)
            transport._has_stopped = now

        transport.on_opened = open_late
        try:
            return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(peer, 1), 5)
        finally:
            await transport.stop()


def test_who_is_accepted_in_the_turn_of_the_stop_is_closed(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = free.getsockname()
    assert asyncio.run(heard_after_stop(address)) == b""
