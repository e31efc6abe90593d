"""What a broker on its own acknowledges, on its disk at that moment; and when it gives a send up.

A loss of power shows an acknowledgement that left too early only if it comes at the wrong moment;
here it is found when it leaves: under SYNC_FLUSH each record that its ids name would survive a loss
of power now. What a replicated group acknowledges is committed, and `Durable` judges commits. A
send that is answered late where nothing happens waits for what nobody has begun.
Source: spec/wire.md 3.3 (ids); spec/disk.md 5.2 (SYNC_FLUSH).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from sim.oracles.base import Findings, Violation, guarded
from sim.oracles.brokers import SENDS, SUCCESS
from sim.oracles.patience import NAME as HASTE
from sim.oracles.patience import find_haste
from sim.oracles.prompt import NAME as SLOW

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.disk import SimDisk
    from sim.oracles.wire import Said, Tap

NAME_DIGITS: Final = 20
SYNCED_NS: Final = 200_000_000
"""After so long a message is synced: some hundred times what the disks of runs take for it."""
OFFSET_DIGITS: Final = 16
"""The last ones of an id, in hexadecimal digits."""


class LogFiles(NamedTuple):
    """Where a log lies."""

    directory: str
    segment_bytes: int
    header_bytes: int
    """What an entry has before its record."""


class Timing(NamedTuple):
    """How long a broker lets a send wait, by its own clock."""

    now_ms: Callable[[], int]
    """Of its machine, monotonic."""
    limit_ms: int
    calm_since_ns: Callable[[], int]
    """Since when nothing has happened to the machine, in the time of the run."""


class AloneEnd:
    """Listens at a broker's end of its connections; a `wire.Listener`."""

    name = "A38 acknowledged before it was synced"

    def __init__(
        self, disk: SimDisk, files: LogFiles, findings: Findings, timing: Timing | None = None,
        *, is_sync: bool = True,
    ) -> None:  # fmt: skip
        self._disk = disk
        self._files = files
        self.findings = findings
        self._timing = timing
        self._is_sync = is_sync

    def on_request(self, tap: Tap, request: Said) -> None:
        """Note when a send came."""
        del tap
        if self._timing is not None:
            request.note = self._timing.now_ms()

    def on_stray(self, tap: Tap, answer: Said) -> None:
        """Judged where all answers of a broker are."""

    @guarded
    def on_answer(self, tap: Tap, request: Said, answer: Said) -> None:
        """A send is acknowledged without a reserve: its messages are synced."""
        del tap
        if request.code not in SENDS:
            return
        if self._timing is not None:
            waited_ms = self._timing.now_ms() - request.note
            found = find_haste(answer, waited_ms, self._timing.limit_ms)
            if found:
                raise Violation(HASTE, f"a broker alone {found}")
            self._check_pace(self._timing, request, answer)
        if not self._is_sync or answer.code != SUCCESS or self._disk.has_failed_syncs():
            return
        for text in answer.text("msgId").split(","):
            self._check(text)

    def _check_pace(self, timing: Timing, request: Said, answer: Said) -> None:
        """A send is answered at once where nothing happens: no sync is forgotten."""
        waited_ns = answer.at_ns - request.at_ns
        if waited_ns > SYNCED_NS and request.at_ns >= timing.calm_since_ns():
            raise Violation(SLOW, f"a broker alone lets a send wait for {waited_ns / 1e6:.0f} ms")

    def _check(self, text: str) -> None:
        position = int(text[-OFFSET_DIGITS:], 16)
        at = position % self._files.segment_bytes
        path = f"{self._files.directory}/{position - at:0{NAME_DIGITS}}"
        data = self._disk.read(path) or b""
        size = int.from_bytes(data[at : at + 4], "big")
        begin = at - self._files.header_bytes
        if not size or not self._disk.is_durable(path, begin, at + size - begin):
            raise Violation(
                self.name,
                f"a broker alone: the record at {position}, {size} bytes, may be gone after a "
                f"loss of power now",
            )
