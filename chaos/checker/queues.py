"""Are the queues of a replica what its log says? A39.

By the rows of ``queue_index``, what somebody read of a node's queue files: each stands for the
committed entry that it names, and each committed message has a row. Only topics that were sent to
and not made anew; where logs and queues have lost their beginning, what lies before is not asked.
No row says of which group its queue is, so that a node with logs of several groups is passed over.

Source: spec/proof.md A39.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from chaos.checker.model import History, Replica, Result, lacking, result, unchecked, undecided
from chaos.history.columns import Row
from chaos.history.segment import EntryRow

Spot = tuple[str, int, int]
"""Topic, queue, offset."""


def check_queues(history: History) -> Result:
    """A39: a queue that names another entry than lies there, or leaves one out."""
    if not history.queue_index:
        return unchecked("A39", "nobody read the queues of nodes (queue_index)")
    if not history.replicas:
        return unchecked("A39", "the run has no replicas' logs")
    told: dict[str, list[Row]] = defaultdict(list)
    logs = Counter(replica.node for replica in history.replicas)
    passed_over = history.damaged_nodes | {node for node, number in logs.items() if number > 1}
    for row in history.queue_index:
        low, high = history.epochs.get(row["topic"], (0, 1))
        if low == high and row["node"] not in passed_over:
            told[row["node"]].append(row)
    found: dict[str, Row] = {}
    for replica in history.replicas:
        rows = told.get(replica.node)
        if rows:
            for spot, words in _wrong(history, replica, rows):
                where = f"{spot[0]}/{spot[1]}@{spot[2]}"
                key = f"{replica.node}:{where}"
                found.setdefault(key, {"key": key, "explain": f"{replica.node}: {where} {words}"})
    by_index = [row for r in history.replicas if not r.is_plain for row in told.get(r.node, ())]
    if not found and (missing := lacking("queue_index", by_index, "index")):
        return undecided("A39", f"needs {missing}: which entries the places of queues name")
    rows_judged = sum(map(len, told.values()))
    summary = f"{rows_judged} places of queues, {len(found)} not as the log says"
    return result("A39", [found[key] for key in sorted(found)], summary)


def _wrong(history: History, replica: Replica, rows: Sequence[Row]) -> Iterator[tuple[Spot, str]]:
    entries = [
        row
        for row in replica.committed()
        if row.type == "message" and row.crc_ok and _spot(row) is not None
    ]
    by_index = {row.entry_index: row for row in entries}
    by_spot = {spot: row for row in entries if (spot := _spot(row)) is not None}
    begins: dict[tuple[str, int], int] = {}
    for topic, queue_id, offset in by_spot:
        queue = (topic, queue_id)
        begins[queue] = min(begins.get(queue, offset), offset)
    named: set[Spot] = set()
    lowest: dict[tuple[str, int], int] = {}
    for row in rows:
        spot = (row["topic"], row["queue_id"], row["queue_offset"])
        named.add(spot)
        lowest[spot[:2]] = min(lowest.get(spot[:2], spot[2]), spot[2])
        is_gone = replica.first_index > 0 and spot[2] < begins.get(spot[:2], 1 << 62)
        words = "" if is_gone else _complaint(replica, row, by_index, by_spot.get(spot))
        if words:
            yield spot, words
    for spot, entry in by_spot.items():
        low, high = history.epochs.get(spot[0], (0, 1))
        if low == high and spot not in named and spot[2] >= lowest.get(spot[:2], 0):
            yield spot, f"is index {entry.entry_index} of its log, and in no queue"


def _complaint(
    replica: Replica, row: Row, by_index: Mapping[int, EntryRow], there: EntryRow | None
) -> str:
    """Return what is wrong with what a queue names; empty if nothing is."""
    index, spot = row.get("index"), (row["topic"], row["queue_id"], row["queue_offset"])
    entry = there if index is None or replica.is_plain else by_index.get(index)
    if entry is None:
        where = "its place" if index is None or replica.is_plain else f"index {index}"
        return f"is in a queue, and no committed message lies at {where}"
    if _spot(entry) != spot:
        return f"names index {index}, which lies at {entry.topic}/{entry.queue_id}@" + str(
            entry.queue_offset
        )
    key = row.get("msg_key")
    if key is not None and entry.msg_key is not None and key != entry.msg_key:
        return f"names message {key}, and {entry.msg_key} lies there"
    return ""


def _spot(row: EntryRow) -> Spot | None:
    if row.topic is None or row.queue_id is None or row.queue_offset is None:
        return None
    return row.topic, row.queue_id, row.queue_offset
