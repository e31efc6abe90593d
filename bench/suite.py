"""Parts of a benchmark, each a process of its own, their figures and aims in one table.

A part (``python -m bench.NAME``) prints one JSON object as its last line, so that memory and
descriptors are those of the part alone. Aims stand beside the figures; what is missed is shown, not
asserted: absolute figures depend on the machine and its neighbours.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

PART_TIMEOUT_S = 1800.0

Figures = dict[str, float]
Run = Callable[[list[str]], Figures]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """What is measured together."""

    title: str
    aims: Mapping[str, Sequence[Aim]]
    """By part; every part has a row, be it empty."""

    def parser(self, prog: str, description: str, epilog: str) -> argparse.ArgumentParser:
        """Return the options that every suite has."""
        made = argparse.ArgumentParser(prog=prog, description=description, epilog=epilog)
        made.add_argument(
            "--part", action="append", choices=self.aims, help="only this; repeatable"
        )
        made.add_argument(
            "--json", default="", help="write the JSON to this file, not to the screen"
        )
        return made

    def run(
        self, commands: Mapping[str, list[str]], options: argparse.Namespace, run: Run | None
    ) -> int:
        """Measure the parts that were asked for; return 1 if an aim was missed."""
        found = self.measure({part: commands[part] for part in options.part or commands}, run)
        return self.finish({}, found, options.json)

    def measure(self, commands: Mapping[str, list[str]], run: Run | None) -> dict[str, Figures]:
        """Run parts in their order, and print their figures; ``commands``: arguments by part."""
        console = Console()
        found: dict[str, Figures] = {}
        for part, arguments in commands.items():
            console.print(f"measuring: {part} ...", highlight=False)
            found[part] = (run or run_part)(arguments)
        self._print_table(console, found)
        return found

    def missed(self, found: Mapping[str, Figures]) -> list[str]:
        """Return the figures that miss their aims."""
        return [
            f"{part}: {aim.figure} {figures[aim.figure]:,g}, aim {aim.describe()}"
            for part, figures in found.items()
            for aim in self.aims[part]
            if aim.figure in figures and not aim.is_met(figures[aim.figure])
        ]

    def finish(self, document: dict[str, object], found: Mapping[str, Figures], file: str) -> int:
        """Write the JSON to a file, or without one to the screen; return 1 if an aim was missed."""
        missed = self.missed(found)
        text = json.dumps({**document, "parts": found, "missed": missed}, indent=1)
        if file:
            Path(file).write_text(text + "\n", encoding="utf-8")
            Console().print(f"JSON: {file}")
        else:
            print(text)
        return 1 if missed else 0

    def _print_table(self, console: Console, found: Mapping[str, Figures]) -> None:
        table = Table(title=self.title)
        for name in ("part", "figure"):
            table.add_column(name)
        for name in ("value", "aim"):
            table.add_column(name, justify="right")
        for part, figures in found.items():
            aims = {aim.figure: aim for aim in self.aims[part]}
            for figure, value in figures.items():
                aim = aims.get(figure)
                is_missed = aim is not None and not aim.is_met(value)
                text = "" if aim is None else aim.describe() + ("  missed" if is_missed else "")
                table.add_row(part, figure.replace("_", " "), f"{value:,.10g}", text)
            table.add_section()
        console.print(table)


def run_part(arguments: list[str]) -> Figures:
    """Run the process of a part. Errors: `SystemExit` if it fails."""
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
