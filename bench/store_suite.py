"""``ledgermq bench --store``: the figures of the store, one part after the other, in one table.

Each part is a process of its own (``python -m bench.store_...``) that prints one JSON object, so
that memory and descriptors are those of the part alone. Aims stand beside the figures; what is
missed is shown, not asserted: absolute figures depend on the machine and its neighbours.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.single_node import Kind

PART_TIMEOUT_S = 1800.0

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Aim:
    """What a figure is to reach."""

    figure: str
    limit: float
    at_least: bool = True

    def describe(self) -> str:
        """Return it as text."""
        return f"{'>=' if self.at_least else '<='} {self.limit:,g}"

    def is_met(self, value: float) -> bool:
        """Tell whether ``value`` reaches it."""
        return value >= self.limit if self.at_least else value <= self.limit


PARTS = ("queues", "reads", "start", "start-many", "index")
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


def main(
    argv: Sequence[str] | None = None, run: Callable[[list[str]], Figures] | None = None
) -> int:
    """Measure, print the table and the JSON; 1 if an aim was missed."""
    options = parser().parse_args(argv)
    console = Console()
    found: dict[str, Figures] = {}
    for part in options.part or PARTS:
        console.print(f"measuring: {part} ...", highlight=False)
        found[part] = (run or _run)(command(part, options))
    _print_table(console, found)
    text = json.dumps({"kind": options.kind, "parts": found, "missed": missed(found)}, indent=1)
    if options.json:
        Path(options.json).write_text(text + "\n", encoding="utf-8")
        console.print(f"JSON: {options.json}")
    else:
        print(text)
    return 1 if missed(found) else 0


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    made = argparse.ArgumentParser(
        prog="ledgermq bench --store",
        description="What the store of one broker does in process: sends into many queues, reads"
        " of a backlog, cold starts on a long log, queries by key.",
        epilog="Example: ledgermq bench --store --part reads --json store.json",
    )
    made.add_argument("--part", action="append", choices=PARTS, help="only this; repeatable")
    made.add_argument(
        "--kind", choices=[kind.value for kind in Kind], default="plain", help="which log"
    )
    made.add_argument("--queues", type=int, default=50_000, help="queues, where there are many")
    made.add_argument("--gib", type=float, default=10.0, help="log of the cold start")
    made.add_argument("--keys", type=int, default=10_000_000, help="keys of the index")
    made.add_argument("--json", default="", help="write the JSON to this file, not to the screen")
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


def missed(found: dict[str, Figures]) -> list[str]:
    """Return the figures that miss their aims."""
    return [
        f"{part}: {aim.figure} {found[part][aim.figure]:,g}, aim {aim.describe()}"
        for part in found
        for aim in AIMS[part]
        if aim.figure in found[part] and not aim.is_met(found[part][aim.figure])
    ]


def _run(arguments: list[str]) -> Figures:
    done = subprocess.run(
        [sys.executable, "-P", "-m", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        timeout=PART_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"{arguments[0]} failed with code {done.returncode}")
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def _print_table(console: Console, found: dict[str, Figures]) -> None:
    table = Table(title="the store of one broker")
    for name in ("part", "figure"):
        table.add_column(name)
    for name in ("value", "aim"):
        table.add_column(name, justify="right")
    for part, figures in found.items():
        aims = {aim.figure: aim for aim in AIMS[part]}
        for figure, value in figures.items():
            aim = aims.get(figure)
            text = "" if aim is None else aim.describe() + ("" if aim.is_met(value) else "  missed")
            table.add_row(part, figure.replace("_", " "), f"{value:,.10g}", text)
        table.add_section()
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
