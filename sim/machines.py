"""The machines of a run and the processes on them: started, stopped, killed, paused, without power.

What the processes are, and who looks at them, is said by who inherits. What ends a process in
production ends it here: a `FatalError` anywhere, a broken assertion, a failpoint of the disk.
"""

from __future__ import annotations

import contextvars
import logging
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError
from sim.context import CURRENT
from sim.disk import SimDisk
from sim.faults.plan import FaultKind
from sim.handle import SimHandle
from sim.lookout import DISK, FRAMES, Lookout
from sim.loop import SimLoop
from sim.oracles.base import Violation
from sim.transport import RESET, VANISH

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine

    from sim.context import Host, Process
    from sim.faults.plan import Plan
    from sim.inode import PowerLossMode
    from sim.network import SimNetwork
    from sim.oracles.base import Findings

_log: Final = logging.getLogger(__name__)

NS_PER_MS: Final = 1_000_000
RESTART_MS: Final = 1_000
"""A process that ended by itself is started again after so long, as a supervisor would."""
BEGINS_NS: Final = 500_000_000
"""So long the start of a process takes at most, up to where its queues agree with its log."""


class Layout(Protocol):
    """Which machines there are; see `sim.layout.Layout`."""

    hosts: dict[str, Host]
    """By name, once they are made."""

    @property
    def nets(self) -> tuple[tuple[str, ...], ...]:
        """Hosts by network; each has one of its own."""
        ...


class Machines(ABC):
    """All machines of one run.

    Args:
        plan: seed, options, faults and workload; see `sim.faults.plan`.
        layout: names the machines; its ``hosts`` are filled.
        keep_lines: keep the trace as lines, not only as a digest.
    """

    findings: Findings

    def __init__(self, plan: Plan, layout: Layout, *, keep_lines: bool) -> None:
        self.plan = plan
        self.loop = SimLoop(  # type: ignore[abstract]  # what asyncio has and nobody here uses
            plan.seed, keep_lines=keep_lines
        )
        self.rng = self.loop.rng
        self.trace = self.loop.trace
        self.lookout = Lookout()
        if any(one.kind is FaultKind.AMBUSH for one in plan.events):
            self.loop.lookout = self.lookout
        self.loop.set_exception_handler(_fail)
        self.network: SimNetwork = self.loop.network
        self.hosts = layout.hosts
        self._add_hosts(layout)
        self._look_out()
        self._mains: dict[Process, asyncio.Task[None]] = {}
        self.explains: Callable[[str], bool] = lambda _name: False
        """Whether the faults so far explain that the process of a host ends by itself."""
        self.explains_start: Callable[[str], bool] = lambda _name: False
        """Likewise, of one that has just begun."""
        self._begun_ns: dict[str, int] = {}
        self._went_on_ns: dict[str, int] = {}
        """When the process of a host was last let go on."""
        self.exits: dict[str, int] = {}
        self._restarts = True
        self.loop.on_exit = self._on_exit
        self.loop.on_kill = self._forget

    def _look_out(self) -> None:
        """Have messages and steps of disks be points, too, where an ambush waits for them."""
        wanted = {one.text("points") for one in self.plan.events if one.kind is FaultKind.AMBUSH}
        self.lookout.listens = FRAMES in wanted
        if DISK in wanted:
            for name in self.hosts:
                self.disk(name).on_step = partial(self.lookout.feel, name)

    # What who inherits says

    @abstractmethod
    def _main_of(self, name: str) -> Coroutine[Any, Any, None]:
        """Return the program of a host."""

    def _begins(self, name: str) -> None:  # noqa: B027 - few have to
        """Take that the process of a host is started now."""

    def _ends(self, name: str, ending: str) -> None:  # noqa: B027 - likewise
        """Take that the process of a host, which runs, is killed now."""

    def _loses_power(self, name: str) -> None:  # noqa: B027 - likewise
        """Take that what a host has not synced is about to be gone; its process is."""

    def _forget(self, process: Process) -> None:
        """Take that a process has ended."""
        process.after_event = None
        self._mains.pop(process, None)

    # What the faults need: see `sim.faults.target.Target`

    def host(self, name: str) -> Host:
        """Return a machine."""
        return self.hosts[name]

    def disk(self, name: str) -> SimDisk:
        """Return the disk of a machine."""
        disk = self.hosts[name].disk
        assert isinstance(disk, SimDisk)
        return disk

    def start(self, name: str) -> None:
        """Start the process of a host; nothing happens where one runs."""
        host = self.hosts[name]
        if host.alive:
            return
        self._begins(name)
        self._begun_ns[name] = self.loop.now_ns
        process = self.loop.boot(host)
        self._mains[process] = self.loop.spawn(process, self._main(name))

    def crash(self, name: str) -> None:
        """Kill the process of a host; its kernel resets the connections, the page cache stays."""
        self._kill(name, RESET)

    def stop(self, name: str) -> None:
        """Ask the process of a host to end, as SIGTERM does."""
        process = self.hosts[name].process
        if process is None or not process.alive:
            return
        main = self._mains[process]
        self.trace.event("stop", name)
        if main.cancelling():
            self.crash(
                name
            )  # a second signal ends the process at once, see `ledgermq.runtime.process`
        else:
            main.cancel()

    def restart(self, name: str) -> None:
        """Start a process again, killing the one that runs."""
        self.crash(name)
        self.start(name)

    def pause(self, name: str) -> None:
        """Stop a process, as SIGSTOP does."""
        process = self.hosts[name].process
        if process is not None and process.alive:
            self.loop.pause(self.hosts[name])

    def resume(self, name: str) -> None:
        """Let a paused process go on."""
        process = self.hosts[name].process
        if process is not None and process.alive:
            self._went_on_ns[name] = self.loop.now_ns
            self.loop.resume(self.hosts[name])

    def runs_since_ns(self, name: str) -> int | None:
        """Return when a process began, or last went on after a pause; None: it stands still."""
        host = self.hosts[name]
        if not host.alive or host.paused:
            return None
        return max(self._begun_ns[name], self._went_on_ns.get(name, 0))

    def power_loss(self, name: str, mode: PowerLossMode) -> None:
        """Cut the power of a machine: process and unsynced writes are gone."""
        self._kill(name, VANISH)
        self.network.power_off(self.hosts[name].address)
        self._loses_power(name)
        self.disk(name).power_loss(mode)

    def wipe(self, name: str) -> None:
        """Kill the process and empty its disk."""
        self._kill(name, RESET)
        self.trace.event("wipe", name)
        self.disk(name).wipe()

    def run_on(self, name: str, coro: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        """Run a coroutine as part of the process of a host, None where none runs."""
        process = self.hosts[name].process
        if process is None or not process.alive:
            coro.close()
            return None
        return self.loop.spawn(process, coro, name="harness")

    def at(self, when_ns: int, action: Callable[[], object]) -> None:
        """Do something at a virtual time that no process does."""
        self.loop.post(when_ns, SimHandle(when_ns, action, (), contextvars.Context(), None))

    def close(self) -> None:
        """Let go of everything, so that the run leaves no trace in the process."""
        self._restarts = False
        self.loop.findings = []
        for name in list(self.hosts):
            self._kill(name, RESET)
        self.loop.close()

    # Processes

    def _add_hosts(self, layout: Layout) -> None:
        for net, names in enumerate(layout.nets):
            for at, name in enumerate(names):
                host = self.loop.add_host(name, f"10.0.{net}.{at + 1}")
                host.disk = SimDisk(host.rng.split("disk"), self.trace, host=name)
                spread_ms = self.plan.options.clock_spread_ms
                if spread_ms:
                    host.clock.jump(int((2 * host.rng.point("clock") - 1) * spread_ms))
                self.hosts[name] = host
                self.trace.event("host", name, address=host.address)

    async def _main(self, name: str) -> None:
        """Do what `ledgermq.runtime.process.run_main` does."""
        process = CURRENT.get()
        assert process is not None
        error: Exception | None = None
        code = 0
        try:
            await self._main_of(name)
        except FatalError as fatal:
            error, code = fatal, fatal.exit_code
        except Exception as crash:  # noqa: BLE001 - last resort, as there
            error, code = crash, EXIT_ENVIRONMENT
        self.loop.exit(process, error, code)

    # The end of a process

    def _kill(self, name: str, ending: str) -> None:
        process = self.hosts[name].process
        if process is None or not process.alive:
            return
        self._ends(name, ending)
        self.loop.kill(process, ending)

    def _on_exit(self, process: Process) -> None:
        """Take that a process ended by itself, and have it started again."""
        name, error = process.host.name, process.error
        text = error.message if isinstance(error, FatalError) else repr(error)
        code = process.exit_code or 0
        self.exits[name] = code
        _log.warning("event=exit host=%s code=%d why=%s", name, code, text)
        if code:
            bug = not isinstance(error, FatalError | OSError) or "bug" in text
            begins = self.loop.now_ns - self._begun_ns[name] < BEGINS_NS
            if bug or not (self.explains(name) or (begins and self.explains_start(name))):
                self.findings.report(
                    Violation("process death", f"{name} exits with {code}: {text}", node=name)
                )
            if self._restarts:
                self.at(self.loop.now_ns + RESTART_MS * NS_PER_MS, partial(self.start, name))


def _fail(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An error of the harness itself ends the run."""
    del loop
    raise context.get("exception") or RuntimeError(str(context.get("message")))
