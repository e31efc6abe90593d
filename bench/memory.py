"""Private memory of the brokers after many messages.

``python -m bench.memory --messages 1000000`` sends that many 1 KiB messages at window 256 to three
replicas and prints RssAnon of each broker before and after (mapped log pages are not private).
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import uvloop

from bench.cluster import Cluster
from ledgermq.client import ClientConfig, Message, Producer
from ledgermq.remoting.protocol.errors import RemotingError

WINDOW = 256
PROGRESS_EVERY = 100_000


async def fill(namesrv: str, messages: int) -> int:
    """Send ``messages`` acknowledged messages; return how many sends failed on the way."""
    config = ClientConfig(namesrv_addrs=(namesrv,), group="memory_producer")
    numbers = iter(range(messages))
    errors = 0
    async with Producer(config) as producer:

        async def sender(work: Iterator[int]) -> None:
            nonlocal errors
            for number in work:
                while not await _acknowledged(producer):
                    errors += 1
                    await asyncio.sleep(0.05)
                if number % PROGRESS_EVERY == 0:
                    print(f"{number:,} of {messages:,}", file=sys.stderr, flush=True)

        await asyncio.gather(*(sender(numbers) for _ in range(WINDOW)))
    return errors


async def _acknowledged(producer: Producer) -> bool:
    try:
        await producer.send(Message(topic="memory", body=b"x" * 1024))
    except RemotingError:
        return False
    return True


def main(argv: Sequence[str] | None = None) -> int:
    """Fill a fresh group and print the memory figures as JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    options = parser.parse_args(argv)
    with (
        tempfile.TemporaryDirectory(prefix="ledgermq-memory-") as home,
        Cluster(Path(home), replicas=3, sync_flush=False) as cluster,
    ):
        cluster.leader()
        before = cluster.private_memory_mib()
        errors = uvloop.run(fill(cluster.namesrv_addr, options.messages))
        after = cluster.private_memory_mib()
    row = {
        "messages": options.messages,
        "failed_sends": errors,
        "before_mib": [round(x, 1) for x in before],
        "after_mib": [round(x, 1) for x in after],
    }
    print(json.dumps(row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
