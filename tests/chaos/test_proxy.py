"""The proxy on real sockets: what passes, what is held, what dies with its sender."""

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from chaos.net.link import Link
from chaos.net.proxy import Proxy
from chaos.net.rules import Rule


def frame(code: int, body: bytes = b"x") -> bytes:
    header = struct.pack(">h", code)
    return struct.pack(">iI", 4 + len(header) + len(body), 1 << 24 | len(header)) + header + body


class Peer:
    """A server that remembers what came and answers each piece with ``pong``."""

    def __init__(self) -> None:
        self.got = bytearray()
        self.changed = asyncio.Event()
        self.ended = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionResetError):
            while data := await reader.read(65536):
                self.got += data
                self.changed.set()
                writer.write(frame(1, b"pong"))
        self.ended.set()
        writer.close()

    async def await_bytes(self, count: int) -> None:
        while len(self.got) < count:
            self.changed.clear()
            await self.changed.wait()


@asynccontextmanager
async def linked() -> AsyncIterator[tuple[Peer, Link]]:
    peer = Peer()
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    link = Link("a>b", server.sockets[0].getsockname()[:2], seed=1)
    await link.listen()
    try:
        yield peer, link
    finally:
        await link.close()
        server.close()
        await asyncio.sleep(0)


def run(test: Callable[[Peer, Link], Awaitable[None]]) -> None:
    async def body() -> None:
        async with linked() as (peer, link), asyncio.timeout(10):
            await test(peer, link)

    asyncio.run(body())


async def counted(link: Link, column: str, least: int) -> None:
    """Wait until a forward counter has come to a value."""
    while link.snapshot()["forward"][column] < least:
        await asyncio.sleep(0.01)


def test_frames_and_answers_pass_unchanged():
    async def test(peer: Peer, link: Link) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
        sent = frame(31001, b"a" * 100_000)
        writer.write(sent)
        await peer.await_bytes(len(sent))
        assert bytes(peer.got) == sent
        assert await reader.readexactly(14) == frame(1, b"pong")
        assert link.snapshot()["forward"]["bytes"] == len(sent)
        writer.close()

    run(test)


def test_cut_withholds_and_heal_delivers_in_order():
    async def test(peer: Peer, link: Link) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", link.port)
        writer.write(frame(1))
        await peer.await_bytes(11)
        link.change("both", withhold=True)
        writer.write(frame(2) + frame(3))
        await counted(link, "withheld_bytes", 22)
        assert len(peer.got) == 11, "nothing passes while it is cut"
        await link.heal()
        await peer.await_bytes(33)
        assert bytes(peer.got) == frame(1) + frame(2) + frame(3)
        assert link.snapshot()["forward"]["lost_bytes"] == 0
        writer.close()

    run(test)


def test_what_was_withheld_dies_with_its_sender():
    async def test(peer: Peer, link: Link) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", link.port)
        writer.write(frame(1))
        await peer.await_bytes(11)
        link.change("both", withhold=True)
        writer.write(frame(2))
        await counted(link, "withheld_bytes", 11)
        writer.transport.abort()
        await counted(link, "lost_bytes", 11)
        assert not peer.ended.is_set(), "the other side hears nothing yet"
        await link.heal()
        await peer.ended.wait()
        assert bytes(peer.got) == frame(1)

    run(test)


def test_new_connection_to_a_cut_link_meets_silence_then_service():
    async def test(peer: Peer, link: Link) -> None:
        link.change("both", withhold=True)
        _, writer = await asyncio.open_connection("127.0.0.1", link.port)
        writer.write(frame(7))
        await asyncio.sleep(0.05)
        assert not peer.got
        await link.heal()
        await peer.await_bytes(11)
        writer.close()

    run(test)


def test_refusing_link_refuses_and_heals_on_its_port():
    async def test(peer: Peer, link: Link) -> None:
        port = link.port
        await link.refuse()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        await link.heal()
        assert link.port == port
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frame(7))
        await peer.await_bytes(11)
        writer.close()

    run(test)


def test_one_direction_can_be_cut_alone():
    async def test(peer: Peer, link: Link) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
        link.change("backward", withhold=True)
        writer.write(frame(1))
        await peer.await_bytes(11)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await reader.read(1)
        await link.heal()
        assert await reader.readexactly(14) == frame(1, b"pong")
        writer.close()

    run(test)


def test_dead_target_is_passed_on_as_a_broken_connection():
    async def body() -> None:
        link = Link("a>b", ("127.0.0.1", 1), seed=1)
        await link.listen()
        reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
        writer.write(frame(1))
        with suppress(ConnectionResetError):
            assert await reader.read(1) == b""
        await link.close()
        writer.close()

    asyncio.run(body())


def test_commands_answer_with_counters_and_bad_ones_change_nothing():
    async def test(peer: Peer, link: Link) -> None:
        proxy = Proxy([link])
        cut = await proxy.execute({"cmd": "cut", "links": ["a>b"]})
        assert cut["ok"]
        assert cut["links"]["a>b"]["withholding"] == ["forward", "backward"]
        for bad in (
            {"cmd": "nothing"},
            {"cmd": "cut", "links": ["x>y"]},
            {"cmd": "shape", "links": ["a>b"]},
            {"cmd": "shape", "links": ["a>b"], "rule": {"dup_p": 2}},
            {"cmd": "shape", "links": ["a>b"], "rule": {"delay_ms": 5}, "direction": "up"},
            {"cmd": "flap", "links": ["a>b"], "cut_ms": 1, "open_ms": 100},
            {"cmd": "oneway", "links": ["a>b"], "direction": "up"},
            {},
        ):
            assert not (await proxy.execute(bad))["ok"]
        healed = await proxy.execute({"cmd": "heal", "links": ["a>b"]})
        assert healed["links"]["a>b"]["withholding"] == []

    run(test)


def test_reset_breaks_connections():
    async def test(peer: Peer, link: Link) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
        writer.write(frame(1))
        await peer.await_bytes(11)
        await reader.readexactly(14)
        assert (await Proxy([link]).execute({"cmd": "rst", "links": ["a>b"]}))["ok"]
        with pytest.raises(ConnectionResetError):
            await reader.readexactly(1000)
        writer.close()

    run(test)


async def shaped(link: Link, **rule: object) -> None:
    answer = await Proxy([link]).execute({"cmd": "shape", "links": ["a>b"], "rule": rule})
    assert answer["ok"], answer


def test_delayed_frames_are_late_and_a_heal_lets_them_go_at_once():
    async def test(peer: Peer, link: Link) -> None:
        loop = asyncio.get_running_loop()
        _, writer = await asyncio.open_connection("127.0.0.1", link.port)
        await shaped(link, delay_ms=200)
        began = loop.time()
        writer.write(frame(1))
        await peer.await_bytes(11)
        assert loop.time() - began >= 0.2
        counted = link.snapshot()["forward"]
        assert counted["delayed"] == 1
        assert counted["late_us"] >= 200_000
        await shaped(link, delay_ms=50_000)
        writer.write(frame(2))
        await asyncio.sleep(0.1)
        assert len(peer.got) == 11
        await link.heal()
        await peer.await_bytes(22)
        writer.close()

    run(test)


def test_no_more_passes_than_the_rate_allows_until_it_is_lifted():
    async def test(peer: Peer, link: Link) -> None:
        loop = asyncio.get_running_loop()
        _, writer = await asyncio.open_connection("127.0.0.1", link.port)
        await shaped(link, rate_bytes_s=20_000)
        began = loop.time()
        for _ in range(20):
            writer.write(frame(1, b"x" * 990))
        await peer.await_bytes(8_000)
        assert loop.time() - began >= 0.35
        assert link.snapshot()["forward"]["slowed_bytes"] >= 8_000
        slowed = link.snapshot()["forward"]["slowed_bytes"]
        await shaped(link, rate_bytes_s=100)  # by this one, the rest takes a minute and a half
        while link.snapshot()["forward"]["slowed_bytes"] == slowed:
            await asyncio.sleep(0.005)
        await link.heal()
        await peer.await_bytes(20_000)
        writer.close()

    run(test)


def test_connection_ends_amid_the_frame_that_reaches_the_limit():
    async def test(peer: Peer, link: Link) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
        await shaped(link, reset_after_bytes=25)
        writer.write(frame(1) + frame(2) + frame(3))
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1000)
        await peer.ended.wait()
        assert bytes(peer.got) == (frame(1) + frame(2) + frame(3))[: len(peer.got)]
        assert len(peer.got) <= 25
        assert link.snapshot()["forward"]["resets"] == 1
        writer.close()

    run(test)


def test_flapping_link_withholds_and_lets_pass_until_it_heals():
    async def test(peer: Peer, link: Link) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", link.port)
        command = {"cmd": "flap", "links": ["a>b"], "cut_ms": 30, "open_ms": 30}
        assert (await Proxy([link]).execute(command))["ok"]
        for _ in range(40):
            writer.write(frame(1))
            await asyncio.sleep(0.01)
        state = link.snapshot()
        assert state["flaps"] >= 3
        assert state["forward"]["withheld_bytes"] > 0
        assert len(peer.got) > 0
        await link.heal()
        await peer.await_bytes(40 * 11)
        flaps = link.snapshot()["flaps"]
        await asyncio.sleep(0.15)
        assert link.snapshot()["flaps"] == flaps, "the schedule ended"
        assert link.snapshot()["withholding"] == []
        writer.close()

    run(test)


def test_frame_that_waits_to_be_overtaken_leaves_when_the_link_heals():
    async def test(peer: Peer, link: Link) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", link.port)
        await shaped(link, reorder_p=1)
        writer.write(frame(1))
        await asyncio.sleep(0.1)
        assert not peer.got
        await link.heal()
        await peer.await_bytes(11)
        writer.close()

    run(test)


def test_a_link_tells_whether_a_fault_has_it():
    async def body(_peer: Peer, link: Link) -> None:
        def has_one() -> bool:
            return bool(link.snapshot()["ruled"])

        assert not has_one()
        link.shape("forward", Rule(delay_ms=5))
        assert has_one()
        await link.heal()
        assert not has_one()
        link.flap(1_000, 1_000)
        assert has_one()  # though bytes may pass just now
        await link.heal()
        link.change("backward", withhold=True)
        assert has_one()
        await link.heal()
        assert not has_one()

    run(body)
