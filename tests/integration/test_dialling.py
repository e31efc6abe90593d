"""A dial is given up while its name is looked up: nothing is left that the loop would tell of."""

import asyncio
import contextlib
import gc
import os
import socket
import struct
import threading
from collections.abc import Awaitable, Callable

import pytest

from dledger.codec.handshake import Acceptor
from dledger.config import DLedgerConfig
from dledger.peers.door import Door
from dledger.peers.link import Link
from dledger.peers.trust import MemberCredentials
from ledgermq.remoting.protocol.frame import FrameDecoder
from ledgermq.remoting.transport.client import RemotingClient
from ledgermq.remoting.transport.credentials import SecuritySettings
from ledgermq.remoting.transport.dialling import dial
from ledgermq.runtime.clock import SystemClock
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.integration.remoting_world import run_bounded

NOBODY = ".".join(["x" * 63] * 5)
"""Longer than a name may be, so that no lookup needs a network to fail."""
GiveUp = Callable[[int], Awaitable[None]]


@pytest.fixture(autouse=True)
def longer_names_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dledger.config.HOST_CHARACTERS_MAX", len(NOBODY))


async def uncaught_by(give_up: GiveUp) -> list[str]:
    """Give dials up in the middle of their lookup; return what the loop heard of them."""
    told: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(str(context.get("exception"))))
    for turns in (1, 2, 3):
        await give_up(turns)
    for _ in range(8):  # those before have ended by then, in whichever thread
        with contextlib.suppress(OSError):
            await loop.getaddrinfo(NOBODY, 1)
    gc.collect()
    await asyncio.sleep(0.1)
    return told


async def pass_turns(turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


async def bare(turns: int) -> None:
    dialling = asyncio.ensure_future(dial(asyncio.Protocol, NOBODY, 1))
    await pass_turns(turns)
    dialling.cancel()
    await asyncio.wait((dialling,))


async def by_client(turns: int) -> None:
    client = RemotingClient()
    connecting = asyncio.ensure_future(client.connect(f"{NOBODY}:1"))
    await pass_turns(turns + 1)
    await client.close()
    await asyncio.gather(connecting, return_exceptions=True)


async def by_link(turns: int) -> None:
    """A learner is added at an address that is none, and removed again."""
    peers = {"n0": "127.0.0.1:1", "n1": f"{NOBODY}:1"}
    config = DLedgerConfig(group="g", self_id="n0", peers=peers, directory="/none")
    credentials = MemberCredentials(config, SystemClock())
    link = Link("n1", peers["n1"], config, Door(("g", "n0"), credentials, bytes), lambda _: None)
    link.start(b"")
    await pass_turns(turns)
    await link.stop()


@pytest.mark.parametrize("give_up", [bare, by_client, by_link])
def test_a_dial_that_is_given_up_leaves_no_error_behind(give_up: GiveUp) -> None:
    async def test() -> None:
        assert await uncaught_by(give_up) == []

    run_bounded(test())


@pytest.mark.parametrize("give_up", [bare, by_client, by_link])
def test_without_that_the_loop_tells_of_an_error_that_nobody_took(give_up: GiveUp) -> None:
    async def test() -> None:
        with planted(BY_TESTS["name-left-to-the-dial"]):
            assert any("known" in error for error in await uncaught_by(give_up))

    run_bounded(test())


def test_a_name_is_dialled_at_its_addresses_until_one_takes_it() -> None:
    async def test() -> None:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        transport, made = await dial(asyncio.Protocol, "localhost", port)
        assert transport.get_extra_info("peername")[1] == port
        assert isinstance(made, asyncio.Protocol)
        transport.close()
        server.close()
        with pytest.raises(OSError, match="refused"):
            await dial(asyncio.Protocol, "localhost", port)
        with pytest.raises(UnicodeError):
            await dial(asyncio.Protocol, "a..b", port)

    run_bounded(test())


KEY = b"0123456789abcdef0123456789abcdef"


class DyingMember:
    """It answers the greeting of whoever dials it, and is killed there; again and again."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.socket.getsockname()[1]}"
        self.dials = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                accepted, _ = self.socket.accept()
                self.dials += 1
                with accepted:
                    self._answer(accepted)

    def _answer(self, accepted: socket.socket) -> None:
        received = accepted.recv(4096)
        if not received:
            return  # whoever dials has stopped meanwhile
        (greeting,) = FrameDecoder().feed(received)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        accepted.sendall(Acceptor((KEY,), ("g", "n1"), os.urandom).challenge(greeting))


async def dials_of_one_that_dies(wanted: int) -> int:
    """Return how often a member is dialled, within seconds, that hangs up behind its answer."""
    member = DyingMember()
    config = DLedgerConfig(
        group="g", self_id="n0", peers={"n0": "127.0.0.1:1", "n1": member.address},
        directory="/none", security=SecuritySettings(shared_key=KEY.decode()),
        reconnect_ms_min=1, reconnect_ms_max=2,
    )  # fmt: skip
    credentials = MemberCredentials(config, SystemClock())
    credentials.load()
    door = Door(("g", "n0"), credentials, os.urandom)
    link = Link("n1", member.address, config, door, lambda _: None)
    link.start(b"hello")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2):
            while member.dials < wanted:
                await asyncio.sleep(0.005)
    await link.stop()
    member.socket.close()
    return member.dials


def test_a_member_that_dies_behind_its_answer_is_dialled_again() -> None:
    assert asyncio.run(dials_of_one_that_dies(30)) >= 30


def test_with_the_planted_bug_it_is_never_dialled_again() -> None:
    with planted(BY_TESTS["link-lost-behind-the-handshake"]):
        assert asyncio.run(dials_of_one_that_dies(30)) < 30
