"""The JSON of large tables, made and read in slices, as if it were done at once. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ledgermq.remoting.protocol.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

ROWS_PER_STEP: Final = 250
"""What is encoded in one turn of the loop: a few milliseconds."""
READ_PER_STEP: Final = 32 * 1024
"""Bytes that are read in one turn of the loop, or one row if it is longer."""
_TAIL_BYTES: Final = 3
"""What closes an empty document: its last member, a line's end, itself."""

_LARGE: Final = re.compile(rb'\n {8}"[^"\n]*": ([\[{])\n')
"""Where a member of the document begins that has rows, a line each or several."""
_NEXT_ROW: Final = re.compile(rb",\n {16}(?=[^ ])")
_ROWS_END: Final = re.compile(rb"\n {8}[\]}]")
_HEAD_MAX: Final = 4_096
"""Members before the rows are small."""
_CLOSE: Final = {b"[": b"]", b"{": b"}"}


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


def documents_of(data: bytes | memoryview) -> Iterator[bytes]:
    """Return documents that have, one after the other, the rows of what `text_in_steps` returned.

    Each has all members before the rows; there is one, with no rows, for a table without any. A
    text that is laid out in another way is one document.
    """
    found = None
    for found in _LARGE.finditer(data, 0, _HEAD_MAX):  # noqa: B007 - the last one has the rows
        pass
    if found is None:
        yield bytes(data)
        return
    head, tail = bytes(data[: found.end()]), b"\n        " + _CLOSE[found[1]] + b"\n}\n"
    at = found.end()
    while True:
        row = _NEXT_ROW.search(data, min(at + READ_PER_STEP, len(data)))
        rows = bytes(data[at:] if row is None else data[at : row.start()])
        end = _ROWS_END.search(rows)
        if end is not None:
            yield bytes(data) if at == found.end() else head + rows[: end.start()] + tail
            return
        if row is None:
            raise RemoteProtocolError("the text of a table ends in the middle of its rows")
        yield head + rows + tail
        at = row.end()


def _text(document: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(document), indent=8)
