"""What is told of a run and never judged: A3 A58 A59.

Unknown sends that took effect, elections that brought no leader, and the span of what was lost.
Their numbers are compared between the checkers like any verdict. Source: spec/proof.md A3, A58,
A59.
"""

from collections import defaultdict
from itertools import groupby

from chaos.checker.messages import refused, sort_absent
from chaos.checker.model import History, Result, result, unchecked


def check_unknown(history: History) -> Result:
    """A3: of messages that nobody knows to be stored, how many were seen or lie committed.

    A message counts if none of its sends was acknowledged and not all of them were refused.
    """
    unknown = {
        key
        for key, sends in history.by_key.items()
        if not any(send["outcome"] == "ok" for send in sends) and not all(map(refused, sends))
    }
    seen = {row["msg_key"] for row in history.own if row["msg_key"] in unknown}
    for replica in history.replicas if unknown else ():
        # What waits, or is a copy, lies in topics that nobody sent to.
        seen |= {
            row.msg_key
            for row in replica.committed()
            if row.msg_key in unknown and row.type == "message" and row.topic in history.epochs
        }
    recovered = len(unknown & seen)
    vanished = len(unknown) - recovered
    summary = f"{len(unknown)} unknown: {recovered} took effect, {vanished} did not"
    return result("A3", [], summary, recovered=recovered, vanished=vanished)


def check_storm(history: History) -> Result:
    """A58: candidacies, the terms in which somebody stood, and how many in a row led to nobody."""
    if not history.raft_events:
        return unchecked("A58", "the run has no events of its replicas")
    terms: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
    for row in history.raft_events:
        if row["kind"] in {"become_candidate", "become_leader"} and row["term"] is not None:
            terms[row.get("group") or 0, row["term"]][row["kind"] == "become_leader"] += 1
    longest = 0
    for _, stood in groupby(sorted(terms), key=lambda term: term[0]):
        run = 0
        for term in stood:
            run = 0 if terms[term][1] else run + 1
            longest = max(longest, run)
    elections = sum(candidates for candidates, _ in terms.values())
    failed = sum(not leaders for _, leaders in terms.values())
    summary = f"{elections} candidacies in {len(terms)} terms, {failed} without a leader"
    if longest > 1:
        summary += f", {longest} of them in a row"
    return result(
        "A58", [], summary, elections=elections, terms=len(terms), failed=failed, longest=longest
    )


def check_span(history: History) -> Result:
    """A59: how many messages and bytes A1 found, and from when to when they were acknowledged."""
    sends = [send for _, send in sort_absent(history).lost]
    if not sends:
        said = "nothing is known to be lost"
        return result("A59", [], said, messages=0, bytes=0, span_ms=0.0)
    sends = list({(send["op_id"], send["msg_key"]): send for send in sends}.values())
    keys = {send["msg_key"] for send in sends}
    times = [s["t_inv"] if s["t_cmp"] is None else s["t_cmp"] for s in sends]
    size = sum(send.get("body_len") or 0 for send in sends)
    span = (max(times) - min(times)) / 1e6
    summary = f"{len(keys)} messages, {size} bytes, acknowledged within {span:.0f} ms"
    return result("A59", [], summary, messages=len(keys), bytes=size, span_ms=span)
