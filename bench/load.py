"""Closed-loop load by our own client library, in a process of its own.

``python -m bench.load NAMESRV TOPIC WINDOW BODY_BYTES WARMUP_S SECONDS [singly]`` prints when it
measures (`bench.loading`), and one JSON line with the fields of ``bench.result.Measurement``, as
the Java program of tests/interop does. The client has its default settings; with ``singly`` it
makes one request of each message.
"""

import asyncio
import json
import sys
import time
from functools import partial

import uvloop

from bench.loading import MEASURED, MEASURING
from bench.result import Measurement, summarize
from ledgermq.client import ClientConfig, Message, Producer
from ledgermq.remoting.protocol.errors import RemotingError

CREATE_ATTEMPTS = 50
SINGLY = "singly"


def make_config(namesrv: str, *, auto_batch: bool) -> ClientConfig:
    """Return the settings of the client under load: the defaults, but for ``auto_batch``."""
    addrs = tuple(namesrv.split(";"))
    return ClientConfig(namesrv_addrs=addrs, group="bench_producer", auto_batch=auto_batch)


async def run_load(
    config: ClientConfig, topic: str, window: int, size: int, times_s: tuple[float, float]
) -> Measurement:
    """Keep ``window`` sends outstanding; ``times_s`` are warm-up and measured seconds."""
    warmup_s, seconds = times_s
    body = b"x" * size
    latencies: list[float] = []
    errors = 0
    async with Producer(config) as producer:
        await _first_send(producer, Message(topic=topic, body=body))
        begin = time.perf_counter() + warmup_s
        end = begin + seconds
        loop = asyncio.get_running_loop()
        loop.call_later(warmup_s, partial(print, MEASURING, flush=True))
        loop.call_later(warmup_s + seconds, partial(print, MEASURED, flush=True))

        async def sender() -> None:
            nonlocal errors
            now = time.perf_counter()
            while now < end:
                try:
                    await producer.send(Message(topic=topic, body=body))
                except RemotingError:
                    errors += 1
                    now = time.perf_counter()
                    continue
                after = time.perf_counter()
                if begin <= now and after <= end:
                    latencies.append(after - now)
                now = after

        await asyncio.gather(*(sender() for _ in range(window)))
        await asyncio.sleep(max(0.0, end + 0.05 - time.perf_counter()))  # until the last is said
    return summarize(window, latencies, seconds, errors)


async def _first_send(producer: Producer, message: Message) -> None:
    for attempt in range(CREATE_ATTEMPTS):
        try:
            await producer.send(message)
        except RemotingError:
            if attempt == CREATE_ATTEMPTS - 1:
                raise
            await asyncio.sleep(0.2)
        else:
            return


def main(argv: list[str]) -> int:
    """Run one load and print its row."""
    namesrv, topic, window, size, warmup, seconds, *more = argv
    times = (float(warmup), float(seconds))
    config = make_config(namesrv, auto_batch=SINGLY not in more)
    row = uvloop.run(run_load(config, topic, int(window), int(size), times))
    print(json.dumps(row.as_dict()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
