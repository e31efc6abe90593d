"""A run as Jepsen would have written it: sends and polls by key, for its Kafka checker and Elle.

``jepsen-edn`` has an operation per send and per poll, with offsets; Jepsen looks over what is said
besides (group, consumer, how far queues were read), and our import reads it. ``elle`` makes each
queue a list: a send appends, and one read at the end says what lay in it. Faults and commits are
operations of the nemesis (`chaos.exchange.besides`). Copies in retry and dead letter queues and
logs have no place in either.
Source: Jepsen's jepsen.tests.kafka; Elle's list-append.
"""

import heapq
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from chaos.checker.clocks import widened
from chaos.checker.messages import refused, silent_groups
from chaos.checker.model import History, is_copy
from chaos.checker.sends import WAITS
from chaos.exchange.besides import CONTRACT, operations_besides
from chaos.exchange.edn import Keyword, write_form
from chaos.exchange.jepsen import CLOCKS, COVERAGE, MODES, PROBLEMS, PROMISED, QUEUES, TAGS
from chaos.history.columns import Row

FORMATS: Final = ("jepsen-edn", "elle")
_TYPE, _F, _VALUE, _PROCESS, _TIME, _INDEX = map(
    Keyword, ("type", "f", "value", "process", "time", "index")
)
_NEMESIS: Final = Keyword("nemesis")
_SEND, _POLL, _TXN, _APPEND, _READ = map(Keyword, ("send", "poll", "txn", "append", "r"))
_TIMED: Final = ("sends", "deliveries", "acks", "faults")
FIRST_READER: Final = 1_000_000
"""Producers have numbers below, readers from here on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """One operation before it is numbered: when it began and ended, and what was said."""

    begun: int
    ended: int | None
    f: str
    asked: object
    told: object
    outcome: str
    reader: tuple[Any, ...] = ()
    """Who did it, if it read: a reader has one operation at a time."""
    producer: object = None
    """Who sent it, as far as it is known; of what it sends at once each has a process."""
    about: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was written, and what has no place in such a history."""

    operations: int
    left_out: int


def refuse_target(out: Path, *, force: bool) -> None:
    """See that ``out`` can be made, or with ``force`` replaced. Errors: OSError with what to do."""
    if out.is_dir():
        raise IsADirectoryError(f"{out} is a directory: name a file in it")
    if not out.parent.is_dir():
        raise FileNotFoundError(f"{out.parent} is not a directory: make it first")
    if not force and (out.exists() or out.is_symlink()):
        raise FileExistsError(
            f"{out} is there already: name another file, or write over it: --force"
        )
    if out.exists() and not out.is_file():  # a device or a pipe would be no more
        raise FileExistsError(f"{out} is no file: name one")


def export_history(history: History, form: str, out: Path, *, force: bool = False) -> Exported:
    """Write a history as EDN, an operation a line; ``force`` writes over a file that is there.

    Errors: OSError; then ``out`` is as it was, and nothing is left beside it.
    """
    refuse_target(out, force=force)
    history = _as_recorded(history)
    steps, left_out = (_kafka if form == "jepsen-edn" else _elle)(history)
    is_ours = form == "jepsen-edn"
    last = [_queues(history)] if is_ours else []
    start = min([0, *(step.begun for step in steps)])
    besides = _besides(history, start) if is_ours else iter(())
    work = out.with_name(f"{out.name}.partial")
    number = 0
    try:
        with work.open("w", encoding="utf-8") as lines:
            clients = heapq.merge(_numbered(steps, start), besides, key=_time_of)
            for number, op in enumerate(itertools.chain(clients, last), start=1):
                lines.write(write_form({_INDEX: number - 1, **op}) + "\n")
        work.rename(out)
    finally:
        with suppress(OSError):  # renamed, or never made
            work.unlink()
    return Exported(operations=number, left_out=left_out)


def _as_recorded(history: History) -> History:
    """Return a history with its times as they were: who reads it makes room for clocks again."""
    tolerance_ns = history.clock_tolerance_ns
    if not tolerance_ns:
        return history
    tables: dict[str, Any] = {}
    for name in _TIMED:
        tables[name] = widened(name, list(getattr(history, name)), -tolerance_ns)
    return replace(history, **tables)


def _kafka(history: History) -> tuple[list[_Step], int]:
    steps = [_send_of(send) for send in _attempts(history)]
    polls: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    kept = {id(row) for row in history.own}
    left_out = 0
    for row in history.deliveries:
        if is_copy(row) or id(row) not in kept or row["msg_key"] is None:
            left_out += 1
            continue
        reader = (row["grp"], row.get("consumer"), row["topic"], row["queue_id"])
        began = row["t_recv"] if row.get("t_fetch_inv") is None else row["t_fetch_inv"]
        polls[(*map(str, reader), row.get("generation"), began, row["t_recv"])].append(row)
    for (grp, consumer, topic, queue_id, generation, began, ended), rows in polls.items():
        found = {f"{topic}/{queue_id}": [[r["queue_offset"], r["msg_key"]] for r in _in_turn(rows)]}
        about: list[tuple[str, object]] = [("group", grp), ("consumer", consumer)]
        about += [("generation", generation)] if generation is not None else []
        about += [("auditor", True)] if rows[0].get("auditor") else []
        steps.append(_Step(
            begun=began, ended=max(began, ended), f=_POLL, asked=[[_POLL]], told=[[_POLL, found]],
            # Jepsen looks for polls that go back within a process: each generation is one of its
            # own, since what was not committed before it comes again.
            outcome="ok", reader=(grp, consumer, topic, queue_id, generation), about=tuple(about),
        ))  # fmt: skip
    return steps, left_out


def _in_turn(rows: list[Row]) -> list[Row]:
    """Return what one fetch brought in its order: by offset, but as it came in a turned call.

    A fetch may be handed on in several calls, each of which counts its places from 0.
    """
    calls: dict[object, list[Row]] = defaultdict(list)
    for row in rows:
        calls[row.get("op_id")].append(row)
    turned: list[tuple[int, int, Row]] = []
    for call in calls.values():
        call.sort(key=lambda row: (row.get("pos") or 0, row["queue_offset"]))
        offsets = [row["queue_offset"] for row in call]
        is_straight = offsets == sorted(offsets)
        turned += [
            (at if is_straight else min(offsets), number, row)
            for number, (at, row) in enumerate(zip(offsets, call, strict=True))
        ]
    return [row for *_, row in sorted(turned, key=lambda one: one[:2])]


Found = Mapping[tuple[str, int], list[int]]
"""By topic and message, in which queues it was found; the first to be seen comes first."""


def _queues_found(history: History) -> Found:
    seen: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
    for row in history.placed:
        queue_id = row["queue_id"]
        if row["msg_key"] is not None and queue_id is not None:
            times = seen[row["topic"], row["msg_key"]]
            times[queue_id] = min(row["t_recv"], times.get(queue_id, row["t_recv"]))
    return {name: sorted(times, key=lambda one: (times[one], one)) for name, times in seen.items()}


def _attempts(history: History) -> Iterator[Row]:
    """Yield each send with its queue, and one of unknown outcome for each other queue it is in.

    To Jepsen nobody sent what was read of another queue. Where the queue was not told it is the one
    in which the message was found; an attempt before the last may have chosen another, and as many
    are yielded as there were.
    """
    queues = _queues_found(history)
    for send in history.sends:
        found, tries = queues.get((send["topic"], send["msg_key"]), []), send.get("attempts") or 1
        queue_id = send["queue_id"]
        if queue_id is None and found:
            queue_id = found[0]
        others = [one for one in found if one != queue_id] if send["outcome"] != "fail" else []
        others = others[: tries - 1]
        yield send | {"queue_id": queue_id, "attempts": tries - len(others)}
        for other in others:
            yield send | {"queue_id": other, "attempts": 1, "outcome": "info"}


def _send_of(send: Row) -> _Step:
    queue_id, offset = send["queue_id"], send["queue_offset"]
    key = f"{send['topic']}/" if queue_id is None else f"{send['topic']}/{queue_id}"
    outcome = str(send["outcome"])
    # What waits comes later, or never, and at a place that its send does not say.
    waits = outcome == "ok" and send.get("kind") in WAITS
    if waits or (outcome == "fail" and not refused(send)):
        outcome = "info"
    value, tries = send["msg_key"], send.get("attempts") or 1
    about = [("attempts", tries)] if tries > 1 else []
    about += [("tag", send["tag"])] if send.get("tag") is not None else []
    told = [[_SEND, key, [offset, value] if outcome == "ok" else value]]
    return _Step(
        begun=send["t_inv"], ended=send["t_cmp"], f=_SEND, asked=[[_SEND, key, value]], told=told,
        outcome=outcome, producer=_sender_of(send), about=tuple(about),
    )  # fmt: skip


def _sender_of(send: Row) -> object:
    """Return who sent it, as far as a history says."""
    return send.get("pid") if send.get("process") is None else send["process"]


def _queues(history: History) -> dict[object, object]:
    """Return what our own import reads of the end: how far each group read each queue."""
    told: dict[str, dict[str, list[object]]] = defaultdict(dict)
    for row in history.drain:
        key = f"{row['topic']}/{row['queue_id']}"
        told[row["grp"]][key] = [row["min_off"], row["end_off"], bool(row["drained"])]
    info: dict[object, object] = {_TYPE: Keyword("info"), _F: Keyword(QUEUES), _VALUE: dict(told)}
    info |= {_PROCESS: _NEMESIS, Keyword(TAGS): history.subscriptions}
    if history.coverage is not None:
        info[Keyword(COVERAGE)] = history.coverage
    kept = {name: history.contract[name] for name in CONTRACT if name in history.contract}
    info[Keyword(PROMISED)] = kept
    if silent := silent_groups(history):
        info[Keyword(MODES)] = {group: history.modes[group] for group in sorted(silent)}
    if history.problems:
        info[Keyword(PROBLEMS)] = list(history.problems)
    return info | {Keyword(CLOCKS): history.clock_tolerance_ns}


def _time_of(op: dict[object, Any]) -> int:
    return int(op[_TIME])


def _besides(history: History, start: int) -> Iterator[dict[object, Any]]:
    """Yield what was broken, and what consumers stated, as operations of the nemesis."""
    for time, f, value in operations_besides(history, start):
        about: dict[object, object] = {_TYPE: Keyword("info"), _F: Keyword(f), _TIME: max(0, time)}
        yield about | {_PROCESS: _NEMESIS, _VALUE: value}


def _elle(history: History) -> tuple[list[_Step], int]:
    steps, left_out = [], 0
    for send in _attempts(history):
        step = _send_of(send)
        if send["queue_id"] is None:
            left_out += 1
            continue
        append = [[_APPEND, f"{send['topic']}/{send['queue_id']}", send["msg_key"]]]
        steps.append(_Step(
            begun=step.begun, ended=step.ended, f=_TXN, asked=append, told=append,
            outcome=step.outcome, producer=step.producer,
        ))  # fmt: skip
    times = [t for step in steps for t in (step.begun, step.ended) if t is not None]
    end = max([*times, *(row["t_recv"] for row in history.own)], default=0) + 1
    for number, (key, values) in enumerate(sorted(_queue_orders(history).items())):
        steps.append(_Step(
            begun=end, ended=end + 1, f=_TXN, asked=[[_READ, key, None]],
            told=[[_READ, key, values]], outcome="ok", reader=("read", number),
        ))  # fmt: skip
    return steps, left_out


def _queue_orders(history: History) -> dict[str, list[int]]:
    """Return what lay in each queue, in order: by the auditor's reading, else by all of them."""
    audited = any(row.get("auditor") for row in history.placed)
    queues: dict[str, dict[int, int]] = defaultdict(dict)
    for row in history.placed:
        if bool(row.get("auditor")) == audited and row["msg_key"] is not None:
            places = queues[f"{row['topic']}/{row['queue_id']}"]
            places.setdefault(row["queue_offset"], row["msg_key"])
    return {key: [places[at] for at in sorted(places)] for key, places in queues.items()}


def _numbered(steps: Iterable[_Step], start: int) -> Iterator[dict[object, Any]]:
    """Yield invocations and completions in the order of their times, each process with one open."""
    lines: list[tuple[int, int, int, dict[object, object]]] = []
    pools: dict[object, list[tuple[int, int]]] = defaultdict(list)
    readers: dict[tuple[Any, ...], tuple[int, int]] = {}
    producers = 0
    ordered = sorted(steps, key=lambda step: step.begun)
    times = [time for step in ordered for time in (step.begun, step.ended) if time is not None]
    last = max(times, default=start) - start + 1
    for number, step in enumerate(ordered):
        free = pools[step.producer]
        begun, ended = step.begun - start, None if step.ended is None else step.ended - start
        if step.reader:
            process, busy = readers.get(step.reader, (FIRST_READER + len(readers), -1))
            begun = max(begun, busy + 1)
            ended = begun if ended is None else max(begun, ended)
            readers[step.reader] = (process, ended)
        elif free and free[0][0] < begun:
            _, process = heapq.heappop(free)
        else:
            process, producers = producers, producers + 1
        if not step.reader and ended is not None and step.outcome != "info":
            heapq.heappush(free, (ended, process))
        about: dict[object, object] = {_F: step.f, _PROCESS: process}
        about |= {Keyword(name): value for name, value in step.about}
        asked = about | {_TYPE: Keyword("invoke"), _VALUE: step.asked, _TIME: begun}
        lines.append((begun, 1, number, asked))
        # What has no end is of unknown outcome at the end of all: Jepsen asks completions who sent.
        outcome, ended = ("info", last) if ended is None else (step.outcome, ended)
        told = about | {_TYPE: Keyword(outcome), _VALUE: step.told, _TIME: ended}
        # At one time what ends goes before what begins, but not before its own beginning.
        lines.append((ended, 0 if ended > begun else 2, number, told))
    for _, _, _, op in sorted(lines, key=lambda line: line[:3]):
        yield op
