"""What is under way when a connection or a server ends."""

import asyncio

from ledgermq.remoting.protocol.command import RemotingCommand, encode_command
from ledgermq.remoting.transport.connection import Connection
from ledgermq.remoting.transport.server import RemotingServer
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.integration.remoting_world import LATER, World, run, run_bounded, until


async def hang_up_with(w: World, count: int) -> None:
    """Begin requests over a connection of their own, and close it."""
    request = b"".join(encode_command(RemotingCommand(LATER)))
    begun = len(w.server._left)
    _, writer = await w.raw(request * count)
    await until(lambda: any(len(one.tasks) == count for one in w.server.connections.values()))
    writer.close()
    await until(lambda: len(w.server._left) == begun + count)


async def codes_behind_a_hang_up(w: World) -> list[int]:
    """Return what two requests are answered behind one that nobody waits for any more."""
    await hang_up_with(w, 1)
    asked = [asyncio.ensure_future(w.ask(LATER)) for _ in range(2)]
    await asyncio.wait(asked, timeout=0.2, return_when=asyncio.FIRST_COMPLETED)
    w.service.release.set()
    return [(await one).code for one in asked]


def test_requests_whose_connections_are_gone_count_for_others_of_their_address():
    async def test(w: World) -> None:
        assert await codes_behind_a_hang_up(w) == [0, 2]
        assert await asyncio.gather(*(w.ask(LATER) for _ in range(2)))
        assert not w.server._left
        assert not w.server._left_of

    run(test, requests_in_progress_max=2)


def test_without_that_who_hangs_up_begins_any_number():
    async def test(w: World) -> None:
        with planted(BY_TESTS["left-behind-not-counted"]):
            assert await codes_behind_a_hang_up(w) == [0, 0]

    run(test, requests_in_progress_max=2)


async def ended_by_a_stop() -> list[str]:
    """Return which requests a stop has ended: of a connection that is gone, and late ones."""
    ended: list[str] = []

    async def serve(connection: Connection, command: RemotingCommand) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(command.ext_fields["name"])
            if command.ext_fields["name"] == "open":  # a frame is read while others are cancelled
                server._serve(connection, RemotingCommand(LATER, ext_fields={"name": "late"}))

    server = RemotingServer(name="test", handlers={LATER: serve})
    port = await server.start("127.0.0.1", 0)
    writers = []
    for name in ("gone", "open"):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        request = RemotingCommand(LATER, ext_fields={"name": name})
        writer.write(b"".join(encode_command(request)))
        await until(lambda: any(one.tasks for one in server.connections.values()))
        if name == "gone":
            writer.close()
            await until(lambda: not server.connections)
        writers.append(writer)
    await server.stop()
    for writer in writers:
        writer.transport.abort()
    return ended


def test_a_stop_ends_the_requests_of_connections_that_are_gone_and_those_that_came_meanwhile():
    async def test() -> None:
        assert sorted(await ended_by_a_stop()) == ["gone", "late", "open"]

    run_bounded(test())


def test_without_that_they_go_on_behind_the_stop():
    async def test() -> None:
        with planted(BY_TESTS["left-behind-outlives-the-stop"]):
            assert await ended_by_a_stop() == ["open"]

    run_bounded(test())
