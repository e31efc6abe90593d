"""What listeners refuse: the ladder of retries, and dead letters (A26 A28 A29 A57).

A message comes again only after it was refused, not before its time, and not more often than its
group allows; what is refused once more then lies in the dead letter queue, and nothing else does.
Source: spec/proof.md A26, A28, A29, A57.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from typing import Any

from chaos.checker.model import (
    History,
    Result,
    lacking,
    result,
    result_of_drained,
    unchecked,
    undecided,
)
from chaos.checker.redelivery import BROKER_NS, unsettled
from chaos.history.columns import Row
from chaos.history.domains import ANSWERED_NS, COPY, EARLY_NS, LETTERS_MORE, PLACE, RECEPTION

Refused = tuple[str, int]
"""Group and message."""


def check_ladder(history: History) -> Result:
    """A26: a retry that comes before its time, without a refusal, or beyond its group's limit.

    A message that says that it comes for the n-th time was refused n times, and the n-th of these
    refusals to be over is over: before any wall clock is moved, only after its delay. The limit is
    for what was received: a consumer keeps what no broker takes back, and goes on counting.
    """
    again = [d for d in history.to_groups if (d.get("reconsume") or 0) and d["msg_key"] is not None]
    who = {(d["grp"], d["msg_key"]) for d in again}
    nacks = [a for a in _nacks(history) if (a["grp"], a["msg_key"]) in who]
    if again and not history.acks:
        return undecided("A26", "needs acks: messages came again, and nobody recorded refusals")
    if again and (missing := unnamed_refusals(history)):
        return undecided("A26", missing)
    if missing := lacking("acks", nacks, "t_inv", "delay_ms"):
        return undecided("A26", f"needs {missing} of what was refused and came again")
    over: dict[Refused, list[int]] = defaultdict(list)
    for ack in nacks:
        due = history.waited_until(ack["t_inv"], ack["delay_ms"])
        over[ack["grp"], ack["msg_key"]].append(due)
    for times in over.values():
        times.sort()
    received, firsts = _received(history, who), dict[tuple[Any, ...], int]()
    for row in again:
        copy = _named(row, COPY)
        firsts[copy] = min(firsts.get(copy, row["reconsume"]), row["reconsume"])
    found: list[Row] = []
    for row in again:
        times = over.get((row["grp"], row["msg_key"]), [])
        given = _given_at(row, received[_named(row, RECEPTION)])
        waited = bisect_right(times, given + EARLY_NS)
        most = history.reconsume_max.get(row["grp"])
        beyond = most is not None and firsts[_named(row, COPY)] > most
        if row["reconsume"] > waited or beyond:
            limit = f", beyond the limit of {most}" if beyond else ""
            explain = (
                f"message {row['msg_key']} came to {row['grp']} for the {row['reconsume']}. time "
                f"again{limit}; {waited} refusals of it were over"
            )
            found.append({"msg_key": row["msg_key"], "grp": row["grp"], "explain": explain})
    known = {(row["grp"], row["msg_key"]) for row in found}
    more = sorted(_too_many_copies(history, again, nacks) - known)
    found += [_told(who, "came to {} from more copies than refusals of it made") for who in more]
    return result("A26", found, f"{len(again)} came again, {len(found)} of them against the rules")


def _received(history: History, who: Collection[Refused]) -> dict[tuple[Any, ...], int]:
    """Return as which repeat each message was first tried that somebody received at some time.

    Of all deliveries: of what was sent to topics that nobody knows, the repeats alone are ours.
    """
    found: dict[tuple[Any, ...], int] = {}
    for row in history.deliveries:
        is_member = not row.get("auditor") and not row.get("is_dlq")
        if is_member and (row["grp"], row["msg_key"]) in who:
            reception, number = _named(row, RECEPTION), row.get("reconsume") or 0
            found[reception] = min(found.get(reception, number), number)
    return found


def _given_at(row: Row, first: int) -> int:
    """Return when a repeat was given: as it was received, or as its consumer tried it once more.

    What a consumer keeps and tries again itself was received only once, as the ``first`` repeat.
    """
    begun = row.get("t_proc_begin") or 0
    return int(max(row["t_recv"], begun) if row["reconsume"] > first else row["t_recv"])


def _named(row: Row, names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in names)


def _too_many_copies(history: History, again: Sequence[Row], nacks: Sequence[Row]) -> set[Refused]:
    """Return what came again from more copies than refusals made, whatever number each says.

    A copy follows from a refusal. Where the answer to it may be lost, amid unrest or soon after,
    its client gives the message back once more, and there are more copies of one refusal.
    """
    made: dict[tuple[Refused, int], list[int]] = defaultdict(list)
    for ack in nacks:
        if ack["reconsume"] is not None:
            made[(ack["grp"], ack["msg_key"]), ack["reconsume"] + 1].append(ack["delay_ms"])
    copies: dict[tuple[Any, ...], tuple[int, int]] = {}
    for row in again:
        place = tuple(row[name] for name in PLACE)
        number, t = copies.get(place, (row["reconsume"], row["t_recv"]))
        copies[place] = (min(number, row["reconsume"]), min(t, row["t_recv"]))
    came: dict[tuple[Refused, int], list[int]] = defaultdict(list)
    for (grp, key, *_), (number, t) in copies.items():
        came[(grp, key), number].append(t)
    unrest, near = list(unsettled(history)), BROKER_NS + 2 * history.clock_tolerance_ns
    found = set()
    for (who, number), times in came.items():
        delays = made.get((who, number), [])
        if not delays or len(times) <= len(delays):
            continue
        stored = max(times) - max(delays) * 1_000_000
        is_calm = not any(
            one.start <= stored + near and stored - ANSWERED_NS <= one.end + near for one in unrest
        )
        if is_calm:
            found.add(who)
    return found


def check_false_letters(history: History) -> Result:
    """A28: a dead letter of what was not refused as often as its group allows."""
    known = _letters(history, "A28")
    if isinstance(known, Result):
        return known
    letters, last = known
    found = [
        _told(who, "is a dead letter of {}, and was not refused for the last time")
        for who in sorted(letters)
        if not last[who]
    ]
    return result("A28", found, f"{len(letters)} dead letters, {len(found)} without a reason")


def check_letters_twice(history: History) -> Result:
    """A29: more dead letters of one message than it was refused for the last time.

    Where a broker was at fault, or the lead changed, the answer to a message that was given back
    (36) may be lost: its client gives it back once more, and there are two copies of one refusal,
    or some more.
    """
    known = _letters(history, "A29")
    if isinstance(known, Result):
        return known
    letters, last = known
    doubtful = _given_back_in_doubt(history)
    found = [
        _told(who, f"is {len(places)} dead letters of {{}}, refused {last[who]} times at last")
        for who, places in sorted(letters.items())
        if last[who] and len(places) > last[who] + LETTERS_MORE * doubtful[who]
    ]
    return result("A29", found, f"{len(letters)} dead letters, {len(found)} more than once")


def check_missing_letters(history: History) -> Result:
    """A57: what was refused for the last time, lies in no dead letter queue, nor came again."""
    known = _letters(history, "A57")
    if isinstance(known, Result):
        return known
    letters, last = known
    refused: dict[Refused, int] = {}
    for ack in _nacks(history):
        if last[ack["grp"], ack["msg_key"]]:
            who = (ack["grp"], ack["msg_key"])
            refused[who] = max(refused.get(who, 0), ack["t_inv"] or 0)
    given: dict[Refused, int] = defaultdict(lambda: -1)
    for row in history.to_groups if refused else ():
        who = (row["grp"], row["msg_key"])
        if who in refused:
            given[who] = max(given[who], came_at(row))
    found = [
        (who[0], _told(who, "was refused by {} for the last time and is no dead letter"))
        for who, t in sorted(refused.items())
        if who not in letters and given[who] <= t
    ]
    summary = f"{len(refused)} refused for good"
    return result_of_drained(history, "A57", found, summary, "are no dead letters")


def came_at(row: Row) -> int:
    """Return when a delivery was one that may follow a refusal: not while it is refused itself.

    What a consumer keeps and tries again itself was received only once.
    """
    begun, ended = row.get("t_proc_begin"), row.get("t_proc_end")
    return int(max(row["t_recv"], begun or ended or 0))


def _told(who: Refused, words: str) -> Row:
    return {"msg_key": who[1], "explain": f"message {who[1]} {words.format(who[0])}"}


def unnamed_refusals(history: History, *, groups: Collection[str] | None = None) -> str:
    """Return what is not known of refusals, of some groups or all, in words: of which messages."""
    nacks = [
        ack for ack in history.acks
        if ack["kind"] == "nack" and (groups is None or ack["grp"] in groups)
    ]  # fmt: skip
    missing = lacking("acks", nacks, "msg_key")
    return f"needs {missing} of what was refused" if missing else ""


def _nacks(history: History) -> list[Row]:
    return [a for a in history.acks if a["kind"] == "nack" and a["msg_key"] is not None]


def _given_back_in_doubt(history: History) -> Counter[Refused]:
    """Return how often each message was refused for the last time amid unrest."""
    unrest, most = list(unsettled(history)), history.reconsume_max
    near = BROKER_NS + 2 * history.clock_tolerance_ns
    return Counter(
        (ack["grp"], ack["msg_key"])
        for ack in _nacks(history)
        if ack["grp"] in most
        and ack["reconsume"] >= most[ack["grp"]]
        and any(
            one.start <= ack["t_inv"] + near and ack["t_inv"] <= one.end + near for one in unrest
        )
    )


def _letters(
    history: History, check: str
) -> tuple[dict[Refused, set[tuple[int, int]]], Counter[Refused]] | Result:
    """Return the places of the dead letters, and how often each message was refused at last.

    Or why they cannot be told. A refusal is the last if its message had come again as often as
    its group allows.
    """
    letters: dict[Refused, set[tuple[int, int]]] = defaultdict(set)
    for row in history.own:
        if row.get("is_dlq") and row["msg_key"] is not None:
            place = (row["queue_id"], row["queue_offset"])
            letters[row["grp"], row["msg_key"]].add(place)
    most = history.reconsume_max
    if unnamed := sorted({group for group, _ in letters} - most.keys()):
        return undecided(check, f"needs reconsume_max of {', '.join(unnamed)} in run.json")
    if not most:
        return unchecked(check, "run.json names no limit of retries (reconsume_max)")
    if missing := unnamed_refusals(history, groups=most):
        return undecided(check, missing)
    nacks = [ack for ack in _nacks(history) if ack["grp"] in most]
    if missing := lacking("acks", nacks, "reconsume", "t_inv"):
        return undecided(check, f"needs {missing} of the groups that reconsume_max names")
    last = Counter(
        (ack["grp"], ack["msg_key"]) for ack in nacks if ack["reconsume"] >= most[ack["grp"]]
    )
    return letters, last
