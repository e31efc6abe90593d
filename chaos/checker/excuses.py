"""What faults excuse, and what they cannot: loss takes what there was, not what came afterwards.

Where faults took more disks than the contract bears, checks of loss are excused (`contract`). But
what was sent after the last of these faults was not there to be taken, and what was sent and read
before the first was seen in good health. So these checks are asked once more, of either part by
itself; what they find there is not excused. Logs have no times: of them counts what they lack of
what was sent afterwards. Those that name a message and whoever lacks it look at each by itself
(`taken`).

Pure. The Spark job has code of its own. Source: spec/proof.md 4.3 (contract).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from chaos.catalogue.contracts import AFTER, BEFORE, NAMED, NONE, SETTLED_NS
from chaos.catalogue.faults import exceeds
from chaos.checker.logs import check_later
from chaos.checker.model import INVALID, History, Result, span_of
from chaos.checker.taken import NEVER, not_taken
from chaos.history.columns import Row

Check = Callable[[History], Result]


def without_excuse(history: History, check: str, ask: Check) -> str:
    """Return in words what a check finds apart from the faults that took disks; empty if nothing.

    ``check``: its id, one of those that loss excuses.
    """
    spans = _taking(history)
    if check in NAMED and spans and history.contract.get("durability") != NONE:
        return not_taken(history, check, spans)
    for part, words in _parts(history, check):
        found = check_later(part) if check == "A35" else ask(part)
        if found.verdict == INVALID:
            return f"{found.count} of what was {words}"
    return ""


def _parts(history: History, check: str) -> Iterator[tuple[History, str]]:
    spans = _taking(history)
    if not spans or history.contract.get("durability") == NONE:
        return
    end = max(end for _, end in spans)
    if check in AFTER and end != NEVER:
        late = _of(history, lambda row: row["t_inv"] > end + SETTLED_NS, NEVER)
        yield replace(late, replicas=history.replicas if check == "A35" else ()), "sent after them"
    begin = min(begin for begin, _ in spans)
    if check in BEFORE:
        early = _of(history, lambda row: (row["t_cmp"] or NEVER) < begin, begin)
        yield early, "sent and read before them"


def _taking(history: History) -> list[tuple[int, int]]:
    """Return when faults took from disks what this flush promises to keep."""
    flush = str(history.contract.get("flush", "ASYNC_FLUSH")).lower()
    spans = [span_of(fault) for fault in history.taking if exceeds(fault["kind"], flush)]
    return [(one.begin, NEVER if one.end is None else one.end) for one in spans]


def _of(history: History, is_in: Callable[[Row], bool], until: int) -> History:
    """Return the history of some sends: what became of them until then.

    And of the commits of that time, without those of topics that were made anew: which of them they
    mean nobody knows. Where an offset was set anew it was so all the time.
    """
    sends = [send for send in history.sends if is_in(send)]
    keys = {send["msg_key"] for send in sends}

    def about(rows: Sequence[Row]) -> list[Row]:
        return [row for row in rows if row["msg_key"] in keys]

    return replace(
        history,
        sends=sends,
        deliveries=[row for row in about(history.deliveries) if row["t_recv"] < until],
        acks=[
            row
            for row in history.acks
            if row["kind"] == "reset"
            or (
                _is_timed(row) and is_in(row) and row["topic"] not in history.anew
                if row["kind"] == "commit"
                else row["msg_key"] in keys
            )
        ],
        txn=about(history.txn),
        replicas=(),
    )


def _is_timed(commit: Row) -> bool:
    return commit["t_inv"] is not None and commit["t_cmp"] is not None


def excused_less(
    history: History, results: Mapping[str, Result], checks: Mapping[str, Check]
) -> dict[str, Result]:
    """Return results in whose details stands what no fault that took a disk explains."""
    told = dict(results)
    for name in {*AFTER, *BEFORE, *NAMED} & results.keys():
        if results[name].verdict != INVALID:
            continue
        if words := without_excuse(history, name, checks[name]):
            details = results[name].details | {"not_excused": words}
            told[name] = replace(results[name], details=details)
    return told
