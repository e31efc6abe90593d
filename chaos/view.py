"""What a person sees while a run goes on: a line per event, and live counts on a terminal.

Where the output is no terminal, plain lines; nothing is redrawn.
"""

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from ledgermq.runtime.clock import Clock

PLAIN_EVERY_S = 5.0


class View:
    """Prints to a console; use it as a context manager around the run."""

    def __init__(self, console: Console, clock: Clock) -> None:
        self._console = console
        self._clock = clock
        self._t0 = clock.monotonic_ns()
        self._live = Live(console=console, refresh_per_second=4, transient=True)
        self._plain_at = 0.0
        self._phase = ""

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    @property
    def t0_ns(self) -> int:
        """When the view began: the zero of every time that is shown of a run."""
        return self._t0

    @property
    def seconds(self) -> float:
        """Seconds since the view began."""
        return (self._clock.monotonic_ns() - self._t0) / 1e9

    def phase(self, name: str, text: str) -> None:
        """Say that a phase begins."""
        self._phase = name
        self._print(Text.assemble((f"{name:<9}", "bold"), text))

    def notice(self, text: str) -> None:
        """Say that something happened."""
        self._print(Text(f"{'':<9}{text}", style="magenta"))

    def counts(self, totals: Mapping[str, int], leader: str | None) -> None:
        """Show the counts; on no terminal only every few seconds."""
        line = (
            f"sent {totals.get('sent', 0)}  acknowledged {totals.get('ok', 0)}  "
            f"unknown {totals.get('info', 0)}  refused {totals.get('fail', 0)}  "
            f"delivered {totals.get('delivered', 0)}  leader {leader or '-'}"
        )
        if self._console.is_terminal:
            text = Text(f"{self.seconds:6.1f} s  {self._phase:<9}{line}", style="cyan")
            text.truncate(self._console.width - 1)
            self._live.update(text)
        elif self.seconds - self._plain_at >= PLAIN_EVERY_S:
            self._plain_at = self.seconds
            self._print(Text(f"{'':<9}{line}"))

    def _print(self, text: Text) -> None:
        stamp = (f"{self.seconds:6.1f} s  ", "dim")
        self._console.print(Text.assemble(stamp, text), soft_wrap=True)
