"""Answers that are longer than a frame: a page at a time, for whoever asks from which row on.

A slave asks for tables that may be longer than an answer can be. It names the first row that it
wants; the answer has as many as fit, and says where the next page begins, if there is one. Who
names no row, as RocketMQ's slaves and tools, gets all or a refusal; a master that knows nothing of
pages answers with all of it and names no next row. Rows that go while pages are asked for may have
others be passed over: they are told in the next round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from ledgermq.remoting.protocol.codes import ResponseCode
from ledgermq.remoting.protocol.limits import Int64  # noqa: TC001 - msgspec reads it

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledgermq.remoting.protocol.command import RemotingCommand

PAGE_BYTES: Final = 8 * 1024 * 1024
"""After so much the rest is for the next page."""
NEXT_ROW: Final = "nextRow"

Part = tuple[int, bytes]
"""How many rows, and their text."""


class PageHeader(msgspec.Struct, rename="camel"):
    """Of a request for a table; ours alone."""

    from_row: Int64 | None = None


class Page:
    """One page, from a row on; without one it is all there is."""

    def __init__(self, header: PageHeader) -> None:
        self._is_asked_for = header.from_row is not None
        self.first = max(0, header.from_row or 0)
        self._next: int | None = None

    def texts(self, parts: Iterator[Part]) -> Iterator[bytes]:
        """Return the texts of what lies behind the first row, as far as the page goes."""
        size_bytes, row = 0, self.first
        for count, text in parts:
            if self._is_asked_for and size_bytes and size_bytes + len(text) > PAGE_BYTES:
                self._next = row
                return
            size_bytes += len(text)
            row += count
            yield text

    def answered(self, answer: RemotingCommand) -> RemotingCommand:
        """Return the answer with the row at which the next page begins, if there is one."""
        if self._next is not None and answer.code == ResponseCode.SUCCESS:
            answer.ext_fields[NEXT_ROW] = str(self._next)
        return answer
