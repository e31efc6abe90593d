"""Nothing is told that the own disk does not hold: a message that left too early.

A loss of power shows such a message only if it comes at the wrong moment; here it is found when it
leaves, because the disk of the simulation knows what would survive. Judged are terms and votes in
every flush mode, acknowledgements and commits where they must wait for a sync.
Source: paper Figure 2 (stable storage before responding); docs/raft.md#ready-the-order-of-duty.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from dledger.codec.properties import (
    Checkpoint,
    decode_checkpoint,
    decode_hard_state,
    decode_mark,
)
from dledger.core.messages import AppendReply, PreVoteReply, PreVoteRequest, VoteReply, VoteRequest
from dledger.core.model import LEADER, HardState
from sim.disk import SimDisk
from sim.oracles.base import Violation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dledger.core.messages import Message
    from sim.inode import Inode
    from sim.oracles.replica import Change, Mark, Replica
    from sim.oracles.truth import Truth

NAME_DIGITS: Final = 20


class Durable:
    """A38: what is told is on the disk, as firmly as it must be."""

    name = "A38 told before it was durable"
    majority_name = "A38 committed before a majority had synced"
    checkpoint_name = "A38 checkpoint ahead of the disk"
    mark_name = "A38 synced and not noted"
    held_name = "A38 counted as synced and is not"
    gone_name = "A38 noted as synced and cut off"

    def __init__(self, truth: Truth, replicas: Mapping[str, Replica], *, is_sync: bool) -> None:
        self._truth = truth
        self._replicas = replicas
        self._is_sync = is_sync
        self._known: dict[str, HardState] = {}
        """Term and vote that were seen to be durable."""
        self._checkpoints: dict[str, tuple[Inode, int]] = {}
        """By replica, the file that was judged, after how many changes of it."""
        self._damaged: dict[str, None] = {}
        """Replicas whose disk has once lost what was synced: they may not be able to show it."""
        self._refused: dict[str, int] = {}
        """By replica, how many writes had met a full disk when it started."""
        self._held: dict[str, tuple[int, Mark]] = {}
        """By replica, the last entry that it counts as synced, as it was judged."""

    def on_boot(self, replica: Replica) -> None:
        """What was durable before may be gone with a directory."""
        self._known.pop(replica.name, None)
        self._held.pop(replica.name, None)
        self._refused[replica.name] = replica.disk.writes_refused
        if replica.is_wiped:
            self._damaged[replica.name] = None

    def on_message(self, replica: Replica, message: Message) -> None:
        """Judge a message that leaves ``replica``. Errors: `Violation`."""
        if isinstance(message, PreVoteRequest | PreVoteReply):
            return  # its term is only a plan
        self._check_state(replica, message)
        if self._is_sync and isinstance(message, AppendReply):
            self._check_acknowledged(replica, message.match_index)

    def on_change(self, replica: Replica, change: Change) -> None:
        """Judge a checkpoint, and a commit of a leader: a majority of disks must have it."""
        self._check_checkpoint(replica)
        if change.kept_index < change.old_last:
            self._check_lowered(replica, change.kept_index)
        if self._is_sync:
            self._check_held(replica)
        if not self._is_sync or change.now[0] is not LEADER or change.now[2] <= change.before[2]:
            return
        index = change.now[2]
        mark = replica.mark(index)
        if mark is None or change.before[:2] != change.now[:2]:
            return
        voters = self._truth.voters_of(replica)
        groups = [self._truth.voters_of(replica, change.kept_index), voters]
        state = replica.controller.node._raft.state
        if state.log.last_index > replica.last_index:
            # A change of the group is in force that is appended and not written yet.
            groups.append(tuple(state.voters))
        for group in dict.fromkeys(groups):
            held = [voter for voter in group if self._holds(voter, index, mark)]
            if 2 * len(held) > len(group):
                break
        else:
            raise Violation(
                self.majority_name,
                f"{replica.name} committed up to {index}, synced by {held} of {list(voters)}",
                node=replica.name,
                index=index,
            )

    def on_kill(self, replica: Replica) -> None:
        """Judge what a killed process leaves: entries known as synced, so no corruption is cut.

        They are noted whenever a sync has returned; a process that is killed loses no such write.
        """
        disk, node = replica.disk, replica.node
        if disk.is_watched or replica.is_corrupt or disk.has_failed_syncs():
            return
        if disk.writes_refused > self._refused.get(replica.name, 0):
            return  # it was full, and the old note, which is still true, was left
        data = disk.read(replica.checkpoint_path)
        mark = disk.read(f"{node.config.directory}/synced")
        checkpoint = Checkpoint() if data is None else decode_checkpoint(data)
        noted = checkpoint.end_index
        if mark is not None:
            noted = max(noted, decode_mark(mark, checkpoint))
        synced = node._driver.synced_index
        if synced < node._store.first_index:
            return  # a snapshot stands for all of that
        if noted < synced and replica.synced_before < synced:
            raise Violation(
                self.mark_name,
                f"{replica.name} has synced up to {synced}, and notes {noted} as synced",
                node=replica.name,
                index=synced,
            )

    def _check_checkpoint(self, replica: Replica) -> None:
        """What the checkpoint says to be synced must survive a loss of power."""
        disk = replica.disk
        file = disk.durable_file(replica.checkpoint_path)
        if file is None:
            return
        checked = self._checkpoints.get(replica.name)
        if checked is not None and checked[0] is file and checked[1] == file.changes_made:
            return
        self._checkpoints[replica.name] = (file, file.changes_made)
        store = replica.controller.node._store
        if replica.is_corrupt:
            return
        try:
            index = max(decode_checkpoint(file.content()))
        except ValueError:
            return
        if not store.first_index <= index <= store.last_index:
            return
        position, size, _ = store.entry(index)
        if not (is_synced(replica, position, size) or disk.has_failed_syncs()):
            raise Violation(
                self.checkpoint_name,
                f"{replica.name} notes entry {index} as synced, and its disk is not sure of it",
                node=replica.name,
                index=index,
            )

    def _check_lowered(self, replica: Replica, kept_index: int) -> None:
        """Behind a cut nothing that would survive a loss of power says that more was synced.

        The next start takes what is noted as synced, and is not there, for damage.
        """
        disk, store = replica.disk, replica.store
        if replica.is_corrupt or disk.has_failed_syncs():
            return
        mark_path = f"{replica.node.config.directory}/synced"
        noted = max(_noted(disk, replica.checkpoint_path, mark_path))
        if noted <= kept_index:
            return
        place = store.entry(noted)[:2] if noted <= store.last_index else None
        if place is None or not is_synced(replica, *place):
            raise Violation(
                self.gone_name,
                f"{replica.name} cut its log behind {kept_index}, and after a loss of power"
                f" it would still say that it is synced up to {noted}",
                node=replica.name,
            )

    def _check_state(self, replica: Replica, message: Message) -> None:
        """Term, and vote if it is one, must survive a loss of power now."""
        vote = None
        known = self._known.get(replica.name)
        if isinstance(message, VoteReply):
            vote = message.receiver if message.granted else None
        elif isinstance(message, VoteRequest):
            vote = message.sender
        elif known is not None and known.term >= message.term:
            return
        if known is None or not _says(known, message.term, vote):
            known = self._known[replica.name] = _durable_state(replica)
        if not _says(known, message.term, vote):
            raise Violation(
                self.name,
                f"{replica.name} sends {type(message).__name__} of term {message.term}"
                f"{f' with its vote for {vote}' if vote else ''}, its disk is sure of term "
                f"{known.term} and vote {known.voted_for}",
                node=replica.name,
            )

    def _check_acknowledged(self, replica: Replica, index: int) -> None:
        store = replica.controller.node._store
        if replica.is_corrupt or _disk(replica).has_failed_syncs():
            return  # what it lacks may be far from what is acknowledged now
        if not store.first_index <= index <= store.last_index:
            return
        position, size, _ = store.entry(index)
        if not is_synced(replica, position, size):
            raise Violation(
                self.name,
                f"{replica.name} acknowledges entry {index} and has not synced it",
                node=replica.name,
                index=index,
            )

    def _check_held(self, replica: Replica) -> None:
        """What a replica would count for itself if it led now must survive a loss of power."""
        index = replica.state.log.persisted_index
        mark = replica.mark(index)
        if mark is None or self._held.get(replica.name) == (index, mark):
            return
        if replica.name in self._damaged or replica.is_corrupt or _disk(replica).has_failed_syncs():
            return
        if replica.disk.blocked:
            return  # it stands still in a call that hangs, though what comes behind it was computed
        self._held[replica.name] = (index, mark)
        if not is_synced(replica, mark.position, mark.size):
            raise Violation(
                self.held_name,
                f"{replica.name} counts entry {index} as synced, and its disk is not sure of it",
                node=replica.name,
                index=index,
            )

    def _holds(self, voter: str, index: int, mark: Mark) -> bool:
        replica = self._replicas[voter]
        if voter in self._damaged or replica.is_corrupt or replica.is_wiped:
            return True
        if _disk(replica).has_failed_syncs():
            return True
        if index < replica.base:
            return True  # a snapshot stands for it
        return replica.mark(index) == mark and is_synced(replica, mark.position, mark.size)


def _noted(disk: SimDisk, checkpoint_path: str, mark_path: str) -> list[int]:
    """Return up to where a replica may say, after a loss of power now, that it is synced."""
    noted = [-1]
    for content in disk.possible(checkpoint_path):
        with suppress(ValueError):
            checkpoint = decode_checkpoint(content)
            marks = [decode_mark(mark, checkpoint) for mark in disk.possible(mark_path)]
            noted += [checkpoint.end_index, *marks]
    return noted


def _says(state: HardState, term: int, vote: str | None) -> bool:
    if vote is None or state.term > term:
        return state.term >= term
    return (state.term, state.voted_for) == (term, vote)


def _disk(replica: Replica) -> SimDisk:
    disk = replica.controller.node._disk
    assert isinstance(disk, SimDisk)
    return disk


def _durable_state(replica: Replica) -> HardState:
    """Return term and vote as a loss of power now would leave them, or the beginning if unsure."""
    disk = _disk(replica)
    path = f"{replica.controller.node.config.directory}/currterm"
    content = disk.durable(path)
    if content is None:
        return HardState()
    try:
        return decode_hard_state(content)
    except ValueError:
        return HardState()


def is_synced(replica: Replica, position: int, size: int) -> bool:
    """Tell whether the bytes of an entry would survive a loss of power now."""
    config = replica.controller.node.config
    offset = position % config.data_segment_bytes
    path = f"{config.directory}/data/{position - offset:0{NAME_DIGITS}}"
    return _disk(replica).is_durable(path, offset, size)
