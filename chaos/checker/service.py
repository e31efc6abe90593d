"""Was everybody served as they asked to be? A27 A46 A50 A51.

What a listener refused comes again; a group gets what it subscribed to and nothing else; questions
at the end are answered by what the rest of the record says; and no process of the system ends that
no fault ended. Source: spec/proof.md A27, 3.0 (tag filter), 4.1 (probe).
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable

from chaos.checker.model import (
    VALID,
    History,
    Result,
    result,
    result_of_drained,
    undecided,
)
from chaos.checker.retries import came_at, unnamed_refusals
from chaos.history.columns import Row


def check_refused(history: History) -> Result:
    """A27: a message that a listener refused and that its group never got again.

    What its group has accepted once is not owed: a member that had the queue before may have
    committed beyond it, and the one that refused it loses the queue before it could give it back.
    """
    nacks = [ack for ack in history.acks if ack["kind"] == "nack"]
    if missing := unnamed_refusals(history):
        return undecided("A27", missing)
    refusals: dict[tuple[str, int], int] = {}
    letters = {(row["grp"], row["msg_key"]) for row in history.own if row.get("is_dlq")}
    for ack in nacks:
        if ack["t_inv"] is not None:
            most, times = history.reconsume_max.get(ack["grp"]), ack.get("reconsume")
            who = (ack["grp"], ack["msg_key"])
            if who in letters or (most is not None and (times is None or times >= most)):
                continue  # it becomes a dead letter, or is one: A28, A57
            refusals[who] = max(refusals.get(who, 0), ack["t_inv"])
    last: dict[tuple[str, int | None], int] = defaultdict(lambda: -1)
    for row in history.to_groups if refusals else ():
        who = (row["grp"], row["msg_key"])
        if who in refusals:
            last[who] = max(last[who], came_at(row))
    accepted = _accepted(history, nacks, refusals)
    found = [
        (group, _never_again(group, key))
        for (group, key), t in sorted(refusals.items())
        if last[group, key] <= t and accepted[group, key] <= 0
    ]
    # Also a run that was interrupted before it drained.
    summary = f"{len(refusals)} refused"
    return result_of_drained(history, "A27", found, summary, "did not come again")


def _accepted(
    history: History, nacks: Iterable[Row], refused: Collection[tuple[str, int]]
) -> Counter[tuple[str, int]]:
    """Return by refused message how many calls of its group ended without a refusal of it."""
    ended = (row for row in history.to_groups if row.get("t_proc_end") is not None)
    of = ((row["grp"], row["msg_key"]) for row in ended)
    found = Counter(who for who in of if who in refused)
    found.subtract((ack["grp"], ack["msg_key"]) for ack in nacks)
    return found


def _never_again(group: str, key: int) -> Row:
    return {"msg_key": key, "explain": f"message {key} was refused by {group} and never came again"}


def check_selection(history: History) -> Result:
    """A46: a message delivered to a group whose subscription has not its tag."""
    found: dict[tuple[str, int], Row] = {}
    for row in history.to_groups:
        group, key = row["grp"], row["msg_key"]
        sends = history.by_key.get(key, [])
        chosen = bool(sends) and group in history.subscriptions
        if chosen and not any(history.is_subscribed(group, send) for send in sends):
            tag = sends[0].get("tag")
            explain = f"message {key} with tag {tag} was delivered to {group}"
            found.setdefault((group, key), {"msg_key": key, "explain": explain})
    return result("A46", list(found.values()), f"{len(found)} delivered against a subscription")


def check_answers(history: History) -> Result:
    """A50: an answer at the end, or a reply to a request, that is not what the record demands.

    Also: an end of a queue, as the drain was told it, before what was acknowledged in it.
    """
    found = []
    for row in history.answers:
        if row["told"] != row["expected"]:
            said = "nobody answered" if row["told"] is None else f"the answer was {row['told']}"
            explain = f"{row['kind']} of {row['subject']}: {said}, not {row['expected']}"
            found.append({"subject": row["subject"], "explain": explain})
    highest: dict[tuple[str, int | None], int] = defaultdict(lambda: -1)
    for send in history.ok_sends:
        if send["queue_offset"] is not None and history.is_current(send):
            queue = (send["topic"], send["queue_id"])
            highest[queue] = max(highest[queue], send["queue_offset"])
    short = {
        (d["topic"], d["queue_id"]): d["end_off"]
        for d in history.drain
        if d["end_off"] is not None and d["end_off"] <= highest[d["topic"], d["queue_id"]]
    }
    for (topic, queue_id), end in sorted(short.items()):
        explain = (
            f"the end of {topic}/{queue_id} was told as {end}, but @{highest[topic, queue_id]} "
            "was acknowledged"
        )
        found.append({"subject": f"{topic}/{queue_id}", "explain": explain})
    return result("A50", found, f"{len(history.answers)} answers, {len(found)} wrong")


def check_exits(history: History) -> Result:
    """A51: a process of the system that ended though no fault ended it."""
    found = []
    for row in history.exits:
        told = row.get("log") or ()
        lines = told if isinstance(told, list | tuple) else [told]
        log = " | ".join(map(str, lines)) or "nothing"
        name, code = row.get("process"), row.get("exit")
        explain = f"{name} ended by itself ({code}); the end of its log: {log}"
        found.append({"process": str(name), "explain": explain})
    if not found:
        return result("A51", [], "every process ran until it was ended")
    ended = ", ".join(str(row["process"]) for row in found)
    made = result("A51", found, f"ended by themselves: {ended}")
    assert made.verdict != VALID, "a process that ended is never valid"
    return made
