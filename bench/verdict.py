"""``python -m bench.verdict RUN --log FILE``: check a run on Spark, and say what it took.

The checks are those of ``ledgermq check``, on all cores of this machine. Of each step the log has
the clock and the processor time of all processes together: driver, JVM and Python workers; of the
whole also the largest resident memory of each kind of process, the heap, and the verdict. Linux
only: what processes use is read from /proc.
"""

import argparse
import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from bench.processor import processor_seconds
from spark.check_history import MEMORY, guess_entries
from spark.history import open_history
from spark.job import CHECKS, run_checks, write_report
from spark.session import open_session

SAMPLE_S: Final = 0.5
_PARENT, _REAPED = 1, 13
"""Fields of /proc/PID/stat behind the name: the parent, and what waited-for children used."""
_KIB: Final = 1024


class Family:
    """This process and all that it has begun, by kind: driver, jvm, worker."""

    def __init__(self) -> None:
        """Begin to watch their memory."""
        self.resident: dict[str, int] = {}
        """The most that one process of each kind had at a time (KiB)."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def processor(self) -> dict[str, float]:
        """Return the processor time that each kind has used by now (s)."""
        used: dict[str, float] = defaultdict(float)
        for pid, kind, fields in self._members():
            used[kind] += processor_seconds(pid)
            if kind == "worker":
                ticks = int(fields[_REAPED]) + int(fields[_REAPED + 1])
                used[kind] += ticks / os.sysconf("SC_CLK_TCK")
        return dict(used)

    def close(self) -> None:
        """End the watch."""
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            for pid, kind, _ in self._members():
                self.resident[kind] = max(self.resident.get(kind, 0), _resident(pid))

    def _members(self) -> Iterator[tuple[int, str, list[str]]]:
        children: dict[int, list[int]] = defaultdict(list)
        known: dict[int, tuple[str, list[str]]] = {}
        for path in Path("/proc").iterdir():
            if path.name.isdigit() and (line := _read(path / "stat")):
                name, _, rest = line.rpartition(")")
                fields = rest.split()
                known[int(path.name)] = (name.partition("(")[2], fields)
                children[int(fields[_PARENT])].append(int(path.name))
        todo = [(os.getpid(), "driver")]
        while todo:
            pid, kind = todo.pop()
            if pid not in known:
                continue
            name, fields = known[pid]
            yield pid, kind, fields
            theirs = [child for child in children[pid] if child in known]
            todo += [(c, "jvm" if known[c][0] == "java" else "worker") for c in theirs]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _resident(pid: int) -> int:
    for line in _read(Path(f"/proc/{pid}/status")).splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def measure(run: Path, out: Path, memory: str, say: Callable[[str], None]) -> dict[str, Any]:
    """Check the run and return what it took; the verdict's own files go into ``out``."""
    family, begin = Family(), time.perf_counter()
    steps: list[dict[str, Any]] = []
    last = [begin, 0.0]

    def note(step: str) -> None:
        now, used = time.perf_counter(), sum(family.processor().values())
        clock, spent = now - last[0], used - last[1]
        steps.append({"step": step, "clock_s": round(clock, 1), "processor_s": round(spent, 1)})
        say(f"{clock:8.1f} s of the clock, {spent:8.1f} s of processor time: {step}")
        last[:] = [now, used]

    try:
        history = open_history(run)
        note("looked through the tables")
        partitions = history.partitions(guess_entries(history))
        with open_session(partitions=partitions, driver_memory=memory) as session:
            note("began Spark")
            report = run_checks(session, history, only=CHECKS, progress=note)
            write_report(report, out)
            note("wrote the verdict")
            runtime = session.sparkContext._jvm.java.lang.Runtime.getRuntime()
            heap = {"most": runtime.maxMemory(), "taken": runtime.totalMemory()}
            used = family.processor()
    finally:
        family.close()
    return {
        "verdict": report.verdict.verdict,
        "counts": report.counts,
        "clock_s": round(time.perf_counter() - begin, 1),
        "processor_s": {kind: round(seconds, 1) for kind, seconds in used.items()},
        "processor_s_of_all": round(sum(used.values()), 1),
        "resident_mib": {kind: kib // _KIB for kind, kib in family.resident.items()},
        "heap_mib": {name: size // _KIB**2 for name, size in heap.items()},
        "partitions": partitions,
        "load_average": os.getloadavg(),
        "steps": steps,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the run that the arguments name."""
    parser = argparse.ArgumentParser(prog="python -m bench.verdict", description=__doc__)
    parser.add_argument("run", type=Path, help="the run directory")
    parser.add_argument("--log", type=Path, required=True, help="where to write what it took")
    parser.add_argument("--out", type=Path, help="where to write the verdict; default RUN/verdict")
    parser.add_argument("--driver-memory", default=MEMORY, help="heap of the driver")
    options = parser.parse_args(arguments)
    taken = measure(
        options.run, options.out or options.run / "verdict", options.driver_memory, print
    )
    options.log.write_text(json.dumps(taken, indent=2) + "\n")
    print(json.dumps({name: value for name, value in taken.items() if name != "steps"}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
