"""Requests that take long: one turn of the loop is bounded by time, too."""

from ledgermq.remoting.transport.limits import TURN_MS_MAX
from ledgermq.remoting.transport.turns import Turns
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.integration.remoting_world import World, run, until
from tests.integration.test_remoting_limits import largest_turn


class SlowFrames:
    """A clock by which each frame takes 2 ms."""

    def __init__(self) -> None:
        self.now_ns = 1

    def monotonic_ns(self) -> int:
        self.now_ns += 2_000_000
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


def test_connections_whose_frames_were_put_off_take_turns():
    async def test(_: World) -> None:
        turns, served = Turns(SlowFrames()), []

        class Flood:
            def __init__(self, name: str) -> None:
                self.name, self.left = name, 12

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
