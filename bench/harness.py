"""What the chaos harness costs beside many sends, and whether its memory grows.

``python -m bench.harness [--seconds 300] [--rate 5000] [--keep DIR]`` starts a run without faults,
and once its main phase has begun notes processor time (user and system) and private memory of each
of its processes; Ctrl-C ends the run then, so that nothing is drained or judged. Behind it comes
what an operation costs the interpreter and the recorder of a producer whose client does nothing,
and what a delivery costs the recorder of a consumer: that share of the clients is the harness's.
"""

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.processor import processor_seconds
from chaos.generator import Op, TimeLimit
from chaos.interpreter import Completion, Interpreter, Slots
from chaos.record import Recorder
from chaos.workload.producer import workload
from chaos.workload.worker import WorkerSpec
from ledgermq.runtime.clock import SystemClock

EARLY_S: Final = 60.0
SETTLED_S: Final = 5.0
START_S: Final = 60.0
END_S: Final = 15.0
ALONE_S: Final = 4.0
DELIVERIES: Final = 20_000
SCENARIO: Final = """name: load-of-the-harness
hunts: nothing; what the harness costs beside many sends
cluster: {{flush: async}}
workload: {{kind: plain, rate: {rate}, joiner: false, hostile: false}}
phases: {{warmup: 2, baseline: 2, main: {longest}, drain: 5}}
steps:
  - {{do: await, what: time, within: {longest}}}
"""
ROLES: Final = {
    "chaos.net.proxy": "proxy",
    "chaos.workload.producer": "producers",
    "chaos.workload.consumer": "consumers",
    "broker": "brokers",
    "namesrv": "name servers",
}
"""Who a process is, by its module; what is none of these is the harness itself."""


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures."""
    with tempfile.TemporaryDirectory(prefix="ledgermq-harness-") as home:
        scenario = Path(home) / "load.yaml"
        longest = options.seconds + 60
        scenario.write_text(SCENARIO.format(rate=options.rate, longest=longest))
        run = Path(options.keep or Path(home) / "run")
        program = [sys.executable, "-P", "-m", "chaos", "run", str(scenario), "--seed", "1"]
        with (Path(home) / "output").open("wb") as out:
            process = subprocess.Popen(
                [*program, "--no-spark", "--out", str(run)], stdout=out, stderr=out
            )
        try:
            found = _watch(process, run, options.seconds)
        finally:
            _end(process)
    return found | {"alone_us": alone(options.rate)}


def _watch(process: subprocess.Popen[bytes], run: Path, seconds: float) -> dict[str, Any]:
    """Watch a run from its main phase on. Errors: RuntimeError if it does not come so far."""
    end = time.monotonic() + START_S
    while not _has_begun(run):
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"the run {run} did not come to its main phase")
        time.sleep(0.2)
    time.sleep(SETTLED_S)
    pids, sent = _processes(run), _acknowledged(run)
    used = {pid: processor_seconds(pid) for pid in pids}
    begun = time.monotonic()
    time.sleep(max(0.0, min(EARLY_S, seconds) - SETTLED_S))
    early = _private_kib(pids)
    time.sleep(max(0.0, begun + seconds - SETTLED_S - time.monotonic()))
    took, late = time.monotonic() - begun, _private_kib(pids)
    share: dict[str, float] = defaultdict(float)
    for pid, role in pids.items():
        share[role] += (processor_seconds(pid) - used[pid]) / took * 100
    return {
        "seconds": round(took, 1),
        "acknowledged_requests_per_s": round((_acknowledged(run) - sent) / took),
        "core_percent": {role: round(value, 1) for role, value in sorted(share.items())},
        "largest_private_kib_early": early,
        "largest_private_kib_late": late,
    }


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a run: brokers and clients die with whoever started them, so it may be killed."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _has_begun(run: Path) -> bool:
    recording = run / "raw" / "harness.jsonl"
    return recording.is_file() and b'"name":"main"' in recording.read_bytes()


def _acknowledged(run: Path) -> int:
    """Return how many requests ended well so far; a batch is one."""
    ended, count = b'"type":"ok","f":"send"', 0
    for path in (run / "raw").glob("producer-*.jsonl"):
        with path.open("rb") as file:
            count += sum(ended in line for line in file)
    return count


def _processes(run: Path) -> dict[int, str]:
    """Return the role of each process of a run, by what its command line names."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue  # it has ended, or is no process
        module = words[words.index("-m") + 1] if "-m" in words[:-1] else ""
        if any(str(run) in word for word in words) and module not in {"", "bench.harness"}:
            found[int(entry.name)] = ROLES.get(module, "harness")
    return found


def _private_kib(pids: Mapping[int, str]) -> dict[str, int]:
    """Return the private memory of the largest process of each role."""
    found: dict[str, int] = defaultdict(int)
    for pid, role in pids.items():
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        size = next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
        found[role] = max(found[role], size)
    return dict(sorted(found.items()))


class _Nobody:
    """A client that does nothing, and is told as much as one that does."""

    def prepare(self, op: Op) -> Mapping[str, Any]:
        return {"topic": "t", "msg_key": 1, "body_hash": 2, "body_len": op.value["size"], "tag": ""}

    async def invoke(self, _op: Op, prepared: Mapping[str, Any]) -> Completion:
        await asyncio.sleep(0)
        value = {
            "msg_key": prepared["msg_key"],
            "queue_id": 1,
            "queue_offset": 7,
            "msg_id": "0" * 32,
        }
        return Completion(type="ok", value=value | {"node": "n0", "attempts": [], "tries": ["ok"]})


def alone(rate: float) -> dict[str, float]:
    """Return the processor time of an operation and of a delivery without a client (us)."""
    with tempfile.TemporaryDirectory(prefix="ledgermq-harness-") as home:
        spec = WorkerSpec(
            run_id="", name="alone", worker=1, raw="", namesrv_addrs=(), node_by_addr={},
            topic="t", group="g", seed=1, seconds_max=ALONE_S, rate=rate / 4,
        )  # fmt: skip
        slots = Slots(worker=1, role="producer", count=16, first_process=0)
        clock = SystemClock()
        with Recorder(Path(home) / "sends.jsonl") as recorder:
            made = Interpreter(client=_Nobody(), recorder=recorder, clock=clock, slots=slots)
            begun = time.process_time()
            asyncio.run(made.run(TimeLimit(int(ALONE_S * 1e9), workload(spec))))
            operation = (time.process_time() - begun) / made.tally.ok
        row = {"msg_key": 1, "topic": "t", "queue_id": 1, "queue_offset": 7, "body_hash": 5}
        row |= {"grp": "g", "consumer": "c", "t_recv": 10**12, "t_proc_begin": 10**12}
        with Recorder(Path(home) / "deliveries.jsonl") as recorder:
            begun = time.process_time()
            for _ in range(DELIVERIES):
                recorder.write_all("deliveries", [row])
            delivery = (time.process_time() - begun) / DELIVERIES
    return {"operation": round(operation * 1e6, 1), "delivery": round(delivery * 1e6, 1)}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print the figures as JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.harness", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300, help="measured, of the main phase")
    parser.add_argument("--rate", type=float, default=5_000, help="sends a second")
    parser.add_argument("--keep", metavar="DIR", help="where the run goes, to be looked at")
    print(json.dumps(measure(parser.parse_args(argv)), indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
