"""A thousand queues over ten consumers: how long a rebalance takes, and what comes twice.

``python -m bench.rebalance [--queues 1000] [--members 10] [--rate 500]``: a group of three brokers,
members of our client in one process, a producer that sends all the while. After all members but one
have joined, the last one joins; when it has its share, it leaves again. A rebalance has ended when
each queue has one owner and no member has more than its share; the time runs from the call of
``start()`` or ``stop()``. Every message must come, and none twice.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import uvloop

from bench.cluster import Cluster
from bench.topics import create_topic
from ledgermq.client import (
    ClientConfig,
    ConsumeContext,
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PushConsumer,
)

TOPIC = "shared"
GROUP = "sharers"
TICK_S = 0.02
SETTLE_S = 60.0
REST_S = 1.0


class Shares:
    """Which member holds which queues, and what came."""

    def __init__(self, queues: int) -> None:
        """Take that there are so many queues."""
        self._queues = queues
        self.held: dict[str, Sequence[MessageQueue]] = {}
        self.came: Counter[str] = Counter()

    def listen(self, messages: list[MessageExt], _context: ConsumeContext) -> ConsumeStatus:
        """Note what came."""
        self.came.update(message.message_id() for message in messages)
        return ConsumeStatus.CONSUME_SUCCESS

    def are_even(self, members: int) -> bool:
        """Tell whether each queue has one owner, and nobody more than the share of so many."""
        sizes = [len(held) for held in self.held.values() if held]
        owned = {queue for held in self.held.values() for queue in held}
        is_whole = len(owned) == sum(sizes) == self._queues
        return is_whole and len(sizes) == members and max(sizes) - min(sizes) <= 1


class _Watcher:
    """The observer of one member."""

    def __init__(self, shares: Shares, name: str) -> None:
        self._shares = shares
        self._name = name

    def on_assignment(self, topic: str, queues: Sequence[MessageQueue]) -> None:
        """See `ConsumerObserver`."""
        if topic == TOPIC:
            self._shares.held[self._name] = queues

    def on_commit(self, *_: object) -> None:
        """See `ConsumerObserver`."""

    def on_fetch(self, *_: object) -> None:
        """See `ConsumerObserver`."""


class _Traffic:
    """A producer that sends so many messages a second, to one queue after the other."""

    def __init__(self, producer: Producer, rate: int) -> None:
        self.sent: list[str] = []
        self._producer = producer
        self._rate = rate
        self._is_over = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Send no more; what is under way ends."""
        self._is_over.set()
        await self._task

    async def _run(self) -> None:
        begin, count = time.perf_counter(), 0
        while not self._is_over.is_set():
            due = int((time.perf_counter() - begin) * self._rate) - count
            count += max(0, due)
            results = await asyncio.gather(
                *(self._producer.send(Message(TOPIC, b"x" * 128)) for _ in range(due))
            )
            self.sent += [result.msg_id for result in results]
            await asyncio.sleep(TICK_S)


async def measure(options: argparse.Namespace) -> dict[str, float]:
    """Return the figures."""
    shares = Shares(options.queues)
    with (
        tempfile.TemporaryDirectory(prefix="ledgermq-rebalance-") as home,
        Cluster(Path(home), replicas=3, sync_flush=False) as cluster,
    ):
        await asyncio.to_thread(cluster.leader)
        addrs = (cluster.namesrv_addr,)
        await create_topic(cluster.namesrv_addr, TOPIC, options.queues)
        *first, last = (_member(addrs, shares, f"m{n}") for n in range(options.members))
        await asyncio.gather(*(member.start() for member in first))
        await _until(lambda: shares.are_even(len(first)), "the first members")
        async with Producer(ClientConfig(namesrv_addrs=addrs, group="senders")) as producer:
            traffic = _Traffic(producer, options.rate)
            await asyncio.sleep(REST_S)
            began = time.perf_counter()
            await last.start()
            await _until(lambda: shares.are_even(options.members), "the last member")
            joined_s = time.perf_counter() - began
            await asyncio.sleep(REST_S)
            began = time.perf_counter()
            await last.stop()
            shares.held.pop(f"m{options.members - 1}", None)
            await _until(lambda: shares.are_even(len(first)), "those that were left")
            left_s = time.perf_counter() - began
            await asyncio.sleep(REST_S)
            await traffic.stop()
        await _until(lambda: all(map(shares.came.__contains__, traffic.sent)), "all messages")
        await asyncio.gather(*(member.stop() for member in first))
    return {
        "queues": options.queues,
        "members": options.members,
        "join_s": round(joined_s, 2),
        "leave_s": round(left_s, 2),
        "slower_s": round(max(joined_s, left_s), 2),
        "messages": len(traffic.sent),
        "twice": sum(count - 1 for count in shares.came.values()),
    }


def _member(addrs: tuple[str, ...], shares: Shares, name: str) -> PushConsumer:
    config = ClientConfig(namesrv_addrs=addrs, group=GROUP, instance_name=name)
    options = ConsumeOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
    member = PushConsumer(config, shares.listen, options, observer=_Watcher(shares, name))
    member.subscribe(TOPIC)
    return member


async def _until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.perf_counter() + SETTLE_S
    while not is_so():
        if time.perf_counter() > deadline:
            raise SystemExit(f"{what} did not come to rest within {SETTLE_S:.0f} s")
        await asyncio.sleep(TICK_S)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print the figures as JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.rebalance", description=__doc__)
    parser.add_argument("--queues", type=int, default=1_000)
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument("--rate", type=int, default=500, help="messages a second meanwhile")
    print(json.dumps(uvloop.run(measure(parser.parse_args(argv)))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
