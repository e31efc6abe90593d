"""What a restart now would find of a log that no group keeps: of a broker alone, a master, a slave.

As `sim.oracles.restarting` for members of a group: copies of the disk are opened by production's
own recovery, between steps of the disk, as a kill leaves them or a loss of power. After a kill all
that was written is there, after a loss of power all that was told to be synced, and what is there
has the bytes that it had.
Source: docs/storage.md (recovery); spec/disk.md 5.4; spec/proof.md P1, P5, D1, D4.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextvars import Context
from typing import TYPE_CHECKING, Final

from sim.disk_copy import copy_below
from sim.inode import PowerLossMode
from sim.oracles.base import Findings, Violation, guarded
from sim.oracles.reloading import Refused, dispatched, other_queue, reloaded
from sim.rng import SplitRng
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
        told = Context().run(_restart, disk, broker, log, f"{name}/{number}")
        if told:
            oracle = self.refused_name if told[0] == REFUSED else self.name
            raise Violation(oracle, f"{name} after {told[1]}: {told[2]}", node=name)


REFUSED, OTHERWISE = "refused", "otherwise"


def _restart(
    disk: SimDisk, broker: BrokerController, log: PlainLog, seed: str
) -> tuple[str, str, str] | None:
    """Return what is wrong with a restart: kind, after what, words; None if nothing is."""
    config, rng = broker._config, SplitRng(seed)
    copy = copy_below(disk, config.store_path, seed)
    mode = rng.choice((None, *PowerLossMode))
    if mode is not None:
        copy.power_loss(mode)
    after = "a kill" if mode is None else f"a loss of power ({mode.value})"
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # what it says is not said by a process of the run
    try:
        made = reloaded(broker, copy, rng)
        opened = made._mode.log
        assert isinstance(opened, PlainLog)
        dispatched(made, opened.end_position)
    except Refused as error:
        return REFUSED, after, str(error)
    finally:
        logging.disable(before)
    end = opened.written.last_end
    least = log.written.last_end if mode is None else log.synced_position
    if (
        log.written.last_start == NOTHING
    ):  # a slave that is to begin where its master's last file does
        least = 0
    if end < least:
        return OTHERWISE, after, f"the log ends at {end}, and not at {least} or behind"
    told = _other_bytes(disk, copy, log, min(end, log.written.last_end), after)
    if told is None and (queue := other_queue(broker, made, end)):
        return OTHERWISE, after, queue
    return told


def _other_bytes(
    disk: SimDisk, copy: SimDisk, log: PlainLog, end: int, after: str
) -> tuple[str, str, str] | None:
    size = log.config.segment_bytes
    at = max(log.first_position, end - BYTES_COMPARED)
    while at < end:
        base = at - at % size
        path = f"{log.config.directory}/{base:0{NAME_DIGITS}d}"
        upto = min(end, base + size)
        if disk.look(path)[at - base : upto - base] != copy.look(path)[at - base : upto - base]:
            return OTHERWISE, after, f"{path} has other bytes between {at - base} and {upto - base}"
        at = upto
    return None
