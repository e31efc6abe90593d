"""Sends that come over one connection lie in the order in which they came, waited for or not.

Judged where the broker hears and answers them: whoever names a queue finds the messages of a
connection in it in their order, also those that waited for their topic. What waits for a time or
for the end of a transaction lies elsewhere. Source: docs/architecture.md (sends).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.oracles.base import Violation

if TYPE_CHECKING:
    from sim.oracles.wire import Said, Tap

NAME: Final = "A20 order of a connection"
SENDS: Final = frozenset({10, 310, 320})
SUCCESS: Final = 0
ELSEWHERE: Final = (b"DELAY", b"TRAN_MSG", b"%RETRY%")
"""In the frame of a send whose messages may lie in another queue first."""
KEPT_MAX: Final = 64
"""Answers are compared with so many before them."""

Place = tuple[str, int]


class Pipeline:
    """Judges one connection at the end of a broker."""

    def __init__(self) -> None:
        self._count = 0
        self._came: dict[int, tuple[int, Place]] = {}
        """By the identity of an open request: the how many-th it is, and where it is to lie."""
        self._lies: dict[Place, list[tuple[int, int]]] = {}
        """By queue: numbers of requests, and the offsets that they were told."""

    def on_request(self, request: Said) -> None:
        """A send comes in."""
        topic = request.text("b") or request.text("topic")
        queue_id = request.number("e" if "e" in request.fields else "queueId")
        if request.code not in SENDS or queue_id < 0 or any(map(request.frame.count, ELSEWHERE)):
            return
        self._count += 1
        self._came[id(request)] = (self._count, (topic, queue_id))

    def on_answer(self, tap: Tap, request: Said, answer: Said) -> None:
        """It is answered. Errors: `Violation`."""
        came = self._came.pop(id(request), None)
        if came is None or answer.code != SUCCESS or answer.number("queueId") != came[1][1]:
            return
        number, place = came
        offset = answer.number("queueOffset")
        known = self._lies.setdefault(place, [])
        for other, its in known:
            if (other < number) != (its < offset):
                text = f"{place}@{offset} came as number {number}, {its} as number {other}"
                raise Violation(NAME, f"{tap.other} over one connection: {text}")
        known.append((number, offset))
        del known[:-KEPT_MAX]
