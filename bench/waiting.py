"""A million delayed messages that wait in 18 levels: private memory of the brokers, a restart.

``python -m bench.waiting [--messages 1000000]``: three replicas; messages of 100 bytes are sent to
all levels in turn, none of which comes due. RssAnon is read when all of them are there. Then the
leader is ended and started again on its store: once with SIGTERM, once with SIGKILL. The time runs
from the start of the process until it has dispatched what the group had committed.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop

from bench.cluster import Cluster
from bench.processor import processor_seconds
from bench.topics import create_topic
from ledgermq.client import AdminClient, ClientConfig, Message, Producer
from ledgermq.remoting.protocol.errors import RemotingError

TOPIC = "later"
LEVELS = 18
HOURS = 48
WINDOW = 512
BODY_BYTES = 100
CATCH_UP_TIMEOUT_S = 60.0
PAUSE_S = 0.05
PROGRESS_EVERY = 100_000


async def fill(namesrv: str, messages: int) -> int:
    """Send delayed messages; return how many sends failed on the way."""
    config = ClientConfig(namesrv_addrs=(namesrv,), group="waiting_producer")
    numbers = iter(range(messages))
    errors = 0
    async with Producer(config) as producer:

        async def send() -> None:
            nonlocal errors
            for number in numbers:
                message = Message(TOPIC, b"x" * BODY_BYTES, delay_level=1 + number % LEVELS)
                try:
                    await producer.send(message)
                except RemotingError:
                    errors += 1
                if number % PROGRESS_EVERY == 0:
                    print(f"{number:,} of {messages:,}", file=sys.stderr, flush=True)

        await asyncio.gather(*(send() for _ in range(WINDOW)))
    return errors


def restart(cluster: Cluster, *, is_clean: bool) -> tuple[float, float]:
    """End the leader and start it again, until it is where the others are.

    Returns how long that takes, and its processor time.
    """
    node = cluster.leader()
    if is_clean:
        cluster.brokers[node].terminate()
        cluster.brokers[node].wait()
    else:
        cluster.kill(node)
    committed = _commit(cluster, cluster.leader())
    begin = time.perf_counter()
    cluster.restart(node)
    while _commit(cluster, node) < committed or uvloop.run(_behind_bytes(cluster, node)):
        if time.perf_counter() - begin > CATCH_UP_TIMEOUT_S:
            raise SystemExit(f"the broker is behind {CATCH_UP_TIMEOUT_S:.0f} s after its start")
        time.sleep(PAUSE_S)
    took_s = time.perf_counter() - begin
    return round(took_s, 2), round(processor_seconds(cluster.brokers[node].pid), 2)


def _commit(cluster: Cluster, node: int) -> int:
    status = cluster.raft_status(node)
    return int(status["commit"]) if status else -1


async def _behind_bytes(cluster: Cluster, node: int) -> int:
    """Return how much of its log a broker has not dispatched."""
    config = ClientConfig(namesrv_addrs=(cluster.namesrv_addr,), group="waiting_admin")
    async with AdminClient(config) as admin:
        status = await admin.broker_status(f"127.0.0.1:{cluster.ports[node]}")
    return int(status["dispatchBehindBytes"])


def sent_figures(asked: int, failed: int, seconds: float) -> dict[str, int]:
    """Return how many messages there are, by what was acknowledged, and how fast they came.

    A send that failed may be stored all the same: ``messages`` are those that are for certain.
    """
    stored = asked - failed
    return {
        "asked_for": asked,
        "messages": stored,
        "failed_sends": failed,
        "sends_per_s": round(stored / seconds),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Fill a fresh group and print the figures as JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.waiting", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    options = parser.parse_args(argv)
    levels = " ".join(f"{HOURS + level}h" for level in range(LEVELS))
    with (
        tempfile.TemporaryDirectory(prefix="ledgermq-waiting-") as home,
        Cluster(
            Path(home), replicas=3, sync_flush=False, settings=(f"messageDelayLevel={levels}",)
        ) as cluster,
    ):
        cluster.leader()
        uvloop.run(create_topic(cluster.namesrv_addr, TOPIC))
        before = max(cluster.private_memory_mib())
        begin = time.perf_counter()
        errors = uvloop.run(fill(cluster.namesrv_addr, options.messages))
        filled_s = time.perf_counter() - begin
        after = max(cluster.private_memory_mib())
        clean_s, clean_used_s = restart(cluster, is_clean=True)
        crash_s, crash_used_s = restart(cluster, is_clean=False)
        row = {
            **sent_figures(options.messages, errors, filled_s),
            "memory_before_mib": round(before, 1),
            "memory_mib": round(after, 1),
            "clean_restart_s": clean_s,
            "clean_restart_processor_s": clean_used_s,
            "crash_restart_s": crash_s,
            "crash_restart_processor_s": crash_used_s,
            "memory_after_restart_mib": round(max(cluster.private_memory_mib()), 1),
        }
    print(json.dumps(row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
