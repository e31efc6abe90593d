"""The worker processes of a run, seen from the harness: started, listened to, told to stop.

A worker that ends before it was told to is a problem of the run (A48). Commands go down its stdin,
status lines come up its stdout; its history goes to a file of its own.
"""

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from chaos.backends.process import Child
from chaos.workload.worker import LEAVE, STOP, Status, WorkerSpec, decode_status
from ledgermq.runtime.cancel import timeout

READY_TIMEOUT_S = 45.0
STOP_TIMEOUT_S = 12.0


@dataclass(slots=True)
class Worker:
    """One worker process and what it said last."""

    role: str
    spec: WorkerSpec
    child: Child
    status: Status = field(default_factory=Status)
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    listener: asyncio.Task[None] | None = None
    crashed: bool = False
    """Whether the harness killed it."""
    left: bool = False
    """Whether it was told to leave before the others."""
    told: bool = False
    """Whether it ran when it was told to end: then it has to end well, however soon it does."""

    async def listen(self) -> None:
        """Keep the latest status until the worker's stdout ends."""
        assert self.child.process.stdout is not None
        while line := await self.child.process.stdout.readline():
            with contextlib.suppress(ValueError, msgspec.MsgspecError):  # a torn last line
                self.status = decode_status(line)
                self.ready.set()


class Workers:
    """All workers of a run."""

    def __init__(self, run: Path, mutant: str | None = None) -> None:
        self._run = run
        self._mutant = mutant
        self._workers: list[Worker] = []
        self.problems: list[str] = []

    async def start(self, role: str, specs: list[WorkerSpec]) -> None:
        """Start workers of a role (``producer``, ``consumer``) and wait until each has spoken."""
        started = [await self._start(role, spec) for spec in specs]
        self._workers += started
        try:
            async with timeout(READY_TIMEOUT_S):
                await asyncio.gather(*(worker.ready.wait() for worker in started))
        except TimeoutError:
            silent = [w.spec.name for w in started if not w.ready.is_set()]
            self.problems.append(f"{', '.join(silent)} said nothing in {READY_TIMEOUT_S:.0f} s")

    async def stop(self, role: str, *, quiet: bool = True) -> None:
        """Tell the workers of a role to stop, wait, and note those that did not end well.

        ``quiet``: no fault is in force, and all nodes are well.
        """
        mine = [w for w in self._workers if w.role == role and not w.crashed and not w.left]
        for worker in mine:
            await self._tell(worker, STOP if quiet else LEAVE)
        await asyncio.gather(*(self._await_end(worker) for worker in mine))
        self._workers = [w for w in self._workers if w not in mine] + mine

    async def leave(self, name: str) -> None:
        """Tell one worker to stop, as members of a group come and go; not one that was killed."""
        worker = next(w for w in self._workers if w.spec.name == name)
        if worker.crashed:
            return
        await self._tell(worker, LEAVE)
        await self._await_end(worker)
        worker.left = True

    async def crash(self, name: str) -> bool:
        """SIGKILL a worker on purpose: its death is no problem of the run. False if it is gone."""
        worker = next(w for w in self._workers if w.spec.name == name)
        if worker.crashed or worker.child.state() == "gone":
            return False
        worker.crashed = worker.child.ending = True
        await worker.child.kill()
        return True

    async def kill_all(self) -> None:
        """SIGKILL whatever is left."""
        await asyncio.gather(*(w.child.kill() for w in self._workers if w.child.state() != "gone"))

    def living(self, role: str) -> list[WorkerSpec]:
        """Return the settings of the workers of a role that run and were not told to leave."""
        return [
            worker.spec
            for worker in self._workers
            if worker.role == role and not worker.left and worker.child.state() != "gone"
        ]

    def names(self, *roles: str) -> list[str]:
        """Return the names of all workers of some roles that were ever started."""
        return list(dict.fromkeys(w.spec.name for w in self._workers if w.role in roles))

    def counts_of(self, name: str) -> Counter[str]:
        """Return what one worker counted."""
        return Counter(next(w for w in self._workers if w.spec.name == name).status.counts)

    def totals(self) -> Counter[str]:
        """Return the sum of all counts."""
        totals: Counter[str] = Counter()
        for worker in self._workers:
            totals.update(worker.status.counts)
        return totals

    def errors(self) -> Counter[str]:
        """Return client errors by class."""
        totals: Counter[str] = Counter()
        for worker in self._workers:
            totals.update(worker.status.errors)
        return totals

    def last_ack_ns(self) -> int:
        """Return the latest invocation time of a send known to be acknowledged."""
        return max((w.status.last_ack_ns for w in self._workers), default=0)

    def committed(self, group: str) -> dict[str, int]:
        """Return the highest offset that a group has committed, by queue (``topic/number``)."""
        highest: dict[str, int] = {}
        for worker in self._members(group):
            for queue, offset in worker.status.committed.items():
                highest[queue] = max(highest.get(queue, 0), offset)
        return highest

    def first(self, group: str) -> dict[str, int]:
        """Return where a group began, by queue."""
        lowest: dict[str, int] = {}
        for worker in self._members(group):
            for queue, offset in worker.status.first.items():
                lowest[queue] = min(lowest.get(queue, offset), offset)
        return lowest

    def _members(self, group: str) -> list[Worker]:
        return [w for w in self._workers if w.role == "consumer" and w.spec.history_group == group]

    async def _start(self, role: str, spec: WorkerSpec) -> Worker:
        path = self._run / "config" / f"{spec.name}.json"
        path.write_bytes(msgspec.json.encode(spec))
        log = self._run / "logs" / f"{spec.name}.log"
        module = f"chaos.workload.{role}"
        command = [module, str(path)]
        if self._mutant is not None and role in {"producer", "consumer"}:
            command = ["mutants", self._mutant, "--", *command]
        child = await Child.start(spec.name, ["-m", *command], log, pipes=True)
        worker = Worker(role, spec, child)
        worker.listener = asyncio.create_task(worker.listen())
        return worker

    async def _await_end(self, worker: Worker) -> None:
        worker.child.ending = True
        try:
            async with timeout(STOP_TIMEOUT_S):
                code = await worker.child.process.wait()
                assert worker.listener is not None
                await worker.listener
        except TimeoutError:
            await worker.child.kill()
            self.problems.append(f"{worker.spec.name} did not stop in {STOP_TIMEOUT_S:.0f} s")
            return
        is_bad = code != 0 or not worker.status.done
        if is_bad and worker.told and not worker.crashed:
            self.problems.append(f"{worker.spec.name} ended with exit code {code}")

    async def _tell(self, worker: Worker, word: bytes) -> None:
        """Tell a worker to end; note one that has died before it was told."""
        if worker.child.state() == "gone":
            code = worker.child.process.returncode
            self.problems.append(f"{worker.spec.name} died during the run, exit code {code}")
            return
        worker.told = True
        if (stdin := worker.child.process.stdin) is not None:
            with contextlib.suppress(OSError):
                stdin.write(word)
                await stdin.drain()
