"""What a listener could not take comes again, later each time, and at last is a dead letter.

Which listener failed is known from the listeners of the run, everything else from the committed
log: each copy has a failure for its cause, one delivery more than what it is a copy of, and waits
as long as the ladder says; no group commits past a message that is neither finished nor copied.
Each copy was asked for once, by a request that gives it back (36) or sends it.
Source: docs/client.md; spec/proof.md 3.3 (A26-A29 A57); RocketMQ
SendMessageProcessor.asyncConsumerSendMsgBack.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from sim.oracles.base import Findings, Violation, guarded
from sim.oracles.delays import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chaos.history.segment import EntryRow
    from sim.oracles.model import Statement
    from sim.oracles.records import Parts
    from sim.oracles.truth import Place, Truth
    from sim.oracles.wire import Said

FIRST_LEVEL: Final = 3
GIVE_BACK: Final = 36
LADDER: Final = "A26 step of the retry ladder"
ALIVE: Final = "A57 delivered too often"
LOST: Final = "A27 neither finished nor given back"
FALSE: Final = "A28 dead letter without a cause"
UNASKED: Final = "A29 given back once, and copied twice"
CHANGED: Final = "A6 retried message changed"
KEPT: Final = ("KEYS", "TAGS", "colour", "UNIQ_KEY")
"""Properties that a copy has as its original."""


class Failure(NamedTuple):
    """A listener could not take a message."""

    stored_times: int
    """How often the message had been delivered before, by its record."""
    told_times: int
    """By what the listener was told: it may have been tried again in place."""
    level: int
    """The level that the listener wants, 0 for the usual one, below for a dead letter."""


class Retries:
    """Judges one group that takes one topic.

    Args:
        names: of the group and the topic.
        times_max: deliveries after the first one.
        levels: how many levels of delay there are.
        dropped: below which offset some broker has ever dropped the messages of a queue.
    """

    def __init__(
        self, truth: Truth, findings: Findings, names: tuple[str, str], times_max: int,
        levels: int, dropped: Mapping[tuple[str, int], int],
    ) -> None:  # fmt: skip
        self._truth = truth
        self._dropped = dropped
        self.findings = findings
        self._group, self._topic = names
        self.retry_topic, self.dead_topic = f"%RETRY%{names[0]}", f"%DLQ%{names[0]}"
        self._times_max = times_max
        self._levels = levels
        self._failures: dict[int, list[Failure]] = defaultdict(list)
        self.done: set[int] = set()
        """Keys that some listener has finished."""
        self._finished: set[Place] = set()
        self.dead: set[int] = set()
        """Keys of dead letters."""
        self._copies: dict[int, int] = {}
        """By key, the most deliveries that any copy counts."""
        self._asked: dict[int, int] = defaultdict(int)
        """By key, how many requests for a copy brokers have heard."""
        self._made: dict[int, int] = defaultdict(int)
        """By key, how many copies are in the log: they wait, or are dead letters."""
        self._past: dict[tuple[str, int], int] = {}
        """By queue, what was looked at when the group committed past it."""
        truth.on_message.append(self._on_message)
        truth.on_statement.append(self._on_statement)

    @guarded
    def on_finished(self, place: Place, key: int) -> None:
        """A listener has finished a message."""
        self.done.add(key)
        self._finished.add(place)

    @guarded
    def on_failed(self, place: Place, key: int, told_times: int, level: int) -> None:
        """A listener has failed for a message."""
        row = self._truth.row(*place)
        parts = None if row is None else self._truth.parts.get((row.entry_index, row.term))
        stored_times = told_times if parts is None else parts.reconsume_times
        self._failures[key].append(Failure(stored_times, told_times, level))

    def hear(self, request: Said) -> None:
        """Count a request for a copy; who hears no answer asks again, and there may be two."""
        if request.code == GIVE_BACK:
            physical = request.number("offset")
        elif request.text("b") == self.retry_topic:
            items = request.text("i").split("\x02")
            ids = [one for one in items if one.startswith("ORIGIN_MESSAGE_ID\x01")]
            physical = _place_of(ids[0].partition("\x01")[2]) if ids else -1
        else:
            return
        row = self._truth.positions.get(physical)
        if row is not None and row.msg_key is not None:
            self._asked[row.msg_key] += 1

    def open(self) -> list[int]:
        """Return the keys that are neither finished nor dead, but for what was dropped."""
        found: list[int] = []
        for (topic, _), rows in self._truth.queues.items():
            for row in rows if topic == self._topic else ():
                key = row.msg_key
                if key is None or key in self.done or key in self.dead:
                    continue
                places = self._truth.keys[key]
                if all(offset >= self._dropped.get((name, at), 0) for name, at, offset in places):
                    found.append(key)
        return found

    def _on_message(self, row: EntryRow, parts: Parts) -> None:
        """Take a committed message. Errors: `Violation`."""
        is_waiting = row.topic == SCHEDULE_TOPIC and parts.told("REAL_TOPIC") == self.retry_topic
        is_dead = row.topic == self.dead_topic
        if row.topic == self.retry_topic and parts.origin is None:
            raise Violation(LADDER, f"entry {row.entry_index} is a retry that has never waited")
        if (is_waiting or is_dead) and row.msg_key is not None and row.queue_id is not None:
            level = row.queue_id + 1 if is_waiting else 0
            self._check_cause(row.msg_key, parts.reconsume_times, level)
            self._check_asked(row.msg_key)
            self._check_same(row, parts)
            known = self._copies.get(row.msg_key, 0)
            self._copies[row.msg_key] = max(known, parts.reconsume_times)
            if is_dead:
                self.dead.add(row.msg_key)

    def _check_cause(self, key: int, times: int, level: int) -> None:
        failures = self._failures[key]
        for one in failures:
            for before in {one.stored_times, one.told_times}:
                if times == before + 1 and level == self._level(before, one.level):
                    return
        text = f"message {key}, delivery {times}, level {level or 'none'}: listeners {failures}"
        if not level:
            raise Violation(FALSE, text, key=key)
        is_late = any(one.stored_times == times - 1 >= self._times_max for one in failures)
        raise Violation(ALIVE if is_late else LADDER, text, key=key)

    def _check_asked(self, key: int) -> None:
        self._made[key] += 1
        made, asked = self._made[key], self._asked[key]
        if made > asked:
            raise Violation(UNASKED, f"message {key} was given back {asked} times: {made} copies")

    def _level(self, times: int, asked: int) -> int:
        """Return the level of the next delivery, 0 for a dead letter."""
        if times >= self._times_max or asked < 0:
            return 0
        return min(asked or FIRST_LEVEL + times, self._levels)

    def _check_same(self, row: EntryRow, parts: Parts) -> None:
        told = parts.told("ORIGIN_MESSAGE_ID")
        first = self._truth.positions.get(_place_of(told))
        said = None if first is None else self._truth.parts.get((first.entry_index, first.term))
        if first is None or said is None:
            raise Violation(CHANGED, f"{row} says that it was {told!r}, where nothing lies")
        differences = [
            name
            for name, is_same in (
                ("id", (first.topic, first.msg_key) == (self._topic, row.msg_key)),
                ("topic", parts.told("RETRY_TOPIC") == self._topic),
                ("body", first.body_hash == row.body_hash),
                ("born time", parts.born_ms == said.born_ms),
                *((name, parts.told(name) == said.told(name)) for name in KEPT),
            )
            if not is_same
        ]
        if differences:
            text = f"{row} has another {', '.join(differences)}: {parts.properties}"
            raise Violation(CHANGED, f"{text}; it was {first} {said.properties}")

    def _on_statement(self, statement: Statement) -> None:
        """Take what the group commits. Errors: `Violation`."""
        if statement.kind != "offset" or not isinstance(statement.content, dict):
            return
        for topic in (self._topic, self.retry_topic):
            for queue_id, offset in statement.content.get(f"{topic}@{self._group}", {}).items():
                self._check_past((topic, int(queue_id)), offset)

    def _check_past(self, queue: tuple[str, int], offset: int) -> None:
        rows = self._truth.queues.get(queue, [])
        first = max(self._past.get(queue, 0), self._dropped.get(queue, 0))
        for at in range(first, min(offset, len(rows))):
            row = rows[at]
            key = row.msg_key
            parts = self._truth.parts.get((row.entry_index, row.term))
            if key is None or parts is None or (*queue, at) in self._finished:
                continue
            if self._copies.get(key, 0) <= parts.reconsume_times:
                text = f"{self._group} commits {offset} in {queue[0]}/{queue[1]}: {key} at {at}"
                raise Violation(LOST, f"{text} was neither finished nor given back", key=key)
        self._past[queue] = max(offset, self._past.get(queue, 0))


def _place_of(message_id: str) -> int:
    """Return where in the log the message with an id of a broker's lies, below 0 if it is none."""
    return int(message_id[-16:], 16) if len(message_id) >= 16 else -1
