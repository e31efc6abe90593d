"""Delayed messages: how late they are at a steady rate, and what many that are due at once do.

``python -m bench.delays [--rate 1000] [--seconds 5] [--due 100000]``, three replicas.

- *steady*: so many a second of a level of one second. Late is the copy by the stamps that the
  leader gave the two, *arrived* the time until a push consumer has it.
- *at once*: messages are sent, all brokers stopped until the last of them is due, and started
  again; a client sends one message after the other, 200 a second, while they are delivered and, for
  comparison, as long again when they all are. ``--due 0`` leaves it out.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import uvloop

from bench.cluster import GROUP, Cluster
from bench.topics import count_messages, create_topic
from ledgermq.client import (
    AdminClient,
    ClientConfig,
    ConsumeContext,
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
)
from ledgermq.remoting.protocol.errors import RemotingError

TOPIC = "later"
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
LEVEL_MS = 1_000
TICK_S = 0.01
WINDOW = 512
PAUSE_S = 0.005
SETTLE_S = 60.0


@asynccontextmanager
async def _cluster(*settings: str) -> AsyncIterator[Cluster]:
    with (
        tempfile.TemporaryDirectory(prefix="ledgermq-delays-") as home,
        Cluster(Path(home), replicas=3, sync_flush=False, settings=settings) as cluster,
    ):
        await asyncio.to_thread(cluster.leader)
        yield cluster


def _config(cluster: Cluster, group: str) -> ClientConfig:
    return ClientConfig(namesrv_addrs=(cluster.namesrv_addr,), group=group)


async def steady(rate: int, seconds: float) -> dict[str, float]:
    """Return how late delayed messages are."""
    came: dict[str, tuple[int, float]] = {}

    def listen(messages: list[MessageExt], _context: ConsumeContext) -> ConsumeStatus:
        now_ms = time.time() * 1e3
        for message in messages:
            came[message.message_id()] = message.store_timestamp, now_ms
        return ConsumeStatus.CONSUME_SUCCESS

    async with _cluster() as cluster:
        await create_topic(cluster.namesrv_addr, TOPIC)
        options = ConsumeOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
        consumer = PushConsumer(_config(cluster, "takers"), listen, options)
        consumer.subscribe(TOPIC)
        async with consumer, Producer(_config(cluster, "senders")) as producer:
            await consumer.wait_joined()
            took_s = await _send_steadily(producer, rate, int(rate * seconds))
            count = int(rate * seconds)
            await _wait_for(lambda: len(came) >= count)
        stored = await _stored(cluster, count)
    late = sorted(came[name][0] - at - LEVEL_MS for name, at in stored.items())
    arrived = sorted(came[name][1] - at - LEVEL_MS for name, at in stored.items())
    return {
        "steady_per_s": round(count / took_s),
        "steady_early": sum(ms < 0 for ms in late),
        **_percentiles("steady_late", late),
        **_percentiles("steady_arrived", arrived),
    }


async def _send_steadily(producer: Producer, rate: int, count: int) -> float:
    begin, sent = time.perf_counter(), 0
    tasks: list[asyncio.Task[object]] = []
    while sent < count:
        due = min(count, int((time.perf_counter() - begin) * rate)) - sent
        sent += due
        tasks += [asyncio.create_task(_send(producer, 1, 1024)) for _ in range(due)]
        await asyncio.sleep(TICK_S)
    await asyncio.gather(*tasks)
    return time.perf_counter() - begin


async def _send(producer: Producer, delay_level: int, size: int) -> None:
    await producer.send(Message(TOPIC, b"x" * size, delay_level=delay_level))


async def _stored(cluster: Cluster, count: int) -> dict[str, int]:
    """Return when the messages of the first level were stored, by their ids."""
    stored: dict[str, int] = {}
    queue, offset = MessageQueue(SCHEDULE, GROUP, 0), 0
    async with PullConsumer(_config(cluster, "lookers")) as consumer:
        while len(stored) < count:
            found = await consumer.pull(queue, "*", offset)
            offset = found.next_offset
            stored |= {one.message_id(): one.store_timestamp for one in found.messages}
    return stored


async def at_once(messages: int, hold_s: int) -> dict[str, float]:
    """Return what sends are like while many messages come due at once."""
    async with _cluster(f"messageDelayLevel={hold_s}s") as cluster:
        await create_topic(cluster.namesrv_addr, TOPIC)
        await create_topic(cluster.namesrv_addr, "ordinary")
        due = await _fill(cluster, messages) + hold_s
        for broker in cluster.brokers:
            broker.terminate()
        for broker in cluster.brokers:
            await asyncio.to_thread(broker.wait)
        await asyncio.sleep(max(0.0, due + 0.5 - time.perf_counter()))
        nodes = range(len(cluster.brokers))
        starts = [asyncio.create_task(asyncio.to_thread(cluster.restart, node)) for node in nodes]
        async with (
            Producer(_config(cluster, "senders")) as producer,
            AdminClient(_config(cluster, "delays")) as admin,
        ):
            await _first_send(producer)
            begin, before = time.perf_counter(), await count_messages(admin, TOPIC)
            delivered = asyncio.create_task(_until_delivered(admin, messages))
            meanwhile = await _latencies(producer, delivered)
            took_s = time.perf_counter() - begin
            await asyncio.gather(*starts)
            rest = asyncio.create_task(asyncio.sleep(max(2.0, took_s)))
            quiet = await _latencies(producer, rest)
    return {
        "due": messages,
        "due_at_first_send": messages - before,
        "delivered_s": round(took_s, 2),
        "delivered_per_s": round((messages - before) / took_s),
        **_percentiles("send_meanwhile", sorted(meanwhile)),
        **_percentiles("send_afterwards", sorted(quiet)),
    }


async def _fill(cluster: Cluster, messages: int) -> float:
    """Send delayed messages; return when the last one was acknowledged."""
    numbers = iter(range(messages))
    async with Producer(_config(cluster, "senders")) as producer:

        async def send() -> None:
            for _ in numbers:
                await _send(producer, 1, 100)

        await asyncio.gather(*(send() for _ in range(WINDOW)))
    return time.perf_counter()


async def _first_send(producer: Producer) -> None:
    deadline = time.perf_counter() + SETTLE_S
    while True:
        try:
            await producer.send(Message("ordinary", b"x" * 1024))
        except RemotingError:
            if time.perf_counter() > deadline:
                raise
        else:
            return


async def _latencies(producer: Producer, until: "asyncio.Task[None]") -> list[float]:
    """Send one message after the other; return how long each took, in milliseconds."""
    found: list[float] = []
    while not until.done():
        begin = time.perf_counter()
        await producer.send(Message("ordinary", b"x" * 1024))
        found.append((time.perf_counter() - begin) * 1e3)
        await asyncio.sleep(PAUSE_S)
    await until
    return found


async def _until_delivered(admin: AdminClient, messages: int) -> None:
    while await count_messages(admin, TOPIC) < messages:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.1)


async def _wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.perf_counter() + SETTLE_S
    while not is_so():
        if time.perf_counter() > deadline:
            raise SystemExit(f"not all messages came within {SETTLE_S:.0f} s")
        await asyncio.sleep(TICK_S)


def _percentiles(name: str, ordered: Sequence[float]) -> dict[str, float]:
    places = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    last = len(ordered) - 1
    return {f"{name}_{place}_ms": round(ordered[int(last * at)], 1) for place, at in places.items()}


async def measure(options: argparse.Namespace) -> dict[str, float]:
    """Return the figures."""
    figures = await steady(options.rate, options.seconds)
    if options.due:
        figures |= await at_once(options.due, options.hold)
    return figures


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print the figures as JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.delays", description=__doc__)
    parser.add_argument("--rate", type=int, default=1_000, help="messages a second")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--due", type=int, default=100_000, help="messages that are due at once")
    parser.add_argument("--hold", type=int, default=20, help="seconds of delay of those")
    print(json.dumps(uvloop.run(measure(parser.parse_args(argv)))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
