"""Longer runs: ``python -m tests.interop.differential --requests 5000 --seed 7 --replicas 3``."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from bench import java
from tests.interop.differential.run import compare


def main() -> int:
    """Run as told; 1 where something differs that is not known, 2 without RocketMQ."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.interop.differential",
        description="Starts RocketMQ 4.9.7 (with the Java of `ledgermq doctor`) and our broker,"
        " asks both the same random requests, and tells what they answer differently. Ends with 1"
        " where that is in no rule of known.py, with 2 where RocketMQ cannot run.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--requests", type=int, default=400, help="how many; those before and after are always sent"
    )
    parser.add_argument("--seed", type=int, default=1, help="another seed, other requests")
    parser.add_argument(
        "--replicas", type=int, default=1, choices=(1, 3), help="how many brokers ours has"
    )
    parser.add_argument(
        "--moves",
        type=int,
        default=0,
        help="after so many requests our group of three gets another leader; 0: never",
    )
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="tell each request, and what is known to differ",
    )
    told = parser.parse_args()

    def say(line: str) -> None:
        if told.verbose or line.startswith("DIFFERS"):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()

    with tempfile.TemporaryDirectory() as home:
        try:
            play = asyncio.run(
                compare(
                    Path(home),
                    told.seed,
                    told.requests,
                    told.replicas,
                    say,
                    move_every=told.moves,
                )
            )
        except java.JavaUnavailableError as error:
            sys.stderr.write(f"RocketMQ cannot run here: {error}\n")
            return 2
    for why, times in play.known.most_common():
        sys.stdout.write(f"{times:5} known: {why}\n")
    sys.stdout.write(f"{len(play.found)} of {play.number} differ\n")
    return 1 if play.found else 0


if __name__ == "__main__":
    sys.exit(main())
