"""Requests that take long: one turn of the loop is bounded by time, too, and addresses share it."""

import asyncio
import socket
import time

import pytest

from ledgermq.remoting.protocol.command import RemotingCommand, encode_command
from ledgermq.remoting.transport.client import RemotingClient
from ledgermq.remoting.transport.limits import TURN_MS_MAX
from ledgermq.remoting.transport.turns import BEGUN_MAX, Turns
from ledgermq.runtime.clock import SystemClock
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.integration.remoting_world import ECHO, World, run, until
from tests.integration.test_remoting_limits import largest_turn


class SlowFrames:
    """A clock by which each frame takes 2 ms."""

    def __init__(self) -> None:
        self.now_ns = 1
        self.step_ns = 2_000_000

    def monotonic_ns(self) -> int:
        self.now_ns += self.step_ns
        return self.now_ns

    monotonic_ms = wall_ms = local = None


def test_frames_that_take_long_leave_turns_to_the_others():
    async def test(w: World) -> None:
        w.server.turns = Turns(SlowFrames())
        assert await largest_turn(w, 200) <= TURN_MS_MAX // 2 + 1

    run(test)


def test_without_that_a_turn_takes_as_long_as_its_frames():
    async def test(w: World) -> None:
        w.server.turns = Turns(SlowFrames())
        with planted(BY_TESTS["turn-without-end"]):
            assert await largest_turn(w, 200) == 200

    run(test)


def began_together(count: int) -> int:
    """Return how many coroutine requests of one connection began in one turn of the loop."""
    turns_begun: list[int] = []

    async def test(w: World) -> None:
        echo, begun = w.service.echo, []

        async def slow(connection, command):
            loop = asyncio.get_running_loop()
            if not begun:
                loop.call_soon(lambda: (turns_begun.append(len(begun)), begun.clear()))
            begun.append(command)
            w.server.turns._clock.now_ns += 4_000_000  # what it does takes so long
            await asyncio.sleep(0)
            return echo(connection, command)

        w.server._handlers[ECHO] = slow
        w.server.turns = Turns(SlowFrames())
        client = RemotingClient()
        await asyncio.gather(
            *(client.request(w.addr, RemotingCommand(ECHO), 5_000) for _ in range(count))
        )
        await client.close()

    run(test)
    assert sum(turns_begun) == count
    return max(turns_begun)


def test_requests_that_are_coroutines_share_the_time_of_a_turn():
    assert began_together(100) <= 3


def test_planted_coroutines_that_ask_for_no_turn_are_found_here():
    with planted(BY_TESTS["coroutines-without-turns"]):
        assert began_together(100) > 3


def test_a_coroutine_that_waits_for_its_turn_ends_with_its_server():
    async def test(w: World) -> None:
        w.server.turns = Turns(SlowFrames())
        task = asyncio.ensure_future(w.server.turns.begin(("a", 1)))
        over = asyncio.ensure_future(w.server.turns.begin(("a", 1)))
        for one in (task, over):
            one.cancel()
        await asyncio.gather(task, over, return_exceptions=True)
        await asyncio.wait_for(w.server.turns.begin(("b", 1)), 5)

    run(test)


def test_requests_that_were_cancelled_while_they_waited_take_nobodys_turn():
    async def test(_: World) -> None:
        clock = SlowFrames()
        turns = Turns(clock)
        given_up = [asyncio.ensure_future(turns.begin(("a", 1))) for _ in range(10 * BEGUN_MAX)]
        turns.is_over()
        clock.now_ns += TURN_MS_MAX * 1_000_000
        await asyncio.sleep(0)
        for one in given_up:
            one.cancel()
        clock.step_ns = 0
        live = asyncio.ensure_future(turns.begin(("a", 1)))
        for _ in range(8):
            await asyncio.sleep(0)
        assert live.done()
        assert turns.waiting_count == 0

    run(test)


def test_cancelled_requests_that_take_turns_are_found_here():
    with (
        planted(BY_TESTS["cancelled-beginnings-take-turns"]),
        pytest.raises(AssertionError),
    ):
        test_requests_that_were_cancelled_while_they_waited_take_nobodys_turn()


def test_requests_that_take_a_whole_turn_each_leave_turns_to_other_addresses():
    async def test(_: World) -> None:
        clock, served = SlowFrames(), []
        turns = Turns(clock)
        clock.step_ns = 0

        async def work(address: str) -> None:
            await turns.begin((address, 1))
            clock.now_ns += TURN_MS_MAX * 1_000_000
            served.append(address)

        flood = [asyncio.ensure_future(work("a")) for _ in range(4 * BEGUN_MAX)]
        others = [asyncio.ensure_future(work(address)) for address in "bc"]
        await asyncio.gather(*flood, *others)
        assert served.index("b") <= 3, served.index("b")
        assert served.index("c") <= 3, served.index("c")

    run(test)


def test_requests_that_take_all_turns_are_found_here():
    with planted(BY_TESTS["tried-in-vain-goes-last"]), pytest.raises(AssertionError):
        test_requests_that_take_a_whole_turn_each_leave_turns_to_other_addresses()


def test_connections_whose_frames_were_put_off_take_turns():
    async def test(_: World) -> None:
        turns, served = Turns(SlowFrames()), []

        class Flood:
            def __init__(self, name: str) -> None:
                self.name, self.left, self.remote = name, 12, ("a", 1)

            def handle_later(self) -> None:
                while self.left and not turns.is_over():
                    self.left -= 1
                served.append(self.name)
                if self.left:
                    turns.wait(self)

        for name in "abc":
            turns.wait(Flood(name))
        await until(lambda: len(served) >= 6)
        assert sorted(served[:3]) == ["a", "b", "c"]

    run(test)


FLOODS, FRAMES, FRAME_S = 200, 50, 0.0001
"""A flood that keeps the loop busy for a second."""


def busy(w: World) -> None:
    """Have each request of a world take as long as a real one with work to do."""
    echo = w.service.echo

    def slow(connection, command):
        end = time.perf_counter() + FRAME_S
        while time.perf_counter() < end:
            pass
        return echo(connection, command)

    w.server._handlers[ECHO] = slow
    w.server.turns = Turns(SystemClock())


async def served_meanwhile(w: World) -> int:
    """Return how much of a flood is served before one request of another address is."""
    busy(w)
    polite = RemotingClient(source_address="127.0.0.2")
    await polite.request(w.addr, RemotingCommand(ECHO), 5_000)
    frames = FRAMES * b"".join(encode_command(RemotingCommand(ECHO)))
    floods = [socket.create_connection(("127.0.0.1", w.port)) for _ in range(FLOODS)]
    try:
        await until(lambda: len(w.server.connections) == FLOODS + 1)
        for one in floods:
            one.sendall(frames)
        await until(lambda: w.server.turns.waiting_count > FLOODS // 2)
        seen = len(w.service.seen)
        await polite.request(w.addr, RemotingCommand(ECHO), 10_000)
        served, left = len(w.service.seen) - seen, w.server.turns.waiting_count
        assert served > 0
        await until(lambda: len(w.service.seen) == FLOODS * FRAMES + 2)
        assert left > FLOODS // 2 or served > FLOODS * FRAMES / 2
    finally:
        for one in floods:
            one.close()
        await polite.close()
    return served


def test_a_flood_from_one_address_does_not_hold_up_another():
    async def test(w: World) -> None:
        assert await served_meanwhile(w) < FLOODS * FRAMES / 4

    run(test)


def test_without_that_a_client_waits_for_every_connection_of_the_flood():
    async def test(w: World) -> None:
        with planted(BY_TESTS["one-queue-for-all-addresses"]):
            assert await served_meanwhile(w) > FLOODS * FRAMES / 2

    run(test)


def test_turns_go_round_addresses_and_then_round_their_connections():
    async def test(_: World) -> None:
        turns, served = Turns(None), []

        class One:
            def __init__(self, host: str, port: int) -> None:
                self.remote = (host, port)

            def handle_later(self) -> None:
                served.append(self.remote)

        for host, port in (("a", 1), ("a", 2), ("a", 3), ("b", 1), ("c", 1), ("b", 2)):
            turns.wait(One(host, port))
        await until(lambda: len(served) == 6)
        assert [f"{host}{port}" for host, port in served] == ["a1", "b1", "c1", "a2", "b2", "a3"]
        assert turns.waiting_count == 0

    run(test)
