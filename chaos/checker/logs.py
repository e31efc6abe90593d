"""The replicas' logs against each other and against what was acknowledged: A34 A35.

Source: chaos.md 3.6; Raft paper 5.3 (log matching), 5.4 (committed entries stay).
"""

from collections import defaultdict

from chaos.checker.events import find_cut_commits
from chaos.checker.model import NOT_CHECKED, SEVERITIES, History, Result, Row, result

Content = tuple[int, int]


def check_log_matching(history: History) -> Result:
    """A34: entries of equal index and term have equal content, committed or not."""
    if not history.replicas:
        return _not_checked("A34")
    contents: dict[tuple[int, int], dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    found: list[Row] = []
    for replica in history.replicas:
        for row in replica.rows:
            if row.entry_index < 0:
                continue
            if row.crc_ok:
                contents[row.entry_index, row.term][row.entry_crc].append(replica.node)
            elif row.entry_index <= replica.commit_index:
                explain = f"index {row.entry_index} of {replica.node} is committed and damaged"
                found.append({"index": row.entry_index, "node": replica.node, "explain": explain})
    for (index, term), views in sorted(contents.items()):
        if len(views) > 1:
            held = "; ".join(f"{crc:08x} on {', '.join(nodes)}" for crc, nodes in views.items())
            explain = f"index {index} term {term}: {held}"
            found.append({"index": index, "term": term, "explain": explain})
    sizes = {replica.node: len(replica.rows) for replica in history.replicas}
    return result("A34", found, f"{len(contents)} (index, term) pairs compared", entries=sizes)


def check_committed(history: History) -> Result:
    """A35: what two replicas both call committed is the same entry, and is there.

    Also: an acknowledged message that a replica holds where others committed something else, and
    that nobody committed anywhere. And: no node cuts what it had called committed.
    """
    if not history.replicas and not history.raft_events:
        return _not_checked("A35")
    views: dict[int, dict[str, Content]] = defaultdict(dict)
    committed_keys: set[int] = set()
    for replica in history.replicas:
        for row in replica.committed():
            views[row.entry_index][replica.node] = (row.term, row.entry_crc)
            if row.msg_key is not None:
                committed_keys.add(row.msg_key)
    found = [
        {"index": index, "views": {n: list(v) for n, v in held.items()}, "explain": words}
        for index, held in sorted(views.items())
        if (words := _describe(history, index, held)) is not None
    ]
    divergent = sum(len(set(held.values())) > 1 for held in views.values())
    replaced = _replaced(history, views, committed_keys)
    commits = {replica.node: replica.commit_index for replica in history.replicas}
    summary = f"{len(views)} committed entries compared, {divergent} differ"
    found += replaced + find_cut_commits(history)
    return result("A35", found, summary, commit_index=commits, divergent=divergent)


def _describe(history: History, index: int, held: dict[str, Content]) -> str | None:
    """Return what is wrong at a committed index; None if nothing is."""
    owing = [r.node for r in history.replicas if r.first_index <= index <= r.commit_index]
    missing = [node for node in owing if node not in held]
    if len(set(held.values())) > 1:
        return f"index {index}: " + "; ".join(
            f"{node} term {term} content {crc:08x}" for node, (term, crc) in held.items()
        )
    if missing:
        return f"index {index} is committed but not on {', '.join(missing)}"
    return None


def _replaced(
    history: History, views: dict[int, dict[str, Content]], committed: set[int]
) -> list[Row]:
    acknowledged = {s["msg_key"]: s for s in history.ok_sends}
    found: dict[int, Row] = {}
    for replica in history.replicas:
        for row in replica.rows:
            key = row.msg_key
            if key is None or key in committed or row.entry_index <= replica.commit_index:
                continue
            if key in acknowledged and row.entry_index in views:
                explain = (
                    f"message {key} was acknowledged (op {acknowledged[key]['op_id']}); "
                    f"{replica.node} holds it at index {row.entry_index}, where others committed "
                    "something else"
                )
                found[key] = {"msg_key": key, "index": row.entry_index, "explain": explain}
    return list(found.values())


def _not_checked(check: str) -> Result:
    return Result(
        check=check,
        verdict=NOT_CHECKED,
        severity=SEVERITIES[check],
        summary="the run has no replicas' logs",
    )
