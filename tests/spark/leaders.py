"""What leaders do wrong, in small histories: in violation of one check, or lacking a column."""

from collections.abc import Callable
from typing import Any

from tests.spark.generate import MS, HistoryBuilder, Message

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


def two_acknowledge(run: HistoryBuilder, messages: list[Message]) -> None:
    """n1 acknowledges one message of the term in which n0 leads."""
    messages[4].send.update(raft_group=7, raft_term=9)
    messages[5].send.update(raft_group=7, raft_term=9, node="n1")


def answer(run: HistoryBuilder, node: str, begin: int, end: int | None, **told: Any) -> None:
    """What a node answers, so many ms from now on; without an end: nobody knows when it came."""
    at = run.clock
    about = {"boot_id": f"{node}-1", "ok": True, "role": "follower", "group": 0} | told
    run.add("raft_probe", node=node, t0=at + begin * MS, t1=None if end is None else at + end * MS,
            **about)  # fmt: skip


def another_vote_told(run: HistoryBuilder, messages: list[Message]) -> None:
    """It says that it voted for n0 in a term, and later, as another process, for n2."""
    answer(run, "n1", 0, 1, term=1, voted_for="n0")
    answer(run, "n1", 2, 3, term=1, voted_for="n2", boot_id="n1-2")


def term_fell_behind_a_silence(run: HistoryBuilder, messages: list[Message]) -> None:
    """When the answer in between came nobody knows; the first one had come."""
    for begin, end, term in ((0, 1, 5), (2, None, 5), (4, 5, 4)):
        answer(run, "n2", begin, end, term=term)


def commit_fell_meanwhile(run: HistoryBuilder, messages: list[Message]) -> None:
    """An answer was under way for long; another, of a lower index, came after the first."""
    for begin, end, commit in ((0, 1, 50), (2, 6, 50), (4, 5, 40)):
        answer(run, "n2", begin, end, term=None, commit=commit)


def members_of_several_groups(run: HistoryBuilder, messages: list[Message]) -> None:
    """One node in two groups: each has a term, a vote, a leader and a commit index of its own."""
    for step in range(4):
        for group, term in ((11, 9), (12, 3)):
            index = 300 - 20 * group + step
            run.event("n1", "vote_granted", term, peer=f"n{group % 2}", index=9, prev_index=0,
                      group=group)  # fmt: skip
            run.event("n1", "commit", term, index=index, prev_index=index - 1, group=group)
            answer(run, "n1", 10 * step + group, 10 * step + group, term=term, commit=index,
                   group=group, voted_for=f"n{group % 2}")  # fmt: skip
    run.clock += 100 * MS


def acknowledged_by_one_of_three(run: HistoryBuilder, messages: list[Message]) -> None:
    """One of the others is down, one stands still; what only one got is acknowledged."""
    send = messages[7].send
    run.fault("stop", ["n1"], send["t_inv"] - 2 * MS, send["t_cmp"] + 3 * MS)
    run.fault("pause", ["n2"], send["t_inv"] - MS, send["t_cmp"] + MS)


def away_at_most(run: HistoryBuilder, messages: list[Message]) -> None:
    """What two of three brokers may have missed, or not: nobody can tell, so nobody is accused."""
    down = [("kill", "n1"), ("stop", "n2")]
    doubts: list[list[tuple[str, str]]] = [
        [("crash_loop", "n2")], [("power_loss", "n1")], [("pause", "n1")], [("nonsense", "n2")],
        [("remove_member", "n0")],
    ]  # fmt: skip
    for message, others in zip(messages, doubts, strict=False):
        send = message.send
        for kind, node in [*down, *others]:
            run.fault(kind, [node], send["t_inv"] - MS // 10, send["t_cmp"] + MS // 10)
    send = messages[len(doubts)].send
    for kind, node in down:  # nobody says when lifting them began
        run.fault(kind, [node], send["t_inv"] - MS // 10, send["t_cmp"] + MS // 10)
        run.tables["faults"][-1]["t_off0"] = None
    send = messages[len(doubts) + 1].send
    for kind, node in down:
        run.fault(kind, [node], send["t_inv"] - MS // 10, send["t_cmp"] + MS // 10)
    run.probe("n2", "follower", 1, send["t_inv"])  # it was there: its witness was mistaken


LEADER_VIOLATIONS: dict[str, tuple[str, str, Spoil]] = {
    "short leader": ("A36", "invalid", short_leader),
    "told more than a leader has": ("A36", "invalid", told_more_than_a_leader_has),
    "old term committed": ("A37", "invalid", old_term_committed),
    "committed without an entry": ("A37", "invalid", committed_without_an_entry),
    "taken by a replaced leader": ("A38", "invalid", taken_by_a_replaced_leader),
    "acknowledged by one of three": ("A38", "invalid", acknowledged_by_one_of_three),
    "two acknowledge": ("A30", "invalid", two_acknowledge),
    "another vote told": ("A31", "invalid", another_vote_told),
    "term fell behind a silence": ("A32", "invalid", term_fell_behind_a_silence),
    "commit fell meanwhile": ("A33", "invalid", commit_fell_meanwhile),
}
LEADERS_LACKING: dict[str, tuple[tuple[str, ...], str, Spoil]] = {
    "log of a candidate": (("A36",), "raft_event.index", without("vote_granted", "index")),
    "begin of an append": (("A37",), "raft_event.prev_index", without("append", "prev_index")),
}
