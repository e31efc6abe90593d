"""What is stored is what was sent: body, properties, flags, born time and born host.

The request is decoded with code of its own, and compared with the bytes of the log where the
broker says that its messages lie. Source: spec/wire.md 3.3 (what a broker changes), 4.1, 4.4.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from sim.oracles.base import Violation
from sim.oracles.records import (
    BODY_LENGTH_AT,
    ENTRY_HEADER_BYTES,
    body_of,
    properties_of,
    stored_ms,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.history.segment import EntryRow
    from sim.oracles.replica import Replica
    from sim.oracles.truth import Truth
    from sim.oracles.wire import Said

NAME: Final = "A6 other than it was sent"
BATCH: Final = 320
ADDED: Final = frozenset({"CLUSTER", "UNIQ_KEY"})
"""Properties that a broker may add."""
REMOVED: Final = frozenset({"WAIT", "DELAY"})
WAITS: Final = frozenset({"REAL_TOPIC", "REAL_QID"})
"""What it adds to a message that waits."""
UNEQUAL: Final = 2 | 0xC
"""Sys flags: one that a topic adds to its messages, and those that a half is stored without."""
_element: Final = Struct(">i8xii").unpack_from
"""Size, flag and body length of an element of a batch."""
_head: Final = Struct(">16xi16xiq").unpack_from
"""Flag, sys flag and born time of a record."""
_BORN_HOST_AT: Final = ENTRY_HEADER_BYTES + 48

Sent = tuple[int, bytes, dict[str, str]]
"""Flag, body and properties of a message."""


def check_stored(
    truth: Truth, replica: Replica, request: Said, rows: Sequence[EntryRow | None]
) -> None:
    """Compare what was sent with where it is said to lie. Errors: `Violation`."""
    sent = sent_of(request)
    if sent is None or replica.is_corrupt:
        return
    if len(sent) != len(rows):
        raise Violation(NAME, f"{len(sent)} messages were sent, {len(rows)} acknowledged")
    host = bytes(map(int, request.asker.split(".")))
    common = properties_from(request.text("i")) if _is_batch(request) else {}
    for (flag, body, properties), row in zip(sent, rows, strict=True):
        assert row is not None
        mark = replica.mark(row.entry_index)
        if mark is None:
            continue
        data = replica.entry_bytes(mark)
        if stored_ms(data) is None or len(data) <= BODY_LENGTH_AT:
            continue
        stored_flag, sys_flag, born_ms = _head(data, ENTRY_HEADER_BYTES)
        wanted = {**properties, **common}
        held = properties_of(data)
        differences = [
            name
            for name, is_same in (
                ("body", body_of(data) == body),
                ("flag", stored_flag == flag),
                ("sys flag", sys_flag & ~UNEQUAL == request.number("f") & ~UNEQUAL),
                ("born time", born_ms == request.number("g")),
                ("born host", data[_BORN_HOST_AT : _BORN_HOST_AT + 4] == host),
                ("properties", _is_alike(wanted, held)),
                ("topic", held.get("REAL_TOPIC", request.text("b")) == request.text("b")),
            )
            if not is_same
        ]
        if differences:
            raise Violation(
                NAME,
                f"{', '.join(differences)} of {row.topic}/{row.queue_id}@{row.queue_offset}: "
                f"sent with {wanted}, stored with {held}",
                node=replica.name,
            )


def sent_of(request: Said) -> list[Sent] | None:
    """Return the messages of a request with names of one letter; None for another."""
    if "b" not in request.fields:
        return None
    if not _is_batch(request):
        return [(request.number("h"), request.body, properties_from(request.text("i")))]
    found: list[Sent] = []
    at, body = 0, request.body
    while at < len(body):
        size, flag, length = _element(body, at)
        start = at + 20 + length
        text = body[start + 2 : start + 2 + int.from_bytes(body[start : start + 2], "big")]
        found.append((flag, body[at + 20 : at + 20 + length], properties_from(text.decode())))
        at += size
    return found


def properties_from(text: str) -> dict[str, str]:
    """Return the properties in a text; the last of a name counts."""
    return dict(part.split("\x01", 1) for part in text.split("\x02") if "\x01" in part)


def _is_batch(request: Said) -> bool:
    return request.code == BATCH or request.text("m") == "true"


def _is_alike(wanted: dict[str, str], held: dict[str, str]) -> bool:
    kept = {name: value for name, value in wanted.items() if name not in REMOVED}
    waits = "DELAY" in wanted or "TRAN_MSG" in wanted
    return all(held.get(name) == value for name, value in kept.items()) and (
        held.keys() - wanted.keys() <= (ADDED | WAITS if waits else ADDED)
    )
