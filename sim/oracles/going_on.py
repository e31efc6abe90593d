"""Where a pull is told to go on that was handed nothing, or not all: past nothing that it wants.

Whoever asks goes on there, and does not come back. An offset is called illegal only where the queue
has none such, and the place that is told instead is where it begins or ends. Judged on the wire,
of whoever asks, by the committed log.
Source: spec/wire.md 3.5; RocketMQ PullMessageProcessor, DefaultMessageStore.getMessage.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from sim.oracles.answers import wanted_tags
from sim.oracles.base import Violation

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from chaos.history.segment import EntryRow
    from sim.oracles.replica import Replica
    from sim.oracles.truth import Truth
    from sim.oracles.wire import Said

NAME: Final = "A44 told to go on where the log does not say"
SUCCESS, NOT_FOUND, RETRY, MOVED = 0, 19, 20, 21
HAS_SUBSCRIPTION: Final = 4
"""The bit of ``sysFlag`` that says that the request has what it filters by."""
ALL: Final = "*"
TAGS: Final = ("", "TAG")
LOOKED_AT_MAX: Final = 200
"""Of longer stretches that are passed over the first so many messages are looked at."""
_entry_index: Final = attrgetter("entry_index")


class GoingOn:
    """Judges answers to pulls of a group."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth

    def check(
        self, replica: Replica, request: Said, answer: Said, handed: Collection[int] = ()
    ) -> None:
        """Judge an answer that hands out the messages at some offsets. Errors: `Violation`."""
        asked, told = request.number("queueOffset"), answer.number("nextBeginOffset", -1)
        if asked < 0 or answer.code not in {SUCCESS, NOT_FOUND, RETRY, MOVED}:
            return
        topic, queue_id = request.text("topic"), request.number("queueId")
        rows: Sequence[EntryRow] = self._truth.queues.get((topic, queue_id), [])
        end = self._truth.end_of(topic, queue_id, request.note.applied)
        begin = bisect_left(rows, replica.store.first_index, key=_entry_index)
        if answer.code == MOVED:
            was = bisect_left(rows, request.note.first_index, key=_entry_index)
            wrong = _moved(asked, told, (was, begin), (end, len(rows)))
        else:
            wrong = self._passed(request, range(asked, told), rows, begin, handed)
        if wrong:
            text = f"{replica.name} answers {answer.code} to a pull of {topic}/{queue_id} at"
            raise Violation(NAME, f"{text} {asked}, and has it go on at {told}: {wrong}")

    def _passed(
        self,
        request: Said,
        passed: range,
        rows: Sequence[EntryRow],
        begin: int,
        handed: Collection[int],
    ) -> str:
        """Return what is wrong with going on behind some messages; nothing if that is right."""
        if passed.stop < passed.start:
            return "that is before"
        if passed.stop > max(passed.start, len(rows)):
            return f"{len(rows)} messages are committed there"
        is_told = bool(request.number("sysFlag", 0) & HAS_SUBSCRIPTION)
        if not is_told or request.text("expressionType") not in TAGS:
            return ""  # by what its group says, or by properties
        expression = request.text("subscription").strip()
        wanted = wanted_tags(expression)
        is_all = not expression or expression == ALL
        for offset in range(max(begin, passed.start), passed.stop)[:LOOKED_AT_MAX]:
            row = rows[offset]
            tag = self._truth.tags.get((row.entry_index, row.term), "")
            if offset not in handed and (is_all or (tag and tag in wanted)):
                return f"{offset} has the tag {tag!r}, and {expression!r} is asked for"
        return ""


def _moved(asked: int, told: int, begins: tuple[int, int], ends: tuple[int, int]) -> str:
    """Return what is wrong with calling an offset illegal.

    ``begins``, ``ends``: of the queue as it was asked for, and now.
    """
    has = f"it begins at {begins} and ends at {ends}"
    if not ends[1]:
        return "" if told == 0 else has
    if begins[1] <= asked <= ends[0] and ends[0]:
        return f"{has}: that offset is there"
    if asked < begins[0]:
        return "" if begins[0] <= told <= begins[1] else has
    if asked > ends[1]:
        return "" if ends[0] <= told <= ends[1] else has
    return "" if told <= ends[1] else has
