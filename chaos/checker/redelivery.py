"""A9: a message that a group gets again needs a cause.

Delivery is at least once, so that a message may come again, but only because something happened: a
listener refused it; a consumer came, went or died, or the queue changed hands; a broker died, was
cut off, paused, or lost the lead; a commit failed; the queue's offset was set back. A redelivery
without any of these is a failure of the system: somebody hands out what is done with.

Each delivery after the first is laid beside the last one from the same place, else beside the one
before it. A change of the members explains it
only if the queue could change hands: not if one consumer got it twice within one generation, unless
it was the one that died, and not if one of the two consumers had given the queue up. A cause at
``c`` explains a pair whose earlier delivery lies around it: what was delivered long before had been
committed long before.

Source: spec/proof.md A9; RocketMQ persistConsumerOffsetInterval and rebalance interval.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from chaos.catalogue.faults import ends_process, unsettles
from chaos.checker.compact import Given
from chaos.checker.model import (
    INVALID,
    UNKNOWN,
    VALID,
    History,
    Result,
    is_copy,
    is_reset,
    result,
    span_of,
)
from chaos.history.columns import Row
from chaos.history.domains import QUEUES_MAX

MEMBERS_NS = 6_000_000_000
"""How far from a change of the members the earlier delivery may lie: members learn of a change one
by one, within an interval of rebalancing (5 s), and commit every second."""
BROKER_NS = 3_000_000_000
"""The same for what happens to brokers: a commit interval, and time to find the new leader."""
GIVEN_UP_NS = 2_000_000_000
"""A fetch that begins so long after its consumer gave the queue up is no straggler."""
DEATHS = frozenset({"crash", "kill"})
LIFE = frozenset({"start", "stop", "restart", "shutdown", *DEATHS})
COPY, NACK, CRASH, REBALANCE, BROKER, LEADER, COMMIT, RESET = CAUSES = (
    "copy in the log", "nack", "consumer crash", "rebalance", "broker fault", "leader change",
    "commit failed", "offset reset",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cause:
    """Something that explains redeliveries, from ``start`` to ``end``; None: of any group."""

    name: str
    start: int
    end: int
    margin: int
    group: str | None = None
    queue: tuple[str, int] | None = None
    member: str | None = None
    """The consumer that came or went: it may get again what it got before."""
    may_differ: int = 0
    """How much later it may be told by another host's clock."""

    def explains(self, before: Row, again: Row) -> bool:
        """Tell whether the pair's earlier delivery lies around it, and the later not before it."""
        if self.group not in {None, again["grp"]}:
            return False
        if self.queue is not None and self.queue != (again["topic"], again["queue_id"]):
            return False
        near = self.start - self.margin <= before["t_recv"] <= self.end + self.margin
        return near and self.start <= int(again["t_recv"]) + self.may_differ


def check_redelivery(history: History) -> Result:
    """A9: the deliveries of one message to one group beyond the first; each needs a cause."""
    pairs = list(_pairs(history))
    validator = _Causes(history)
    tally: Counter[str] = Counter()
    found = []
    for before, again in pairs:
        cause = validator.cause_of(before, again)
        tally[cause or "unexplained"] += 1
        if not cause:
            found.append(_told(before, again))
    given = sum(row["msg_key"] is not None for row in history.to_groups)
    allowed = float(history.contract.get("redelivery_ratio_max") or 0)
    split = ", ".join(f"{n} {what}" for what, n in sorted(tally.items()))
    summary = f"{len(pairs)} redeliveries: {split}" if pairs else "nothing was delivered twice"
    details = {"redelivered": len(pairs), "by_cause": dict(tally)}
    made = replace(result("A9", found, summary, **details), verdict=VALID)
    if len(found) <= allowed * given:
        return made
    if validator.knows_members:
        return replace(made, verdict=INVALID)
    why = f"{summary}; the history has no consumer events, which would say why"
    return replace(made, verdict=UNKNOWN, summary=why)


def _pairs(history: History) -> Iterator[tuple[Row, Row]]:
    """Yield each delivery after the first with the one before, by group and message.

    With the last one from the same place, if there is any: another copy in the log, or a retry,
    explains the first delivery from it, and no more.
    """
    given = Given(history.by_key)
    repeated = {
        (row["grp"], row["msg_key"])
        for row in history.to_groups
        if row["msg_key"] is not None and not given.add(row["grp"], row["msg_key"])
    }
    deliveries: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in history.to_groups if repeated else ():
        if (row["grp"], row["msg_key"]) in repeated:
            deliveries[row["grp"], row["msg_key"]].append(row)
    for rows in deliveries.values():
        rows.sort(key=_in_turn)
        there: dict[tuple[str, int | None, int | None], Row] = {}
        for number, again in enumerate(rows):
            before = there.get(_place(again), rows[number - 1])
            there[_place(again)] = again
            if number:
                yield before, again


def _in_turn(row: Row) -> tuple[int, ...]:
    """Return by what the deliveries of a message are ordered: what was kept comes by its number."""
    return row["t_recv"], *(row.get(name) or 0 for name in ("op_id", "pos", "reconsume"))


def _told(before: Row, again: Row) -> Row:
    words = (
        f"message {again['msg_key']} at {again['topic']}/{again['queue_id']}@"
        f"{again['queue_offset']} was delivered again to {again['grp']} by "
        f"{again.get('consumer')}, {(again['t_recv'] - before['t_recv']) / 1e6:.0f} ms after "
        f"{before.get('consumer')}; nothing explains it"
    )
    return {"msg_key": again["msg_key"], "t_recv": again["t_recv"], "explain": words}


class _Causes:
    """What may explain a redelivery in one history."""

    def __init__(self, history: History) -> None:
        life = [e for e in history.events if e["role"] == "consumer" and _unsettles(e)]
        self.knows_members = bool(life)
        self._members = [_member_cause(e) for e in life]
        self._brokers: list[Cause] = []
        for cause in _of_faults(history):
            (self._members if cause.name == CRASH else self._brokers).append(cause)
        self._brokers += [*_of_leaders(history), *_of_commits(history)]
        self._nacks: dict[tuple[str, int], list[int]] = defaultdict(list)
        for ack in history.acks:
            refused = ack["kind"] == "nack" or (ack["kind"] == "ack" and ack["outcome"] != "ok")
            t = ack["t_cmp"] if ack["t_inv"] is None else ack["t_inv"]
            if refused and ack["msg_key"] is not None and t is not None:
                self._nacks[ack["grp"], ack["msg_key"]].append(t)
        # Once for the clock of whoever told it, once more for what widened it as an operation.
        self._slack = 2 * history.clock_tolerance_ns
        self._members = [self._loosened(cause) for cause in self._members]
        self._brokers = [self._loosened(cause) for cause in self._brokers]
        self._held = _Held(life)
        self._resets: dict[tuple[str, str, int], list[tuple[int, int, int]]] = defaultdict(list)
        for ack in history.acks:
            if is_reset(ack) and (span := _span_of(ack)) is not None:
                queue = (ack["grp"], ack["topic"], ack["queue_id"])
                self._resets[queue].append((*span, ack["value_offset"] or 0))

    def _loosened(self, cause: Cause) -> Cause:
        return replace(cause, margin=cause.margin + self._slack, may_differ=self._slack)

    def cause_of(self, before: Row, again: Row) -> str:
        """Return the first cause of a redelivery, empty if it has none."""
        there, here = (_place(row) for row in (before, again))
        if not is_copy(again) and there != here:
            return COPY
        if _is_retry(before, again):
            return NACK
        nacks = self._nacks.get((again["grp"], again["msg_key"]), ())
        first, last = before["t_recv"] - self._slack, again["t_recv"] + self._slack
        if any(first <= t <= last for t in nacks):
            return NACK
        members = self._members
        if not self._may_move(before, again):
            t, who = before["t_recv"], again.get("consumer")
            members = [c for c in members if who and c.member == who and c.end >= t - self._slack]
        causes = [*members, *self._brokers]
        # What comes from a retry queue does not say which that is.
        if not is_copy(again) and (self._held.gave_up(before) or self._held.gave_up(again)):
            return ""
        for cause in causes:
            if cause.explains(before, again):
                return cause.name
        if not is_copy(again) and self._was_reset(before, again):
            return RESET
        if not self.knows_members and _differ(before, again):
            return REBALANCE
        return ""

    def _was_reset(self, before: Row, again: Row) -> bool:
        """Tell whether the queue was set back to the message, or before it, between the two.

        What a member had polled before that may come to it afterwards.
        """
        queue = (again["grp"], again["topic"], again["queue_id"])
        fetched, slack = _fetched_at(before), self._slack
        return any(
            begin <= again["t_recv"] + slack
            and fetched <= end + slack
            and again["queue_offset"] >= low
            for begin, end, low in self._resets.get(queue, ())
        )

    @staticmethod
    def _may_move(before: Row, again: Row) -> bool:
        """Tell whether the queue may have changed hands between the two."""
        known = before.get("consumer") is not None and before.get("generation") is not None
        return not known or _differ(before, again)


def _span_of(ack: Row) -> tuple[int, int] | None:
    """Return when a statement began and ended, as far as it says; None if it does not."""
    known = [ack[name] for name in ("t_inv", "t_cmp") if ack[name] is not None]
    return (min(known), max(known)) if known else None


def _fetched_at(row: Row) -> int:
    return int(row["t_recv"] if row.get("t_fetch_inv") is None else row["t_fetch_inv"])


def _differ(before: Row, again: Row) -> bool:
    return any(before.get(name) != again.get(name) for name in ("consumer", "generation"))


def _place(row: Row) -> tuple[str, int | None, int | None]:
    return row["topic"], row["queue_id"], row["queue_offset"]


def _is_retry(before: Row, again: Row) -> bool:
    """Tell whether a delivery follows from a refusal: not once more, under a number that it had.

    A retry that does not say its number may be any.
    """
    number = again.get("reconsume") or 0
    if _place(before) == _place(again) and number and (before.get("reconsume") or 0) >= number:
        return False
    return number > 0 or bool(again.get("is_retry"))


def _unsettles(event: Row) -> bool:
    return event["f"] in LIFE or event["f"] == "rebalance"


def _member_cause(event: Row) -> Cause:
    value, t = _value_of(event), event["t_mono_ns"]
    if event["f"] == "rebalance":
        return Cause(REBALANCE, t, t, MEMBERS_NS, value.get("grp"))
    member = value.get("consumer") or event.get("node")
    return Cause(CRASH, t, t, MEMBERS_NS, value.get("grp"), member=member)


def _of_faults(history: History, *, until_gone: bool = False) -> Iterator[Cause]:
    """Yield the faults that took effect: of brokers, or of consumers (``consumer:NAME``).

    What is done to producers, to name servers or by a name that no catalogue has is no cause.
    ``until_gone``: those that end a broker last until it is gone.
    """
    for fault in history.witnessed:
        kind, targets, start, lifted = span_of(fault)
        if until_gone and ends_process(kind) and fault["t_on1"] is not None:
            lifted = fault["t_on1"]
        end = 1 << 62 if lifted is None else lifted
        consumers = [target for target in targets if target.startswith("consumer")]
        for target in consumers:
            member = target.removeprefix("consumer:")
            yield Cause(CRASH, start, end, MEMBERS_NS, member=member)
        if not consumers and unsettles(kind, targets, history.nodes):
            yield Cause(BROKER, start, end, BROKER_NS)


def unsettled(history: History, *, until_gone: bool = False) -> Iterator[Cause]:
    """Yield when brokers were at fault, or the lead changed; ``until_gone``: see `_of_faults`."""
    faults = _of_faults(history, until_gone=until_gone)
    yield from (cause for cause in faults if cause.name == BROKER)
    yield from _of_leaders(history)


def is_lead_seen(history: History) -> bool:
    """Tell whether anybody saw who leads, so that a change of the lead is seen, too."""
    return any(_leads(probe) for probe in history.probes)


def _leads(probe: Row) -> bool:
    return bool(probe.get("ok")) and (probe.get("role") or "").lower() == "leader"


def _of_leaders(history: History) -> Iterator[Cause]:
    """Yield the times between the last sight of one leader and the first of the next."""
    seen: dict[tuple[int, int, str], list[int]] = {}
    for probe in history.probes:
        if _leads(probe):
            key = (probe.get("group") or 0, probe.get("term") or 0, probe["node"])
            last = probe["t0"] if probe.get("t1") is None else probe["t1"]
            span = seen.setdefault(key, [probe["t0"], last])
            span[:] = [min(span[0], probe["t0"]), max(span[1], last)]
    previous: dict[int, int] = {}
    for (group, _, _), (first, last) in sorted(seen.items(), key=lambda item: item[1][0]):
        if group in previous:
            yield Cause(LEADER, min(previous[group], first), first, BROKER_NS)
        previous[group] = last


def _of_commits(history: History) -> Iterator[Cause]:
    for ack in history.acks:
        if ack["kind"] == "commit" and ack["outcome"] != "ok" and ack["queue_id"] is not None:
            t = ack["t_cmp"] if ack["t_inv"] is None else ack["t_inv"]
            if t is not None:
                queue = (ack["topic"], ack["queue_id"])
                yield Cause(COMMIT, t, t, MEMBERS_NS, ack["grp"], queue)


class _Held:
    """Which consumer said that it held which queue, from when to when.

    Consumers of two groups may be called the same; who names no group may be of any.
    """

    def __init__(self, events: Sequence[Row]) -> None:
        told: dict[tuple[str, str], list[tuple[str | None, int, list[int]]]] = defaultdict(list)
        for event in sorted(events, key=lambda event: int(event["t_mono_ns"])):
            value = _value_of(event)
            if event["f"] == "rebalance" and value.get("topic") and value.get("consumer"):
                told[value["consumer"], value["topic"]].append(
                    (value.get("grp"), event["t_mono_ns"], value.get("queues") or [])
                )
        self._told = told

    def gave_up(self, row: Row) -> bool:
        """Tell whether a delivery was fetched well after its consumer had given the queue up."""
        said = self._told.get((row.get("consumer") or "", row["topic"]), [])
        told = [(at, queues) for grp, at, queues in said if grp in {None, row["grp"]}]
        t = _fetched_at(row)
        if not told or told[0][0] > t:
            return False
        ends = [*(at for at, _ in told[1:]), 1 << 62]
        return not any(
            row["queue_id"] in queues and begin - MEMBERS_NS <= t <= end + GIVEN_UP_NS
            for (begin, queues), end in zip(told, ends, strict=True)
        )


def deaths_of(history: History) -> dict[tuple[str | None, str], list[int]]:
    """Return when each consumer died, or was at fault: what it had at hand is not on record.

    By its group and name; None: of any group.
    """
    found: dict[tuple[str | None, str], list[int]] = defaultdict(list)
    events = (event for event in history.events if event["role"] == "consumer")
    dead = [_member_cause(event) for event in events if event["f"] in DEATHS]
    for cause in (*dead, *_of_faults(history)):
        if cause.member is not None:
            found[cause.group, cause.member].append(cause.start)
    return {name: sorted(times) for name, times in found.items()}


def _value_of(event: Row) -> dict[str, Any]:
    """Return an event's value, which a table holds as JSON; {} if it is none.

    Without names that are no words, and without an assignment whose queues are no numbers.
    """
    value = event.get("value")
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    if not isinstance(value, dict):
        return {}
    names = ("consumer", "grp", "topic")
    told = {name: value[name] for name in names if isinstance(value.get(name), str)}
    queues = value.get("queues") or []
    if isinstance(queues, list) and all(type(q) is int and 0 <= q < QUEUES_MAX for q in queues):
        return told | {"queues": queues}
    told.pop("topic", None)
    return told
