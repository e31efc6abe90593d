"""What a broker says of a queue beside its messages: where it was at a time, where entries lie.

On the wire, of whoever asks, and from the committed log: the nearest message of a time (29), with
its boundaries; the time of the first message (32); the entries of a queue (321); and where a group
is told to go on (222). Source: spec/wire.md 3.7, 3.9; spec/disk.md 5.3; RocketMQ ConsumeQueue.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from sim.oracles.base import Violation
from sim.oracles.records import ENTRY_HEADER_BYTES, tags_code

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chaos.history.segment import EntryRow
    from sim.oracles.replica import Replica
    from sim.oracles.truth import Truth
    from sim.oracles.wire import Said

BY_TIME, EARLIEST, RESET, UNITS = 29, 32, 222, 321
OF_QUEUES: Final = frozenset({BY_TIME, EARLIEST, RESET, UNITS})
SUCCESS: Final = 0
UNIT_BYTES: Final = 20
NOTHING: Final = -1
"""The time of a queue without messages; the end of a queue, as a time."""
PLAIN: Final = ("orders", "ledger")
"""Topics whose entries have the codes of tags."""
_entry_index: Final = attrgetter("entry_index")
NAME: Final = "A44 answer that is not what the log says"
_row: Final = re.compile(rb'"queueId":(\d+),"topic":"([^"]+)"\}:(\d+)')


class QueueAnswers:
    """Judges them, from what the committed log has."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self.judges = {
            BY_TIME: self._on_time,
            EARLIEST: self._on_earliest,
            RESET: self._on_reset,
            UNITS: self._on_units,
        }
        """By code: what is called with replica, request, answer, and where the queue begins and
        ended at least when it was asked."""

    def _on_earliest(
        self, replica: Replica, request: Said, answer: Said, span: tuple[int, int]
    ) -> None:
        begin, end = span
        if begin >= end:
            return
        times = self._times(request, range(begin + 1))
        told = answer.number("timestamp")
        if None not in times and told not in times:
            place = _place(request)
            text = f"says that {place} begins at {told}; it does at {times[-1]}, offset {begin}"
            _fail(replica, text)

    def _on_time(
        self, replica: Replica, request: Said, answer: Said, span: tuple[int, int]
    ) -> None:
        begin, end = span
        told, wanted = answer.number("offset"), request.number("timestamp")
        begun = self.begin_at(request.note.first_index, self._rows(request))
        boundary = request.text("boundaryType").upper()
        is_there = told or (begin < end and boundary != "UPPER")  # 0 stands for nothing, too
        if is_there and told < begun:
            text = f"says {told} for {wanted} in {_place(request)}, which began at {begun} then"
            _fail(replica, text)
        if begin >= end or (0 < told < begin) or self._truth.may_fall:
            return
        first = max(begin, told - 1)
        times = dict(enumerate(self._times(request, range(first, end)), first))
        if None in times.values():
            return  # not known of all
        at, before, behind = times.get(told), times.get(told - 1), times.get(told + 1)
        if boundary == "UPPER":
            is_late = (at or 0) > wanted and told > begin
            is_wrong = is_late or (behind is not None and behind <= wanted)
        elif boundary:
            is_wrong = (at is not None and at < wanted) or (before is not None and before >= wanted)
        else:
            is_wrong = not self._is_nearest(replica, request, told, span)
        if is_wrong:
            near = {offset: times[offset] for offset in list(times)[:4]}
            text = f"says {told} for {wanted} {boundary} in {_place(request)}, which has {near}"
            _fail(replica, text)

    def _is_nearest(
        self, replica: Replica, request: Said, told: int, span: tuple[int, int]
    ) -> bool:
        """Tell whether no other message of the same file is nearer to a time.

        The file is the first one that ends at or after that time, or the last one.
        """
        begin, end = span
        units = replica.controller._config.queue_file_bytes // UNIT_BYTES
        wanted = request.number("timestamp")
        first = told // units * units
        offsets = range(max(begin, first), min(end, first + units))
        times = self._times(request, offsets)
        known = [time for time in times if time is not None]
        if told not in offsets or len(known) < len(times):
            return True  # it came since, or is not known
        nearest = min(abs(time - wanted) for time in known)
        if abs(known[told - offsets.start] - wanted) > nearest:
            return False
        ends_before = first + units < end and known[-1] < wanted
        (earlier,) = self._times(request, range(first - 1, first)) or (None,)
        return not ends_before and (first <= begin or earlier is None or earlier < wanted)

    def _on_units(
        self, replica: Replica, request: Said, answer: Said, span: tuple[int, int]
    ) -> None:
        table = json.loads(answer.body)
        begin, end = span
        place, first = _place(request), request.number("index")
        rows = self._rows(request)
        if table["minQueueIndex"] > begin or not end <= table["maxQueueIndex"] <= len(rows):
            told = f"{table['minQueueIndex']} to {table['maxQueueIndex']}"
            _fail(replica, f"says that {place} is from {told}; it is from {begin} to {end}")
        for offset, unit in enumerate(table["queueData"], first):
            row = rows[offset] if 0 <= offset < len(rows) else None
            tags = None if row is None else self._truth.tags.get((row.entry_index, row.term), "")
            lies = row is not None and row.pos + ENTRY_HEADER_BYTES == unit["physicOffset"]
            code = tags_code(tags) if tags else 0
            if not lies or (request.text("topic") in PLAIN and code != unit["tagsCode"]):
                _fail(replica, f"says that {place}@{offset} is {unit}, of {row} with {tags!r}")

    def _on_reset(
        self, replica: Replica, request: Said, answer: Said, span: tuple[int, int]
    ) -> None:
        """Judge where a group goes on: at the beginning, at the end, or no later than it was."""
        del span
        time, is_force = request.number("timestamp"), request.text("isForce") == "true"
        topic = request.text("topic")
        for number, name, offset in _row.findall(answer.body):
            if name.decode() != topic:
                continue
            queue_id, told = int(number), int(offset)
            rows = self._truth.queues.get((topic, queue_id), [])
            begin = self.begin(replica, rows)
            is_late = time == 0 and told > begin
            is_early = time == NOTHING and is_force and told < begin
            if is_late or is_early or told > len(rows) > 0:
                text = f"has {request.text('group')} go on at {told} of {topic}/{queue_id}"
                _fail(replica, f"{text} for {time}; it has {begin} to {len(rows)}")

    def begin(self, replica: Replica, rows: Sequence[EntryRow]) -> int:
        """Return the first offset of a queue that is in the log of a replica."""
        return self.begin_at(replica.store.first_index, rows)

    @staticmethod
    def begin_at(first_index: int, rows: Sequence[EntryRow]) -> int:
        """Return the first offset of a queue in a log that begins with an entry."""
        return bisect_left(rows, first_index, key=_entry_index)

    def _rows(self, request: Said) -> Sequence[EntryRow]:
        return self._truth.queues.get((request.text("topic"), request.number("queueId")), [])

    def _times(self, request: Said, offsets: range) -> list[int | None]:
        times = self._truth.times
        rows = [row for at, row in enumerate(self._rows(request)) if at in offsets]
        return [times.get((row.entry_index, row.term)) for row in rows]


def records_in(body: bytes) -> Iterator[bytes]:
    """Yield the records of an answer. Errors: `Violation`: they are none."""
    at = 0
    while at < len(body):
        size = int.from_bytes(body[at : at + 4], "big")
        if not 0 < size <= len(body) - at:
            raise Violation(NAME, f"a record of {size} bytes at {at} of {len(body)}")
        yield body[at : at + size]
        at += size


def _place(request: Said) -> str:
    return f"{request.text('topic')}/{request.number('queueId')}"


def _fail(replica: Replica, text: str) -> None:
    raise Violation(NAME, f"{replica.name} {text}", node=replica.name)
