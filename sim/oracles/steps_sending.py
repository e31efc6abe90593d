"""What a replica gives out to be written and sent: all of what is due, and nothing else.

A leader sends each follower what it lacks, from where it stands, as far as its window allows; a
probe is one message, and who says nothing is asked without entries.

Source: Raft paper Figure 2 (rules for leaders, stable storage), 5.3, 7; dissertation 3.10,
10.2.1; `dledger.core.ready` (order of duty); `sim.oracles.steps`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from dledger.core.leadership import Phase
from dledger.core.messages import (
    Append,
    AppendReply,
    InstallSnapshot,
    RecoveringReply,
    TimeoutNow,
)
from dledger.core.model import LEADER, HardState

if TYPE_CHECKING:
    from dledger.core.messages import Message
    from dledger.core.model import NodeId, SnapshotId
    from dledger.core.ready import Ready
    from dledger.core.state import RaftState

SPANS_MAX: Final = 4
"""Messages with entries to one follower at a time."""


class Window(NamedTuple):
    """What is under way to a follower, and from where it goes on."""

    next_index: int
    is_probing: bool
    is_silent: bool
    sent_tick: int | None
    spans: int
    size: int
    snapshot: SnapshotId | None
    snapshot_offset: int


class Owing(NamedTuple):
    """What is to be given out."""

    said: int
    replied: int
    delivered_index: int
    owed: int | None
    saved: HardState
    handed_index: int
    is_asking: bool
    """A successor is to be asked to campaign once it has everything."""
    has_configs: bool
    windows: dict[NodeId, Window]


def before_ready(state: RaftState) -> Owing:
    """Note what there is to give out."""
    windows = {}
    if state.role is LEADER:
        for peer, progress in state.progress.items():
            windows[peer] = Window(
                progress.next_index,
                progress.probing,
                progress.silent,
                progress.sent_tick,
                len(progress.inflight),
                progress.inflight_bytes,
                progress.snapshot,
                progress.snapshot_offset,
            )
    transfer = state.transfer
    return Owing(
        len(state.messages),
        len(state.replies),
        state.delivered_index,
        state.ack_index,
        state.saved,
        state.log.handed_index,
        transfer is not None and transfer.phase is Phase.CATCHING_UP,
        state.membership.unsaved,
        windows,
    )


def ready(state: RaftState, found: Ready, before: Owing) -> str | None:
    """Judge what is given out."""
    return (
        _owes(state, found, before)
        or _writes(state, found, before)
        or _replicates(state, found.messages[before.said :], before)
    )


def nothing_due(state: RaftState) -> str | None:
    """Judge a replica that says it has nothing to give out."""
    log = state.log
    if log.commit_index > state.delivered_index:
        return f"{log.commit_index} is committed, and nobody is told"
    if state.messages or state.replies or state.ack_index is not None or state.events:
        return f"it says nothing, and has {state.messages}, {state.replies}, {state.ack_index}"
    if HardState(state.term, state.voted_for, state.fresh) != state.saved:
        return f"it is in term {state.term} with a vote for {state.voted_for}, and saves nothing"
    if log.handed_index != log.last_index or state.membership.unsaved or state.reads.confirmed:
        return f"it has entries to {log.last_index}, and wrote {log.handed_index}"
    if state.staging is not None and state.staging.chunk is not None:
        return "it has a chunk of a snapshot, and does not write it"
    return None


def took_commit(state: RaftState, index: int, delivered_index: int) -> str | None:
    """Judge a commit that is told by itself: all of it, and there is nothing else."""
    if not delivered_index < index == state.log.commit_index == state.delivered_index:
        return f"it tells {index} behind {delivered_index}, committed is {state.log.commit_index}"
    return nothing_due(state)


def _owes(state: RaftState, found: Ready, before: Owing) -> str | None:
    """Term and vote, what is committed, and an acknowledgement."""
    now = HardState(state.term, state.voted_for, state.fresh)
    if found.hard_state != (None if now == before.saved else now):
        return f"it writes {found.hard_state}, and had written {before.saved}, and is {now}"
    commit_index = state.log.commit_index
    if found.committed != (commit_index if commit_index > before.delivered_index else None):
        return f"it tells {found.committed} as committed, and that is {commit_index}"
    replies = found.replies[before.replied :]
    want: tuple[object, ...] = ()
    if before.owed is not None:
        place = (state.node_id, state.leader_id, state.term, before.owed)
        generation = state.config.generation
        is_fresh = state.fresh
        want = (RecoveringReply(*place, generation) if is_fresh else AppendReply(*place),)  # type: ignore[arg-type]  # who is owed something leads
    if replies != want or state.ack_index is not None:
        return f"it owes {want}, and says {replies}"
    if before.has_configs != (found.configs is not None):
        return f"members that are not written: {before.has_configs}, and it writes {found.configs}"
    return None


def _writes(state: RaftState, found: Ready, before: Owing) -> str | None:
    """What is new of the log, one span behind the other."""
    log, last = state.log, None
    for span in found.entries:
        if last is not None and span.first_index != last + 1:
            return f"it writes {span.first_index} behind {last}"
        last = span.last_index
    if found.entries and found.entries[0].first_index != before.handed_index + 1:
        return f"it writes {found.entries[0].first_index}, and wrote {before.handed_index}"
    if (before.handed_index if last is None else last) != log.last_index:
        return f"it writes up to {last}, and has {log.last_index}"
    return None


# To followers


def _replicates(state: RaftState, said: tuple[Message, ...], before: Owing) -> str | None:
    asked = [message for message in said if isinstance(message, TimeoutNow)]
    if (wrong := _asks(state, asked, before)) is not None:
        return wrong
    sent: dict[str, list[Append | InstallSnapshot]] = {}
    for message in said:
        if isinstance(message, Append | InstallSnapshot):
            sent.setdefault(message.receiver, []).append(message)
    if not sent.keys() <= before.windows.keys():
        return f"it sends entries to {list(sent)}, and leads {list(before.windows)}"
    for peer, window in before.windows.items():
        out = sent.get(peer, [])
        wrong = _sends(state, peer, window, out)
        if wrong is None and not out and _is_due(state, window, before.handed_index):
            wrong = f"it sends nothing, and has entries to {state.log.last_index}"
        if wrong is not None:
            return f"to {peer}, {window}: {wrong}"
    return None


def _is_due(state: RaftState, window: Window, handed_index: int) -> bool:
    """A question that nobody answers now; or what was just appended, to who can take it."""
    if window.snapshot is not None:
        return False
    if window.is_probing:
        return window.sent_tick is None
    is_new = handed_index < window.next_index <= state.log.last_index
    return is_new and _has_room(state, window.spans, window.size)


def _asks(state: RaftState, asked: list[TimeoutNow], before: Owing) -> str | None:
    """A successor is asked as soon as it has all there is, and all of that is committed."""
    transfer, log = state.transfer, state.log
    if not before.is_asking or transfer is None or transfer.target not in state.progress:
        return f"it asks {asked} to campaign" if asked else None
    is_ready = state.progress[transfer.target].match_index == log.last_index == log.commit_index
    want = TimeoutNow(state.node_id, transfer.target, state.term, log.last_index)
    if asked != ([want] if is_ready else []):
        return f"it asks {asked} to campaign, and has {log.commit_index} of {log.last_index}"
    return None if (transfer.phase is Phase.ASKED) == is_ready else "a hand-over stands still"


def _sends(
    state: RaftState, peer: NodeId, window: Window, sent: list[Append | InstallSnapshot]
) -> str | None:
    if any(message.term != state.term for message in sent):
        return f"it is in term {state.term}, and sends {sent}"
    if window.snapshot is not None:
        return _sends_snapshot(state, peer, window, sent)
    if len(sent) > (1 if window.is_probing else SPANS_MAX):
        return f"it sends {len(sent)} messages"
    if window.is_probing and sent and window.sent_tick is not None:
        return f"it asks again, while an answer is due: {sent}"
    next_index, spans, size = window.next_index, window.spans, window.size
    for message in sent:
        if not isinstance(message, Append):
            return f"it sends a snapshot: {message.id}"
        wrong = _is_odd(state, message, max(next_index, state.log.first_index), window)
        if wrong is not None:
            return wrong
        if not window.is_probing and not _has_room(state, spans, size):
            return f"its window is full, with {spans} spans and {size} bytes"
        if message.span is not None:
            next_index, spans = message.span.last_index + 1, spans + 1
            size += len(message.span.data)
    return _stands(state, peer, window, sent, next_index)


def _is_odd(state: RaftState, message: Append, first: int, window: Window) -> str | None:
    log, span = state.log, message.span
    place = (message.prev_index, message.prev_term, message.commit_index)
    want = (first - 1, log.term_at(first - 1), log.commit_index)
    if place != want:
        return f"it sends what follows {place}, and {want} is due"
    if span is None:
        return None if window.is_probing else "it sends nothing to who can take entries"
    if window.is_silent:
        return "it sends entries to who says nothing"
    if span.first_index != first or span.last_index > log.last_index:
        return f"it sends {span.first_index} to {span.last_index}, {first} is due"
    if log.term_at(first) != span.term or log.term_at(span.last_index) != span.term:
        return f"it sends {span.first_index} to {span.last_index} as of term {span.term}"
    return None


def _has_room(state: RaftState, spans: int, size: int) -> bool:
    config = state.config
    return spans < config.inflight_spans_max and size < config.inflight_bytes_max


def _stands(
    state: RaftState,
    peer: NodeId,
    window: Window,
    sent: list[Append | InstallSnapshot],
    next_index: int,
) -> str | None:
    """What it remembers of what it has sent."""
    progress = state.progress[peer]
    if not sent:
        return None
    first = max(window.next_index, state.log.first_index)
    want = first if window.is_probing else next_index
    if progress.next_index != want:
        return f"it goes on at {progress.next_index}, and not at {want}"
    if progress.commit_sent != state.log.commit_index:
        return f"it has told {state.log.commit_index}, and notes {progress.commit_sent}"
    sent_tick = state.tick if window.sent_tick is None else window.sent_tick
    if progress.sent_tick != sent_tick:
        return f"it waits since {progress.sent_tick}, and not {sent_tick}"
    out = 0 if window.is_probing else window.spans + len(sent)
    return None if len(progress.inflight) == out else f"it waits for {list(progress.inflight)}"


def _sends_snapshot(
    state: RaftState, peer: NodeId, window: Window, sent: list[Append | InstallSnapshot]
) -> str | None:
    """One chunk, from where the follower is; first the question where that is."""
    progress, current = state.progress[peer], state.log.snapshot
    if window.sent_tick is not None:
        return f"it sends {len(sent)} messages, while an answer is due" if sent else None
    if progress.snapshot != current:
        return f"it sends {progress.snapshot}, and has {current}"
    is_told = window.snapshot == current and window.snapshot_offset >= 0
    if not sent:
        is_asked = not is_told or window.is_silent
        return "it does not ask how much of a snapshot is there" if is_asked else None
    message = sent[0]
    if len(sent) > 1 or not isinstance(message, InstallSnapshot) or message.id != current:
        return f"it sends {sent}, and not {current}"
    offset = window.snapshot_offset if is_told else 0
    if message.offset != offset or progress.sent_tick != state.tick:
        return f"it sends from {message.offset} at {progress.sent_tick}, and {offset} is there"
    if bool(len(message.data)) != (is_told and not window.is_silent):
        return f"it sends {len(message.data)} bytes"
    return None
