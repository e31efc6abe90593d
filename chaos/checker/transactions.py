"""Messages of transactions: A53 A54 A55.

What was rolled back is not seen, what was committed is, and not before somebody said so. A
transaction is decided by its producer's word or by its answer to a check-back, unless that failed.
Source: spec/proof.md A53 to A55.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator

from chaos.checker.messages import lies_before, where_found
from chaos.checker.model import (
    History,
    Result,
    lacking,
    result,
    result_of_drained,
    unchecked,
    undecided,
)
from chaos.checker.skipped import OWED, Skips
from chaos.history.columns import Row

Said = dict[int, dict[str, list[Row]]]
"""Of each transaction's message its commits and its rollbacks."""


def check_rolled_back(history: History) -> Result:
    """A53: a message that was delivered, of a transaction that was rolled back and never committed.

    Where both were said, by a producer that contradicts itself, the system may take either.
    """
    said = decisions(history, "A53")
    if isinstance(said, Result):
        return said
    seen = _first_seen(history, said)
    found = [
        {"msg_key": key, "explain": f"message {key} was rolled back, and delivered"}
        for key, words in sorted(said.items())
        if key in seen and words["rollback"] and not words["commit"]
    ]
    return result("A53", found, f"{len(said)} transactions, {len(found)} rolled back and delivered")


def check_undecided(history: History) -> Result:
    """A54: a message that was delivered before anybody said that it is committed.

    Or of whose transaction nobody said anything at all, where others have their steps on record.
    """
    said = decisions(history, "A54")
    if isinstance(said, Result):
        return said
    found = []
    silent = {s["msg_key"] for s in history.sends if s.get("kind") == "txn"} - said.keys()
    seen = _first_seen(history, said.keys() | silent)
    nothing: dict[str, list[Row]] = {"commit": [], "rollback": []}
    for key, words in sorted((said | dict.fromkeys(silent, nothing)).items()):
        begun = [row["t_inv"] for row in words["commit"]]
        waits = not begun and not words["rollback"]
        if key in seen and (waits or (begun and seen[key] < min(begun))):
            explain = f"message {key} was delivered before its transaction was committed"
            found.append({"msg_key": key, "explain": explain})
    return result("A54", found, f"{len(said)} transactions, {len(found)} delivered undecided")


def check_committed_missing(history: History) -> Result:
    """A55: a committed message that a group which consumes its topic never got."""
    said = decisions(history, "A55")
    if isinstance(said, Result):
        return said
    found = []
    for group, send in missed_commits(history, said):
        explain = f"message {send['msg_key']} was committed, and never delivered to {group}"
        found.append((group, {"msg_key": send["msg_key"], "explain": explain}))
    summary = f"{len(said)} transactions"
    return result_of_drained(history, "A55", found, summary, "committed and not given")


def missed_commits(history: History, said: Said) -> Iterator[tuple[str, Row]]:
    """Yield the groups that did not get what was committed, each with its send."""
    skips = Skips(history)
    for key, words in sorted(said.items()):
        send = next(iter(history.by_key.get(key, [])), None)
        sure = any(row["outcome"] == "ok" for row in words["commit"]) and not words["rollback"]
        if send is None or not sure or not history.is_current(send):
            continue
        for group, topics in sorted(history.groups.items()):
            owed = send["topic"] in topics and history.is_subscribed(group, send)
            if owed and (group, key) not in history.got:
                place = where_found(history, send)
                if not _came_late(history, group, place) and skips.of(group, place) == OWED:
                    yield group, send


def _came_late(history: History, group: str, place: Row) -> bool:
    """Tell whether a group began behind the place at which a message was found."""
    queue = (group, place["topic"], place["queue_id"])
    begins = [d for d in history.drain if (d["grp"], d["topic"], d["queue_id"]) == queue]
    lows = [row["min_off"] for row in begins if row["min_off"] is not None]
    return lies_before(place, min(lows, default=None))


def decisions(history: History, check: str) -> Said | Result:
    """Return what was said of each transaction's message: its commits and its rollbacks.

    Or why nobody can tell. What failed for certain decided nothing.
    """
    sends = [s for s in history.sends if s.get("kind") == "txn"]
    if not history.txn:
        if sends:
            return undecided(check, "needs txn: what was decided of the transactions is not there")
        return unchecked(check, "there were no transactions")
    asked = [row for row in history.txn if row["step"] == "checkback"]
    if missing := lacking("txn", asked, "answer") or lacking("txn", history.txn, "outcome"):
        return undecided(check, f"needs {missing}")
    found: dict[int, dict[str, list[Row]]] = defaultdict(lambda: {"commit": [], "rollback": []})
    for row in history.txn:
        word = row["answer"] if row["step"] == "checkback" else row["step"]
        decided = found[row["msg_key"]]
        if word in decided and row["outcome"] != "fail":
            decided[word].append(row)
    return dict(found)


def _first_seen(history: History, keys: Collection[int]) -> dict[int, int]:
    """Return when each of these messages was seen first, by a group or by the auditor."""
    found: dict[int, int] = {}
    for row in history.own if keys else ():
        if row["msg_key"] in keys:
            found[row["msg_key"]] = min(found.get(row["msg_key"], row["t_recv"]), row["t_recv"])
    return found
