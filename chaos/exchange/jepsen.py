"""Operations of a Jepsen history as rows of our tables: its queue and its Kafka workload.

Queue: ``enqueue``, ``dequeue``, ``drain``; no offsets, so that each message has a place of its own.
Kafka: ``send``, ``poll`` and ``txn`` of both, ``assign`` and ``subscribe``; a key is a queue, a
value is a message of it. Other operations are counted. Knows EDN values, no files.
Source: Jepsen's jepsen.tests.kafka and jepsen.checker/total-queue.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from chaos.exchange.besides import FAULT, STATEMENT, BesidesError, row_of
from chaos.exchange.cells import CellError, key_of
from chaos.exchange.edn import Keyword
from chaos.exchange.quoting import cut, quoted
from chaos.exchange.tables import RunWriter
from chaos.history.domains import TOLERANCE_MAX_NS
from chaos.history.tables import TABLES

TOPIC: Final = "jepsen"
GROUP: Final = "jepsen"
QUEUES: Final = "queues"
"""The operation in which our own exports say how far groups have read."""
CLOCKS: Final = "clock-tolerance-ns"
"""What else it says: by how much clocks may differ."""
TAGS: Final = "subscriptions"
"""By which tags groups subscribe, as run.json has it."""
COVERAGE, PROMISED = "coverage", "contract"
"""How many faults had to take effect, and what was promised, as run.json has it."""
MODES, PROBLEMS = "modes", "problems"
"""Groups of which nothing else tells, and what was wrong with the record: nothing is proved."""
_MICRO: Final = frozenset({"send", "poll"})
_SENDS: Final = frozenset({"send", "poll", "txn"})
_HOLDS: Final = frozenset({"assign", "subscribe", "crash"})
SEEK: Final = "seek-to-beginning?"
"""Said of an assignment after which reading begins anew."""
_TYPES: Final = frozenset({"invoke", "ok", "fail", "info"})
_PLACE: Final = re.compile(r"(.+)/(\d{1,9})")
_SEQ_BITS, _PID_BITS = 40, 22
_NESTED: Final = ("array", "struct")
_INTEGERS: Final = {"int": 1 << 31, "long": 1 << 63}

Place = tuple[str, int | None]
"""Topic and queue; None: nobody knows yet which."""


class OperationError(Exception):
    """An operation is not what a history holds; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation, from its invocation to its completion."""

    f: str
    process: object
    asked: object
    """What was asked: the value of the invocation."""
    told: object
    """What came back: the value of the completion."""
    outcome: str
    begun: int
    ended: int | None
    about: Mapping[str, Any]
    """All that was said of it at its end, or at its beginning if it has none."""


@dataclass(slots=True)
class Pairing:
    """Puts invocations and completions together; a process has one operation at a time."""

    _open: dict[object, Mapping[str, Any]] = field(default_factory=dict)

    def take(self, op: object) -> Operation | None:
        """Take the next line of a history; return the operation that ends by it.

        Errors: OperationError.
        """
        if not isinstance(op, dict) or not {"type", "f", "process"} <= op.keys():
            raise OperationError("no operation: it needs :type, :f and :process")
        if not isinstance(op["type"], str) or op["type"] not in _TYPES:
            raise OperationError(f":type is {cut(str(op['type']))}; write invoke, ok, fail or info")
        if type(op["process"]) is not int:
            return Operation(
                f=str(op["f"]), process=op["process"], asked=None, told=op.get("value"),
                outcome="info", begun=0, ended=None, about=op,
            )  # fmt: skip
        time = op.get("time")
        if type(time) is not int or not 0 <= time < 1 << 62:
            raise OperationError(f":time is {quoted(time)}; write nanoseconds from the start")
        process = op["process"]
        if op["type"] == "invoke":
            if process in self._open:
                raise OperationError(f"process {process} has an operation already")
            self._open[process] = op
            return None
        begun = self._open.pop(process, None)
        if begun is None or begun["f"] != op["f"]:
            raise OperationError(
                f"process {process} ends a {cut(str(op['f']))} that it did not begin"
            )
        return _joined(begun, op)

    def rest(self) -> Iterator[Operation]:
        """Yield the operations that have no end: nobody knows what became of them."""
        for begun in self._open.values():
            yield _joined(begun, None)


def _joined(begun: Mapping[str, Any], ended: Mapping[str, Any] | None) -> Operation:
    last = begun if ended is None else ended
    return Operation(
        f=str(begun["f"]), process=begun["process"], asked=begun.get("value"),
        told=None if ended is None else ended.get("value"),
        outcome="info" if ended is None else str(ended["type"]), begun=begun["time"],
        ended=None if ended is None else ended["time"], about=last,
    )  # fmt: skip


class JepsenRows:
    """Writes operations as sends and deliveries, and knows at the end what was read to its end."""

    def __init__(self, run: RunWriter) -> None:
        self._run = run
        self._number = self._records = 0
        """Of the operation of Kafka under way, and how many records it has told so far."""
        self._generations: Counter[object] = Counter()
        self._held: dict[object, dict[Place, int]] = {}
        """By process that was assigned queues, since which generation it has each."""
        self._acked: dict[Place, int] = {}
        """The highest acknowledged offset of each queue."""
        self._polled: dict[tuple[str, Place], int] = {}
        self._enqueued: set[Place] = set()
        """Queues without offsets: only a drain says that they were read to the end."""
        self._last_ok = self._last_drain = -1
        self.subscriptions: Mapping[str, Any] = {}
        self.tolerance_ns = 0
        """By how much clocks may differ, as our own export says it."""
        self.about: dict[str, dict[str, Any]] = {}
        """What else of run.json our own export says."""
        self.problems: list[str] = []
        self._drain_told = False
        self.ignored: Counter[str] = Counter()

    def add(self, op: Operation) -> None:
        """Take an operation. Errors: OperationError, CellError, FullError, OSError."""
        if type(op.process) is not int:
            if op.f == QUEUES:
                self._ended_as_told(op)
            elif op.f in {FAULT, STATEMENT} and isinstance(op.told, dict):
                self._told_besides(op)
            else:
                self.ignored[op.f] += 1
        elif op.f in _SENDS:
            self._kafka(op)
        elif op.f in _HOLDS:
            self._hold(op)
        elif op.f == "enqueue":
            self._enqueue(op)
        elif op.f in {"dequeue", "drain"}:
            self._dequeue(op)
        else:
            self.ignored[op.f] += 1

    def _hold(self, op: Operation) -> None:
        """Begin a generation. What an assignment leaves to a process it goes on reading."""
        if op.outcome == "fail":
            return
        self._generations[op.process] += 1
        held = self._held.pop(op.process, {})
        if op.f == "assign":
            begun, is_moved = self._generations[op.process], op.about.get(SEEK) is True
            keys = op.asked if isinstance(op.asked, list) else []
            places = [self._place(_as_key(key)) for key in keys]
            self._held[op.process] = {
                place: begun if is_moved else held.get(place, begun) for place in places
            }
        elif op.f == "crash" and held:
            self._held[op.process] = {}

    def _told_besides(self, op: Operation) -> None:
        try:
            table, row = row_of(op.f, op.told)
        except BesidesError as error:
            raise OperationError(str(error)) from error
        self._add(table, row)

    def finish(self) -> None:
        """Write how far queues were read, by what was polled; nothing if the history says it."""
        if self._drain_told:
            return
        whole = self._last_drain > self._last_ok
        for grp in sorted(self._run.queues.readers):
            for topic, queue_id in sorted(self._run.queues.bounds):
                place = (topic, queue_id)
                highest = self._polled.get((grp, place), -1)
                reached = highest >= self._acked.get(place, -1)
                known = self._run.queues.bounds[topic, queue_id] or [0, -1]
                self._add("drain", {
                    "grp": grp, "topic": topic, "queue_id": queue_id, "min_off": known[0],
                    "end_off": known[1] + 1, "read_to": highest + 1,
                    "drained": whole if place in self._enqueued else reached,
                })  # fmt: skip

    def _add(self, table: str, row: dict[str, Any]) -> None:
        """Take a row whose values came as they were. Errors: OperationError, FullError, OSError."""
        for column in TABLES[table]:
            value = row.get(column.name)
            is_plain = not column.type.startswith(_NESTED)
            if value is not None and is_plain and not _fits(column.type, value):
                raise OperationError(f"{column.name} cannot be {quoted(value)}")
        self._run.add(table, row)

    def _send(self, op: Operation, key: int, place: Place, offset: int | None) -> None:
        ok = op.outcome == "ok"
        self._add("sends", {
            "msg_key": key, "pid": op.process, "process": op.process, "topic": place[0],
            "queue_id": place[1], "queue_offset": offset if ok else None, "t_inv": op.begun,
            "t_cmp": op.ended, "outcome": op.outcome, "attempts": op.about.get("attempts", 1),
            "kind": "plain", "tag": op.about.get("tag"),
        })  # fmt: skip
        if ok:
            self._last_ok = max(self._last_ok, op.ended or 0)
            if offset is not None:
                self._acked[place] = max(self._acked.get(place, -1), offset)

    def _receive(
        self, op: Operation, key: int, place: Place, at: tuple[int, int], number: int | None = None
    ) -> None:
        """Write that a message came, in which operation if its order in it is the order read."""
        grp = str(op.about.get("group", GROUP))
        generation = op.about.get("generation")
        if generation is None and op.process in self._held:
            generation = self._held[op.process].get(place, self._generations[op.process])
        offset, pos = at
        self._add("deliveries", {
            "op_id": number, "pos": pos, "grp": grp, "process": op.process,
            "consumer": str(op.about.get("consumer", op.process)), "generation": generation,
            "topic": place[0],
            "queue_id": place[1], "queue_offset": offset, "msg_key": key, "reconsume": 0,
            "t_fetch_inv": op.begun, "t_recv": op.begun if op.ended is None else op.ended,
            "auditor": op.about.get("auditor") is True,
        })  # fmt: skip
        queue = (grp, place)
        self._polled[queue] = max(self._polled.get(queue, -1), offset)

    def _enqueue(self, op: Operation) -> None:
        key = message_key(op.asked)
        self._enqueued.add((TOPIC, 0))
        if op.outcome == "ok":
            self._last_ok = max(self._last_ok, op.ended or 0)
        self._add("sends", {
            "msg_key": key, "pid": op.process, "process": op.process, "topic": TOPIC,
            "t_inv": op.begun, "t_cmp": op.ended, "outcome": op.outcome, "attempts": 1,
            "kind": "plain",
        })  # fmt: skip

    def _dequeue(self, op: Operation) -> None:
        if op.outcome != "ok":
            return
        values = op.told if op.f == "drain" else [op.told]
        if not isinstance(values, list):
            raise OperationError(f":value of a drain is {quoted(values)}; write what it took")
        for pos, value in enumerate(values):
            key = message_key(value)
            # Nobody tells where it lay: each message has a place of its own.
            self._receive(op, key, (TOPIC, 0), (key, pos))
        if op.f == "drain":
            self._last_drain = max(self._last_drain, op.begun)

    def _kafka(self, op: Operation) -> None:
        asked, told = _micros(op.asked), _micros(op.told)
        source = told if op.outcome == "ok" else asked
        self._number += 1
        self._records = 0
        for number, micro in enumerate(source):
            if micro[0] == "send":
                sent = asked[number] if number < len(asked) else micro
                self._kafka_send(op, sent, micro)
            elif op.outcome == "ok" and len(micro) > 1:
                self._kafka_poll(op, micro[1])

    def _kafka_send(self, op: Operation, asked: list[Any], told: list[Any]) -> None:
        if len(asked) < 3 or len(told) < 3:
            raise OperationError(f"{quoted(asked)} is not of the form [:send k v]")
        key, value, offset = _as_key(asked[1]), asked[2], None
        place = self._place(key)
        if isinstance(value, list):
            value = value[-1]
        if isinstance(told[2], list) and len(told[2]) == 2:
            offset = told[2][0]
        if offset is not None and (type(offset) is not int or offset < 0):
            raise OperationError(f"{quoted(offset)} is not an offset")
        self._send(op, message_key(value, key), place, offset)

    def _kafka_poll(self, op: Operation, found: object) -> None:
        if not isinstance(found, dict):
            raise OperationError(f"{quoted(found)} is not a map of what was polled")
        for key, records in found.items():
            place = self._place(key)
            if not isinstance(records, list):
                raise OperationError(f"{quoted(records)} is not a list of [offset value]")
            for record in records:
                if not isinstance(record, list) or len(record) != 2 or type(record[0]) is not int:
                    raise OperationError(f"{quoted(record)} is not of the form [offset value]")
                at = (record[0], self._records)
                self._receive(op, message_key(record[1], key), place, at, self._number)
                self._records += 1

    def _place(self, key: object) -> Place:
        """Return the queue of a key: as our exports name it, by its number, or numbered here."""
        if isinstance(key, str) and (found := _PLACE.fullmatch(key)):
            return found[1], int(found[2])
        if isinstance(key, str) and key.endswith("/"):
            return key[:-1], None
        if type(key) is int and 0 <= key < 1 << 31:
            return TOPIC, key
        return f"{TOPIC}-named", self._run.names.number("queue_id", f"{TOPIC}-named", repr(key))

    def _ended_as_told(self, op: Operation) -> None:
        """Take what our own export says of the end. Errors: OperationError, before any of it."""
        told = _drained(op.told)
        tolerance, tags = op.about.get(CLOCKS, 0), op.about.get(TAGS, {})
        if type(tolerance) is not int or not 0 <= tolerance <= TOLERANCE_MAX_NS:
            raise OperationError(
                f":{CLOCKS} is {quoted(tolerance)}; write 0 to {TOLERANCE_MAX_NS} nanoseconds"
            )
        if not _are_tags(tags):
            raise OperationError(f":{TAGS} is {quoted(tags)}; write {{group {{topic [tag ...]}}}}")
        problems = op.about.get(PROBLEMS, [])
        if not isinstance(problems, list) or not all(isinstance(one, str) for one in problems):
            raise OperationError(f":{PROBLEMS} is {quoted(problems)}; write a list of texts")
        about = {name: _members(name, op.about.get(name)) for name in (COVERAGE, PROMISED, MODES)}
        self._drain_told, self.tolerance_ns, self.subscriptions = True, tolerance, tags
        self.problems += problems
        self.about |= {name: found for name, found in about.items() if found is not None}
        for grp, key, low, end, drained in told:
            topic, queue_id = self._place(key)
            self._add("drain", {
                "grp": grp, "topic": topic, "queue_id": queue_id, "min_off": low,
                "end_off": end, "read_to": end, "drained": drained,
            })  # fmt: skip


def _members(name: str, told: object) -> dict[str, Any] | None:
    """Return a map as run.json can have it; None if it is none. Errors: OperationError."""
    if not isinstance(told, dict):
        return None
    found = {str(key): value for key, value in told.items()}
    try:
        json.dumps(found)
    except (TypeError, ValueError) as error:
        raise OperationError(f":{name} is {quoted(told)}; write what JSON has: {error}") from error
    return found


def _fits(kind: str, value: object) -> bool:
    """Tell whether a column of that type can hold a value, and one more than it."""
    if kind in _INTEGERS:
        most = _INTEGERS[kind]
        return type(value) is int and -most <= value < most - 1
    return isinstance(value, str if kind == "string" else bool)


def _drained(told: object) -> list[tuple[str, object, int | None, int | None, bool]]:
    """Return how far groups have read: group, queue, where it begins and ends, whether to the end.

    Errors: OperationError.
    """
    shape = "{group {queue [first end drained?]}}"
    if not isinstance(told, dict):
        raise OperationError(f":value of {QUEUES} is {quoted(told)}; write {shape}")
    found = []
    for grp, queues in told.items():
        if not isinstance(queues, dict):
            raise OperationError(f"the queues of {quoted(grp)} are {quoted(queues)}; write {shape}")
        for key, bounds in queues.items():
            if not isinstance(bounds, list) or len(bounds) != 3 or not _is_reading(*bounds):
                raise OperationError(f"{quoted(key)} was read as {quoted(bounds)}; write {shape}")
            found.append((str(grp), key, *bounds))
    return found


def _are_tags(told: object) -> bool:
    """Tell whether these are the tags of each topic, by group."""
    if not isinstance(told, dict):
        return False
    topics = [one for group, one in told.items() if isinstance(group, str)]
    if len(topics) < len(told) or not all(isinstance(one, dict) for one in topics):
        return False
    return all(
        isinstance(topic, str) and isinstance(tags, list) and all(isinstance(t, str) for t in tags)
        for one in topics
        for topic, tags in one.items()
    )


def _is_reading(low: object, end: object, drained: object) -> bool:
    """Whether these are offsets, or nothing, and a yes or no."""
    offsets = (one is None or (type(one) is int and 0 <= one < 1 << 62) for one in (low, end))
    return all(offsets) and isinstance(drained, bool)


def message_key(value: object, key: object = None) -> int:
    """Return the number of a message: by its value alone, or by its queue and value.

    Small numbers stay to be seen in it: producer is the queue, number the value. Errors: CellError
    if there is no value.
    """
    if value is None:
        raise CellError(":value is nil where a message has to be")
    whole = type(value) is int and value >= 0 and isinstance(value, int)
    ours = isinstance(key, str) and "/" in key
    if isinstance(value, int) and whole and (key is None or ours) and value < 1 << 62:
        return value
    small = isinstance(value, int) and whole and value < 1 << _SEQ_BITS
    if small and isinstance(value, int) and type(key) is int and 0 <= key < 1 << _PID_BITS:
        return key << _SEQ_BITS | value
    return key_of(repr((key, value)))


def _as_key(key: object) -> object:
    """Return a key as maps have it: one that is a vector is a tuple there."""
    return tuple(map(_as_key, key)) if isinstance(key, list) else key


def _micros(value: object) -> list[list[Any]]:
    """Return the steps of an operation: ``[[:send k v] [:poll]]``, or one alone."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise OperationError(f":value is {quoted(value)}; write [[:send k v]] or [[:poll]]")
    steps = [value] if value and isinstance(value[0], Keyword) else value
    for step in steps:
        if not isinstance(step, list) or not step or str(step[0]) not in _MICRO:
            raise OperationError(f"{quoted(step)} is neither [:send k v] nor [:poll]")
    return steps


def operations(forms: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, Operation | str]]:
    """Yield the operations of a history with the lines of their ends; a string: what is wrong."""
    pairing, line = Pairing(), 0
    for line, form in forms:
        try:
            op = pairing.take(form)
        except OperationError as error:
            yield line, str(error)
            continue
        if op is not None:
            yield line, op
    for op in pairing.rest():
        yield line, op
