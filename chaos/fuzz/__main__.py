"""``python -m chaos.fuzz``: the arguments of ``ledgermq fuzz``, the run, its outcome in words."""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from chaos.backends.base import ClusterFailed
from chaos.fuzz.run import STALL_MS, FuzzOptions, FuzzRun, Outcome

EXIT_SOUND: Final = 0
EXIT_FOUND: Final = 1
EXIT_HARNESS: Final = 255
FOREVER: Final = 10**12


def main(argv: Sequence[str] | None = None) -> int:
    """Run and return the exit code: 0 nothing found, 1 something found, 255 no cluster."""
    parser = argparse.ArgumentParser(prog="ledgermq fuzz")
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--frames", type=int, default=FOREVER)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--flush", choices=("async", "sync"), default="async")
    parser.add_argument("--stall-ms", type=float, default=STALL_MS)
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args(argv)
    run = given.out or Path("runs") / time.strftime("fuzz-%Y%m%d-%H%M%S")
    if run.exists():
        parser.error(f"{run} exists already; choose another directory")
    options = FuzzOptions(
        run=run.resolve(),
        seconds=given.minutes * 60,
        frames=given.frames,
        seed=given.seed,
        stall_ms=given.stall_ms,
        flush=f"{given.flush.upper()}_FLUSH",
    )
    try:
        outcome = asyncio.run(FuzzRun(options, _show).run())
    except ClusterFailed as error:
        _show(f"the cluster did not start: {error}")
        return EXIT_HARNESS
    return _conclude(outcome, options)


def _conclude(outcome: Outcome, options: FuzzOptions) -> int:
    figures = outcome.figures
    _show(
        f"{figures.get('frames', 0):,} frames, {figures['acknowledged']:,} messages acknowledged, "
        f"{figures.get('read_back', 0):,} read back equal; ordinary client {figures.get('polite')}"
    )
    _show(f"private memory before and after, KiB: {figures.get('memory_kib')}")
    for problem in outcome.problems:
        _show(f"FOUND: {problem}")
    word = "nothing was found" if not outcome.problems else f"{len(outcome.problems)} found"
    _show(f"seed {options.seed}: {word}; {options.run}/fuzz.json")
    return EXIT_FOUND if outcome.problems else EXIT_SOUND


def _show(text: str) -> None:
    print(f"[fuzz] {text}", flush=True)  # noqa: T201 - it is what the command says


if __name__ == "__main__":
    sys.exit(main())
