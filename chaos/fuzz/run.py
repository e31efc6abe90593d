"""One fuzz run: a real group and real name servers under hostile frames, and what became of them.

What must hold: no process ends, no log line of `processes.bad_lines`, an ordinary client beside it
waits for nothing longer than `STALL_MS`, private memory is back within `GROWTH_KIB` of the start,
everything acknowledged is read back equal, and each replica's store is found sound.

RUN/fuzz.json, polite.json, logs/, config/, data/, recent/ (the last frames of each connection).
"""

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from chaos.backends.base import ClusterFailed, ClusterSpec
from chaos.backends.local import LocalCluster
from chaos.backends.process import Child
from chaos.fuzz.peers import Strangers
from chaos.fuzz.processes import bad_lines, rss_anon_kib
from chaos.fuzz.read_back import read_back
from chaos.fuzz.requests import AT_BROKERS, AT_NAME_SERVERS
from chaos.fuzz.storm import Ledger, Storm, Tally
from chaos.nemesis.wait import until
from chaos.net.wire import RAFT_STATUS, StatusConnection
from ledgermq.remoting.protocol.errors import RemotingError
from ledgermq.runtime.cancel import timeout
from ledgermq.runtime.clock import SystemClock

STALL_MS: Final = 250.0
GROWTH_KIB: Final = 64 * 1024
QUIET_S: Final = 8.0
"""Time to let go of what the last connections held before memory is read."""
AT_LEADER: Final = 3
"""Connections that storm at the leader; one more at each broker, one at each name server."""
SHOWN_EVERY_S: Final = 10.0
LEADER_EVERY_S: Final = 0.5
READY_TIMEOUT_S: Final = 30.0
VERIFY_TIMEOUT_S: Final = 300.0
SETTINGS: Final = {"mappedFileSizeCommitLog": str(64 * 1024 * 1024)}


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzOptions:
    """What the caller chooses. The run ends at the first of both limits."""

    run: Path
    seconds: float
    frames: int
    seed: int = 0
    flush: str = "ASYNC_FLUSH"
    stall_ms: float = STALL_MS
    """Longest wait of an ordinary send that is no finding."""


@dataclass(slots=True)
class Outcome:
    """What a run found; sound if ``problems`` is empty."""

    problems: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)


class FuzzRun:
    """One run."""

    def __init__(self, options: FuzzOptions, show: Callable[[str], None]) -> None:
        self._options = options
        self._show = show
        spec = ClusterSpec(
            run=options.run, flush=options.flush, seed=options.seed, settings=SETTINGS
        )
        self._cluster = LocalCluster(spec)
        self._tally = Tally()
        self._ledger = Ledger()
        self._outcome = Outcome()
        self._leader = spec.nodes[0]
        self._clock = SystemClock()
        self._begun = 0.0
        self._memory: dict[str, int] = {}
        self._is_dead = False

    async def run(self) -> Outcome:
        """Start, storm, stop, judge. Errors: `ClusterFailed` if the cluster does not start."""
        options = self._options
        for part in ("config", "recent"):
            (options.run / part).mkdir(parents=True, exist_ok=True)
        self._show(f"seed {options.seed}: three brokers, two name servers, run {options.run}")
        try:
            await self._cluster.start()
            await self._live()
        finally:
            self._outcome.problems += [
                f"a process ended: {line}" for line in self._cluster.unexpected_exits()
            ]
            await self._cluster.stop()
        await self._check_files()
        self._tell()
        return self._outcome

    async def _live(self) -> None:
        watch = asyncio.create_task(self._watch_leader())
        polite = await self._start_polite()
        self._memory = self._read_memory()
        self._begun = self._clock.monotonic_ms() / 1000
        await self._storm()
        seconds = self._clock.monotonic_ms() / 1000 - self._begun
        self._outcome.figures |= {"seconds": round(seconds, 1), "frames": self._tally.frames}
        self._show(f"{self._tally.frames} frames in {seconds:.0f} s; quiet, then reading back")
        await polite.stop(30.0)
        self._check_polite()
        await asyncio.sleep(QUIET_S)
        self._check_memory()
        if not self._is_dead:
            await self._read_back()
        watch.cancel()

    async def _start_polite(self) -> Child:
        report = self._options.run / "polite.json"
        servers = ";".join(self._cluster.name_server_addrs())
        command = ["-m", "chaos.fuzz.polite", servers, str(report)]
        child = await Child.start("polite", command, self._options.run / "logs" / "polite.log")

        async def is_ready() -> bool:
            return report.with_suffix(".ready").exists()

        if not await until(is_ready, READY_TIMEOUT_S):
            raise ClusterFailed("the ordinary client did not start; see logs/polite.log")
        return child

    async def _storm(self) -> None:
        seed, cluster = self._options.seed, self._cluster
        storms = [
            self._storm_at("leader", self._leader_addr, AT_BROKERS, n) for n in range(AT_LEADER)
        ]
        storms += [
            self._storm_at(node, partial(cluster.status_addr, node), AT_BROKERS, 0)
            for node in cluster.nodes
        ]
        for at, addr in enumerate(cluster.name_server_addrs()):
            storms.append(self._storm_at(f"ns{at}", partial(_split, addr), AT_NAME_SERVERS, 0))
        strangers = Strangers(cluster.peer_addrs(), f"{seed}-peers", self._tally)
        tasks = [asyncio.create_task(storm.run(self._is_over)) for storm in storms]
        tasks.append(asyncio.create_task(strangers.run(self._is_over)))
        shown = asyncio.create_task(self._show_progress())
        await asyncio.gather(*tasks)
        shown.cancel()
        for number, storm in enumerate(storms):
            path = self._options.run / "recent" / f"{number}-{storm.name}.bin"
            path.write_bytes(b"".join(storm.recent))

    def _storm_at(
        self, name: str, find: Callable[[], tuple[str, int]], requests: Sequence[Any], number: int
    ) -> Storm:
        seed = f"{self._options.seed}-{name}-{number}"
        return Storm(f"{name}.{number}", find, requests, seed, self._tally, self._ledger)

    def _is_over(self) -> bool:
        options = self._options
        elapsed = self._clock.monotonic_ms() / 1000 - self._begun
        return self._is_dead or elapsed >= options.seconds or self._tally.frames >= options.frames

    async def _show_progress(self) -> None:
        while True:
            await asyncio.sleep(min(SHOWN_EVERY_S, self._options.seconds / 4))
            self._progress()

    def _progress(self) -> None:
        elapsed = max(0.1, self._clock.monotonic_ms() / 1000 - self._begun)
        memory = self._read_memory()
        self._is_dead = self._is_dead or 0 in memory.values()
        shown = " ".join(f"{name}={kib // 1024}MiB" for name, kib in memory.items())
        self._show(
            f"{elapsed:5.0f} s {self._tally.frames:>9,} frames ({self._tally.frames / elapsed:,.0f}"
            f" a second)  {len(self._ledger):,} acknowledged  {shown}"
        )

    async def _watch_leader(self) -> None:
        """Keep in mind who leads."""
        while True:
            for node in self._cluster.nodes:
                connection = StatusConnection(*self._cluster.status_addr(node))
                with contextlib.suppress(OSError, TimeoutError, EOFError, ValueError):
                    status = await connection.ask(RAFT_STATUS, 2.0)
                    if str(status.get("role", "")).lower() == "leader":
                        self._leader = node
                connection.close()
            await asyncio.sleep(LEADER_EVERY_S)

    def _leader_addr(self) -> tuple[str, int]:
        return self._cluster.status_addr(self._leader)

    def _read_memory(self) -> dict[str, int]:
        return {name: rss_anon_kib(pid) for name, pid in self._cluster.pids().items()}

    def _check_memory(self) -> None:
        after = self._read_memory()
        self._outcome.figures["memory_kib"] = {
            name: [before, after[name]] for name, before in self._memory.items()
        }
        for name, before in self._memory.items():
            grown = after[name] - before
            if after[name] and grown > GROWTH_KIB:
                self._outcome.problems.append(f"{name} holds {grown // 1024} MiB more than before")

    def _check_polite(self) -> None:
        path = self._options.run / "polite.json"
        if not path.exists():
            self._outcome.problems.append(
                "the ordinary client wrote no report; see logs/polite.log"
            )
            return
        report = json.loads(path.read_text())
        self._outcome.figures["polite"] = {
            key: report[key] for key in ("sent", "p50_ms", "p99_ms", "max_ms", "error_count")
        }
        stalls = [delay for delay, late in report["slow"] if delay - late > self._options.stall_ms]
        if stalls:
            self._outcome.problems.append(f"an ordinary send waited {max(stalls):.0f} ms")
        for error in report["errors"][:3]:
            self._outcome.problems.append(f"an ordinary send failed: {error}")
        if report["undelivered"] or report["wrong"]:
            text = f"{report['undelivered']} not delivered, {len(report['wrong'])} wrong"
            self._outcome.problems.append(f"ordinary messages: {text}")

    async def _read_back(self) -> None:
        self._outcome.problems += self._ledger.contradictions[:10]
        try:
            count, problems = await read_back(self._leader_addr, self._ledger)
        except (OSError, EOFError, TimeoutError, RemotingError) as error:  # it is dead, or hangs
            count, problems = 0, [f"nothing can be read back: {type(error).__name__} {error}"]
        self._outcome.figures["read_back"] = count
        self._outcome.problems += problems

    async def _check_files(self) -> None:
        run, tally = self._options.run, self._tally
        self._outcome.problems += tally.problems[:10]
        logs = {path.stem: path for path in sorted((run / "logs").glob("*.log"))}
        self._outcome.problems += bad_lines(logs)
        verdicts = {}
        for node in self._cluster.nodes:
            verdicts[node] = await _verify(run / "data" / node, run / "logs" / f"verify-{node}.txt")
            if verdicts[node] != 0:
                self._outcome.problems.append(
                    f"store verify of {node} ended with {verdicts[node]}; logs/verify-{node}.txt"
                )
        self._outcome.figures["store_verify"] = verdicts

    def _tell(self) -> None:
        tally = self._tally
        self._outcome.figures |= {
            "sent_bytes": tally.sent_bytes,
            "connections": tally.connections,
            "acknowledged": len(self._ledger),
            "slowest_question_ms": round(tally.slowest_fence_ms, 1),
            "answers": dict(sorted(tally.answers.items())),
        }
        report = {"seed": self._options.seed, "problems": self._outcome.problems}
        path = self._options.run / "fuzz.json"
        path.write_text(json.dumps(report | self._outcome.figures, indent=1) + "\n")


def _split(addr: str) -> tuple[str, int]:
    host, _, port = addr.rpartition(":")
    return host, int(port)


async def _verify(store: Path, output: Path) -> int:
    """Check a store with the command an operator would use; return its exit code."""
    with output.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "cli", "store", "verify", str(store), stdout=out, stderr=out
        )
        try:
            async with timeout(VERIFY_TIMEOUT_S):
                return await process.wait()
        except TimeoutError:
            process.send_signal(signal.SIGKILL)
            await process.wait()
            return -1
