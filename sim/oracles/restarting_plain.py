"""What a restart now would find of a log that no group keeps: of a broker alone, a master, a slave.

As `sim.oracles.restarting` for members of a group: copies of the disk are opened by production's
own recovery, between steps of the disk, as a kill leaves them or a loss of power. After a kill all
that was written is there, after a loss of power all that was told to be synced, and what is there
has the bytes that it had.
Source: docs/storage.md (recovery); spec/disk.md 5.4; spec/proof.md P1, P5, D1, D4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import Context
from typing import TYPE_CHECKING, Final

from sim.oracles.base import Findings, Violation, guarded
from sim.oracles.reloading import (
    Left,
    Refused,
    dispatched,
    left_behind,
    other_queue,
    reloaded,
    unheard,
)
from store.plain import PlainLog
from store.plain.writer import NOTHING

if TYPE_CHECKING:
    from broker.controller import BrokerController
    from sim.disk import SimDisk
    from sim.disk_rules import Op

RESTARTS_MAX: Final = 8
"""In a run, of each broker."""
STEP: Final = 5
"""Steps of a disk between two tries: syncs, renames, files that come and go."""
BYTES_COMPARED: Final = 16 * 1024
"""Before the end."""
NAME_DIGITS: Final = 20


Running = Callable[[], Iterable[tuple[str, "BrokerController"]]]
"""The brokers that have a log now, by name."""


class PlainRestarts:
    """Opens copies of disks, and compares what they hold with what was told."""

    name = "A38 a restart now would find otherwise"
    refused_name = "A38 a restart now would be refused"

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self._steps: dict[str, int] = {}
        self._tried: dict[str, int] = {}

    def listen(self, name: str, disk: SimDisk, running: Running) -> None:
        """Hear of the steps of a machine's disk."""
        others = disk.on_step

        def on_step(op: Op, path: str) -> None:
            if others is not None:
                others(op, path)
            steps = self._steps[name] = self._steps.get(name, 0) + 1
            if not steps % STEP and self._tried.get(name, 0) < RESTARTS_MAX:
                self._try(name, disk, dict(running()).get(name))

        disk.on_step = on_step

    @guarded
    def _try(self, name: str, disk: SimDisk, broker: BrokerController | None) -> None:
        log = None if broker is None else broker.mode.log
        if broker is None or not isinstance(log, PlainLog) or not (log._opened and log._running):
            return
        if disk.is_disturbed or disk.blocked or disk.flips or disk.has_failed_syncs():
            return
        number = self._tried[name] = self._tried.get(name, 0) + 1
        Context().run(self._restart, name, disk, broker, log, f"{name}/{number}")

    def _restart(
        self, name: str, disk: SimDisk, broker: BrokerController, log: PlainLog, seed: str
    ) -> None:
        left = left_behind(disk, broker._config.store_path, seed)
        try:
            with unheard():
                made = reloaded(broker, left.disk, seed)
                opened = made._mode.log
                assert isinstance(opened, PlainLog)
                dispatched(made, opened.end_position)
        except Refused as error:
            text = f"{name} after {left.words}: {error}"
            raise Violation(self.refused_name, text, node=name) from error
        end, least = opened.written.last_end, _least(log, left)
        if end < least:
            told = f"the log ends at {end}, and not at {least} or behind"
        else:
            upto = min(end, log.written.last_end)
            told = _other_bytes(disk, left.disk, log, upto) or other_queue(broker, made, end)
        if told:
            raise Violation(self.name, f"{name} after {left.words}: {told}", node=name)


def _least(log: PlainLog, left: Left) -> int:
    """Return where a log must end that was left behind, or further on."""
    if log.written.last_start == NOTHING:
        return 0  # an empty slave is to begin where the last file of its master does
    return log.written.last_end if left.mode is None else log.synced_position


def _other_bytes(disk: SimDisk, copy: SimDisk, log: PlainLog, end: int) -> str:
    """Return which file has other bytes shortly before ``end``; empty if none has."""
    size = log.config.segment_bytes
    at = max(log.first_position, end - BYTES_COMPARED)
    while at < end:
        base = at - at % size
        path = f"{log.config.directory}/{base:0{NAME_DIGITS}d}"
        upto = min(end, base + size)
        if disk.look(path)[at - base : upto - base] != copy.look(path)[at - base : upto - base]:
            return f"{path} has other bytes between {at - base} and {upto - base}"
        at = upto
    return ""
