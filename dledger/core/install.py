"""A snapshot arrives: how a follower gets the entries that its leader has in the log no more.

```
 leader                                    follower
   InstallSnapshot id, offset 0, nothing ->           how much of it do you have?
                            <- SnapshotReply id, offset
   InstallSnapshot id, offset, a chunk  ->            kept aside, then:
                            <- SnapshotReply id, offset + chunk
   ...                                  ->            all is here: checked, put in the log's place
                            <- AppendReply last_index  and replication goes on behind it
```

One chunk is under way at a time. A question goes out first, and again whenever an answer is late;
so a transfer goes on where it stood after a lost message, a broken connection, and under another
leader that has the same snapshot. Heartbeats run beside it.

A follower takes a snapshot only if it lacks its last entry: what it has committed is never given
up. While the last chunk is being installed it takes no entries.
Source: Raft paper 7 and Figure 13 (chunks there are not resumable).
"""

from dledger.core import membership
from dledger.core.messages import InstallSnapshot, SnapshotReply
from dledger.core.model import LogIndex, NodeId
from dledger.core.ready import Event, EventKind
from dledger.core.replication import acknowledge, advance_commit, hear_leader
from dledger.core.snapshot import SnapshotMeta, StageWork, Staging
from dledger.core.state import RaftState


def on_install_snapshot(state: RaftState, message: InstallSnapshot) -> None:
    """Keep a chunk aside, if the snapshot is news and the chunk the next one."""
    if not hear_leader(state, message):
        return
    log, wanted = state.log, message.id
    staging = state.staging
    if staging is not None and staging.chunk is not None:
        return  # the last chunk is not on disk yet: the leader will ask again
    if wanted.last_index <= log.commit_index:
        state.staging = None
        acknowledge(state, log.commit_index)  # stale: all it stands for is here
        return
    if log.term_at(wanted.last_index) == wanted.last_term:
        # What matches the leader's log up to a committed entry is committed (Log Matching).
        state.staging = None
        advance_commit(state, wanted.last_index)
        acknowledge(state, wanted.last_index)
        return
    if _is_impossible(state, message):
        _note(state, "refused", wanted.last_index, message.sender)
        return
    if staging is None or staging.id != wanted:
        state.staging = staging = Staging(wanted)
        _note(state, "receiving", wanted.last_index, message.sender)
    if message.data and message.offset == staging.offset:
        staging.chunk = message.data
    else:
        _reply(state, staging)


def _is_impossible(state: RaftState, message: InstallSnapshot) -> bool:
    """Tell whether no leader can have such a snapshot: terms only rise along a log."""
    log, wanted = state.log, message.id
    committed_term = log.term_at(log.commit_index) or 0
    if not max(committed_term, 1) <= wanted.last_term <= message.term:
        return True
    return message.offset + len(message.data) > wanted.size


def hand_out(state: RaftState) -> StageWork | None:
    """Return the chunk that the driver is to keep aside; it goes on with `on_staged`.

    The last one waits until the log has nothing else to write: the install ends that log.
    """
    staging = state.staging
    if staging is None or staging.chunk is None or staging.handed:
        return None
    if staging.installing and state.log.has_work():
        return None
    staging.handed = True
    return StageWork(staging.id, staging.offset, staging.chunk, staging.installing)


def on_staged(state: RaftState, *, kept: bool, installed: SnapshotMeta | None) -> None:
    """Take the report of the driver on the chunk it was handed.

    Args:
        state: of this replica.
        kept: whether it is on disk; False also when the whole was not what had been announced.
        installed: what stands for the log now, after the last chunk.
    """
    staging = state.staging
    assert staging is not None and staging.handed, "no chunk was handed out"  # noqa: PT018  # one fact
    assert staging.chunk is not None
    if not kept:
        state.staging = None
        _note(state, "failed", staging.id.last_index)
        return
    staging.offset += len(staging.chunk)
    staging.chunk = None
    staging.handed = False
    if installed is None:
        _reply(state, staging)
        return
    log = state.log
    last_index = installed.id.last_index
    assert log.commit_index < last_index, (log.commit_index, last_index)
    state.staging = None
    log.restart()
    assert (log.last_index, log.last_term) == (last_index, installed.id.last_term)
    state.delivered_index = last_index
    state.ack_index = None
    if state.leader_id is not None and state.leader_id != state.node_id:
        acknowledge(state, last_index)
    state.membership.reset(installed.configuration)
    membership.adopt(state)
    _note(state, "installed", last_index)


def _reply(state: RaftState, staging: Staging) -> None:
    if state.leader_id is not None and state.leader_id != state.node_id:
        state.messages.append(
            SnapshotReply(state.node_id, state.leader_id, state.term, staging.id, staging.offset)
        )


def _note(state: RaftState, what: str, index: LogIndex, peer: NodeId | None = None) -> None:
    state.events.append(
        Event(EventKind.SNAPSHOT, state.term, state.role, peer, index, extra=f"snapshot={what}")
    )
