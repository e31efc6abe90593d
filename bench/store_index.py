"""Queries by key in an index of many keys, in process and on a real disk (page cache warm).

One key a message, RocketMQ's sizes (5,000,000 slots a file). Queries are of one key that exists and
of one that does not, in turns; the messages themselves are not read. Once more after a start, where
each block is compared with its CRC when it is first read (``query_anew``). Nothing is asserted.
Run: ``python -m bench.store_index [--keys 10000000]``.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Iterable, Iterator, Sequence

from bench.single_node import Stopwatch, rss_anon_mib, temporary
from dledger.mark import LogMark
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import RealDisk
from store.config import IndexConfig
from store.index.key_index import KeyIndex
from store.index.recovery import load_index
from store.index.search import Span, search
from store.layout import Keyed

TOPIC = b"BenchTopic"
MESSAGE_BYTES = 1_300
EVERY_MS = 1
BEGIN_MS = 1_700_000_000_000
BATCH = 512
MATCHES_MAX = 32
EVER = Span(0, 1 << 62)


def messages(first: int, count: int) -> list[Keyed]:
    """Return messages as dispatch hands them over, each with a key of its own."""
    return [
        (
            TOPIC, b"KEYS\x01order-%d\x02TAGS\x01TagA" % number, number * MESSAGE_BYTES,
            BEGIN_MS + number * EVERY_MS, 0,
        )
        for number in range(first, first + count)
    ]  # fmt: skip


def build(index: KeyIndex, keys: int) -> dict[str, float]:
    """Put all keys, and sync them as checkpoints do; return what it took."""
    spent = 0.0
    for first in range(0, keys, BATCH):
        batch = messages(first, min(BATCH, keys - first))
        begin = time.thread_time()
        index.put_all(batch)
        spent += time.thread_time() - begin
        if first // BATCH % 512 == 511:
            assert index.flush()
    assert index.flush()
    checkpoint = Stopwatch()
    for _ in range(2):
        plan = index.plan(LogMark(keys - 1, 1, 0), is_last=True)
        index.settle(plan, is_written=plan is not None and plan.run())
    return {"put_us": spent / keys * 1e6, "checkpoint_s": checkpoint.cost().wall_s}


def queries(index: KeyIndex, keys: int, count: int) -> Iterator[float]:
    """Ask for keys; yield how long each took, in milliseconds."""
    for number in range(count):
        wanted = random.randrange(keys) if number % 2 else keys + number
        name = b"order-%d" % wanted
        begin = time.perf_counter()
        found = search(index, (TOPIC, name), MATCHES_MAX, EVER, IndexConfig().steps_max)
        took = (time.perf_counter() - begin) * 1e3
        assert number % 2 == 0 or wanted * MESSAGE_BYTES in found.physicals, (wanted, found)
        yield took


def measure(options: argparse.Namespace) -> dict[str, float]:
    """Return all figures."""
    with temporary() as directory:
        index = KeyIndex(IndexConfig(), directory, RealDisk(), SystemClock())
        figures = {"keys": float(options.keys), **build(index, options.keys)}
        figures |= percentiles("query", queries(index, options.keys, options.queries))
        figures["memory_mib"] = rss_anon_mib()
        index.close()
        start = Stopwatch()
        index = KeyIndex(IndexConfig(), directory, RealDisk(), SystemClock())
        load_index(index, trusted_until=0)
        figures["start_s"] = start.cost().wall_s
        assert index.files, "as they were left"
        figures |= percentiles("query_anew", queries(index, options.keys, options.queries))
        assert not any(file.is_damaged for file in index.files)
    return figures


def percentiles(name: str, samples: Iterable[float]) -> dict[str, float]:
    """Return the usual figures of times in milliseconds."""
    times = sorted(samples)
    return {
        f"{name}_p50_ms": times[len(times) // 2],
        f"{name}_p99_ms": times[len(times) * 99 // 100],
        f"{name}_max_ms": times[-1],
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m bench.store_index", description=__doc__)
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--queries", type=int, default=20_000)
    figures = measure(parser.parse_args(argv))
    print(json.dumps({name: round(value, 4) for name, value in figures.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
