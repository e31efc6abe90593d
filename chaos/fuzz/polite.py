"""``python -m chaos.fuzz.polite NAMESRVS REPORT``: an ordinary producer and consumer, timed.

A process of its own, so that what it measures is not the fuzzer's load. It sends at a steady rate
until SIGTERM, then writes what it saw: each delay above `SLOW_MS`, and how late its own timer was
meanwhile, which is this machine's doing and not the brokers'.
"""

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any, Final
from zlib import crc32

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
    RemotingError,
)
from ledgermq.runtime.clock import SystemClock

TOPIC: Final = "polite"
GROUP: Final = "polite-readers"
EVERY_S: Final = 0.02
SLOW_MS: Final = 100.0
TICK_S: Final = 0.01


class Polite:
    """Sends, receives, and keeps time."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._delays_ms: list[float] = []
        self._late_ms = 0.0
        self.slow: list[tuple[float, float]] = []
        """(delay of an answer, how late the own timer was while it was waited for).

        The report has those that were slowest of their own.
        """
        self.errors: list[str] = []
        self.acknowledged: dict[str, int] = {}
        self.received: dict[str, int] = {}

    def _now_ms(self) -> float:
        return self._clock.monotonic_ns() / 1e6

    async def keep_time(self) -> None:
        """Notice when this process itself is not run."""
        while True:
            begun = self._now_ms()
            await asyncio.sleep(TICK_S)
            self._late_ms = max(self._late_ms * 0.98, self._now_ms() - begun - TICK_S * 1000)

    async def send(self, producer: Producer) -> None:
        """Send one message after the other."""
        number = 0
        while True:
            number += 1
            body = b"%d " % number + bytes(200)
            begun = self._now_ms()
            try:
                result = await producer.send(Message(TOPIC, body, keys=str(number)))
            except RemotingError as error:
                self.errors.append(str(error)[:200])
                await asyncio.sleep(EVERY_S)
                continue
            delay = self._now_ms() - begun
            self._delays_ms.append(delay)
            if delay > SLOW_MS:
                self.slow.append((round(delay, 1), round(self._late_ms, 1)))
            place = f"{result.queue.queue_id}:{result.queue_offset}"
            self.acknowledged[place] = crc32(body)
            await asyncio.sleep(EVERY_S)

    async def listen(self, messages: list[MessageExt], context: ConsumeContext) -> ConsumeStatus:
        """Note what arrived."""
        del context
        for message in messages:
            self.received[f"{message.queue_id}:{message.queue_offset}"] = crc32(message.body)
        return ConsumeStatus.CONSUME_SUCCESS

    def report(self) -> dict[str, Any]:
        """Return what was seen."""
        ordered = sorted(self._delays_ms) or [0.0]
        wrong = [place for place, crc in self.received.items()
                 if self.acknowledged.get(place, crc) != crc]  # fmt: skip
        return {
            "sent": len(ordered),
            "p50_ms": round(ordered[len(ordered) // 2], 2),
            "p99_ms": round(ordered[len(ordered) * 99 // 100], 2),
            "max_ms": round(ordered[-1], 1),
            "slow": sorted(self.slow, key=lambda one: one[1] - one[0])[:100],
            "errors": self.errors[:100],
            "error_count": len(self.errors),
            "undelivered": len(set(self.acknowledged) - set(self.received)),
            "wrong": wrong[:100],
        }


async def _create_topic(producer: Producer) -> None:
    """Create the topic once there is a leader; whoever waits for this process limits the time."""
    while True:
        try:
            await producer.create_topic(TOPIC, 4)
        except RemotingError:
            await asyncio.sleep(0.2)
        else:
            return


async def main(name_servers: str, path: Path) -> None:
    """Run until SIGTERM, give deliveries a moment, write the report."""
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    polite = Polite()
    servers = tuple(name_servers.split(";"))
    config = ClientConfig(namesrv_addrs=servers, group="polite-senders", instance_name="p")
    readers = ClientConfig(namesrv_addrs=servers, group=GROUP, instance_name="c")
    options = ConsumeOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
    async with Producer(config) as producer:
        await _create_topic(producer)
        consumer = PushConsumer(readers, polite.listen, options)
        consumer.subscribe(TOPIC)
        await consumer.start()
        tasks = [asyncio.create_task(polite.send(producer)),
                 asyncio.create_task(polite.keep_time())]  # fmt: skip
        await asyncio.to_thread(path.with_suffix(".ready").touch)
        await over.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(2.0)
        await consumer.stop()
    path.write_text(json.dumps(polite.report(), indent=1))  # noqa: ASYNC240 - all is over


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
