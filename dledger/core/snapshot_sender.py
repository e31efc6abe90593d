"""A snapshot leaves: the leader's half of what `dledger.core.install` draws.

Source: Raft paper 7.
"""

from dledger.core.messages import InstallSnapshot, SnapshotReply
from dledger.core.model import LogIndex
from dledger.core.progress import Progress
from dledger.core.ready import Event, EventKind
from dledger.core.state import RaftState


def maybe_begin(state: RaftState, progress: Progress, next_index: LogIndex) -> bool:
    """Begin to send the snapshot if the follower needs entries that only it stands for."""
    log = state.log
    if next_index >= log.first_index:
        return False
    snapshot = log.snapshot
    if snapshot is None:
        return False  # a log that DLedger trimmed: nothing stands for what is gone
    progress.match_index = min(progress.match_index, next_index - 1)
    progress.silent = False
    progress.become_snapshot(snapshot)
    state.events.append(
        Event(
            EventKind.SNAPSHOT, state.term, state.role, progress.node_id, snapshot.last_index,
            extra="snapshot=sending",
        )
    )  # fmt: skip
    return True


def send_snapshot(state: RaftState, progress: Progress) -> None:
    """Send the next chunk, or ask how far the follower is; nothing while an answer is due."""
    if progress.sent_tick is not None:
        return
    log = state.log
    current = log.snapshot
    assert current is not None, progress.describe()
    if progress.snapshot != current:
        progress.become_snapshot(current)
    data, offset = b"", max(progress.snapshot_offset, 0)
    if progress.snapshot_offset >= 0 and not progress.silent:
        data = log.read_snapshot(offset, state.config.snapshot_chunk_bytes)
        if not data:  # another one takes its place just now: ask again, but not in haste
            progress.sent_tick = state.tick
            return
    state.messages.append(
        InstallSnapshot(state.node_id, progress.node_id, state.term, current, offset, data)
    )
    progress.sent_tick = state.tick


def on_snapshot_reply(state: RaftState, reply: SnapshotReply) -> None:
    """Go on from where the follower is."""
    progress = state.progress.get(reply.sender)
    if progress is None:
        return
    progress.contact_tick = state.tick
    if progress.snapshot is None or progress.snapshot != reply.id:
        return
    progress.silent = False
    progress.snapshot_offset = reply.offset
    # With all of it there, an install is under way: ask again only when that takes long.
    progress.sent_tick = state.tick if reply.offset >= reply.id.size else None
