"""Runs a load program and watches what the processes around it use while it measures.

A program prints ``measuring`` when its warm-up is over and ``measured`` when its time is, each on a
line of its own, and then one line of JSON with the fields of `bench.result.Measurement`. Programs
that print the last alone are run as well; nothing is said of processor time then.
"""

import json
import subprocess
import threading
from collections.abc import Mapping, Sequence

from bench.processor import CLIENT, ProcessorWatch, by_role
from bench.result import Measurement

MEASURING = "measuring"
MEASURED = "measured"
ERROR_CHARACTERS = 800


def run_load(
    command: Sequence[str],
    seconds: float,
    timeout_s: float,
    brokers: Mapping[str, int] | None = None,
    leader: str | None = None,
) -> Measurement:
    """Run a load to its end; ``seconds`` are measured.

    ``brokers``: process ids by name; the client is watched, too. Errors: `SystemExit` if it fails.
    """
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    killer = threading.Timer(timeout_s, process.kill)
    killer.start()
    watch = ProcessorWatch({**(brokers or {}), CLIENT: process.pid})
    lines: list[str] = []
    with process:
        try:
            assert process.stdout is not None
            for line in process.stdout:  # loggers of the client share it
                word = line.strip()
                if word == MEASURING:
                    watch.begin()
                elif word == MEASURED:
                    watch.end()
                else:
                    lines.append(word)
            code = process.wait()
        except BaseException:
            process.kill()
            raise
        finally:
            killer.cancel()
    rows = [line for line in lines if line.startswith("{")]
    if code != 0 or not rows:
        said = "\n".join(lines)[-ERROR_CHARACTERS:]
        raise SystemExit(f"load ended with code {code} and {len(rows)} results: {said}")
    row = Measurement(**json.loads(rows[-1]))
    return row.with_processor(by_role(watch.seconds, leader, row.rate * seconds))
