"""What a member has locked stays locked for as long as it lives and the broker agrees."""

import asyncio
from types import SimpleNamespace

from ledgermq.client.message import MessageQueue
from ledgermq.client.queue_locks import LOOK_MS, VALID_MS, QueueLocks
from mutants.patches import ALL
from mutants.planting import planted
from sim.loop import SimLoop

QUEUES = [MessageQueue("t", name, 0) for name in ("a", "b")]


async def held_after(ms):
    """Lock queues and let time pass; return which are held still, and which were lost."""

    async def call(_queue, ask):
        return await ask("x:1")

    async def lock(_addr, _client_id, queues):
        await asyncio.sleep(0)
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
    return [queue for queue in QUEUES if locks.holds(queue)], lost


def test_a_lock_outlives_the_time_for_which_one_request_counts():
    long_ms = 3 * VALID_MS + 2 * LOOK_MS
    assert SimLoop().run_until_complete(held_after(long_ms)) == (QUEUES, [])
    with planted(ALL["renewal-of-no-locks"]):
        assert SimLoop().run_until_complete(held_after(long_ms)) == ([], QUEUES)
