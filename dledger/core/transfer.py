"""Leadership handed over on purpose: by an administrator, or to the preferred leader.

```
  leader                                       target
  accepts nothing more; sends what is missing  -->
                                          <--  acknowledges the last entry
  everything is committed
  TimeoutNow                              -->  candidate of the next term, without pre-vote
                                          <--  VoteRequest transfer, to all
```

Everything accepted before is committed before the target is asked, so no send has an unknown
outcome by it. Whatever goes wrong ends after one election timeout, and the leader serves again. The
target cannot get stuck: it campaigns once, and goes on as any candidate does. (DLedger 0.3 makes
the preferred node campaign at a term of its own choice and can leave it a candidate for ever: its
issue 85.)

Source: Ongaro's dissertation 3.10; etcd raft, leadTransferee.
"""

from typing import Final

from dledger.core.election import become_candidate
from dledger.core.leadership import Phase, Transfer
from dledger.core.membership import may_campaign
from dledger.core.messages import TimeoutNow
from dledger.core.model import NodeId, Role
from dledger.core.ready import Event, EventKind
from dledger.core.state import RaftState
from dledger.errors import TransferFailed

PREFER_PAUSE_TIMEOUTS: Final = 10
PREFER_PAUSE_TIMEOUTS_MAX: Final = 640
"""A transfer to the preferred leader that failed is tried again after so many election timeouts,
doubled with every failure: one that answers and cannot take over, because its disk hangs for
example, must not stop the sends of the group again and again."""


def start(state: RaftState, target: NodeId) -> Transfer:
    """Begin to hand over; the owner accepts no entries until it has ended.

    Errors: `TransferFailed` if it cannot succeed; then nothing has changed.
    """
    problem = find_problem(state, target)
    if problem is not None:
        raise TransferFailed(problem)
    state.transfer = Transfer(target, state.tick + state.config.election_ticks_min)
    _report(state, "started")
    return state.transfer


def find_problem(state: RaftState, target: NodeId) -> str | None:
    """Return why leadership cannot go to ``target`` now, None if it can."""
    if state.role is not Role.LEADER:
        return f"{state.node_id} does not lead"
    if target == state.node_id:
        return f"{target} leads already"
    progress = state.progress.get(target)
    if progress is None or target not in state.voters:
        return f"{target} is no voter of this group"
    if target in state.rejoining:
        return f"{target} lost its directory and may not vote yet"
    if state.transfer is not None:
        return f"a transfer to {state.transfer.target} is under way"
    if state.tick - progress.contact_tick >= state.config.election_ticks_min:
        return f"{target} has not answered for an election timeout"
    return None


def tick(state: RaftState) -> None:
    """Let a tick pass at the leader."""
    transfer = state.transfer
    if transfer is None:
        _prefer(state)
    elif state.tick >= transfer.deadline_tick:
        _fail(state, transfer)
    elif transfer.phase is Phase.ASKED:
        left = transfer.deadline_tick - state.tick
        if left % state.config.heartbeat_ticks == 0:
            transfer.become(Phase.ASKED)
            _ask(state, transfer)


def maybe_ask(state: RaftState) -> None:
    """Ask the target to campaign, if it holds the whole log and all of it is committed."""
    transfer, log = state.transfer, state.log
    if transfer is None or transfer.phase is not Phase.CATCHING_UP:
        return
    progress = state.progress.get(transfer.target)
    if progress is None:  # it was removed from the group
        _fail(state, transfer)
    elif progress.match_index == log.last_index == log.commit_index:
        transfer.become(Phase.ASKED)
        _ask(state, transfer)


def on_timeout_now(state: RaftState, message: TimeoutNow) -> None:
    """Campaign at the leader's wish, unless the wish is an old one."""
    if (
        state.role is Role.FOLLOWER
        and state.leader_id == message.sender
        and state.log.last_index == message.last_index
        and may_campaign(state)
        and state.blocked is None
    ):
        become_candidate(state, transfer=True)


def _ask(state: RaftState, transfer: Transfer) -> None:
    state.messages.append(
        TimeoutNow(state.node_id, transfer.target, state.term, state.log.last_index)
    )


def _fail(state: RaftState, transfer: Transfer) -> None:
    progress, log = state.progress.get(transfer.target), state.log
    if progress is None:
        transfer.failure = f"{transfer.target} is not a member any more"
    elif transfer.phase is Phase.ASKED:
        transfer.failure = f"{transfer.target} was asked to campaign and did not"
    elif progress.match_index < log.last_index:
        transfer.failure = (
            f"{transfer.target} did not catch up within an election timeout:"
            f" it holds the log up to {progress.match_index} of {log.last_index}"
        )
    else:
        transfer.failure = f"no majority acknowledged entry {log.last_index} in time"
    transfer.become(Phase.FAILED)
    _report(state, "failed")
    state.transfer = None


def _prefer(state: RaftState) -> None:
    """Hand over to the preferred leader, once it is alive and in step."""
    preferred = state.config.preferred_leader
    if preferred is None or state.tick < state.prefer_tick:
        return
    progress, log = state.progress.get(preferred), state.log
    if progress is None or progress.probing or progress.next_index <= log.last_index:
        return
    if log.term_at(log.commit_index) != state.term or find_problem(state, preferred) is not None:
        return
    pause = max(2 * state.prefer_pause, PREFER_PAUSE_TIMEOUTS)
    state.prefer_pause = min(pause, PREFER_PAUSE_TIMEOUTS_MAX)
    state.prefer_tick = state.tick + state.prefer_pause * state.config.election_ticks_max
    start(state, preferred)


def _report(state: RaftState, word: str) -> None:
    assert state.transfer is not None, word
    event = Event(
        EventKind.TRANSFER, state.term, state.role, state.transfer.target, state.log.last_index,
        extra=word,
    )  # fmt: skip
    state.events.append(event)
