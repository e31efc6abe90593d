"""What ``ledgermq produce`` and ``ledgermq consume`` share; and how commands name servers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from ledgermq.remoting.protocol.hosts import is_port
from ledgermq.runtime.clock import SystemClock

if TYPE_CHECKING:
    from typing import TextIO

_CLOCK = SystemClock()
PANEL = "Messages"
PROGRESS_S = 1.0
NAMESRV_HELP = "Name servers, separated by ';'. Also from the environment variable NAMESRV_ADDR."
NameServers = Annotated[
    str,
    typer.Option("-n", "--namesrv", metavar="HOST:PORT", envvar="NAMESRV_ADDR", help=NAMESRV_HELP),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print a JSON line a message.")]
Progress = Annotated[bool, typer.Option("--progress", help="Tell each second how far it is.")]


def parse_addresses(text: str, option: str = "--namesrv") -> tuple[str, ...]:
    """Return the ``host:port`` parts of ``text``; raises ``typer.BadParameter`` if one is none."""
    addresses = tuple(part.strip() for part in text.replace(",", ";").split(";") if part.strip())
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not is_port(port):
            raise typer.BadParameter(f"{address!r} is not HOST:PORT", param_hint=option)
    if not addresses:
        raise typer.BadParameter("no address given, e.g. 127.0.0.1:9876", param_hint=option)
    return addresses


class Tally:
    """How many messages came off well, and how many did not."""

    def __init__(self, done: str, failed: str = "") -> None:
        self._done = done
        self._failed = failed
        self._begin_ms = _CLOCK.monotonic_ms()
        self.good = 0
        self.bad = 0

    def begin(self) -> None:
        """Count the time from now on."""
        self._begin_ms = _CLOCK.monotonic_ms()

    async def pace(self, rate: float) -> None:
        """Wait until one more is due, at ``rate`` a second."""
        due_ms = self._begin_ms + self.total * 1000 / rate
        await asyncio.sleep(max(0.0, due_ms - _CLOCK.monotonic_ms()) / 1000)

    @property
    def total(self) -> int:
        """How many there were."""
        return self.good + self.bad

    def words(self) -> str:
        """Return the counts, for a person."""
        seconds = (_CLOCK.monotonic_ms() - self._begin_ms) / 1000
        failed = f", {self.bad} {self._failed}" if self.bad else ""
        return f"{self.good} {self._done}{failed} in {seconds:.1f} s"

    async def show(self, out: TextIO) -> None:
        """Tell the counts and the pace every second."""
        while True:
            before = self.good
            await asyncio.sleep(PROGRESS_S)
            pace = (self.good - before) / PROGRESS_S
            out.write(f"ledgermq: {self.words()}, {pace:,.0f} a second now\n")
            out.flush()
