"""Time limits in tasks that were cancelled before, as every clean-up is."""

import asyncio

import pytest

from ledgermq.client.background import join
from ledgermq.client.errors import NotRunning
from ledgermq.runtime.cancel import Timeout, cancel_requests, timeout
from sim.loop import SimLoop


@pytest.fixture
def loop():
    made = SimLoop(1)
    yield made
    made.close()


async def never():
    await asyncio.get_running_loop().create_future()


async def cancelled_then(clean_up):
    """Run ``clean_up`` in a task that was cancelled, and return what came of it."""

    async def work():
        try:
            await never()
        finally:
            assert cancel_requests() == 1
            result.append(await clean_up())

    result = []
    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    return result[0] if result else "cut short"


async def limited():
    try:
        async with timeout(0.5):
            await never()
    except TimeoutError:
        return asyncio.get_running_loop().time()


def test_time_runs_out(loop):
    assert loop.run_until_complete(limited()) == pytest.approx(0.5, abs=1e-3)


def test_time_runs_out_in_a_clean_up_and_the_clean_up_goes_on(loop):
    assert loop.run_until_complete(cancelled_then(limited)) == pytest.approx(0.5, abs=1e-3)


def test_time_runs_out_inside_a_limit_that_does_not(loop):
    async def nested():
        async with timeout(10) as outer:
            at = await limited()
        return at, outer.expired()

    at, expired = loop.run_until_complete(cancelled_then(nested))
    assert at == pytest.approx(0.5, abs=1e-3)
    assert not expired


def test_the_outer_limit_ends_the_inner_block(loop):
    async def nested():
        inner = timeout(10)
        try:
            async with timeout(0.5), inner:
                await never()
        except TimeoutError:
            return inner.expired(), cancel_requests()

    assert loop.run_until_complete(nested()) == (False, 0)


@pytest.mark.parametrize("seconds", [10, None])
def test_a_cancellation_from_outside_is_none_of_its(loop, seconds):
    async def work():
        async with timeout(seconds):
            await never()

    async def outside():
        task = asyncio.create_task(work())
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return task.cancelled()

    assert loop.run_until_complete(outside())


def test_a_second_cancellation_ends_the_clean_up(loop):
    async def outside():
        async def work():
            try:
                await never()
            finally:
                await limited()
                ended.append("clean-up")

        ended = []
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return task.cancelled(), ended

    assert loop.run_until_complete(outside()) == (True, [])


def test_what_the_block_raises_comes_out(loop):
    async def fails():
        async with timeout(1):
            raise KeyError("its own")

    with pytest.raises(KeyError, match="its own"):
        loop.run_until_complete(fails())


def test_it_can_be_brought_forward_and_put_off(loop):
    async def at(when, other):
        limit = Timeout(when)
        try:
            async with limit:
                limit.reschedule(other)
                await asyncio.sleep(1)
        except TimeoutError:
            assert limit.expired()
            return loop.time()
        return None

    assert loop.run_until_complete(at(0.5, None)) is None
    assert loop.run_until_complete(at(None, 0.0)) == pytest.approx(1, abs=1e-3)
    assert loop.run_until_complete(at(1.2, 1.5)) == pytest.approx(1.5, abs=1e-3)


def test_nobody_else_is_taken_for_cancelled_in_a_clean_up(loop):
    async def clean_up():
        shared = asyncio.create_task(never())
        asyncio.get_running_loop().call_later(0.1, shared.cancel)
        try:
            await join(shared)
        except NotRunning:
            return "not running"

    assert loop.run_until_complete(cancelled_then(clean_up)) == "not running"
