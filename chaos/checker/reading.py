"""In which order groups read: A13 A14 A17.

A poll that goes back, a poll that skips, and an orderly group whose calls overlap, whose shards
come in another order than they were sent, or which is given more before what it refused. Of polls
only the first delivery of a place to a group counts: what comes again is for A9 to judge.
Source: spec/proof.md A13, A14, A17; 3.0 (prefix maximum).
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise

from chaos.checker.compact import Places
from chaos.checker.model import (
    History,
    Result,
    is_copy,
    lacking,
    result,
    unchecked,
    undecided,
)
from chaos.checker.redelivery import deaths_of
from chaos.history.columns import Row

Queue = tuple[str, str, int]
"""Group, topic, queue."""
Refusal = tuple[str, str, int, int, int, int, bool]
"""Group, topic, queue, offset, message, when it was refused, whether it is owed all the same."""
Reader = tuple[str, str, int, str, int, int]
"""Group, consumer, generation, topic, epoch, queue: one stretch of reading forwards."""
POLLED = ("consumer", "generation", "t_fetch_inv")
CALLED = ("consumer", "op_id", "t_proc_begin", "t_proc_end")
_NEVER = -(1 << 62)


def check_backwards(history: History) -> Result:
    """A13: what a consumer polled later of a queue lies before what it had polled there.

    So does what stands behind it in one call.
    """
    stretches = _polls(history, "A13")
    if isinstance(stretches, Result):
        return stretches
    found: list[Row] = []
    for reader, rows in sorted(stretches.items()):
        highest = -1
        for _, fetch in groupby(rows, key=lambda row: row["t_fetch_inv"]):
            offsets = [row["queue_offset"] for row in fetch]
            for offset in offsets:
                if offset < highest:
                    explain = f"{reader[1]} polled {_at(reader, offset)} after @{highest}"
                    found.append({"place": _at(reader, offset), "explain": explain})
            highest = max(highest, *offsets)
    found += _turned_calls(history)
    return result("A13", found, f"{len(found)} polls went back in a queue")


def _turned_calls(history: History) -> Iterator[Row]:
    """Yield what stands in a call behind a message of its queue that lies behind it."""
    calls: dict[tuple[Reader, int, int], array[int]] = {}
    for row in history.placed:
        place = history.place(row)
        told = all(row.get(name) is not None for name in (*POLLED, "op_id", "pos"))
        if place is not None and told and not row.get("auditor") and not row.get("reconsume"):
            topic, epoch, queue_id, offset = place
            reader = (row["grp"], row["consumer"], row["generation"], topic, epoch, queue_id)
            call = (reader, row["t_fetch_inv"], row["op_id"])
            calls.setdefault(call, array("q")).extend((row["pos"], offset))
    for (reader, _, op_id), given in sorted(calls.items()):
        highest = -1
        for _, offset in sorted(zip(given[::2], given[1::2], strict=True)):
            if offset < highest:
                explain = f"{reader[1]} had {_at(reader, offset)} behind @{highest} in call {op_id}"
                yield {"place": _at(reader, offset), "explain": explain}
            highest = max(highest, offset)


def check_skips(history: History) -> Result:
    """A14: a consumer passed over a message that its group got only later, and from another.

    What it polls last, before it gives a queue up or dies, may be cut anywhere. So may what a
    consumer had at hand that died before another one got it.
    """
    stretches = _polls(history, "A14")
    if isinstance(stretches, Result):
        return stretches
    # What groups got of each queue, by offset: where offsets are far apart nothing lies between.
    got: dict[tuple[object, ...], dict[int, Row]] = defaultdict(dict)
    for reader, rows in stretches.items():
        got[reader[0], *reader[3:]].update((row["queue_offset"], row) for row in rows)
    offsets = {queue: array("q", sorted(firsts)) for queue, firsts in got.items()}
    deaths = deaths_of(history)
    found: dict[tuple[object, ...], Row] = {}
    for reader, rows in sorted(stretches.items()):
        last = rows[-1]["t_fetch_inv"]
        kept = sorted(
            (row for row in rows if row["t_fetch_inv"] < last), key=lambda row: row["queue_offset"]
        )
        queue = (reader[0], *reader[3:])
        known = offsets[queue]
        for before, row in pairwise(kept):
            since = bisect_right(known, before["queue_offset"])
            for offset in known[since : bisect_left(known, row["queue_offset"])]:
                where = (*queue, offset)
                first = got[queue][offset]
                other = (reader[0], first["consumer"], first["generation"])
                later = first["t_recv"] > row["t_recv"] + history.clock_tolerance_ns
                since_then = row["t_recv"] - history.clock_tolerance_ns
                is_cut = _has_died(deaths, reader, since_then, first["t_recv"])
                if other != reader[:3] and later and not is_cut:
                    explain = (
                        f"{reader[1]} polled @{row['queue_offset']} and not {_at(reader, offset)}, "
                        f"which {reader[0]} got later from {other[1]}"
                    )
                    found.setdefault(where, {"place": _at(reader, offset), "explain": explain})
    return result("A14", list(found.values()), f"{len(found)} messages were passed over")


def _has_died(
    deaths: Mapping[tuple[str | None, str], Sequence[int]], reader: Reader, since: int, until: int
) -> bool:
    """Tell whether who read died, or was at fault, in a time."""
    for group in (None, reader[0]):
        times = deaths.get((group, reader[1]), ())
        at = bisect_left(times, since)
        if at < len(times) and times[at] <= until:
            return True
    return False


def _polled(row: Row) -> tuple[int, str, int, int]:
    """Return by what the first of several deliveries is told; what is not known comes first."""
    generation, t = (-1 if row.get(name) is None else row[name] for name in POLLED[1:])
    return row["t_recv"], row.get("consumer") or "", generation, t


def _queue(row: Row) -> Queue:
    return row["grp"], row["topic"], row["queue_id"]


def _at(reader: Reader, offset: int) -> str:
    return f"{reader[3]}/{reader[5]}@{offset}"


def _polls(history: History, check: str) -> dict[Reader, list[Row]] | Result:
    """Return the first deliveries of each stretch of reading, in the order of their polls.

    Or why there are none: the columns that say who polled, and when, are not there. Of a queue
    whose offset was set anew nobody knows where its polls begin.
    """
    firsts = list(_firsts(history))
    told = [row for row in firsts if row["grp"] in history.modes]
    if missing := lacking("deliveries", told, *POLLED):
        return undecided(check, f"needs {missing} of the groups that run.json names in modes")
    polled = [row for row in firsts if not any(row.get(name) is None for name in POLLED)]
    if firsts and not polled:
        return unchecked(check, f"no delivery says its {', '.join(POLLED)}")
    found: dict[Reader, list[Row]] = defaultdict(list)
    for row in polled:
        place = history.place(row)
        if place is not None and _queue(row) not in history.reset_queues:
            topic, epoch, queue_id, _ = place
            reader = (row["grp"], row["consumer"], row["generation"], topic, epoch, queue_id)
            found[reader].append(row)
    for rows in found.values():
        rows.sort(key=lambda row: (row["t_fetch_inv"], row["queue_offset"]))
    return dict(found)


def _firsts(history: History) -> Iterator[Row]:
    """Yield the first delivery of each place to each group, in the order in which they are told."""
    at: dict[str, Places] = defaultdict(Places)
    chosen: list[Row] = []
    for row in history.placed:
        place = history.place(row)
        if place is not None and not row.get("auditor") and not row.get("reconsume"):
            number = at[row["grp"]].first(place, len(chosen))
            if number == len(chosen):
                chosen.append(row)
            elif _polled(row) < _polled(chosen[number]):
                chosen[number] = row
    yield from chosen


def check_shards(history: History) -> Result:
    """A17: an orderly group gets each shard in the order of its sends, in one call at a time.

    And of a queue nothing that lies behind a refused message, until that has come again.
    """
    orderly = {group for group, mode in history.modes.items() if mode == "orderly"}
    rows = [row for row in history.to_groups if row["grp"] in orderly]
    if not rows:
        return unchecked("A17", "run.json names no orderly group that got anything")
    sends = [s for s in history.ok_sends if s.get("kind") == "orderly"]
    missing = [lacking("deliveries", rows, *CALLED), lacking("sends", sends, "shard_key", "t_cmp")]
    if any(missing):
        return undecided("A17", f"needs {', '.join(filter(None, missing))}")
    may_differ = history.clock_tolerance_ns
    kept = [row for row in rows if _queue(row) not in history.reset_queues]
    found = [*_overlapping(rows, may_differ), *_overtaking(sends, kept, may_differ)]
    found += _given_past(history, rows)
    return result("A17", found, f"{len(found)} times an orderly group was not served in order")


def _overlapping(rows: Sequence[Row], may_differ: int) -> Iterator[Row]:
    """Yield the calls of a queue's listeners that began before an earlier one had ended."""
    calls: dict[tuple[str, str, int], dict[tuple[str, int], tuple[int, int]]] = defaultdict(dict)
    for row in rows:
        queue, call = (row["grp"], row["topic"], row["queue_id"]), (row["consumer"], row["op_id"])
        begin, end = calls[queue].get(call, (row["t_proc_begin"], row["t_proc_end"]))
        span = (min(begin, row["t_proc_begin"]), max(end, row["t_proc_end"]))
        calls[queue][call] = span
    for (group, topic, queue_id), spans in sorted(calls.items()):
        busy = -1
        for (begin, end), (consumer, _) in sorted((span, call) for call, span in spans.items()):
            if begin < busy - may_differ:
                explain = (
                    f"{consumer} began with {topic}/{queue_id} of {group} at {begin}, and the call "
                    f"before it ended at {busy}"
                )
                yield {"place": f"{topic}/{queue_id}", "explain": explain}
            busy = max(busy, end)


def _overtaking(sends: Sequence[Row], rows: Sequence[Row], may_differ: int) -> Iterator[Row]:
    """Yield messages that were acknowledged before another was sent, and given after it.

    Where clocks may differ, only what was given so much earlier counts as given before.
    """
    by_key: dict[int, Row] = {}
    for one in sends:  # what was sent again is one message, as it was sent first
        known = by_key.setdefault(one["msg_key"], one)
        times = {name: min(known[name], one[name]) for name in ("t_inv", "t_cmp")}
        by_key[one["msg_key"]] = known | times
    firsts: dict[tuple[str, int], tuple[int, int]] = {}
    for row in rows:
        who = (row["grp"], row["msg_key"])
        at = (row["t_proc_begin"], row.get("pos") or 0)
        firsts[who] = min(firsts.get(who, at), at)
    shards: dict[tuple[str, str, str], list[tuple[tuple[int, int], int]]] = defaultdict(list)
    for (group, key), at in firsts.items():
        send = by_key.get(key)
        if send is not None:
            shards[group, send["topic"], send["shard_key"]].append((at, key))
    for (group, _, shard), given in sorted(shards.items()):
        latest, waiting = _NEVER, deque[tuple[tuple[int, int], int]]()
        for at, key in sorted(given):
            while waiting and (not may_differ or waiting[0][0][0] < at[0] - may_differ):
                latest = max(latest, by_key[waiting.popleft()[1]]["t_inv"])
            if by_key[key]["t_cmp"] < latest:
                explain = f"message {key} of shard {shard} came to {group} after later ones"
                yield {"msg_key": key, "explain": explain}
            waiting.append((at, key))


def _given_past(history: History, rows: Sequence[Row]) -> Iterator[Row]:
    """Yield refused messages that came again only after one that lies behind them, or never.

    What was refused for the last time is passed over by rights: where nobody says how often that
    may be, only what was refused for the first time is owed. A27 asks where a queue is drained.
    """
    calls: dict[Queue, list[tuple[int, int]]] = defaultdict(list)
    again: dict[tuple[str, int], list[int]] = defaultdict(list)
    for row in rows:
        again[row["grp"], row["msg_key"]].append(row["t_proc_begin"])
        if not is_copy(row):
            queue = (row["grp"], row["topic"], row["queue_id"])
            calls[queue].append((row["t_proc_begin"], row["queue_offset"]))
    for times in again.values():
        times.sort()
    for begun in calls.values():
        begun.sort()
    reset = history.reset_queues
    for grp, topic, queue_id, at, key, t, is_owed in sorted(_refusals(history)):
        times = again.get((grp, key), [])
        came = bisect_right(times, t)
        begun = calls.get((grp, topic, queue_id), [])
        is_never = came == len(times)
        began_anew = topic in history.anew or (grp, topic, queue_id) in reset
        if (is_never and not is_owed) or began_anew:
            continue
        since = bisect_right(begun, (t + 2 * history.clock_tolerance_ns, 1 << 62))
        until = len(begun) if is_never else bisect_left(begun, (times[came],))
        past = [offset for _, offset in begun[since:until]]
        if max(past, default=-1) > at:
            then = "and it never came again" if is_never else "before it came again"
            explain = (
                f"{grp} refused message {key} at {topic}/{queue_id}@{at}, and was given "
                f"@{max(past)} {then}"
            )
            yield {"msg_key": key, "explain": explain}


def _refusals(history: History) -> set[Refusal]:
    """Return what orderly groups refused at a known place, when, and are to get again."""
    names = ("grp", "topic", "queue_id", "queue_offset", "msg_key", "t_inv")
    found: set[Refusal] = set()
    for ack in history.acks:
        most, times = history.reconsume_max.get(ack["grp"]), ack.get("reconsume")
        comes_again = most is None or (times is not None and times < most)
        is_orderly = history.modes.get(ack["grp"]) == "orderly"
        if ack["kind"] != "nack" or not is_orderly or not comes_again:
            continue
        if all(ack.get(name) is not None for name in names):
            grp, topic, queue_id, at, key, t = (ack[name] for name in names)
            found.add((grp, topic, queue_id, at, key, t, most is not None or times == 0))
    return found
