"""Processes of the harness: they die with it, log to a file, are ended by pid, never by name."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ledgermq.runtime.cancel import timeout

DIE_WITH_PARENT = Path(__file__).with_name("die_with_parent.py")
ROOT = Path(__file__).resolve().parents[2]


class Child:
    """One child process; its output goes to ``log``, optionally its stdin and stdout are pipes."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.process = process
        self.ending = False
        """Whether the harness asked for its end."""

    @classmethod
    async def start(
        cls,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        pipes: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> "Child":
        """Start ``python ARGS`` of this interpreter; it imports nothing of the current directory.

        With ``-m`` Python puts the current directory first, and a file there that is named as a
        module of ours would be taken for it. ``settings`` are put into its environment.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        words = [sys.executable, "-I", "-S", str(DIE_WITH_PARENT), str(os.getpid())]
        with log.open("ab") as out:
            process = await asyncio.create_subprocess_exec(
                *words,
                *python(*command),
                stdin=asyncio.subprocess.PIPE if pipes else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE if pipes else out,
                stderr=out,
                env=environment(PYTHONUNBUFFERED="1", **(settings or {})),
                start_new_session=True,
            )
        return cls(name, process)

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; a process that is gone is left alone."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def kill(self, timeout_s: float = 5.0) -> int:
        """SIGKILL, wait until it is gone, return the exit code."""
        self.ending = True
        self.signal(signal.SIGKILL)
        async with timeout(timeout_s):
            return await self.process.wait()

    async def stop(self, timeout_s: float = 5.0) -> int:
        """SIGTERM (woken first if frozen), SIGKILL after ``timeout_s``; return the exit code."""
        self.ending = True
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            async with timeout(timeout_s):
                return await self.process.wait()
        except TimeoutError:
            return await self.kill()

    def state(self) -> str:
        """Return ``running``, ``stopped`` (SIGSTOP took effect) or ``gone``."""
        if self.process.returncode is not None:
            return "gone"
        return process_state(self.pid)


def python(*arguments: str) -> list[str]:
    """Return the command that runs this interpreter without the current directory on its path."""
    return [sys.executable, "-P", *arguments]


def environment(**settings: str) -> dict[str, str]:
    """Return what a process of the harness gets: our packages first; its own children as safe."""
    return dict(os.environ, PYTHONPATH=str(ROOT), PYTHONSAFEPATH="1", **settings)


def process_state(pid: int) -> str:
    """Return the state of a process from /proc: running, stopped, gone (also a zombie)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "gone"
    letter = text.rpartition(")")[2].split()[0]
    if letter in {"T", "t"}:
        return "stopped"
    return "gone" if letter in {"Z", "X"} else "running"
