"""Members of RocketMQ's files that no table here knows: found once, put into each new text. Pure.

A text is gone through a slice of its rows at a time, so that whoever does it in a thread leaves the
others theirs (`broker.table_text.documents_of`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from ledgermq.remoting.protocol.tolerant_json import FILE, loads

if TYPE_CHECKING:
    from collections.abc import Iterator

_END: Final = b"\n        }\n}"
"""What closes rows, and their document."""


class Extra(msgspec.Struct):
    """Members of a JSON object that another document lacks."""

    whole: dict[str, Any] = {}
    inside: dict[str, Extra] = {}


def difference(theirs: dict[str, Any], ours: dict[str, Any]) -> Extra:
    """Return the members of ``theirs`` that ``ours`` lacks, at any depth."""
    extra = Extra({}, {})
    mine = {str(key): value for key, value in ours.items()}
    for key, value in theirs.items():
        name = str(key)  # a queue id may come as an integer or in quotes
        if name not in mine:
            extra.whole[name] = value
        elif isinstance(value, dict) and isinstance(mine[name], dict):
            inside = difference(value, mine[name])
            if inside.whole or inside.inside:
                extra.inside[name] = inside
    return extra


def add(document: dict[str, Any], extra: Extra) -> None:
    """Add what `difference` found, as far as the objects that it belongs to are still there."""
    for name, value in extra.whole.items():
        document.setdefault(name, value)
    for name, inside in extra.inside.items():
        if isinstance(document.get(name), dict):
            add(document[name], inside)


def with_extra(documents: Iterator[bytes], extra: Extra) -> Iterator[bytes]:
    """Return the parts of a text with ``extra``, for documents that each have some of its rows.

    Of what belongs to a row, as far as it is there. Rows that no document has come behind all
    others, and members of the whole behind the rows.
    """
    is_first = True
    seen: set[str] = set()
    waiting: dict[str, Any] | None = None
    for text in documents:
        if waiting is not None:
            yield _part(waiting, is_first=is_first, is_last=False)
            is_first = False
        waiting = loads(text, FILE)
        _add_to_rows(waiting, extra, seen)
    if waiting is not None:
        table = next(reversed(waiting))
        rows = extra.inside.get(table, Extra())
        missing = {name: value for name, value in rows.whole.items() if name not in seen}
        add(waiting, Extra(extra.whole, {table: Extra(missing)}))
        yield _part(waiting, is_first=is_first, is_last=True, table=table)


def _add_to_rows(document: dict[str, Any], extra: Extra, seen: set[str]) -> None:
    """Add what belongs to the rows of one document, and to the members before them.

    The rows that ``extra`` has as a whole are noted.
    """
    table, rows = next(reversed(document.items()))
    add(document, Extra({}, {name: one for name, one in extra.inside.items() if name != table}))
    inside = extra.inside.get(table)
    if inside is None or not isinstance(rows, dict):
        return
    for name, row in rows.items():
        if name in inside.whole:
            seen.add(name)
        if name in inside.inside and isinstance(row, dict):
            add(row, inside.inside[name])


def _part(document: dict[str, Any], *, is_first: bool, is_last: bool, table: str = "") -> bytes:
    """Return the text of a document, without what is before the rows, or behind them."""
    text = msgspec.json.format(msgspec.json.encode(document), indent=8)
    table = table or next(reversed(document))
    begin = 0
    if not is_first:
        opening = b"\n        %b: " % msgspec.json.encode(table)
        begin = text.index(opening) + len(opening) + len("{\n")  # or "[" of a list
    return text[begin:] if is_last else text[begin : -len(_END)] + b",\n"
