"""Failover: SIGKILL of the leader to the first acknowledged send, over many kills.

``python -m bench.failover --kills 20 [--json FILE]``. A producer of our client library sends one
message after another; the time counted runs from the kill to the end of the first send that was
invoked after it and acknowledged. The killed broker is restarted and has caught up before the next.
``--senders`` more send all the while. At the end the topic is read: what was acknowledged and is
not there is *lost*; what is there although its sender was told that it surely failed is *wrong*.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import TypeVar

import uvloop

from bench.cluster import Cluster
from bench.topics import create_topic
from ledgermq.client import ClientConfig, Message, Producer, PullConsumer, PullStatus
from ledgermq.remoting.protocol.errors import Outcome, RemotingError

CATCH_UP_TIMEOUT_S = 30.0
PAUSE_S = 1.0
TOPIC = "failover"
Kind = TypeVar("Kind", bound=Cluster)
QUEUES = 4
BEHIND_MAX = 500
"""Entries by which replicas may differ that have caught up, since others send meanwhile."""


class Told:
    """What the senders were told of each message, by its number."""

    def __init__(self) -> None:
        self.acknowledged: set[int] = set()
        self.failed: set[int] = set()
        self.unknown: set[int] = set()
        self._count = 0

    async def send(self, producer: Producer) -> bool:
        """Send one message; return whether it was acknowledged."""
        self._count += 1
        number = self._count
        try:
            await producer.send(Message(topic=TOPIC, body=b"%-1024d" % number))
        except RemotingError as error:
            (self.failed if error.outcome is Outcome.FAILED else self.unknown).add(number)
            return False
        self.acknowledged.add(number)
        return True

    def judge(self, found: Set[int]) -> dict[str, int]:
        """Return how many were told what, and how many of these are not as they were told."""
        return {
            "acknowledged": len(self.acknowledged),
            "told_failed": len(self.failed),
            "told_unknown": len(self.unknown),
            "lost": len(self.acknowledged - found),
            "wrong": len(self.failed & found),
        }


async def run(kills: int, senders: int) -> tuple[list[float], dict[str, int]]:
    """Return the failover times in seconds, in the order of the kills, and what became of sends."""
    told = Told()
    with (
        tempfile.TemporaryDirectory(prefix="ledgermq-failover-") as home,
        Cluster(Path(home), replicas=3, sync_flush=False) as cluster,
    ):
        await create_topic(cluster.namesrv_addr, TOPIC, QUEUES)
        config = ClientConfig(namesrv_addrs=(cluster.namesrv_addr,), group="failover_producer")
        async with Producer(config) as producer:
            times = await kill_leaders(cluster, (producer, told), (kills, senders), _caught_up)
        found = await stored(config)
    return times, told.judge(found)


async def kill_leaders(
    cluster: Kind,
    sender: tuple[Producer, Told],
    counts: tuple[int, int],
    recovered: Callable[[Kind], Awaitable[None]],
) -> list[float]:
    """Kill whoever leads, again and again; return how long sends took from then on, in seconds.

    Args:
        cluster: whose leader is killed.
        sender: who sends, and what it was told.
        counts: how many kills, and how many more send all the while.
        recovered: waits until the next leader may be killed.
    """
    producer, told = sender
    kills, senders = counts
    await until_acknowledged(producer, told)
    others = [asyncio.create_task(send_on(producer, told)) for _ in range(senders)]
    times: list[float] = []
    for number in range(kills):
        leader = await asyncio.to_thread(cluster.leader)
        begin = time.perf_counter()  # the kernel takes its time to end it, with much mapped
        cluster.kill(leader)
        await until_acknowledged(producer, told)
        times.append(time.perf_counter() - begin)
        await asyncio.to_thread(cluster.restart, leader)
        await recovered(cluster)
        await asyncio.sleep(PAUSE_S)
        print(f"kill {number + 1}/{kills}: {times[-1] * 1e3:.0f} ms", flush=True)
    for other in others:
        other.cancel()
    return times


async def until_acknowledged(producer: Producer, told: Told) -> None:
    """Send until a send is acknowledged."""
    while not await told.send(producer):  # noqa: ASYNC110 - it is the sends that count
        await asyncio.sleep(0.01)


async def send_on(producer: Producer, told: Told) -> None:
    """Send for ever."""
    while True:
        await told.send(producer)
        await asyncio.sleep(0.01)


async def stored(config: ClientConfig) -> set[int]:
    """Return the numbers of the messages that are in the topic."""
    numbers: set[int] = set()
    async with PullConsumer(config) as consumer:
        for queue in await consumer.fetch_subscribe_queues(TOPIC):
            offset = 0
            while True:
                found = await consumer.pull(queue, "*", offset)
                if found.status is not PullStatus.FOUND:
                    break
                numbers.update(int(message.body) for message in found.messages)
                offset = found.next_offset
    return numbers


async def _caught_up(cluster: Cluster) -> None:
    deadline = time.perf_counter() + CATCH_UP_TIMEOUT_S
    while time.perf_counter() < deadline:
        found = [await asyncio.to_thread(cluster.raft_status, n) for n in range(3)]
        commits = [int(status["commit"]) for status in found if status]
        if len(commits) == len(found) and max(commits) - min(commits) <= BEHIND_MAX:
            return
        await asyncio.sleep(0.1)
    raise RuntimeError(f"replicas differ {CATCH_UP_TIMEOUT_S:.0f} s after a restart")


def summarize(found: Sequence[float], sends: Mapping[str, int]) -> dict[str, float]:
    """Return the figures of times in seconds, beside what became of sends."""
    times = sorted(found)
    return {
        "kills": len(times),
        "min_ms": round(times[0] * 1e3, 1),
        "median_ms": round(times[len(times) // 2] * 1e3, 1),
        "p99_ms": round(times[int(len(times) * 0.99)] * 1e3, 1),
        "max_ms": round(times[-1] * 1e3, 1),
        **sends,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the kills and print min, median, p99 and max."""
    parser = argparse.ArgumentParser(prog="python -m bench.failover", description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--senders", type=int, default=4, help="that send all the while")
    parser.add_argument("--json", default="", help="write the times to this file")
    options = parser.parse_args(argv)
    found, sends = uvloop.run(run(options.kills, options.senders))
    text = json.dumps(summarize(found, sends))
    if options.json:
        Path(options.json).write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
