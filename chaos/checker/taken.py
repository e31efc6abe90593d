"""What disks cannot have taken of what is missing: what others have, and what came afterwards.

Where faults took more disks than the contract bears, loss is excused (`contract`). Of a message
that is named the record often says more: the auditor or another group read it when these faults
were over, or all logs of a group hold it. Then no disk took it, and whoever missed it did so for
another reason. Nor was there what was sent later, or what a group with whole disks acknowledged.

One thing disks do bring about by taking others: a queue ends earlier than it did, and groups that
had read on pass over what is put there next: what is sent then (`_Ends`), and what was sent before
and comes then, since it is delayed, or was committed (`_Places`).

Pure. The Spark job has code of its own. Source: spec/proof.md 4.3 (contract).
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from chaos.catalogue.contracts import SETTLED_NS
from chaos.checker.compact import Place
from chaos.checker.contract import whole_nodes
from chaos.checker.messages import sort_absent, where_found
from chaos.checker.model import History, Result
from chaos.checker.sends import WAITS
from chaos.checker.transactions import decisions, missed_commits
from chaos.history.columns import Row

NEVER: Final = 1 << 62
Span = tuple[int, int]
Missed = tuple[str, Row]
"""A group, and the send of a message that it did not get."""


def not_taken(history: History, check: str, spans: Sequence[Span]) -> str:
    """Return in words what A1 or A55 finds that no disk took; empty if there is none.

    ``spans``: when the faults were in force that took disks.
    """
    ends, others, places = _Ends(history), _Others(history, spans), _Places(history, spans)
    begin, end = min(begin for begin, _ in spans), max(end for _, end in spans)
    later = elsewhere = untouched = 0
    whole = whole_nodes(history)
    for group, send in _missed(history, check):
        if whole and _is_of(history, send, whole):
            untouched += 1
            continue
        amid = begin <= (send["t_cmp"] or NEVER) and send["t_inv"] <= end + SETTLED_NS
        if amid and ends.is_passed(send):
            continue
        if send["t_inv"] > end:
            later += 1
        elif others.have(group, send) and not places.were_of_others(send["msg_key"]):
            elsewhere += 1
    words = [f"{later} of what was sent after them"] if later else []
    words += [f"{elsewhere} that others have"] if elsewhere else []
    words += [f"{untouched} of groups whose disks were whole"] if untouched else []
    return ", ".join(words)


def _is_of(history: History, send: Row, nodes: Collection[str]) -> bool:
    """Tell whether these nodes, and no others, acknowledged a message."""
    told = [
        one.get("node")
        for one in history.by_key[send["msg_key"]]
        if one["outcome"] == "ok" and one["topic"] == send["topic"]
    ]
    return bool(told) and all(node in nodes for node in told)


def _missed(history: History, check: str) -> Iterable[Missed]:
    """Return what groups did not get, each message with its place as far as that is known."""
    if check == "A1":
        return sort_absent(history).lost
    said = decisions(history, check)
    missed = [] if isinstance(said, Result) else missed_commits(history, said)
    proved = (one for one in missed if one[0] in history.read_out)
    return [(group, where_found(history, send)) for group, send in proved]


class _Ends:
    """How far each queue was seen to reach, and when."""

    def __init__(self, history: History) -> None:
        self._history = history
        seen: dict[tuple[str, int, int], list[tuple[int, int]]] = defaultdict(list)
        for place, at in _placed(history):
            seen[place[:3]].append((at, place[3]))
        self._reached: dict[tuple[str, int, int], list[tuple[int, int]]] = {}
        for queue, times in seen.items():
            highest, steps = -1, []
            for at, offset in sorted(times):
                highest = max(highest, offset)
                steps.append((at, highest))
            self._reached[queue] = steps

    def is_passed(self, send: Row) -> bool:
        """Tell whether a message lies where its queue already was before it was sent."""
        place = self._history.place(send)
        if place is None:
            return False
        steps = self._reached.get(place[:3], [])
        earlier = bisect_left(steps, (send["t_inv"], -1))
        return earlier > 0 and steps[earlier - 1][1] >= place[3]


class _Places:
    """Where what had waited was read when the faults were over, and what was there before.

    What is delayed, and a half that is committed, is put into its queue later than it is sent, and
    again by whoever takes over without what was taken. What was seen elsewhere first says nothing.
    """

    def __init__(self, history: History, spans: Sequence[Span]) -> None:
        self._history = history
        self._end = max(end for _, end in spans)
        self._now: dict[int, set[Place]] = defaultdict(set)
        self._first: dict[Place, dict[int, int]] = defaultdict(dict)
        """When each message was seen first at a place."""
        over = _over(spans)
        for row, at in _seen(history):
            place, key = history.place(row), row["msg_key"]
            if place is None or key is None or at is None:
                continue
            if at > over and "t_recv" in row:
                self._now[key].add(place)
            self._first[place][key] = min(at, self._first[place].get(key, at))

    def were_of_others(self, key: int) -> bool:
        """Tell whether a message that had waited lies where another one was."""
        if not any(send.get("kind") in WAITS for send in self._history.by_key[key]):
            return False
        return any(self._was_of_another(place, key) for place in self._now[key])

    def _was_of_another(self, place: Place, key: int) -> bool:
        """Tell whether another one was seen there before, while faults could still take it."""
        first = self._first[place]
        return any(at < first[key] and at <= self._end for one, at in first.items() if one != key)


def _over(spans: Sequence[Span]) -> int:
    """Return when the faults were over; one without an end, as soon as its work was settled."""
    return max(begin + SETTLED_NS if end == NEVER else end for begin, end in spans)


def _placed(history: History) -> Iterator[tuple[Place, int]]:
    """Yield the places of what was acknowledged, or given to somebody, and when."""
    for row, at in _seen(history):
        place = history.place(row)
        if place is not None and at is not None:
            yield place, at


def _seen(history: History) -> Iterator[tuple[Row, int | None]]:
    """Yield what was acknowledged, or given to somebody, and when."""
    for send in history.ok_sends:
        yield send, send["t_cmp"]
    for row in history.placed:
        yield row, row["t_recv"]


class _Others:
    """Who has a message though disks are gone."""

    def __init__(self, history: History, spans: Sequence[Span]) -> None:
        over = _over(spans)
        self._readers: dict[int, set[str]] = defaultdict(set)
        for row in history.placed:
            if row["msg_key"] is not None and row["t_recv"] > over:
                self._readers[row["msg_key"]].add(row["grp"])
        self._holders: dict[tuple[int, str | None], set[tuple[str, str]]] = defaultdict(set)
        self._members: dict[str, set[tuple[str, str]]] = defaultdict(set)
        for replica in history.replicas:
            one = (replica.group, replica.node)
            self._members[replica.group].add(one)
            for entry in replica.rows:
                if entry.msg_key is not None:
                    self._holders[entry.msg_key, entry.topic].add(one)

    def have(self, group: str, send: Row) -> bool:
        """Tell whether others read a message since, or all logs of a Raft group hold it."""
        held = self._holders.get((send["msg_key"], send["topic"]), set())
        is_everywhere = any(members <= held for members in self._members.values())
        return is_everywhere or bool(self._readers.get(send["msg_key"], set()) - {group})
