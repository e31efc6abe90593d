"""Sends at a steady rate by our client, and what became of each.

``python -m bench.steady NAMESRV TOPIC RATE SECONDS`` prints a line for each acknowledged send, when
all are done: when it was sent and acknowledged (nanoseconds of the machine's clock, which all
processes share), and where in the broker's log it lies.
"""

import asyncio
import subprocess
import sys
import time
from typing import NamedTuple

import uvloop

from bench.load import make_config
from ledgermq.client import Message, Producer
from ledgermq.remoting.protocol.errors import RemotingError

PERIOD_S = 0.002
BODY = b"x" * 1024
POSITION_DIGITS = 16
"""Of the broker's message id, at its end."""
END_TIMEOUT_S = 60.0


class Sent(NamedTuple):
    """One acknowledged send."""

    sent_ns: int
    acknowledged_ns: int
    position: int


def start(namesrv: str, topic: str, rate: float, seconds: float) -> subprocess.Popen[str]:
    """Start a process that sends."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "bench.steady", namesrv, topic, str(rate), str(seconds)],
        stdout=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> list[Sent]:
    """Return what was acknowledged, once all is sent. Errors: `SystemExit` if it fails."""
    told, _ = process.communicate(timeout=END_TIMEOUT_S)
    if process.returncode != 0:
        raise SystemExit(f"the sender ended with code {process.returncode}")
    return [Sent(*map(int, line.split())) for line in told.splitlines()]


async def send_all(namesrv: str, topic: str, rate: float, seconds: float) -> list[Sent]:
    """Send at a rate, whatever the answers do."""
    found: list[Sent] = []
    async with (
        Producer(make_config(namesrv, auto_batch=True)) as producer,
        asyncio.TaskGroup() as all_,
    ):

        async def send() -> None:
            begin = time.monotonic_ns()
            try:
                result = await producer.send(Message(topic=topic, body=BODY))
            except RemotingError as error:
                print(f"a send failed: {error}", file=sys.stderr)
                return
            position = int(result.offset_msg_id[-POSITION_DIGITS:], 16)
            found.append(Sent(begin, time.monotonic_ns(), position))

        begin, count = time.perf_counter(), 0
        while (passed := time.perf_counter() - begin) < seconds:
            for _ in range(int(passed * rate) - count):
                all_.create_task(send())
                count += 1
            await asyncio.sleep(PERIOD_S)
    return found


def main(argv: list[str]) -> int:
    """Send, and print what was acknowledged."""
    namesrv, topic, rate, seconds = argv
    for one in uvloop.run(send_all(namesrv, topic, float(rate), float(seconds))):
        print(*one)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
