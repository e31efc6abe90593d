"""What a replica makes of each message is what the rules of Raft say, written here anew.

Most mistakes in these rules do no harm for long: a vote that is refused to who may have it, a
rejection that is not believed, an answer that does not count cost time, until another leader comes.
So each step is judged by itself: from what a replica knew before, its message says what it knows
behind it. What is found is told a second later: an oracle that sees the harm says more. Where its
log ends and which terms it has, a replica is asked; that this is so on the disk, too, others say
(`sim.oracles.log`, `sim.oracles.remembered`).

Source: Raft paper Figure 2, 5.2 to 5.4; dissertation 3.10, 4.2.3, 6.4, 9.6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dledger.core.messages import (
    Append,
    AppendReject,
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    PreVoteReply,
    PreVoteRequest,
    RecoveringReply,
    Rejoined,
    RejoinGrant,
    SnapshotReply,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from dledger.core.model import FOLLOWER
from sim.oracles import steps_electing as electing
from sim.oracles import steps_following as following
from sim.oracles import steps_joining as joining
from sim.oracles import steps_leading as leading
from sim.oracles import steps_roles as roles
from sim.oracles.base import Violation
from sim.oracles.inputs import Listener, listen

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from dledger.core.messages import Message
    from dledger.core.ready import Ready
    from dledger.core.state import RaftState
    from sim.oracles.base import Findings
    from sim.oracles.replica import Change, Replica
    from sim.oracles.truth import Truth

    Judge = tuple[Callable[[RaftState, Any], Any], Callable[[RaftState, Any, Any], str | None]]
    """What is noted before a step, None if it is not to be judged; and what is wrong behind it."""

NAME: Final = "A35 a step otherwise than the rules say"
WAIT_NS: Final = 1_000_000_000
"""So long others have to find what comes of it."""
INPUT_WAIT_NS: Final = 8_000_000_000
"""Likewise of a tick, and of what is given out: some of that shows after a lease, or a retry."""


def _standing(state: RaftState, message: Message) -> tuple[object, ...]:
    del message
    return state.term, state.role, state.voted_for, state.leader_id, state.log.last_index


def _is_ignored(state: RaftState, message: Message, before: tuple[object, ...]) -> str | None:
    """An answer of an older term says nothing any more (5.1)."""
    now = _standing(state, message)
    return None if now == before else f"{before} is {now} by an older term"


def _is_refused(state: RaftState, message: Message, before: tuple[object, ...]) -> str | None:
    """A leader of an older term is told the newer one (5.1)."""
    answer = state.messages[-1] if state.messages else None
    is_told = isinstance(answer, HeartbeatReply) and answer.receiver == message.sender
    if not is_told or answer is None or answer.term != state.term:
        return f"its sender is told {answer}, and not the term {state.term}"
    return _is_ignored(state, message, before)


def _is_entered(state: RaftState, message: Message, before: tuple[object, ...]) -> str | None:
    """Whoever hears of a newer term enters it, and leads no more (5.1)."""
    del before
    is_in = state.term == message.term and state.role is FOLLOWER
    return None if is_in else f"it is {state.role.value} of term {state.term}"


OLDER: Final = (_standing, _is_ignored)
REFUSED: Final = (_standing, _is_refused)
NEWER: Final = (_standing, _is_entered)
_APPEND: Final = (following.before_append, following.append)
_HEARTBEAT: Final = (following.before_heartbeat, following.heartbeat)
_INSTALL: Final = (joining.before_install, joining.install)
_VOTE: Final = (electing.before_vote, electing.vote)
_PRE_VOTE: Final = (electing.before_pre_vote, electing.pre_vote)

SAME: Final[dict[type, Judge]] = {
    Append: _APPEND,
    Heartbeat: _HEARTBEAT,
    AppendReply: (leading.before_reply, leading.append_reply),
    AppendReject: (leading.before_reject, leading.append_reject),
    HeartbeatReply: (leading.before_beat, leading.heartbeat_reply),
    SnapshotReply: (leading.before_chunk, leading.snapshot_reply),
    VoteRequest: _VOTE,
    PreVoteRequest: _PRE_VOTE,
    VoteReply: (electing.before_count, electing.counted),
    PreVoteReply: (electing.before_count, electing.counted),
    TimeoutNow: (electing.before_asked, electing.asked),
    InstallSnapshot: _INSTALL,
    RecoveringReply: (joining.before_recovering, joining.recovering),
    RejoinGrant: (joining.before_grant, joining.grant),
    Rejoined: (joining.before_rejoined, joining.rejoined),
}
"""By the type of a message of the term that its receiver is in."""
HIGHER: Final[dict[type, Judge]] = {
    Append: _APPEND,
    Heartbeat: _HEARTBEAT,
    InstallSnapshot: _INSTALL,
    VoteRequest: _VOTE,
    PreVoteRequest: _PRE_VOTE,
    PreVoteReply: (electing.before_planned, electing.counted),
}
"""Likewise of a newer one; of others only that it is entered."""
LOWER: Final[dict[type, Judge]] = {
    Append: REFUSED,
    Heartbeat: REFUSED,
    InstallSnapshot: REFUSED,
    VoteRequest: _VOTE,
    PreVoteRequest: _PRE_VOTE,
}
"""Likewise of an older one."""
SIGNS: Final = (Append, Heartbeat, InstallSnapshot)
"""Of life, of a leader."""


def judge_of(state: RaftState, message: Message) -> Judge | None:
    """Return what judges the step of a message; None for one of nobody known, or of other kinds."""
    if message.sender not in state.others:
        return None
    if message.term == state.term:
        return SAME.get(type(message))
    if message.term > state.term:
        return HIGHER.get(type(message), NEWER)
    return LOWER.get(type(message), OLDER)


def is_steady(state: RaftState, message: Message, before: roles.Standing) -> str | None:
    """What changes with a role, a term, or a leader; and that timers go on where nothing does."""
    if state.role_changes != before.changes:
        return roles.changed(state, before)
    may_hear = isinstance(message, SIGNS)
    if isinstance(message, VoteRequest):
        answer = state.replies[-1] if state.replies else None
        may_hear = isinstance(answer, VoteReply) and answer.granted
        if may_hear and state.election_elapsed:
            return f"it votes for {message.sender}, and its timer is at {state.election_elapsed}"
    return roles.kept(state, before, may_hear=may_hear)


class Steps:
    """Judges each message of a member that a replica takes."""

    name = NAME

    def __init__(self, findings: Findings, truth: Truth) -> None:
        self._findings = findings
        self._truth = truth
        self._found: tuple[Violation, int] | None = None
        """What was found first, and when that is told."""

    def on_change(self, replica: Replica, change: Change) -> None:
        """Tell what was found, when it is time."""
        if self._found is not None and self._truth.now_ns() >= self._found[1]:
            self.at_end()

    def at_end(self) -> None:
        """Tell what was found. Errors: `Violation`."""
        if self._found is not None:
            raise self._found[0]

    def on_boot(self, replica: Replica) -> None:
        """Listen to what a process that has just started takes, and to what it has written."""
        node, state, check = replica.node, replica.state, self._check
        step, complete = node._step, node._driver.complete

        def stepping(message: Message) -> None:
            stood, judge = roles.standing(state), judge_of(state, message)
            if judge is None:
                step(message)
                check(replica, message, is_steady, stood)
                return
            before = judge[0](state, message)
            step(message)
            check(replica, message, is_steady, stood)
            if before is not None:
                check(replica, message, judge[1], before)

        def completing(ready: Ready) -> bool:
            is_done = complete(ready)
            owed = state.ack_index
            if owed is not None and owed > state.log.last_index:
                text = f"owes an acknowledgement of {owed}, and has {state.log.last_index} entries"
                self._report(replica, text)
            return is_done

        def telling(text: str) -> None:
            self._report(replica, text, INPUT_WAIT_NS)

        listen(node._raft, Listener(telling, self._findings.report))
        node._step = stepping
        node._driver.complete = completing  # type: ignore[method-assign]  # as `send` is tapped

    def _check(
        self,
        replica: Replica,
        message: Message,
        judge: Callable[[RaftState, Any, Any], str | None],
        before: object,
    ) -> None:
        try:
            wrong = judge(replica.state, message, before)
        except Exception as error:  # noqa: BLE001 - the caller is production's code
            self._findings.report(error)
            return
        if wrong is not None:
            what = f"{type(message).__name__} of {message.sender}, term {message.term}"
            self._report(replica, f"takes {what}: {wrong}")

    def _report(self, replica: Replica, text: str, wait_ns: int = WAIT_NS) -> None:
        if self._found is None:
            now_ns = self._truth.now_ns()
            text = f"{replica.name}, at {now_ns // 1_000_000} ms, {text}"
            self._found = Violation(NAME, text, node=replica.name), now_ns + wait_ns
