"""What a client learns while a request is under way is not lost with the answer."""

import asyncio
from types import SimpleNamespace

from ledgermq.client.instance import ClientInstance
from ledgermq.client.message import MessageQueue
from ledgermq.client.queue_locks import QueueLocks
from ledgermq.runtime.clock import SystemClock
from mutants.patches import BY_TESTS
from mutants.planting import planted

QUEUE = MessageQueue("t", "a", 0)


async def turns(count=200):
    """Let the loop go on without any time: under load a sleep may end before the others' work."""
    for _ in range(count):
        await asyncio.sleep(0)


class Gate:
    """Lets one request through at a time; the others wait."""

    def __init__(self):
        self.asked = []
        self.opened = asyncio.Event()

    async def pass_through(self, what):
        self.asked.append(what)
        await self.opened.wait()

    async def until(self, count):
        async with asyncio.timeout(5):
            while len(self.asked) < count:
                await asyncio.sleep(0)


def test_a_leader_that_comes_during_a_renewal_is_asked_for_the_locks_at_once():
    """Who leads next may know nothing of them; the next regular renewal is 20 s away."""

    async def body():
        gate = Gate()
        leader = SimpleNamespace(addr="x:1")

        async def call(_queue, ask):
            return await ask(leader.addr)

        async def lock(addr, _client_id, queues):
            await gate.pass_through(addr)
            return frozenset(queues)

        host = SimpleNamespace(
            api=SimpleNamespace(lock=lock), clock=SystemClock(), client_id="c",
            leaders=SimpleNamespace(call=call),
        )  # fmt: skip
        locks = QueueLocks(host, lambda _queue: None)
        gate.opened.set()
        await locks.take([QUEUE])
        gate.opened.clear()
        running = asyncio.ensure_future(locks.run())
        locks.renew_soon(["a"])
        await gate.until(2)
        leader.addr = "y:1"
        locks.renew_soon(["a"])
        gate.opened.set()
        await turns()
        running.cancel()
        return gate.asked

    assert asyncio.run(body()) == ["x:1", "x:1", "y:1"]
    with planted(BY_TESTS["renewal-counts-for-the-next-leader"]):
        assert asyncio.run(body()) == ["x:1", "x:1"]


class Client(ClientInstance):
    """Greets one broker, which answers when its gate opens."""

    def __init__(self, gate):
        self._greet = asyncio.Event()
        self._greetings = {}
        self._news_for = set()
        self.config = SimpleNamespace(heartbeat_ms=30_000)
        self.background = SimpleNamespace(spawn=lambda work, _: asyncio.ensure_future(work()))
        self.gate = gate
        self.news = "first"

    def heartbeat_addrs(self):
        return ["x:1"]

    async def heartbeat(self, _addr):
        await self.gate.pass_through(self.news)


def test_what_is_new_during_a_heartbeat_is_told_behind_it():
    """A subscription that is changed meanwhile; the next regular heartbeat is 30 s away."""

    async def body():
        gate = Gate()
        client = Client(gate)
        running = asyncio.ensure_future(client._heartbeat_loop())
        await gate.until(1)
        for client.news in ("second", "third"):
            client.greet_soon()
            await turns()
        gate.opened.set()
        await turns()
        asked = list(gate.asked)
        client.news = "fourth"
        client.greet_soon()
        await gate.until(len(asked) + 1)
        running.cancel()
        return asked

    assert asyncio.run(body()) == ["first", "third"]  # once for all that was new
    with planted(BY_TESTS["news-during-a-heartbeat-lost"]):
        assert asyncio.run(body()) == ["first"]
