"""Connections that a server takes beside the loop: none is left open when it stops."""

import asyncio
import socket

import pytest

from ledgermq.remoting.transport.acceptor import Acceptor
from mutants.patches import BY_TESTS
from mutants.planting import planted


class Taker(asyncio.BufferedProtocol):
    """Takes a connection and says nothing."""


def test_who_is_taken_in_the_turn_of_the_stop_is_hung_up_on():
    async def body():
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Taker, "127.0.0.1", 0)
        acceptor = Acceptor(server, Taker)
        taken, one = socket.socketpair()
        with taken, one:
            acceptor._serve(taken)
            await acceptor.close()
            server.close()
            assert taken.fileno() == -1
            assert one.recv(1) == b"", "nobody else keeps it open"

    asyncio.run(body())


def test_a_connection_that_a_stop_forgets_is_seen():
    with planted(BY_TESTS["accepted-and-forgotten"]), pytest.raises(AssertionError):
        test_who_is_taken_in_the_turn_of_the_stop_is_hung_up_on()
