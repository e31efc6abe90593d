"""What further clients see: what a poll gives out, what a filter lets by, who a reply is for.

A consumer that is polled gives out each queue in order, from where it was sent last, and commits
nothing of what it gave out before the caller comes again. A read with a filter over properties
hands out what has them of all that it goes past. A reply is the reply to that request. Source:
docs/client.md; spec/wire.md 3.3, 7.3; RocketMQ DefaultLitePullConsumerImpl.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.oracles.base import Findings, Violation, guarded
from sim.workload import colour_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ledgermq.client import MessageQueue
    from sim.oracles.truth import Truth
    from sim.record import Record

Queue = tuple[str, int]

POLLED: Final = "A10 polled otherwise than in order"
DONE: Final = "A1 committed before it was done with"
AHEAD: Final = "A1 committed before it was given out"
LEFT: Final = "A10 left without a commit"
CALLED: Final = "A10 a commit leaves out what was given out"
FILTERED: Final = "A22 a filter that is not kept to"
REPLIED: Final = "A46 a reply to another request"
WAITS: Final = "A46 a request that has ended is waited for"
ODD_PID_SHIFT: Final = 21 + 20
"""Keys of odd clients: what properties their messages have is not known."""

FILTERS: Final = (
    ("TAGS = 'red'", lambda tag, _colour: tag == "red"),
    ("TAGS IS NULL OR TAGS IN ('blue', 'BB')", lambda tag, _colour: tag in {"", "blue", "BB"}),
    ("colour IN ('c1', 'c2', 'c3', 'c5')", lambda _tag, colour: colour in {"c1", "c2", "c3", "c5"}),
    ("colour IS NULL OR colour <> 'c4'", lambda _tag, colour: colour != "c4"),
    ("NOT (colour = 'c4')", lambda _tag, colour: colour not in {None, "c4"}),
    ("NOT (colour <> 'c4' OR colour IS NULL)", lambda _tag, colour: colour == "c4"),
    ("colour NOT IN ('c1', 'c2')", lambda _tag, colour: colour not in {None, "c1", "c2"}),
    ("colour IS NOT NULL AND TAGS = 'Aa'", lambda tag, colour: colour is not None and tag == "Aa"),
)
"""Expressions, and what they mean by the tag and a property of a message."""


class Polling:
    """Judges one consumer that is polled."""

    def __init__(self, name: str, judge: Further) -> None:
        self._name = name
        self._judge = judge
        self._next: dict[MessageQueue, int] = {}
        """Where a queue goes on; not there: wherever the group has come to."""
        self._given: dict[MessageQueue, int] = {}
        """The first message that the last poll gave out of a queue."""
        self._done: dict[MessageQueue, int] = {}
        """Behind the last message that was given out of a queue since it was taken or moved."""
        self._asked: dict[MessageQueue, int] = {}
        """What it asked to commit of a queue last, likewise."""
        self._paused: MessageQueue | None = None

    def on_taken(self, queue: MessageQueue) -> None:
        """A queue is taken anew, or its broker has called an offset illegal."""
        for one in (self._next, self._done, self._asked):
            one.pop(queue, None)

    def on_moved(self, queue: MessageQueue, offset: int | None) -> None:
        """The consumer goes elsewhere, None: nobody knows yet where; what it gave out is void."""
        self.on_taken(queue)
        if offset is not None:
            self._next[queue] = offset
        self._given.pop(queue, None)

    def on_paused(self, queue: MessageQueue | None) -> None:
        """A queue is paused; None: each goes on."""
        self._paused = queue

    def on_done(self, queue: MessageQueue | None = None) -> None:
        """The caller comes again, or commits: it is done with what it was given, of a queue."""
        if queue is None:
            self._given.clear()
        else:
            self._given.pop(queue, None)

    def given_of(self, held: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        """Return behind what was given out of each queue since it was taken or moved."""
        return {queue: self._done[queue] for queue in held if queue in self._done}

    def on_given(self, given: Sequence[tuple[MessageQueue, int]]) -> None:
        """A poll has returned messages."""
        for queue, offset in given:
            if queue == self._paused:
                self._judge.report(POLLED, f"{self._name} is given {queue}@{offset}, and paused it")
            expected = self._next.get(queue)
            if expected is not None and not self._judge.follows(queue, expected, offset):
                text = f"{self._name} is given {queue}@{offset}, and is at {expected}"
                self._judge.report(POLLED, text)
            self._next[queue] = self._done[queue] = offset + 1
            self._given.setdefault(queue, offset)

    def on_commit(self, queue: MessageQueue, offset: int, *, is_known: bool = True) -> None:
        """The consumer asks a broker to commit an offset.

        ``is_known``: each message that was given out of the queue was told here.
        """
        self._asked[queue] = offset
        done, given = self._done.get(queue), self._given.get(queue)
        if is_known and done is not None and offset > done:
            text = f"{self._name} commits {offset} of {queue}; it was given out up to {done}"
            self._judge.report(AHEAD, text)
        if given is not None and offset > given:
            text = f"{self._name} commits {offset} of {queue}; {given} was given out just now"
            self._judge.report(DONE, text)

    def on_committed(self, held: Sequence[MessageQueue]) -> None:
        """The caller has committed all that it was given, and was told of no failure."""
        for queue in held:
            done, asked = self._done.get(queue, 0), self._asked.get(queue, 0)
            if asked < done:
                text = f"{self._name} commits at {queue}@{done}, and {asked} was asked for"
                self._judge.report(CALLED, text)

    def on_elsewhere(self, queue: MessageQueue, told: str, at: int) -> None:
        """A seek went elsewhere than a broker has said."""
        text = f"{self._name} goes to {queue}@{at}, where {told}"
        self._judge.report(POLLED, text)

    def on_stopped(self, held: Sequence[MessageQueue]) -> None:
        """The consumer has stopped in good order, and no commit has failed."""
        for queue in held:
            done, asked = self._done.get(queue, 0), self._asked.get(queue, 0)
            if asked < done:
                text = f"{self._name} stops at {queue}@{done}, and has committed {asked}"
                self._judge.report(LEFT, text)


class Further:
    """Judges all of them, by the committed log."""

    def __init__(
        self, truth: Truth, findings: Findings, record: Record, dropped: Mapping[Queue, int]
    ) -> None:
        self._truth = truth
        self.findings = findings
        self._record = record
        self._dropped = dropped

    def follows(self, queue: MessageQueue, expected: int, offset: int) -> bool:
        """Tell whether a message is the next one that is left, for who is at ``expected``."""
        dropped = self._dropped.get((queue.topic, queue.queue_id), 0)
        return expected <= offset <= max(expected, dropped)

    @guarded
    def on_filtered(self, place: Queue, passed: range, number: int, got: set[int]) -> None:
        """A read with a filter went past some offsets."""
        expression, test = FILTERS[number]
        rows = self._truth.queues.get(place, [])
        for offset in passed:
            row = rows[offset] if offset < len(rows) else None
            key = None if row is None else row.msg_key
            if row is None or key is None or key >> ODD_PID_SHIFT:
                continue
            tag = self._truth.tags.get((row.entry_index, row.term), "")
            is_wanted = test(tag, colour_of(key, is_rich=self._record.is_rich))
            if is_wanted != (offset in got):
                text = f"{place}@{offset} of {passed} with {tag!r}, key {key}: {sorted(got)}"
                self.report(FILTERED, f"{expression}: {text}")
                return

    def on_replied(self, request: bytes, reply: bytes) -> None:
        """Who asked has got a reply."""
        if reply != reply_to(request):
            self.report(REPLIED, f"{request!r} is answered {reply!r}")

    def on_all_ended(self, client: str, waiting: int) -> None:
        """No request of a producer is under way; ``waiting``: how many it waits for."""
        if waiting:
            self.report(WAITS, f"{client} waits for {waiting} replies, and nobody asks for them")

    def report(self, oracle: str, text: str) -> None:
        """Report a violation."""
        self.findings.report(Violation(oracle, text))


def reply_to(request: bytes) -> bytes:
    """Return the body of the reply to a request."""
    return b"reply to " + request
