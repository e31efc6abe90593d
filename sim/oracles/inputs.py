"""Each input of the core that is no message, and each output: judged one by one.

Ticks, broken connections, syncs, writes that failed, chunks that were kept, and what is given out.
The core of a running process gets a class of its own, whose methods call those of production, note
before, and judge behind. `sim.oracles.steps` says what is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dledger.core.raft import Raft
from sim.oracles import steps_handling as handling
from sim.oracles import steps_roles as roles
from sim.oracles import steps_sending as sending
from sim.oracles import steps_ticking as ticking

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.core.ready import Ready
    from dledger.core.state import RaftState

    Tell = Callable[[str], None]
    Guard = Callable[[Exception], None]
    Judge = tuple[Callable[..., Any], Callable[..., str | None]]
    """What is noted before, None where nothing is judged; and what is wrong behind it."""


def _tick(state: RaftState, before: ticking.Waiting | ticking.Leading) -> str | None:
    return ticking.tick(state, before)


INPUTS: Final[dict[str, Judge]] = {
    "tick": (ticking.before_tick, _tick),
    "unreachable": (handling.before_broken, handling.broken),
    "block": (handling.before_block, handling.block),
    "persisted": (handling.before_persisted, handling.persisted),
    "staged": (handling.before_staged, handling.staged),
    "abort": (handling.before_abort, handling.abort),
}


class Listener:
    """Hears what is wrong with an input."""

    def __init__(self, tell: Tell, report: Guard) -> None:
        self._tell = tell
        self._report = report

    def judge(self, what: str, validator: Callable[[], str | None]) -> None:
        """Ask a judge; its own errors end the run as such."""
        try:
            wrong = validator()
        except Exception as error:  # noqa: BLE001 - the caller is production's code
            self._report(error)
            return
        if wrong is not None:
            self._tell(f"{what}: {wrong}")


def listen(raft: Raft, listener: Listener) -> None:
    """Have each input and output of a core judged from now on."""
    methods: dict[str, Any] = {"__slots__": ()}
    for name, judge in INPUTS.items():
        methods[name] = _judged(name, judge, listener)
    methods["ready"] = _judged_ready(listener)
    methods["take_commit"] = _judged_commit(listener)
    methods["is_due"] = _judged_due(listener)
    raft.__class__ = type("JudgedRaft", (Raft,), methods)


def _judged(name: str, judge: Judge, listener: Listener) -> Callable[..., Any]:
    plain = getattr(Raft, name)
    note, validator = judge

    def judged(raft: Raft, *args: Any, **named: Any) -> Any:  # noqa: ANN401 - those of production
        state = raft.state
        before, stood = note(state, *args, **named), roles.standing(state)
        result = plain(raft, *args, **named)

        def validate() -> str | None:
            if state.role_changes != stood.changes:
                wrong = roles.changed(state, stood)
                if wrong is not None:
                    return wrong
            return None if before is None else validator(state, before, *args, **named)

        listener.judge(name, validate)
        return result

    return judged


def _judged_ready(listener: Listener) -> Callable[..., Any]:
    plain = Raft.ready

    def ready(raft: Raft) -> Ready | None:
        state = raft.state
        if raft._in_flight is not None:
            return plain(raft)
        before = sending.before_ready(state)
        found = plain(raft)
        if found is None:
            listener.judge("ready", lambda: sending.nothing_due(state))
        else:
            listener.judge("ready", lambda: sending.ready(state, found, before))
        return found

    return ready


def _judged_commit(listener: Listener) -> Callable[..., Any]:
    plain = Raft.take_commit

    def take_commit(raft: Raft) -> int | None:
        state = raft.state
        delivered_index = state.delivered_index
        index = plain(raft)
        if index is not None:
            listener.judge("commit", lambda: sending.took_commit(state, index, delivered_index))
        return index

    return take_commit


def _judged_due(listener: Listener) -> Callable[..., Any]:
    plain = Raft.is_due

    def is_due(raft: Raft) -> bool:
        found = plain(raft)
        if not found:
            state = raft.state
            listener.judge("due", lambda: sending.nothing_due(state))
        return found

    return is_due
