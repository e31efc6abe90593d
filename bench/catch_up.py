"""How fast a slave catches up that is far behind, and what sends notice of it.

``python -m bench.catch_up --mib 1024``. The slave is stopped, the master filled, and sent to at a
low, steady rate; then the slave is started, and the same goes on. Counted is from the first that
the slave reports until it lacks less than what is sent in a moment. ``readable_s`` is when it has
dispatched all of that, too.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import uvloop

from bench import steady
from bench.load import make_config
from bench.pair import Pair
from bench.processor import processor_seconds
from bench.topics import create_topic
from ledgermq.client import Message, Producer

TOPIC = "catchup"
WINDOW = 256
RECORD_BYTES = 1300
"""At most, of a message of 1 KiB: so many of them are enough."""
NEAR_BYTES = 1 << 20
POLL_S = 0.02
BEFORE_S = 5.0
"""Seconds of sends before the slave comes."""
AFTER_S = 20.0
CATCH_UP_TIMEOUT_S = 240.0


async def fill(namesrv: str, topic: str, messages: int) -> None:
    """Send so many messages."""
    numbers = iter(range(messages))
    message = Message(topic=topic, body=b"x" * 1024)
    async with Producer(make_config(namesrv, auto_batch=True)) as producer:

        async def sender(work: Iterator[int]) -> None:
            for _ in work:
                await producer.send(message)

        await asyncio.gather(*(sender(numbers) for _ in range(WINDOW)))


def measure(mib: int, rate: float) -> dict[str, float]:
    """Return rates and latencies."""
    with (
        tempfile.TemporaryDirectory(prefix="ledgermq-catch-up-") as home,
        Pair(Path(home), is_sync=False) as pair,
    ):
        asyncio.run(create_topic(pair.namesrv_addr, TOPIC))
        uvloop.run(fill(pair.namesrv_addr, TOPIC, WINDOW))
        while pair.behind():
            time.sleep(POLL_S)
        pair.end(1)
        uvloop.run(fill(pair.namesrv_addr, TOPIC, (mib << 20) // RECORD_BYTES * 115 // 100))
        time.sleep(BEFORE_S / 2)  # what was written is synced
        sender = steady.start(pair.namesrv_addr, TOPIC, rate, BEFORE_S + AFTER_S)
        _watch(pair, BEFORE_S + 1)
        figures = _catch_up(pair)
        sent = steady.finish(sender)
    return figures_of(figures, sent)


def figures_of(figures: dict[str, float], sent: Sequence[steady.Sent]) -> dict[str, float]:
    """Return what was measured, with how long sends took before the slave came and meanwhile.

    What was under way while the slave's process started is neither: it takes a processor, and
    catches nothing up. Errors: `RuntimeError` if nothing was acknowledged in either time.
    """
    times = ("started_ns", "begin_ns", "end_ns")
    started_ns, begin_ns, end_ns = (int(figures[name]) for name in times)
    before = p99_ms(one for one in sent if one.acknowledged_ns < started_ns)
    during = p99_ms(one for one in sent if begin_ns <= one.sent_ns < end_ns)
    return {name: value for name, value in figures.items() if name not in times} | {
        "send_p99_before_ms": before,
        "send_p99_meanwhile_ms": during,
        "send_p99_ratio": round(during / before, 2),
    }


def _watch(pair: Pair, seconds: float) -> None:
    """Ask as often as while a slave catches up: sends notice of that in both cases."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        pair.slaves()
        time.sleep(POLL_S)


def _catch_up(pair: Pair) -> dict[str, float]:
    """Start the slave, and wait until it has all. Errors: `RuntimeError` if it does not get it."""
    started_ns = time.monotonic_ns()
    pair.restart(1)
    pids = (pair.brokers[0].pid, pair.brokers[1].pid)
    deadline = time.monotonic() + CATCH_UP_TIMEOUT_S
    first: tuple[int, int] | None = None
    used = [0.0, 0.0]
    while time.monotonic() < deadline:
        behind = next((int(one["behind"]) for one in pair.slaves()), None)
        now_ns = time.monotonic_ns()
        if behind is not None and first is None:
            first = (now_ns, behind)
            used = [processor_seconds(pid) for pid in pids]
        if first is not None and behind is not None and behind < NEAR_BYTES:
            break
        time.sleep(POLL_S)
    else:
        raise RuntimeError(f"not caught up within {CATCH_UP_TIMEOUT_S:.0f} s")
    assert first is not None
    seconds = (now_ns - first[0]) / 1e9
    megabytes = (first[1] - behind) / 1e6
    spent = [processor_seconds(pid) - before for pid, before in zip(pids, used, strict=True)]
    end = int((pair.raft_status(0) or {})["end_position"])
    while pair.applied(1) < end:
        if time.monotonic() >= deadline:
            raise RuntimeError(f"not readable within {CATCH_UP_TIMEOUT_S:.0f} s")
        time.sleep(POLL_S)
    return {
        "started_ns": started_ns,
        "begin_ns": first[0],
        "end_ns": now_ns,
        "behind_mb": round(megabytes, 1),
        "mb_per_s": round(megabytes / seconds, 1),
        "master_processor_s": round(spent[0], 2),
        "slave_processor_s": round(spent[1], 2),
        "readable_s": round((time.monotonic_ns() - first[0]) / 1e9, 2),
    }


def p99_ms(sent: Iterable[steady.Sent]) -> float:
    """Return how long sends took. Errors: `RuntimeError` if none was acknowledged."""
    took = sorted((one.acknowledged_ns - one.sent_ns) / 1e6 for one in sent)
    if not took:
        raise RuntimeError("no send was acknowledged before the slave came, or none meanwhile")
    return round(took[int(len(took) * 0.99)], 2)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m bench.catch_up", description=__doc__)
    parser.add_argument("--mib", type=int, default=1024, help="that the slave lacks")
    parser.add_argument("--rate", type=float, default=500, help="sends a second meanwhile")
    options = parser.parse_args(argv)
    print(json.dumps(measure(options.mib, options.rate)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
