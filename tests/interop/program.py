"""A program of another language under test; its output lines are collected as they come."""

from __future__ import annotations

import subprocess
import threading
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

END_S = 30.0


class Program:
    """One run; as a context it is told to end, and killed where it does not."""

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start it; stderr goes into ``log``."""
        self.lines: list[str] = []
        self._log = log.open("wb")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        """Return the program."""
        return self

    def __exit__(self, *_: object) -> None:
        """See `finish`."""
        self.finish()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip("\n"))

    def words(self, kind: str) -> list[list[str]]:
        """Return the words behind ``kind`` of each line that begins with it."""
        return [line.split(" ")[1:] for line in list(self.lines) if line.startswith(f"{kind} ")]

    def firsts(self, kind: str) -> list[str]:
        """Return the first word of each line of a kind: the body of what was sent."""
        return [words[0] for words in self.words(kind)]

    def wait_for(self, met: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Wait until ``met``; the program must not end meanwhile.

        Raises:
            AssertionError: it ended, or the time is over; with the last lines.
        """
        deadline = time.monotonic() + timeout_s
        while not met():
            told = "\n".join(self.lines[-20:])
            assert self._process.poll() is None, f"the program ended, no {what}:\n{told}"
            assert time.monotonic() < deadline, f"no {what} within {timeout_s} s:\n{told}"
            time.sleep(0.05)

    def go_on(self) -> None:
        """Let a program that waits go on."""
        self.tell("on")

    def tell(self, line: str) -> None:
        """Write a line to a program that reads."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def finish(self) -> None:
        """Tell the program to end, wait, kill it where it does not; a second call does nothing."""
        if self._process.poll() is None:
            self.go_on()
            try:
                self._process.wait(END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._reader.join(5)
        for stream in (self._process.stdin, self._process.stdout, self._log):
            assert stream is not None
            stream.close()
