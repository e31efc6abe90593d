"""A group of brokers, one of which has a wrong clock: no message is stamped by it for long."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from ledgermq.remoting.protocol.message import decode_records
from ledgermq.runtime.clock import SystemClock
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.write.stamps import UNHEARD_MS
from tests.integration.broker_cluster import Cluster, cluster, pull_fields, send_fields

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

SECOND = 1_000
DAYS = 100 * 24 * 3_600 * SECOND


class ShiftedClock(SystemClock):
    """A clock whose wall time is off."""

    def __init__(self, off_ms: int) -> None:
        super().__init__()
        self.off_ms = off_ms

    def wall_ms(self) -> int:
        return super().wall_ms() + self.off_ms


async def status(group: Cluster, number: int) -> dict[str, Any]:
    answer = await group.ask(number, 29_001)
    return dict(json.loads(answer.body))


async def lead(group: Cluster, number: int) -> None:
    """Have one broker lead."""
    async with asyncio.timeout(20):
        while group.leaders() != [number]:
            for leader in group.leaders():
                await group.ask(leader, 29_003, target=f"n{number}")
            await asyncio.sleep(0.1)


async def stored_off_ms(group: Cluster, number: int) -> int:
    """Send a message; return how far off the time is that its record says it was stored.

    It is right at any time between the request and the answer.
    """
    before_ms = SystemClock().wall_ms()
    answer = await group.ask(number, 310, b"body", **send_fields("T"))
    after_ms = SystemClock().wall_ms()
    assert answer.code == 0, answer.remark
    found = await group.ask(
        number, 11, **pull_fields("T", int(answer.ext_fields["queueOffset"]), suspend_ms=5_000)
    )
    assert found.code == 0, found.remark
    stored_ms = decode_records(found.body)[-1].store_timestamp
    return stored_ms - min(max(stored_ms, before_ms), after_ms)


async def heard(group: Cluster, number: int) -> None:
    """Wait until a broker knows the clocks of both others."""
    async with asyncio.timeout(20):
        while len((await status(group, number))["clocks_ahead_ms"]) < 2:
            await asyncio.sleep(0.1)
    await asyncio.sleep(0.5)


async def restart(group: Cluster, number: int, off_ms: int) -> None:
    await group.stop(number)
    group.clock = ShiftedClock(off_ms)
    await group.start(number)
    group.clock = SystemClock()


async def stamped_by_a_wrong_leader(path: Path, wrong_ms: int, wait_s: float = 0) -> int:
    """Return how far from the right time a leader stamps that started with a wrong clock."""
    async with cluster(path, 3) as group:
        await stored_off_ms(group, await group.leader())
        await restart(group, 1, wrong_ms)
        await heard(group, 1)
        await lead(group, 1)
        await asyncio.sleep(wait_s)
        found = await stored_off_ms(group, 1)
        told = await status(group, 1)
        assert abs(told["clock_correction_ms"] + wrong_ms) < SECOND or abs(found) > SECOND
        return found


async def healed(path: Path) -> list[int]:
    """Return how far off stamps are in a poisoned log: before all clocks are right, and after."""
    async with cluster(path, 3, prepare=_all_wrong) as group:
        leader = await group.leader()
        found = [await stored_off_ms(group, leader)]
        for number in range(3):
            await restart(group, number, 0)
        leader = await group.leader()
        await heard(group, leader)
        found.append(await stored_off_ms(group, leader))
        other = (leader + 1) % 3
        await heard(group, other)
        await lead(group, other)
        found.append(await stored_off_ms(group, other))
        return found


def _all_wrong(group: Cluster) -> None:
    group.clock = ShiftedClock(DAYS)


def outcome(work: Coroutine[Any, Any, Any]) -> Any:
    return uvloop.run(asyncio.wait_for(work, 90))


@pytest.mark.parametrize("wrong_ms", [DAYS, -DAYS])
def test_a_leader_with_a_wrong_clock_stamps_by_that_of_the_others(
    tmp_path: Path, wrong_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert abs(outcome(stamped_by_a_wrong_leader(tmp_path, wrong_ms))) < SECOND
    assert "event=clock_overruled" in caplog.text
    assert "event=clocks_differ peer=n1" in caplog.text


def test_the_planted_bug_stamps_by_the_wrong_clock(tmp_path: Path) -> None:
    with planted(BY_TESTS["majority-clock-ignored"]):
        work = stamped_by_a_wrong_leader(tmp_path, DAYS, wait_s=UNHEARD_MS / 1_000 + 1)
        assert outcome(work) > DAYS - 60 * SECOND


def test_a_log_that_all_clocks_have_poisoned_heals_when_they_are_right(tmp_path: Path) -> None:
    before, *after = outcome(healed(tmp_path))
    assert before > DAYS - 60 * SECOND
    assert all(abs(one) < SECOND for one in after)
