"""What an export says besides sends and polls: faults, and how far groups committed.

Jepsen calls whoever breaks things the nemesis, and looks its operations over; our import reads
them. Refusals stay behind, since the copies that follow from them do; so do offsets that were told,
since changes of the leader are not there, which excuse them. Knows EDN values, no files.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from chaos.checker.model import History
from chaos.history.columns import Row

FAULT, STATEMENT = "fault", "statement"
SAID: Final = ("commit", "ack", "reset")
"""Which statements of consumers go out."""
CONTRACT: Final = ("durability", "flush", "duplicates")
"""What of a contract: the rest is about what stays behind."""
_FAULT_COLUMNS: Final = (
    "fault_id", "kind", "targets", "t_on0", "t_on1", "t_off0", "t_off1", "status", "only_there",
)  # fmt: skip
_STATEMENT_COLUMNS: Final = (
    "grp", "consumer", "generation", "topic", "queue_id", "queue_offset", "msg_key", "kind",
    "value_offset", "t_inv", "t_cmp", "outcome", "durable",
)  # fmt: skip
_TIMES: Final = frozenset({"t_on0", "t_on1", "t_off0", "t_off1", "t_inv", "t_cmp"})


class BesidesError(Exception):
    """What was said besides is not what we would say; the message says what is wrong."""


def operations_besides(history: History, start: int) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield time, name and value of each, with the times counted from ``start``."""
    found = []
    for fault in history.faults:
        value = _known(fault, _FAULT_COLUMNS, start)
        value["effective"] = bool((fault.get("witness") or {}).get("effective"))
        times = [value[name] for name in ("t_on0", "t_on1") if name in value]
        found.append((times[0] if times else 0, FAULT, value))
    found += [
        (ack["t_inv"] - start, STATEMENT, _known(ack, _STATEMENT_COLUMNS, start))
        for ack in history.acks
        if ack["kind"] in SAID and ack["t_inv"] is not None
    ]
    yield from sorted(found, key=lambda one: one[0])


def _known(row: Row, names: tuple[str, ...], start: int) -> dict[str, Any]:
    known = {name: row[name] for name in names if row.get(name) is not None}
    return {name: value - start if name in _TIMES else value for name, value in known.items()}


def row_of(f: str, value: object) -> tuple[str, dict[str, Any]]:
    """Return the table and the row that such an operation stands for. Errors: BesidesError."""
    if not isinstance(value, Mapping):
        raise BesidesError(f"the value of a {f} is not a map")
    told = {str(name): one for name, one in value.items()}
    if f == STATEMENT:
        return "acks", {name: told.get(name) for name in _STATEMENT_COLUMNS}
    row = {name: told.get(name) for name in _FAULT_COLUMNS}
    targets, effective = row["targets"] or [], told.get("effective")
    if not isinstance(targets, list) or not all(isinstance(one, str) for one in targets):
        raise BesidesError(f"the targets of a {f} are no list of names")
    if not isinstance(effective, bool):
        raise BesidesError(f"effective of a {f} is neither true nor false")
    return "faults", row | {"targets": targets, "witness": {"effective": effective}}
