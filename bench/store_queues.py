"""Sends into few queues and into very many, side by side; memory, descriptors, bytes written.

Two nodes of one process, one with `FEW` queues and one with as many as asked for, take rounds of
messages in turns, put to acknowledged and dispatched. All queues exist before anything is counted.
Nothing is asserted. Run: ``python -m bench.store_queues [--queues 50000] [--kind raft]``.
"""

import argparse
import asyncio
import gc
import json
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from statistics import median

import uvloop

from bench.single_node import (
    Kind,
    Node,
    NodeSettings,
    Stopwatch,
    mappings,
    open_files,
    opened,
    put_all,
    rss_anon_mib,
    spread,
    temporary,
    written_bytes,
)

FEW = 4
SETTLE_S = 0.3


async def measure(options: argparse.Namespace) -> dict[str, float]:
    """Return all figures."""
    settings = NodeSettings(kind=Kind(options.kind))
    async with AsyncExitStack() as stack:
        few = await _open(stack, settings)
        figures = {"memory_start_mib": rss_anon_mib()}
        await put_all(few.store, spread(FEW, 1000))
        many = await _open(stack, settings)
        before = rss_anon_mib()
        await put_all(many.store, spread(options.queues, options.queues))
        new_files = Stopwatch()
        assert many.store.checkpoints.write_now()
        figures["new_queue_us"] = new_files.cost().wall_s / options.queues * 1e6
        gc.collect()
        gc.freeze()
        figures |= await _rounds(few, many, options)
        figures["memory_mib"] = rss_anon_mib()
        figures["memory_of_queues_mib"] = figures["memory_mib"] - before
        figures["open_files"] = open_files()
        figures["mapped_queue_files"] = mappings("/consumequeue/")
    return figures


async def _open(stack: AsyncExitStack, settings: NodeSettings) -> Node:
    directory = stack.enter_context(temporary())
    return await stack.enter_async_context(opened(directory, settings))


async def _rounds(few: Node, many: Node, options: argparse.Namespace) -> dict[str, float]:
    """Let both take messages in turns; the medians of the rounds count, and their ratios."""
    rates: dict[int, list[float]] = {FEW: [], options.queues: []}
    works: dict[int, list[float]] = {FEW: [], options.queues: []}
    writes: dict[int, list[float]] = {FEW: [], options.queues: []}
    count = options.messages
    bytes_in = count * 1024
    for _ in range(options.rounds):
        for queues, node in ((FEW, few), (options.queues, many)):
            messages = list(spread(queues, count))
            await asyncio.sleep(SETTLE_S)
            written = written_bytes()
            watch = Stopwatch()
            await put_all(node.store, iter(messages))
            cost = watch.cost()
            rates[queues].append(count / cost.wall_s)
            works[queues].append(cost.cpu_s / count * 1e6)
            await asyncio.sleep(SETTLE_S)  # so that its units count
            writes[queues].append((written_bytes() - written) / bytes_in)
    a, b = FEW, options.queues
    ratios = [y / x for x, y in zip(rates[a], rates[b], strict=True)]
    cpu_ratios = [x / y for x, y in zip(works[a], works[b], strict=True)]
    return {
        "few_messages_per_s": median(rates[a]),
        "many_messages_per_s": median(rates[b]),
        "few_cpu_us": median(works[a]),
        "many_cpu_us": median(works[b]),
        "many_over_few": median(ratios),
        "many_over_few_by_cpu": median(cpu_ratios),
        "few_write_amplification": median(writes[a]),
        "many_write_amplification": median(writes[b]),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m bench.store_queues", description=__doc__)
    parser.add_argument("--queues", type=int, default=50_000)
    parser.add_argument("--messages", type=int, default=100_000, help="of each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kind", choices=[kind.value for kind in Kind], default="plain")
    figures = uvloop.run(measure(parser.parse_args(argv)))
    print(json.dumps({name: round(value, 3) for name, value in figures.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
