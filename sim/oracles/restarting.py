"""What a restart now would find: the same log, term, vote and members.

A plan has a few restarts, and recovery is asked for what lies on the disk at those moments alone.
So copies of the disk are opened at others, by production's own recovery: after the log was cut,
trimmed or exchanged for a snapshot, after a role or the members have changed, and now and then. A
copy is as a kill leaves it, or as a loss of power does. What it finds is compared with what the
living replica has told: after a kill all of it, after a loss of power what was synced, and nothing
that was cut.
Source: paper Figure 2 (persistent state); docs/raft.md (recovery); spec/proof.md P1, P5, D1, D4.
"""

from __future__ import annotations

from collections import Counter
from contextvars import Context
from typing import TYPE_CHECKING, Final

from dledger.codec.entry import HEADER_BYTES, decode_header, is_configuration
from dledger.replica import open_replica
from sim.oracles.base import Findings, Violation, guarded
from sim.oracles.reloading import (
    Left,
    Refused,
    dispatched,
    left_behind,
    other_queue,
    other_table,
    reloaded,
    started,
    unheard,
)
from sim.rng import SplitRng

if TYPE_CHECKING:
    from dledger.core.model import LogIndex, Span, Term
    from dledger.replica import Replica as Opened
    from sim.disk import SimDisk
    from sim.disk_rules import Op
    from sim.inode import PowerLossMode
    from sim.oracles.replica import Change, Replica

RESTARTS_MAX: Final = 8
"""In a run, of each replica: opening a log takes some milliseconds."""
AFTER_A_CHANGE: Final = 2
"""So often a restart is tried after what moves more than the end of a log."""
SELDOM: Final = 97
"""Changes of any kind between two tries."""
ENTRIES_COMPARED: Final = 40
"""From the end, with their bytes."""
LOOKED_AT: Final = 120
"""Entries from the end among which the last configuration is looked for."""


class Restarting:
    """Opens copies of disks, and compares what they hold with what was told."""

    name = "A38 a restart now would find otherwise"
    refused_name = "A38 a restart now would be refused"

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self._changes = 0
        self._wanted: dict[str, int] = {}
        self._tried: Counter[tuple[str, bool]] = Counter()
        """By replica, and whether something was under way there."""
        self._first: dict[str, int] = {}
        self._members: dict[str, object] = {}
        self._heard: dict[str, SimDisk] = {}

    def on_boot(self, replica: Replica) -> None:
        """Begin with what it has found itself."""
        self._first[replica.name] = replica.store.first_index
        self._members[replica.name] = replica.state.membership.entries
        self._wanted[replica.name] = 0
        disk = replica.disk
        if self._heard.get(replica.name) is disk:
            return
        self._heard[replica.name], others = disk, disk.on_step

        def on_step(op: Op, path: str) -> None:
            if others is not None:
                others(op, path)
            self._on_step(replica)

        disk.on_step = on_step

    def on_change(self, replica: Replica, change: Change) -> None:
        """Try a restart where one is due. Errors: `Violation`."""
        name, members = replica.name, replica.state.membership.entries
        self._changes += 1
        moved = (
            change.kept_index < change.old_last
            or change.before[:2] != change.now[:2]
            or replica.store.first_index != self._first[name]
            or members != self._members[name]
        )
        self._first[name], self._members[name] = replica.store.first_index, members
        if moved:
            self._wanted[name] = AFTER_A_CHANGE
        elif not self._changes % SELDOM:
            self._wanted[name] = max(1, self._wanted[name])
        if self._wanted[name] and _is_sound(replica) and not _is_under_way(replica):
            self._wanted[name] -= 1
            self._try(replica, is_amid=False)

    @guarded
    def _on_step(self, replica: Replica) -> None:
        """Try a restart between two steps of what a `Ready` asks for."""
        if replica.is_up and _is_sound(replica) and replica.node._in_flight is not None:
            self._try(replica, is_amid=True)

    def _try(self, replica: Replica, *, is_amid: bool) -> None:
        self._tried[replica.name, is_amid] += 1
        number = self._tried[replica.name, is_amid]
        if number <= RESTARTS_MAX:
            Context().run(self._restart, replica, f"{replica.name}/{is_amid}/{number}", is_amid)

    def _restart(self, replica: Replica, seed: str, is_amid: bool) -> None:  # noqa: FBT001 - of a context
        left = left_behind(replica.disk, replica.controller._config.store_path, seed)
        try:
            with unheard():
                told = (_found_amid if is_amid else _found)(replica, left, seed)
        except Refused as error:
            text = f"{replica.name} after {left.words}: {error}"
            raise Violation(self.refused_name, text, node=replica.name) from error
        if told:
            text = f"{replica.name} after {left.words}: {told}"
            raise Violation(self.name, text, node=replica.name)


def _found(replica: Replica, left: Left, seed: str) -> str:
    """Return what a whole broker finds otherwise: log, members, queues, tables."""
    living = replica.controller
    made = reloaded(living, left.disk, seed)
    opened = made.node._replica
    if told := _differs(replica, opened, left.mode) or _strangers(opened):
        return told
    end = min(living.store.applied, made.node.end_position)
    dispatched(made, end)
    told = other_queue(living, made, end)
    if not told and made.store.applied == living.store.applied:
        told = other_table(living, made)
    return told


def _found_amid(replica: Replica, left: Left, seed: str) -> str:
    """Return what a log has less than before the `Ready` under way."""
    config, rng = replica.node.config, SplitRng(seed)
    opened = started(lambda: open_replica(config, left.disk, rng, _no_entry))
    try:
        return _differs_amid(replica, opened) or _strangers(opened)
    finally:
        opened.close()


def _is_sound(replica: Replica) -> bool:
    """Tell whether no fault has damaged the disk, nor may while its process goes on."""
    disk = replica.disk
    if replica.is_corrupt or replica.is_leaving or disk.is_disturbed or disk.blocked:
        return False
    return not (disk.has_failed_syncs() or replica.hangs())


def _is_under_way(replica: Replica) -> bool:
    """Tell whether the core has told something that may not be on the disk yet."""
    return replica.node._in_flight is not None or replica.node._raft._in_flight is not None


def _differs_amid(replica: Replica, opened: Opened) -> str:
    """Return what is less than it was before the `Ready` under way; empty if nothing is."""
    saved, core, ready = replica.state.saved, opened.raft.state, replica.node._in_flight
    asked = None if ready is None else ready.hard_state
    found = (core.term, core.voted_for, core.fresh)
    may = [(one.term, one.voted_for, one.fresh) for one in (saved, asked) if one is not None]
    if found not in may:
        return f"term and vote {found}, which are none of {may}"
    kept = replica.node._driver.synced_index
    if ready is not None and ready.snapshot is None and opened.store.last_index < kept:
        return f"up to {opened.store.last_index}, synced {kept}"
    return ""


def _strangers(opened: Opened) -> str:
    """Return the last configuration in a log if those in force lack it; empty if they do not."""
    store = opened.store
    known = {(one.index, one.term) for one in opened.raft.state.membership.entries}
    for index in range(store.last_index, max(store.first_index, store.last_index - LOOKED_AT), -1):
        position, _, term = store.entry(index)
        if is_configuration(decode_header(store.view(position, HEADER_BYTES))):
            return "" if (index, term) in known else f"members of {index} in {known}"
    return ""


def _differs(replica: Replica, opened: Opened, mode: PowerLossMode | None) -> str:
    """Return what is otherwise than it was told; empty if nothing is."""
    living, core = replica.state, opened.raft.state
    saved = living.saved
    if (core.term, core.voted_for, core.fresh) != (saved.term, saved.voted_for, saved.fresh):
        return f"{core.term}, {core.voted_for}, {core.fresh} for {saved}"
    store, found = replica.store, opened.store
    synced = replica.node._driver.synced_index
    if mode is None:
        had = (store.first_index, store.last_index)
        if (found.first_index, found.last_index) != had:
            return f"{found.first_index} to {found.last_index} for {had[0]} to {had[1]}"
    elif not synced <= found.last_index <= store.last_index:
        return f"up to {found.last_index}, synced {synced}, appended {store.last_index}"
    first = max(found.first_index, store.first_index, found.last_index - ENTRIES_COMPARED + 1)
    for index in range(found.last_index, first - 1, -1):
        position, size, term = store.entry(index)
        if found.entry(index) != (position, size, term):
            return f"{index} is {found.entry(index)} and not {(position, size, term)}"
        if found.view(position, size) != store.view(position, size):
            return f"other bytes of {index}"
    return "" if living.membership.unsaved else _other_members(replica, opened)


def _other_members(replica: Replica, opened: Opened) -> str:
    """Return which configurations differ; the file may have older ones that nobody needs."""
    end = opened.store.last_index
    told = [one for one in replica.state.membership.entries if one.index <= end]
    oldest = told[0].index if told else end + 1
    found = [one for one in opened.raft.state.membership.entries if one.index >= oldest]
    return "" if found == told else f"members {found} for {told}"


def _no_entry(index: LogIndex, term: Term, end_position: int) -> Span:
    raise AssertionError((index, term, end_position))  # nobody leads there
