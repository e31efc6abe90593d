"""What a member has locked stays locked for as long as it lives and the broker agrees."""

import asyncio
from types import SimpleNamespace

from ledgermq.client.message import MessageQueue
from ledgermq.client.queue_locks import LOOK_MS, RENEW_MS, VALID_MS, QueueLocks
from mutants.patches import ALL, BY_TESTS
from mutants.planting import planted
from sim.loop import SimLoop

QUEUES = [MessageQueue("t", name, 0) for name in ("a", "b")]
TWO = [MessageQueue("t", "a", number) for number in (0, 1)]


async def held_after(ms, hangs_ms=0, refuses_from_ms=None):
    """Lock queues and let time pass; return which are held still, and which were lost.

    Renewals at the first broker take ``hangs_ms``; it refuses what is asked from some time on.
    """

    async def call(_queue, ask):
        return await ask("x:1")

    async def lock(_addr, _client_id, queues):
        is_renewal = queues[0] == QUEUES[0] and locks.holds(queues[0])
        await asyncio.sleep(hangs_ms / 1_000 if is_renewal else 0)
        if is_renewal and refuses_from_ms is not None and loop.time() * 1_000 >= refuses_from_ms:
            return frozenset()
        return frozenset(queues)

    loop = asyncio.get_running_loop()
    host = SimpleNamespace(
        api=SimpleNamespace(lock=lock), client_id="c", leaders=SimpleNamespace(call=call),
        clock=SimpleNamespace(monotonic_ms=lambda: int(loop.time() * 1_000)),
    )  # fmt: skip
    lost = []
    locks = QueueLocks(host, lost.append)
    await locks.take(QUEUES)
    running = asyncio.ensure_future(locks.run())
    await asyncio.sleep(ms / 1_000)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return [queue for queue in QUEUES if locks.holds(queue)], sorted(set(lost))


def test_a_lock_outlives_the_time_for_which_one_request_counts():
    long_ms = 3 * VALID_MS + 2 * LOOK_MS
    assert SimLoop().run_until_complete(held_after(long_ms)) == (QUEUES, [])
    with planted(ALL["renewal-of-no-locks"]):
        assert SimLoop().run_until_complete(held_after(long_ms)) == ([], QUEUES)


def test_a_broker_that_hangs_keeps_no_lock_of_another_from_being_renewed():
    long_ms = 3 * VALID_MS + 2 * LOOK_MS
    found = SimLoop().run_until_complete(held_after(long_ms, hangs_ms=31_000))
    assert found == (QUEUES[1:], QUEUES[:1])
    with planted(BY_TESTS["renewals-wait-for-the-slowest"]):
        assert SimLoop().run_until_complete(held_after(long_ms, hangs_ms=31_000)) == ([], QUEUES)


def test_a_lock_whose_renewal_is_refused_is_lost_at_once():
    soon_ms = RENEW_MS + 2 * LOOK_MS  # sooner than what was granted runs out
    found = SimLoop().run_until_complete(held_after(soon_ms, refuses_from_ms=0))
    assert found == (QUEUES[1:], QUEUES[:1])
    with planted(BY_TESTS["refused-lock-is-held"]):
        found = SimLoop().run_until_complete(held_after(soon_ms, refuses_from_ms=0))
        assert found == (QUEUES, [])


def test_a_lock_that_ran_out_before_its_renewal_was_granted_is_lost_for_good():
    at_ms = VALID_MS + 10_000
    found = SimLoop().run_until_complete(held_after(at_ms, hangs_ms=14_000))
    assert found == (QUEUES[1:], QUEUES[:1])
    with planted(BY_TESTS["renewed-though-lost"]):
        found = SimLoop().run_until_complete(held_after(at_ms, hangs_ms=14_000))
        assert found == (QUEUES, QUEUES[:1])


async def locked_after_a_release():
    """Give a queue back while a renewal waits for its turn; return what is locked in the end."""
    locked, is_open = set(), asyncio.Event()

    async def call(_queue, ask):
        return await ask("x:1")

    async def lock(_addr, _client_id, queues):
        locked.update(queues)
        return frozenset(queues)

    async def unlock(_addr, _client_id, queues):
        await is_open.wait()
        locked.difference_update(queues)

    host = SimpleNamespace(
        api=SimpleNamespace(lock=lock, unlock=unlock), client_id="c",
        clock=SimpleNamespace(monotonic_ms=lambda: 1), leaders=SimpleNamespace(call=call),
    )  # fmt: skip
    locks = QueueLocks(host, lambda _queue: None)
    await locks.take(TWO)
    releasing = asyncio.ensure_future(locks.give_back(TWO[:1]))
    other = asyncio.ensure_future(locks.give_back(TWO[1:]))
    running = asyncio.ensure_future(locks.run())
    locks.renew_soon(["a"])
    for _ in range(20):
        await asyncio.sleep(0)
    is_open.set()
    await asyncio.gather(releasing, other)
    for _ in range(20):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return locked


def test_a_renewal_that_waits_renews_nothing_that_was_given_back_meanwhile():
    assert SimLoop().run_until_complete(locked_after_a_release()) == set()
    with planted(ALL["renewed-though-given-back"]):
        assert SimLoop().run_until_complete(locked_after_a_release()) == {TWO[1]}


async def locked_after_a_close():
    """Close, but for what a listener works at, while locks are renewed; return what is locked."""
    locked, is_open = set(), asyncio.Event()
    is_open.set()

    async def call(_queue, ask):
        return await ask("x:1")

    async def lock(_addr, _client_id, queues):
        await is_open.wait()
        locked.update(queues)
        return frozenset(queues)

    async def unlock(_addr, _client_id, queues):
        locked.difference_update(queues)

    host = SimpleNamespace(
        api=SimpleNamespace(lock=lock, unlock=unlock), client_id="c",
        clock=SimpleNamespace(monotonic_ms=lambda: 1), leaders=SimpleNamespace(call=call),
    )  # fmt: skip
    locks = QueueLocks(host, lambda _queue: None)
    await locks.take(TWO)
    is_open.clear()
    running = asyncio.ensure_future(locks.run())
    locks.renew_soon(["a"])
    for _ in range(20):
        await asyncio.sleep(0)
    closing = asyncio.ensure_future(locks.close({TWO[0]}))
    await asyncio.sleep(0)
    is_open.set()
    await closing
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return locked


def test_a_renewal_amid_a_close_frees_nothing_that_a_listener_works_at():
    assert SimLoop().run_until_complete(locked_after_a_close()) == {TWO[0]}
    with planted(BY_TESTS["kept-lock-freed-by-its-renewal"]):
        assert SimLoop().run_until_complete(locked_after_a_close()) == set()
