"""How far the log is committed is noted from time to time: a start walks over little of it.

A checkpoint that is too new is found elsewhere (`durable`); one that is too old loses nothing, and
nobody sees it but who waits for a start after a kill. An install of a snapshot that is over is not
begun any more: the next start would remove the log that has grown behind it.
Source: docs/raft.md; `dledger.disk.flusher`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from dledger.codec.properties import Checkpoint, decode_checkpoint
from sim.oracles.base import Violation

if TYPE_CHECKING:
    from sim.oracles.replica import Change, Replica

NAME: Final = "A38 committed and not noted"
INSTALL: Final = "A38 install that is over is noted as begun"
SLACK_MS: Final = 1_000
"""Beside the interval: the sync that it waits for, and what the disk does before it."""


class Noting:
    """Judges what a killed process leaves of its checkpoint."""

    name = NAME

    def __init__(self) -> None:
        self._delivered: dict[str, deque[tuple[int, int, int]]] = {}
        """By replica: at which tick which entry was delivered, and how often its disk had had a
        fault, which may hold a note up; the first one is old enough."""
        self._refused: dict[str, int] = {}
        """By replica, how many writes had met a full disk when it started."""

    def on_boot(self, replica: Replica) -> None:
        """What was delivered in another life has been judged."""
        self._delivered[replica.name] = deque()
        self._refused[replica.name] = replica.disk.writes_refused

    def on_change(self, replica: Replica, change: Change) -> None:
        """Remember how far it has come."""
        del change
        delivered, tick = self._delivered.setdefault(replica.name, deque()), replica.state.tick
        index = min(replica.state.delivered_index, replica.node._driver.synced_index)
        if not delivered or delivered[-1][1] != index:
            disk = replica.disk
            delivered.append((tick, index, -1 if disk.is_disturbed else disk.disturbances))
        while len(delivered) > 1 and delivered[1][0] <= tick - _ticks(replica):
            delivered.popleft()

    def on_kill(self, replica: Replica) -> None:
        """Compare the note with what was delivered some time ago. Errors: `Violation`."""
        disk, delivered = replica.disk, self._delivered.get(replica.name)
        store, last = replica.node._store, replica.node._driver.synced_index
        self.check_install(replica)
        if not delivered or disk.is_watched or replica.is_corrupt or disk.has_failed_syncs():
            return
        if disk.writes_refused > self._refused.get(replica.name, 0):
            return
        data = disk.read(replica.checkpoint_path)
        noted = (Checkpoint() if data is None else decode_checkpoint(data)).committed_index
        old_tick = replica.state.tick - _ticks(replica)
        old = [i for tick, i, since in delivered if tick <= old_tick and since == disk.disturbances]
        index = max(old, default=noted)
        if store.first_index <= index <= last and noted < index:
            text = f"{replica.name} had delivered {index} some time before its end, and notes"
            raise Violation(NAME, f"{text} {noted} as committed", node=replica.name, index=index)

    def check_install(self, replica: Replica) -> None:
        """Look whether the next start would go on with an install that is over."""
        snapshots, last = replica.node._store.snapshots, replica.node._driver.synced_index
        meta = snapshots.meta
        if meta is not None and last > meta.id.last_index and snapshots.replaces_log:
            text = f"{replica.name} has a log up to {last} behind a snapshot that it installed"
            raise Violation(INSTALL, f"{text}, and its next start removes that", node=replica.name)


def _ticks(replica: Replica) -> int:
    """Return after how many ticks what was delivered is noted."""
    interval_ms: int = replica.node.config.checkpoint_interval_ms
    return (interval_ms + SLACK_MS) // replica.tick_ms + 1
