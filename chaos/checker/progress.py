"""Batches, queues and offsets of groups: A12 A16 A18 A19.

The messages of a batch lie in their order; the auditor finds one at each offset; a group is not
told less than it committed, and did not commit what is not there.
Source: spec/proof.md A12, A16 to A19.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from chaos.checker.model import (
    History,
    Result,
    is_reset,
    lacking,
    result,
    unchecked,
    undecided,
)
from chaos.checker.redelivery import is_lead_seen, unsettled
from chaos.history.columns import Row

Queue = tuple[str, str, int]
"""Group, topic, queue."""
SPREAD_NS = 3_000_000_000
"""By then a commit that a leader took has come to the others: it is sent on once a second."""
SETTLE_NS = 12_000_000_000
"""Whoever was told an offset so long ago has committed since, or gave the queue up: until then its
pulls may carry what it was told."""
ON_ITS_WAY_NS = 3_000_000_000
"""So long after its own commit a pull of the same member may arrive that carries less."""
NEVER = 1 << 62


def check_batches(history: History) -> Result:
    """A12: the messages of one batch lie in its order, where readers found them.

    Between sends A11 asks it.
    """
    sends = [s for s in history.ok_sends if s.get("kind") == "batch"]
    if missing := lacking("sends", sends, "seq"):
        return undecided("A12", f"needs {missing} of batches")
    keys = {send["msg_key"] for send in sends}
    seen: dict[tuple[int, str, int], int] = {}
    for row in history.placed if keys else ():
        if row["msg_key"] in keys and row["queue_offset"] is not None:
            where = (row["msg_key"], row["topic"], row["queue_id"])
            read_at = int(row["queue_offset"])
            seen[where] = min(seen.get(where, read_at), read_at)
    batches: dict[tuple[int, str, int], list[tuple[int, int, int]]] = defaultdict(list)
    for send in sends:
        if send["queue_id"] is not None and send["queue_offset"] is not None:
            where = (send["msg_key"], send["topic"], send["queue_id"])
            offset = seen.get(where, int(send["queue_offset"]))
            batch = (send["op_id"], send["topic"], send["queue_id"])
            batches[batch].append((send["seq"], offset, send["msg_key"]))
    found: list[Row] = []
    for (op_id, topic, queue_id), members in sorted(batches.items()):
        highest = -1
        for _, offset, key in sorted(members):
            if offset <= highest:
                explain = (
                    f"message {key} lies at {topic}/{queue_id}@{offset}, an earlier one of its "
                    f"batch (op {op_id}) at @{highest}"
                )
                found.append({"msg_key": key, "op_id": op_id, "explain": explain})
            highest = max(highest, offset)
    return result("A12", found, f"{len(batches)} batches, {len(found)} messages out of their order")


def check_holes(history: History) -> Result:
    """A16: offsets of a queue, from its first to its end, at which the auditor found nothing."""
    auditors = {row["grp"] for row in history.placed if row.get("auditor")}
    facts = [row for row in history.drain if row["grp"] in auditors]
    if not facts:
        return unchecked("A16", "nobody read the queues from their first message to their end")
    if missing := lacking("drain", facts, "min_off", "end_off"):
        return undecided("A16", f"needs {missing} of the auditor")
    seen: dict[Queue, set[int]] = defaultdict(set)
    for row in history.placed:
        if row.get("auditor") and row["queue_offset"] is not None:
            seen[row["grp"], row["topic"], row["queue_id"]].add(row["queue_offset"])
    found = []
    for (group, topic, queue_id), (low_off, end_off) in sorted(_read_whole(facts).items()):
        if topic not in history.epochs:
            continue
        for low, high in _holes(seen[group, topic, queue_id], low_off, end_off):
            explain = f"{group} found nothing at {topic}/{queue_id}@{low} to @{high - 1}"
            found.append({"place": f"{topic}/{queue_id}@{low}", "explain": explain})
    if not found and not all(row["drained"] for row in facts):
        return undecided("A16", "the auditor did not come to the end of every queue")
    return result("A16", found, f"{len(facts)} queues were read, {len(found)} holes in them")


def _read_whole(facts: Sequence[Row]) -> dict[Queue, tuple[int, int]]:
    """Return where the queues begin and end that were read to their ends, whoever says so."""
    found: dict[Queue, tuple[int, int]] = {}
    for row in facts:
        queue = (row["grp"], row["topic"], row["queue_id"])
        low, end = found.get(queue, (row["min_off"], row["end_off"]))
        found[queue] = (min(low, row["min_off"]), max(end, row["end_off"]))
    for row in facts:
        if not row["drained"]:
            found.pop((row["grp"], row["topic"], row["queue_id"]), None)
    return found


def _holes(seen: set[int], low: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the stretches of ``low..end`` of which nothing was seen."""
    at = low
    for offset in [*sorted(offset for offset in seen if low <= offset < end), end]:
        if offset > at:
            yield at, offset
        at = offset + 1


def check_falls(history: History) -> Result:
    """A18: a group is told a lower offset than what it had committed last.

    Less may be told after a reset, soon after a commit whose outcome nobody knows, and while
    somebody who had been told less may still commit it. A leader answers a commit before the others
    have it: one that was answered amid a fault or a change of the leader, or soon before, may be
    gone. Of masters and slaves, which tell each other of offsets now and then, one soon after, too
    (the contract's ``offsets_settle_ms``). Where a majority decides who leads, and somebody saw
    that, a broker that was killed or has ended matters until it is gone: who takes a commit
    afterwards is there still, unless the lead changes once more.
    """
    asked = [a for a in history.acks if a["kind"] == "fetch"]
    if missing := lacking("acks", asked, "outcome"):
        return undecided("A18", f"needs {missing} of fetches")
    fetches = [a for a in asked if a["outcome"] == "ok"]
    if not fetches:
        return unchecked("A18", "nobody recorded which offsets groups were told")
    if history.clock_tolerance_ns:
        return unchecked("A18", "clocks that may differ do not order fetches and commits")
    columns = ("topic", "queue_id", "value_offset", "t_inv")
    if missing := lacking("acks", fetches, *columns):
        return undecided("A18", f"needs {missing} of fetches")
    settle_ns = int(float(history.contract.get("offsets_settle_ms") or 0) * 1e6)
    by_majority = history.contract.get("durability") == "quorum" and is_lead_seen(history)
    causes = unsettled(history, until_gone=by_majority)
    unrest = [(one.start, one.end + settle_ns) for one in causes]
    spread_ns = max(SPREAD_NS, settle_ns)
    queues: dict[Queue, list[Row]] = defaultdict(list)
    for ack in history.acks:
        at = ack["t_cmp"] if ack["kind"] == "commit" and ack["outcome"] == "ok" else ack["t_inv"]
        is_known = at is not None and ack["topic"] not in history.anew
        if ack["queue_id"] is not None and is_known and _is_told(ack):
            queue = (ack["grp"], ack["topic"], ack["queue_id"])
            queues[queue].append(ack | {"at": at, "sure": _is_sure(ack, unrest, spread_ns)})
    lines = sorted(queues.items(), key=lambda item: str(item[0]))  # some may not say their topic
    found = [one for queue, rows in lines for one in _falls(queue, rows)]
    return result("A18", found, f"{len(fetches)} offsets were told, {len(found)} too low")


def _is_told(ack: Row) -> bool:
    """Tell whether a statement says anything of the offset of a group."""
    return is_reset(ack) or (ack["kind"] != "reset" and ack["value_offset"] is not None)


def _is_sure(ack: Row, unrest: Sequence[tuple[int, int]], spread_ns: int) -> bool:
    """Tell whether a commit stands, whoever leads."""
    begin, end = ack["t_inv"], ack["t_cmp"]
    if ack["kind"] != "commit" or ack["outcome"] != "ok" or begin is None:
        return False
    return not any(start <= end + spread_ns and begin <= over for start, over in unrest)


def _falls(queue: Queue, rows: Sequence[Row]) -> Iterator[Row]:
    """Yield the fetches of a queue that were told less than they had to be."""
    floor = -1
    others: list[tuple[int, int, int]] = []
    """When less may have been committed, what, and until when that may still arrive."""
    own = _own_commits(rows)
    # At one instant nothing is known to be earlier: questions go first.
    for row in sorted(rows, key=_order_of):
        kind, value = row["kind"], row["value_offset"]
        if kind == "reset":
            floor = -1
        elif row["sure"]:
            floor = value
        elif kind == "commit" and row["outcome"] != "fail":
            is_answered = row["outcome"] == "ok"
            others.append((row["at"], value, _next(own, row) if is_answered else NEVER))
        elif kind == "fetch" and row["outcome"] == "ok":
            since = row["at"] - SETTLE_NS
            recent = [v for t, v, over in others if since <= t < row["at"] <= over]
            if value < min([floor, *recent]):
                group, topic, queue_id = queue
                explain = f"{group} was told {value} of {topic}/{queue_id}, and committed {floor}"
                yield {"place": f"{topic}/{queue_id}", "explain": explain}
            others.append((row["at"], value, _next(own, row) + ON_ITS_WAY_NS))


def _own_commits(rows: Sequence[Row]) -> dict[str | None, list[int]]:
    """Return by member when its commits were answered: its pulls carry no less from then on."""
    own: dict[str | None, list[int]] = defaultdict(list)
    for row in rows:
        consumer = row.get("consumer")
        if row["kind"] == "commit" and row["outcome"] == "ok" and consumer is not None:
            own[consumer].append(row["at"])
    for times in own.values():
        times.sort()
    return own


def _next(own: Mapping[str | None, Sequence[int]], row: Row) -> int:
    """Return when the next commit of whoever said this was answered, `NEVER` if none was."""
    commits = own.get(row.get("consumer"), ())
    after = bisect_right(commits, row["at"])
    return commits[after] if after < len(commits) else NEVER


def _order_of(row: Row) -> tuple[int, bool, int]:
    value = row["value_offset"]
    return row["at"], row["kind"] != "fetch", -1 if value is None else value


def check_beyond(history: History) -> Result:
    """A19: a group committed an offset behind the end that its queue had when all was over."""
    if not history.drain:
        return unchecked("A19", "nobody recorded where queues end")
    if missing := lacking("drain", history.drain, "end_off"):
        return undecided("A19", f"needs {missing}")
    told = [ack for ack in history.acks if ack["kind"] == "commit"]
    if missing := lacking("acks", told, "outcome"):
        return undecided("A19", f"needs {missing} of commits")
    ends: dict[tuple[str, int], int] = defaultdict(int)
    for row in history.drain:
        queue = (row["topic"], row["queue_id"])
        ends[queue] = max(ends[queue], row["end_off"])
    highest: dict[Queue, int] = defaultdict(lambda: -1)
    for ack in told:
        is_known = ack["value_offset"] is not None and ack["topic"] not in history.anew
        if ack["outcome"] == "ok" and is_known:
            who = (ack["grp"], ack["topic"], ack["queue_id"])
            highest[who] = max(highest[who], ack["value_offset"])
    endless = {
        f"{topic}/{queue_id}" for _, topic, queue_id in highest if (topic, queue_id) not in ends
    }
    found = []
    for (group, topic, queue_id), value in sorted(highest.items(), key=str):
        end = ends.get((topic, queue_id))
        if end is not None and value > end:
            explain = f"{group} committed {value} of {topic}/{queue_id}, which ends at {end}"
            found.append({"place": f"{topic}/{queue_id}", "explain": explain})
    if endless and not found:
        names = ", ".join(sorted(endless))
        return undecided("A19", f"needs drain of {names}, where groups committed")
    summary = f"{len(highest)} offsets were committed, {len(found)} beyond the end"
    return result("A19", found, summary)
