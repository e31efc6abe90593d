"""Makes answers that have many rows: in slices, few at a time, and none without an end.

A row may cost a read from the log, and the offsets of all groups are looked through for one of
them. So whoever asks waits a few turns of the loop, and the other clients wait for none of it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from broker.limits import ANSWER_BYTES_MAX, ANSWER_ROWS_MAX, WALKS_MAX
from ledgermq.remoting.protocol.codes import ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand, make_response

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SLICE = 8
"""Steps in one turn of the loop; each may read a few whole messages to know their times."""

Row = TypeVar("Row")


class Walks:
    """Those of one broker."""

    def __init__(self) -> None:
        self.running = 0

    async def answer(
        self,
        request: RemotingCommand,
        steps: Iterator[Row | None],
        body: Callable[[list[Row]], bytes],
    ) -> RemotingCommand:
        """Return the answer whose body is made of the rows of ``steps``; None is a step without."""
        if self.running >= WALKS_MAX:
            busy = f"{WALKS_MAX} long answers are being made, try again later"
            return make_response(request, ResponseCode.SYSTEM_BUSY, busy)
        self.running += 1
        try:
            rows = await _collect(steps)
        finally:
            self.running -= 1
        if rows is None:
            large = f"the answer would have more than {ANSWER_ROWS_MAX} rows"
            return make_response(request, ResponseCode.SYSTEM_ERROR, large)
        encoded = body(rows)
        if len(encoded) > ANSWER_BYTES_MAX:
            large = f"the answer would have more than {ANSWER_BYTES_MAX} bytes"
            return make_response(request, ResponseCode.SYSTEM_ERROR, large)
        return make_response(request, ResponseCode.SUCCESS, body=encoded)


async def _collect(steps: Iterator[Row | None]) -> list[Row] | None:
    """Return all rows, None if there are too many."""
    rows: list[Row] = []
    for number, row in enumerate(steps, 1):
        if row is not None:
            rows.append(row)
            if len(rows) > ANSWER_ROWS_MAX:
                return None
        if number % SLICE == 0:
            await asyncio.sleep(0)
    return rows
