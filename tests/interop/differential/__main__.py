"""Longer runs: ``python -m tests.interop.differential --requests 5000 --seed 7 --replicas 3``."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.interop.differential.run import compare


def main() -> int:
    """Run as told; 1 where something differs that is not known."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop.differential")
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replicas", type=int, default=1, choices=(1, 3))
    parser.add_argument("-v", "--verbose", action="store_true", help="tell each request")
    told = parser.parse_args()

    def say(line: str) -> None:
        if told.verbose or line.startswith("DIFFERS"):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()

    with tempfile.TemporaryDirectory() as home:
        play = asyncio.run(compare(Path(home), told.seed, told.requests, told.replicas, say))
    for why, times in play.known.most_common():
        sys.stdout.write(f"{times:5} known: {why}\n")
    sys.stdout.write(f"{len(play.found)} of {play.number} differ\n")
    return 1 if play.found else 0


if __name__ == "__main__":
    sys.exit(main())
