"""A switch by controllers: SIGKILL of the master to the first acknowledged send, over many kills.

``python -m bench.switch --kills 10``. Two brokers have their roles from three controllers, with
default settings. The sends and what is judged at the end are those of `bench.failover`; the killed
broker is back in the in-sync set before the next kill. With ``--mib`` the log has so much to begin
with, over ``--queues``.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import uvloop

from bench.catch_up import RECORD_BYTES, fill
from bench.failover import TOPIC, Told, kill_leaders, stored, summarize
from bench.pair import Controlled
from bench.topics import create_topic
from ledgermq.client import ClientConfig, Producer

FILLED_TOPIC = "SwitchFilled"
"""Holds what was there before the first kill; the sends that are judged go to another."""


async def run(
    kills: int, senders: int, mib: int, queues: int
) -> tuple[list[float], dict[str, int]]:
    """Return the times in seconds, in the order of the kills, and what became of sends."""
    told = Told()
    with (
        tempfile.TemporaryDirectory(prefix="ledgermq-switch-") as home,
        Controlled(Path(home)) as cluster,
    ):
        servers = cluster.namesrv_addr
        await create_topic(servers, TOPIC, queues)
        if mib:
            await create_topic(servers, FILLED_TOPIC, queues)
            await fill(servers, FILLED_TOPIC, (mib << 20) // RECORD_BYTES)
        config = ClientConfig(namesrv_addrs=tuple(servers.split(";")), group="switch_producer")
        async with Producer(config) as producer:
            times = await kill_leaders(cluster, (producer, told), (kills, senders), _in_sync)
        found = await stored(config)
    return times, told.judge(found)


async def _in_sync(cluster: Controlled) -> None:
    await asyncio.to_thread(cluster.wait_in_sync)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the kills and print min, median, p99 and max."""
    parser = argparse.ArgumentParser(prog="python -m bench.switch", description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--senders", type=int, default=4, help="that send all the while")
    parser.add_argument("--mib", type=int, default=0, help="of messages before the first kill")
    parser.add_argument("--queues", type=int, default=4, help="of the topic")
    options = parser.parse_args(argv)
    times, sends = uvloop.run(run(options.kills, options.senders, options.mib, options.queues))
    print(json.dumps(summarize(times, sends)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
