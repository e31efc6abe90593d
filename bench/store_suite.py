"""``ledgermq bench --store``: the figures of the store, one part after the other, in one table.

See `bench.suite`; the parts are ``python -m bench.store_...``.
"""

import argparse
import sys
from collections.abc import Sequence

from bench.single_node import Kind
from bench.suite import Aim, Run, Suite

AIMS = {
    "queues": (
        Aim("few_messages_per_s", 60_000),
        Aim("many_over_few", 0.9),
        Aim("memory_mib", 120, at_least=False),
    ),
    "reads": (Aim("store_messages_per_s", 100_000), Aim("socket_messages_per_s", 100_000)),
    "start": (
        Aim("clean_start_s", 2, at_least=False),
        Aim("crash_start_s", 10, at_least=False),
    ),
    "start-many": (
        Aim("clean_start_s", 2, at_least=False),
        Aim("crash_start_s", 10, at_least=False),
    ),
    "index": (Aim("query_p99_ms", 5, at_least=False),),
}
SUITE = Suite(title="the store of one broker", aims=AIMS)


def main(argv: Sequence[str] | None = None, run: Run | None = None) -> int:
    """Measure, print the table and the JSON; 1 if an aim was missed."""
    options = parser().parse_args(argv)
    commands = {part: command(part, options) for part in options.part or AIMS}
    found = SUITE.measure(commands, run)
    return SUITE.finish({"kind": options.kind}, found, options.json)


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    made = SUITE.parser(
        prog="ledgermq bench --store",
        description="What the store of one broker does in process: sends into many queues, reads"
        " of a backlog, cold starts on a long log, queries by key.",
        epilog="Example: ledgermq bench --store --part reads --json store.json",
    )
    made.add_argument(
        "--kind", choices=[kind.value for kind in Kind], default="plain", help="which log"
    )
    made.add_argument("--queues", type=int, default=50_000, help="queues, where there are many")
    made.add_argument("--gib", type=float, default=10.0, help="log of the cold start")
    made.add_argument("--keys", type=int, default=10_000_000, help="keys of the index")
    return made


def command(part: str, options: argparse.Namespace) -> list[str]:
    """Return the arguments of a part's process."""
    kind = ["--kind", options.kind]
    queues = ["--queues", str(options.queues)]
    return {
        "queues": ["bench.store_queues", *queues, *kind],
        "reads": ["bench.store_reads", *kind],
        "start": ["bench.store_start", "--gib", str(options.gib), *kind],
        "start-many": ["bench.store_start", "--gib", str(options.gib), *queues, *kind],
        "index": ["bench.store_index", "--keys", str(options.keys)],
    }[part]


if __name__ == "__main__":
    sys.exit(main())
