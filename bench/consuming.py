"""Consuming a backlog in one process: plain, by SQL, in order.

``python -m bench.consuming [--messages 60000] [--rounds 3] [--batch 32]``: three replicas, 1 KiB,
8 queues; push consumers of our client take the same backlog in turn: *single* with the default
settings, *plain* with ``--batch`` messages a listener call, *sql* with an expression of three terms
that all of them match, *orderly* with a locked queue each. The time counted runs from the first
message to the last; medians of all rounds are printed, with processor time of leader and client.
Each message must come once.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import uvloop

from bench.cluster import Cluster
from bench.processor import processor_seconds
from bench.topics import create_topic
from ledgermq.client import (
    ClientConfig,
    ConsumeContext,
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    Sql92,
)
from ledgermq.runtime.cancel import timeout

TOPIC = "backlog"
QUEUES = 8
TIMEOUT_S = 120.0
WINDOW = 512
SQL = Sql92("price BETWEEN 10 AND 200 AND colour = 'red' AND amount > 3")
PROPERTIES = {"price": "117", "amount": "4", "colour": "red"}


class Backlog(NamedTuple):
    """What is consumed."""

    cluster: Cluster
    leader: int
    messages: int


class Taken(NamedTuple):
    """One consumer's way through a backlog; processor time in microseconds a message."""

    rate: float
    leader_us: float
    client_us: float


def kinds(batch: int) -> dict[str, tuple[ConsumeOptions, str | Sql92]]:
    """Return settings and expressions by name."""
    first = ConsumeFrom.FIRST_OFFSET
    plain = ConsumeOptions(consume_from=first, consume_batch_count=batch)
    orderly = ConsumeOptions(consume_from=first, consume_batch_count=batch, orderly=True)
    return {
        "single": (ConsumeOptions(consume_from=first), "*"),
        "plain": (plain, "*"),
        "sql": (plain, SQL),
        "orderly": (orderly, "*"),
    }


async def measure(options: argparse.Namespace) -> dict[str, float]:
    """Return the figures."""
    rows: dict[str, list[Taken]] = {name: [] for name in kinds(options.batch)}
    with (
        tempfile.TemporaryDirectory(prefix="ledgermq-consuming-") as home,
        Cluster(
            Path(home), replicas=3, sync_flush=False, settings=("enablePropertyFilter=true",)
        ) as cluster,
    ):
        backlog = Backlog(cluster, await asyncio.to_thread(cluster.leader), options.messages)
        await _fill(backlog)
        for number in range(options.rounds):
            for name, (settings, expression) in kinds(options.batch).items():
                group = f"{name}{number}"
                rows[name].append(await _consume(backlog, group, settings, expression))
    figures: dict[str, float] = {}
    for name, taken in rows.items():
        figures[f"{name}_per_s"] = round(median(row.rate for row in taken))
        figures[f"{name}_leader_us"] = round(median(row.leader_us for row in taken), 1)
        figures[f"{name}_client_us"] = round(median(row.client_us for row in taken), 1)
    for name in ("sql", "orderly"):
        ratios = [a.rate / b.rate for a, b in zip(rows[name], rows["plain"], strict=True)]
        figures[f"{name}_over_plain"] = round(median(ratios), 3)
    return figures


async def _fill(backlog: Backlog) -> None:
    config = ClientConfig(namesrv_addrs=(backlog.cluster.namesrv_addr,), group="filler")
    await create_topic(backlog.cluster.namesrv_addr, TOPIC, QUEUES)
    numbers = iter(range(backlog.messages))
    async with Producer(config) as producer:

        async def send() -> None:
            for _ in numbers:
                await producer.send(Message(TOPIC, b"x" * 1024, properties=PROPERTIES))

        await asyncio.gather(*(send() for _ in range(WINDOW)))


async def _consume(
    backlog: Backlog, group: str, settings: ConsumeOptions, expression: str | Sql92
) -> Taken:
    seen: set[tuple[int, int]] = set()
    came = 0
    began = 0.0
    used = (0.0, 0.0)
    done = asyncio.Event()
    leader_pid = backlog.cluster.brokers[backlog.leader].pid

    def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeStatus:
        nonlocal came, began, used
        if not began:
            began = time.perf_counter()
            used = (processor_seconds(leader_pid), time.process_time())
        queue = context.queue.queue_id
        seen.update((queue, message.queue_offset) for message in messages)
        came += len(messages)
        if len(seen) == backlog.messages:
            done.set()
        return ConsumeStatus.CONSUME_SUCCESS

    config = ClientConfig(namesrv_addrs=(backlog.cluster.namesrv_addr,), group=group)
    consumer = PushConsumer(config, listen, settings)
    consumer.subscribe(TOPIC, expression)
    async with consumer, timeout(TIMEOUT_S):
        await done.wait()
        took = time.perf_counter() - began
        leader_s = processor_seconds(leader_pid) - used[0]
        client_s = time.process_time() - used[1]
    count = backlog.messages
    if came != count:
        raise SystemExit(f"{came - count} messages came twice")
    return Taken(count / took, leader_s * 1e6 / count, client_s * 1e6 / count)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print the figures as JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.consuming", description=__doc__)
    parser.add_argument("--messages", type=int, default=60_000, help="of the backlog")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32, help="messages of a listener call")
    print(json.dumps(uvloop.run(measure(parser.parse_args(argv)))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
