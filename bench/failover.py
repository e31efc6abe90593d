"""Failover: SIGKILL of the leader to the first acknowledged send, over many kills.

``python -m bench.failover --kills 20 [--json FILE]``. A producer of our client library sends one
message after another; the time counted runs from the kill to the end of the first send that was
invoked after it and acknowledged. The killed broker is restarted and has caught up before the next.
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
from ledgermq.client import ClientConfig, Message, Producer
from ledgermq.remoting.protocol.errors import RemotingError

CATCH_UP_TIMEOUT_S = 30.0
PAUSE_S = 1.0


async def run(kills: int) -> list[float]:
    """Return the failover times in seconds, in the order of the kills."""
    with (
        tempfile.TemporaryDirectory(prefix="ledgermq-failover-") as home,
        Cluster(Path(home), replicas=3, sync_flush=False) as cluster,
    ):
        config = ClientConfig(namesrv_addrs=(cluster.namesrv_addr,), group="failover_producer")
        async with Producer(config) as producer:
            await _until_acknowledged(producer)
            times = []
            for number in range(kills):
                times.append(await _one_kill(cluster, producer))
                print(f"kill {number + 1}/{kills}: {times[-1] * 1e3:.0f} ms", flush=True)
            return times


async def _one_kill(cluster: Cluster, producer: Producer) -> float:
    leader = await asyncio.to_thread(cluster.leader)
    cluster.kill(leader)
    begin = time.perf_counter()
    await _until_acknowledged(producer)
    took = time.perf_counter() - begin
    await asyncio.to_thread(cluster.restart, leader)
    await _until_caught_up(cluster)
    await asyncio.sleep(PAUSE_S)
    return took


async def _until_acknowledged(producer: Producer) -> None:
    while True:
        try:
            await producer.send(Message(topic="failover", body=b"x" * 1024))
        except RemotingError:
            await asyncio.sleep(0.01)
        else:
            return


async def _until_caught_up(cluster: Cluster) -> None:
    deadline = time.perf_counter() + CATCH_UP_TIMEOUT_S
    while time.perf_counter() < deadline:
        found = [await asyncio.to_thread(cluster.raft_status, n) for n in range(3)]
        if all(found) and len({status["commit"] for status in found if status}) == 1:
            return
        await asyncio.sleep(0.1)
    raise RuntimeError(f"replicas differ {CATCH_UP_TIMEOUT_S:.0f} s after a restart")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the kills and print min, median, p99 and max."""
    parser = argparse.ArgumentParser(prog="python -m bench.failover", description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--json", default="", help="write the times to this file")
    options = parser.parse_args(argv)
    times = sorted(uvloop.run(run(options.kills)))
    row = {
        "kills": len(times),
        "min_ms": round(times[0] * 1e3, 1),
        "median_ms": round(times[len(times) // 2] * 1e3, 1),
        "p99_ms": round(times[int(len(times) * 0.99)] * 1e3, 1),
        "max_ms": round(times[-1] * 1e3, 1),
    }
    text = json.dumps(row)
    if options.json:
        Path(options.json).write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
