"""What faults excuse, and what they cannot: loss takes what there was, not what came afterwards.

Where faults took more disks than the contract bears, checks of loss are excused (`contract`). But
what was sent after the last of these faults was not there to be taken, and what was sent and read
before the first was seen in good health. So these checks are asked once more, of either part by
itself; what they find there is not excused. Without logs, which have no times.

Pure. The Spark job has code of its own. Source: spec/proof.md 4.3 (contract).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from chaos.catalogue.contracts import AFTER, BEFORE, NONE, SETTLED_NS
from chaos.catalogue.faults import exceeds
from chaos.checker.messages import find_lost
from chaos.checker.model import INVALID, History, Result, Row

Check = Callable[[History], Result]
NEVER = 1 << 62


def without_excuse(history: History, check: str, ask: Check) -> str:
    """Return in words what a check finds apart from the faults that took disks; empty if nothing.

    ``check``: its id, one of those that loss excuses.
    """
    for part, words in _parts(history, check):
        found = ask(part)
        if found.verdict == INVALID:
            return f"{found.count} of what was {words}"
    return ""


def _parts(history: History, check: str) -> Iterator[tuple[History, str]]:
    spans = _taking(history)
    if not spans or history.contract.get("durability") == NONE:
        return
    end = max(end for _, end in spans)
    if check in AFTER and end != NEVER:
        yield _of(history, lambda send: send["t_inv"] > end + SETTLED_NS, NEVER), "sent after them"
    begin = min(begin for begin, _ in spans)
    if check in BEFORE:
        early = _of(history, lambda send: (send["t_cmp"] or NEVER) < begin, begin)
        yield early, "sent and read before them"


def _taking(history: History) -> list[tuple[int, int]]:
    """Return when faults took from disks what this flush promises to keep."""
    flush = str(history.contract.get("flush", "ASYNC_FLUSH")).lower()
    found = []
    for fault in history.in_force:
        if (fault.get("witness") or {}).get("effective") and exceeds(fault["kind"], flush):
            begin = fault["t_on1"] if fault["t_on0"] is None else fault["t_on0"]
            end = fault["t_off0"] if fault["t_off1"] is None else fault["t_off1"]
            found.append((begin, NEVER if end is None else end))
    return found


def _of(history: History, is_in: Callable[[Row], bool], until: int) -> History:
    """Return the history of some sends: what became of them until then."""
    sends = [send for send in history.sends if is_in(send)]
    keys = {send["msg_key"] for send in sends}

    def about(rows: Sequence[Row]) -> list[Row]:
        return [row for row in rows if row["msg_key"] in keys]

    return replace(
        history,
        sends=sends,
        deliveries=[row for row in about(history.deliveries) if row["t_recv"] < until],
        acks=about(history.acks),
        txn=about(history.txn),
        replicas=(),
    )


def excused_less(
    history: History, results: Mapping[str, Result], checks: Mapping[str, Check]
) -> dict[str, Result]:
    """Return results in whose details stands what no fault that took a disk explains."""
    told = dict(results)
    for name in {*AFTER, *BEFORE} & results.keys():
        if results[name].verdict != INVALID:
            continue
        if words := without_excuse(history, name, _asked_of_a_part(name, checks)):
            details = results[name].details | {"not_excused": words}
            told[name] = replace(results[name], details=details)
    return told


def _asked_of_a_part(name: str, checks: Mapping[str, Check]) -> Check:
    """Return a check as a part is asked: that no delivery is in it says nothing of the record."""
    return find_lost if name == "A1" else checks[name]
