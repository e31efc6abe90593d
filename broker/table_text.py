"""The JSON of large tables, made in slices: the same text as if it were made at once. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

ROWS_PER_STEP: Final = 250
"""What is encoded in one turn of the loop: a few milliseconds."""
_TAIL_BYTES: Final = 3
"""What closes an empty document: its last member, a line's end, itself."""


def text_in_steps(
    document: Callable[[list[Any]], msgspec.Struct],
    rows: Collection[Any],
    weigh: Callable[[Any], int] = lambda _row: 1,
) -> Iterator[bytes]:
    """Return the parts of a document whose last member holds ``rows``.

    Rows of a dictionary's copy are pairs only when their turn has come: to make all of them at once
    is what takes long.
    ``document`` makes it of some of them; ``weigh`` tells what is more than an ordinary row.
    """
    if not rows:
        yield _text(document([]))
        return
    empty = _text(document([]))
    begin = empty[:-_TAIL_BYTES] + b"\n"
    end = b"\n        " + empty[-_TAIL_BYTES:]
    part: list[Any] = []
    weight = 0
    head = begin
    for row in rows:
        if weight >= ROWS_PER_STEP:
            yield head + _text(document(part))[len(begin) : -len(end)]
            part, weight, head = [], 0, b",\n"
        part.append(row)
        weight += weigh(row)
    yield head + _text(document(part))[len(begin) :]


def _text(document: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(document), indent=8)
