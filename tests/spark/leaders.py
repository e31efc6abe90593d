"""What leaders do wrong, in small histories: in violation of one check, or lacking a column."""

from collections.abc import Callable
from typing import Any

from tests.spark.generate import HistoryBuilder, Message

Spoil = Callable[[HistoryBuilder, list[Message]], None]


def elect(run: HistoryBuilder, node: str, term: int, last: int) -> None:
    """A node whose log ends at ``last`` gets a vote and leads."""
    voter = next(other for other in run.nodes if other != node)
    run.event(node, "become_candidate", term)
    run.event(voter, "vote_granted", term, peer=node, index=last, prev_index=1)
    run.event(node, "become_leader", term, peer=node)


def short_leader(run: HistoryBuilder, messages: list[Message]) -> None:
    """Up to 2 was committed in term 1; the log of the next leader ended at 1."""
    elect(run, "n1", 2, last=1)


def told_more_than_a_leader_has(run: HistoryBuilder, messages: list[Message]) -> None:
    """Nobody noted the commit of index 5, but its producer was told of it."""
    message = messages[5]
    message.send.update(raft_group=0, raft_index=message.index, raft_term=1)
    elect(run, "n1", 3, last=message.index - 1)


def old_term_committed(run: HistoryBuilder, messages: list[Message]) -> None:
    """It counts replicas of an entry of an earlier term, and appends its own only then."""
    last = len(run.logs["n2"]) - 1
    elect(run, "n2", 4, last=last)
    run.event("n2", "commit", 4, index=last, prev_index=2)
    run.event("n2", "append", 4, index=last + 1, prev_index=last)
    run.event("n2", "commit", 4, index=last + 1, prev_index=last)


def committed_without_an_entry(run: HistoryBuilder, messages: list[Message]) -> None:
    last = len(run.logs["n0"]) + 4
    elect(run, "n0", 5, last=last)
    run.event("n0", "commit", 5, index=last, prev_index=2)


def taken_by_a_replaced_leader(run: HistoryBuilder, messages: list[Message]) -> None:
    messages[6].send["raft_term"] = 0


def written_over(run: HistoryBuilder, messages: list[Message]) -> None:
    """Of a leader's first appends nothing is left: what it committed early is no anomaly."""
    elect(run, "n2", 3, last=3)
    for index in range(4, 8):
        run.event("n2", "append", 3, index=index, prev_index=index - 1)
        run.event("n2", "commit", 3, index=index, prev_index=index - 1)
    events = run.tables["raft_event"]
    frequent = [r for r in events if r["node"] == "n2" and r["kind"] in {"append", "commit"}]
    gone = frequent[:-2]
    kept = frequent[-2]
    assert kept["kind"] == "append", "what is left begins with an append"
    run.tables["raft_event"] = [r for r in events if r not in [*gone, kept]]


def without(kind: str, name: str) -> Spoil:
    """Leave a column of the first event of a kind empty."""

    def spoil(run: HistoryBuilder, messages: list[Any]) -> None:
        events = run.tables["raft_event"]
        next(row for row in events if row["kind"] == kind)[name] = None

    return spoil


LEADER_VIOLATIONS: dict[str, tuple[str, str, Spoil]] = {
    "short leader": ("A36", "invalid", short_leader),
    "told more than a leader has": ("A36", "invalid", told_more_than_a_leader_has),
    "old term committed": ("A37", "invalid", old_term_committed),
    "committed without an entry": ("A37", "invalid", committed_without_an_entry),
    "taken by a replaced leader": ("A38", "invalid", taken_by_a_replaced_leader),
}
LEADERS_LACKING: dict[str, tuple[tuple[str, ...], str, Spoil]] = {
    "log of a candidate": (("A36",), "raft_event.index", without("vote_granted", "index")),
    "begin of an append": (("A37",), "raft_event.prev_index", without("append", "prev_index")),
}
