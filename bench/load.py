"""Closed-loop load by our own client library, in a process of its own.

``python -m bench.load NAMESRV TOPIC WINDOW BODY_BYTES WARMUP_S SECONDS [singly|transactions]``
prints when it measures (`bench.loading`), and one JSON line with the fields of
``bench.result.Measurement``, as the Java program of tests/interop does. The client has its default
settings; with ``singly`` it makes one request of each message. With ``transactions`` each message
is committed in a transaction, and at the end the topic must hold all of them: what it lacks are
errors.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

import uvloop

from bench.loading import MEASURED, MEASURING
from bench.result import Measurement, summarize
from bench.topics import count_messages
from ledgermq.client import (
    AdminClient,
    ClientConfig,
    HalfMessage,
    Message,
    MessageExt,
    Producer,
    TransactionProducer,
    TransactionState,
)
from ledgermq.remoting.protocol.errors import RemotingError

CREATE_ATTEMPTS = 50
SETTLE_S = 10.0
SINGLY = "singly"
TRANSACTIONS = "transactions"

Send = Callable[[Message], Awaitable[object]]


class Committing:
    """The local transaction of each message: there is none, and it ends well."""

    async def execute(self, _message: HalfMessage, _arg: object) -> TransactionState:
        """Say that the message is to be committed."""
        return TransactionState.COMMIT

    def check(self, _message: MessageExt) -> TransactionState:
        """Say the same again."""
        return TransactionState.COMMIT


def make_config(namesrv: str, *, auto_batch: bool) -> ClientConfig:
    """Return the settings of the client under load: the defaults, but for ``auto_batch``."""
    addrs = tuple(namesrv.split(";"))
    return ClientConfig(namesrv_addrs=addrs, group="bench_producer", auto_batch=auto_batch)


async def run_load(
    config: ClientConfig, topic: str, window: int, size: int, times_s: tuple[float, float]
) -> Measurement:
    """Keep ``window`` sends outstanding; ``times_s`` are warm-up and measured seconds."""
    async with Producer(config) as producer:
        message = Message(topic=topic, body=b"x" * size)
        await _first_send(producer, message)
        return await _measure(producer.send, message, window, times_s)


async def run_transactions(
    config: ClientConfig, topic: str, window: int, size: int, times_s: tuple[float, float]
) -> Measurement:
    """Keep ``window`` transactions outstanding, see `run_load`."""
    done = 0
    async with (
        TransactionProducer(config, Committing()) as producer,
        AdminClient(config) as admin,
    ):

        async def send(message: Message) -> None:
            nonlocal done
            result = await producer.send_in_transaction(message)
            done += result.told

        message = Message(topic=topic, body=b"x" * size)
        await _first_send(producer, message)
        before = await count_messages(admin, topic)
        row = await _measure(send, message, window, times_s)
        deadline = time.perf_counter() + SETTLE_S
        while (lacks := before + done - await count_messages(admin, topic)) > 0:
            if time.perf_counter() > deadline:
                break
            await asyncio.sleep(0.05)
    return replace(row, errors=row.errors + abs(lacks))


async def _measure(
    send: Send, message: Message, window: int, times_s: tuple[float, float]
) -> Measurement:
    warmup_s, seconds = times_s
    latencies: list[float] = []
    errors = 0
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
                await send(message)
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
    run = run_transactions if TRANSACTIONS in more else run_load
    row = uvloop.run(run(config, topic, int(window), int(size), times))
    print(json.dumps(row.as_dict()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
