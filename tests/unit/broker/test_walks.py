"""Long answers are made in slices, a few at a time, and have an end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker.stats import walks
from broker.stats.walks import SLICE, Walks
from ledgermq.runtime.clock import SystemClock
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.broker.fakes import request, smaller

if TYPE_CHECKING:
    import pytest

    from ledgermq.remoting.protocol.command import RemotingCommand


async def answer(one: Walks, steps: int, width: int = 1) -> RemotingCommand:
    rows = iter([b"x" * width] * steps)
    return await one.answer(request(202), rows, b"".join)


async def turns_beside(steps: int) -> int:
    """Return how often others had their turn while an answer of so many rows was made."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    await answer(Walks(SystemClock()), steps)
    beside.cancel()
    return turns


def test_others_have_their_turn_meanwhile() -> None:
    assert asyncio.run(turns_beside(10 * SLICE)) >= 10
    with planted(BY_TESTS["long-answer-in-one-turn"]):
        assert asyncio.run(turns_beside(10 * SLICE)) < 10


def test_steps_without_a_row_are_left_out() -> None:
    async def scenario() -> None:
        found = await Walks(SystemClock()).answer(request(300), iter([b"a", None, b"b"]), b"".join)
        assert (found.code, found.body) == (0, b"ab")

    asyncio.run(scenario())


def test_an_answer_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walks, "ANSWER_ROWS_MAX", smaller(walks.ANSWER_ROWS_MAX, 3))
    monkeypatch.setattr(walks, "ANSWER_BYTES_MAX", smaller(walks.ANSWER_BYTES_MAX, 10))
    one = Walks(SystemClock())
    for steps, width, code in ((3, 1, 0), (4, 1, 1), (3, 3, 0), (3, 4, 1)):
        found = asyncio.run(answer(one, steps, width))
        assert found.code == code
        assert bool(found.body) == (code == 0)
    assert one.running == 0


def test_only_so_many_are_made_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walks, "WALKS_MAX", smaller(walks.WALKS_MAX, 2))
    monkeypatch.setattr(walks, "WALKS_WAITING_MAX", smaller(walks.WALKS_WAITING_MAX, 0))

    async def scenario() -> None:
        one = Walks(SystemClock())
        found = await asyncio.gather(*(answer(one, 3 * SLICE) for _ in range(3)))
        assert [each.code for each in found] == [0, 0, 2]
        assert (await answer(one, 1)).code == 0

    asyncio.run(scenario())


def test_who_asks_meanwhile_waits() -> None:
    async def scenario() -> None:
        one = Walks(SystemClock())
        count = walks.WALKS_MAX + walks.WALKS_WAITING_MAX
        asked = [asyncio.create_task(answer(one, 3 * SLICE)) for _ in range(count + 1)]
        await asyncio.sleep(0)
        assert (one.running, one.waiting) == (walks.WALKS_MAX, walks.WALKS_WAITING_MAX)
        found = await asyncio.gather(*asked)
        assert [each.code for each in found] == [0] * count + [2]
        assert (one.running, one.waiting) == (0, 0)

    asyncio.run(scenario())


def test_who_gives_up_leaves_its_turn_to_the_next() -> None:
    async def scenario() -> None:
        one = Walks(SystemClock())
        first, second, gone, last = [
            asyncio.create_task(answer(one, steps * SLICE)) for steps in (1, 9, 1, 1)
        ]
        await asyncio.sleep(0)
        assert (one.running, one.waiting) == (2, 2)
        await first
        gone.cancel()  # it was told that it is its turn, and has not begun
        assert (await last).code == 0
        assert not second.done()
        assert one.running == 1
        waits = [asyncio.create_task(answer(one, 1)) for _ in range(3)]
        await asyncio.sleep(0)
        waits[1].cancel()  # while it waits
        assert [(await one_of).code for one_of in (waits[0], waits[2], second)] == [0, 0, 0]
        assert (one.running, one.waiting) == (0, 0)

    asyncio.run(scenario())
