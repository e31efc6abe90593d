"""Cold start on a long log: after a clean stop, and after a kill.

The log is made by the store itself, over a disk that leaves out pages of zeros, so that 10 GiB take
seconds and little space: first messages with bodies of 4 MB of zeros, whose pages are holes, one
queue after the other, then ``--small`` messages of 1 KiB over all queues, which are the bulk of
what a start may look at. A process of its own makes it and stops cleanly; another one starts there,
and the time from its creation until it takes messages counts (it includes Python's own start and
imports). Then a third takes ``--lost`` messages after its last checkpoint and is killed, and a
fourth starts. The page cache is warm. Nothing is asserted.
Run: ``python -m bench.store_start [--gib 10] [--queues 50000] [--kind raft]``.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

import uvloop

from bench.single_node import (
    Kind,
    NodeSettings,
    make_message,
    opened,
    put_all,
    queue_names,
    rss_anon_mib,
    spread,
    temporary,
)
from ledgermq.runtime.disk import Buffer, File, RealDisk, RealFile
from store.results import PutMessage

HOLE_BYTES = 4096
BIG_BODY = bytes(4_000_000)
STEP_TIMEOUT_S = 900.0
NO_CHECKPOINT_MS = 10**9


class SparseFile(RealFile):
    """A file that leaves pages of zeros out; right only where nothing was written before."""

    def pwrite(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write what is not zero; see `File.pwrite`."""
        data = b"".join(buffers)
        if len(data) < 2 * HOLE_BYTES:
            super().pwrite(offset, (data,))
            return
        at = 0
        while at < len(data):
            end = at + HOLE_BYTES - (offset + at) % HOLE_BYTES
            begin = at
            while at < len(data) and not (data.startswith(_ZEROS, at) and end - at == HOLE_BYTES):
                at, end = end, end + HOLE_BYTES
            if begin < at:
                super().pwrite(offset + begin, (data[begin:at],))
            while data.startswith(_ZEROS, at):
                at += HOLE_BYTES


class SparseDisk(RealDisk):
    """A disk whose log files leave out pages of zeros."""

    def open(self, path: str, *, size: int) -> File:
        """Open a file; see `Disk.open`."""
        super().open(path, size=size).close()
        return SparseFile(os.open(path, os.O_RDWR | os.O_CLOEXEC), path, size)


_ZEROS = bytes(HOLE_BYTES)


async def make(options: argparse.Namespace) -> None:
    """Make the log, and stop cleanly."""
    big = int(options.gib * (1 << 30) - options.small * 1400) // len(BIG_BODY)

    def messages() -> Iterator[PutMessage]:
        for number in range(max(0, big)):
            topic, queue_id = queue_names(options.queues)[number % options.queues]
            yield make_message(topic.encode(), queue_id, BIG_BODY)

    async with opened(options.directory, _settings(options), SparseDisk()) as node:
        await put_all(node.store, messages(), window=2)
        await put_all(node.store, spread(options.queues, options.small))


async def start(options: argparse.Namespace) -> None:
    """Start there, tell it, and stop cleanly, or take messages and die."""
    settings = _settings(options)
    async with opened(options.directory, settings) as node:
        print(json.dumps({"ready": time.time(), "mib": rss_anon_mib()}), flush=True)
        if options.step == "kill":
            await node.store.checkpoints.write()
            await put_all(node.store, spread(options.queues, options.lost))
            os._exit(9)
        while node.store.applied < node.log.committed_position:  # noqa: ASYNC110 - not measured
            await asyncio.sleep(0.01)


def _settings(options: argparse.Namespace) -> NodeSettings:
    checkpoint_ms = NO_CHECKPOINT_MS if options.step == "kill" else 5_000
    return NodeSettings(kind=Kind(options.kind), checkpoint_ms=checkpoint_ms)


def measure(options: argparse.Namespace) -> dict[str, float]:
    """Make the log and start on it; return the seconds that took."""
    with temporary(options.where or None) as directory:
        begin = time.time()
        _run(options, "make", directory)
        figures = {"log_gib": options.gib, "queues": options.queues, "made_s": time.time() - begin}
        figures["clean_start_s"], figures["clean_start_mib"] = _started(options, "start", directory)
        _started(options, "kill", directory)
        figures["crash_start_s"], figures["crash_start_mib"] = _started(options, "start", directory)
        figures["crash_lost_messages"] = options.lost
    return figures


def _started(options: argparse.Namespace, step: str, directory: str) -> tuple[float, float]:
    begin = time.time()
    told = json.loads(_run(options, step, directory).splitlines()[0])
    return told["ready"] - begin, told["mib"]


def _run(options: argparse.Namespace, step: str, directory: str) -> str:
    command = [
        sys.executable, "-P", "-m", "bench.store_start", "--step", step, "--directory", directory,
        "--gib", str(options.gib), "--queues", str(options.queues), "--small", str(options.small),
        "--lost", str(options.lost), "--kind", options.kind,
    ]  # fmt: skip
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, timeout=STEP_TIMEOUT_S, check=False
    )
    if done.returncode not in {0, 9}:
        raise SystemExit(f"step {step} failed with code {done.returncode}")
    return done.stdout


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m bench.store_start", description=__doc__)
    parser.add_argument("--gib", type=float, default=10.0, help="length of the log")
    parser.add_argument("--queues", type=int, default=1_000)
    parser.add_argument("--small", type=int, default=300_000, help="messages of 1 KiB")
    parser.add_argument("--lost", type=int, default=300_000, help="behind the last checkpoint")
    parser.add_argument("--kind", choices=[kind.value for kind in Kind], default="plain")
    parser.add_argument("--where", default="", help="directory in which to make it")
    parser.add_argument("--step", choices=["make", "start", "kill"], help=argparse.SUPPRESS)
    parser.add_argument("--directory", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.step is not None:
        uvloop.run(make(options) if options.step == "make" else start(options))
        return 0
    print(json.dumps({name: round(value, 3) for name, value in measure(options).items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
