"""Order of what was sent, of all producers together, by what passes at their ends.

A send whose request leaves after another send to that queue was acknowledged lies behind it (A11):
whoever leads must have what was acknowledged. The messages of one request lie one behind the other,
in its order, be it acknowledged or not (A12): a log may lack the end of a batch, not its middle.
A queue is where a message is put: delayed ones lie in that of their level, halves in one of theirs.
Source: spec/proof.md 3.4 (A11, A12); spec/wire.md 2.2, 3.3.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from sim.oracles.base import Findings, Violation, guarded
from sim.oracles.library import SENDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.oracles.wire import Said, Tap

LATER: Final = "A11 sent later and stored before"
MIXED: Final = "A12 messages of a batch out of their order"
SUCCESS: Final = 0
_keys: Final = re.compile(rb"KEYS(?:\x01|\\u0001)(\d+)").findall
_level: Final = re.compile(r"(?:^|\x02)DELAY\x01(\d+)").search
_half: Final = re.compile(r"(?:^|\x02)TRAN_MSG\x01true").search

Queue = tuple[str, str, int]
"""Name of the brokers, what it is the queue of, number."""


class Ends:
    """How far one queue was acknowledged, and when that was heard."""

    def __init__(self) -> None:
        self._times_ns: list[int] = []
        self._offsets: list[int] = []

    def before(self, time_ns: int) -> int:
        """Return the highest offset that was acknowledged before a time, -1 for none."""
        at = bisect_left(self._times_ns, time_ns)
        return self._offsets[at - 1] if at else -1

    def add(self, time_ns: int, offset: int) -> None:
        """Take an acknowledgement; times rise."""
        if not self._offsets or offset > self._offsets[-1]:
            self._times_ns.append(time_ns)
            self._offsets.append(offset)


class SentOrder:
    """Listens at the clients' end of their connections to brokers; a `wire.Listener`.

    Args:
        name_of: the name of the brokers at an address.
    """

    def __init__(self, findings: Findings, name_of: Callable[[str], str]) -> None:
        self.findings = findings
        self._name_of = name_of
        self._ends: dict[Queue, Ends] = defaultdict(Ends)
        self._since_ns: dict[str, int] = {}
        """By name, before when nothing that was sent counts any more."""
        self._before: dict[tuple[str, int], set[int | None]] = defaultdict(set)
        """By topic and key, what came before it in a request; None: nothing did."""

    def forget(self, name: str, now_ns: int) -> None:
        """Take that brokers may have lost what they had acknowledged, by their contract."""
        self._since_ns[name] = now_ns
        for queue in [one for one in self._ends if one[0] == name]:
            del self._ends[queue]

    def on_request(self, tap: Tap, request: Said) -> None:
        """A client asks a broker."""
        del tap
        if request.code not in SENDS:
            return
        topic, before = request.text("b") or request.text("topic"), None
        for key in map(int, _keys(request.frame)):
            self._before[topic, key].add(before)
            before = key

    @guarded
    def on_answer(self, tap: Tap, request: Said, answer: Said) -> None:
        """A client hears an answer: what it is told lies behind what was told before it asked."""
        if request.code not in SENDS or answer.code != SUCCESS:
            return
        name = self._name_of(tap.other)
        if request.at_ns <= self._since_ns.get(name, -1):
            return
        queue, first = (name, *_queue_of(request)), answer.number("queueOffset")
        ends = self._ends[queue]
        known = ends.before(request.at_ns)
        if first <= known:
            text = f"{queue}@{first} was sent after {known} of that queue was acknowledged"
            raise Violation(LATER, text)
        ends.add(answer.at_ns, first + answer.text("msgId").count(","))

    def on_stray(self, tap: Tap, answer: Said) -> None:
        """What comes too late, or twice, is the broker's affair."""

    def check_row(self, place: tuple[str, int, int], key: int | None, before: int | None) -> None:
        """Judge a message in a queue, and what lies before it there. Errors: `Violation`."""
        allowed = None if key is None else self._before.get((place[0], key))
        if not allowed or None in allowed or before in allowed:
            return
        text = f"{key} lies at {place} behind {before}; in its request it comes behind"
        raise Violation(MIXED, f"{text} {sorted(one for one in allowed if one)}")


def _queue_of(request: Said) -> tuple[str, int]:
    """Return the queue in which a message is put by its sender's request."""
    properties = request.text("i") or request.text("properties")
    level = _level(properties)
    if level is not None:
        return f"level {level[1]}", 0
    if _half(properties):
        return "halves", 0
    topic = request.text("b") or request.text("topic")
    return topic, request.number("e", request.number("queueId"))
