"""Makes answers that have many rows: in slices, few at a time, and none without an end.

A row may cost reads of whole messages from the log, and the offsets of all groups are looked
through for one of them. So whoever asks waits a few turns of the loop, and the other clients wait
for none of it. A slice ends after so many steps, or so much time. What makes the body of rows
should do no more than join them: each row is best made text in its own step. A request that
comes while others are being answered waits for its turn: pages of a dashboard ask about many groups
at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, TypeVar

from broker.answers import put_failure
from broker.limits import ANSWER_BYTES_MAX, ANSWER_ROWS_MAX, WALKS_MAX, WALKS_WAITING_MAX
from ledgermq.remoting.protocol.codes import ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand, make_response
from store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ledgermq.runtime.clock import Clock

SLICE = 8
"""Steps in one turn of the loop; each may read a few whole messages to know their times."""
SLICE_NS = 2_000_000
"""Beyond this a slice has no further step."""

Row = TypeVar("Row")


class Walks:
    """Those of one broker; ``is_leading`` says whether it takes writes."""

    def __init__(self, clock: Clock, is_leading: Callable[[], bool] = lambda: True) -> None:
        self._clock = clock
        self._is_leading = is_leading
        self.running = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        """Who waits for one of those that are running to end, in order."""

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    async def answer(
        self,
        request: RemotingCommand,
        steps: Iterator[Row | None],
        body: Callable[[list[Row]], bytes],
        *,
        of_leader: bool = False,
    ) -> RemotingCommand:
        """Return the answer whose body is made of the rows of ``steps``; None is a step without.

        ``of_leader``: who leads no more when they have been gone through answers as who never did:
        another one may have taken what they lack.
        """
        if not await self._begin():
            busy = f"{WALKS_MAX} long answers are being made, try again later"
            return make_response(request, ResponseCode.SYSTEM_BUSY, busy)
        try:
            rows = await self._collect(steps)
        finally:
            self._end()
        if of_leader and not self._is_leading():
            return put_failure(request, PutStatus.NOT_LEADER)
        if rows is None:
            large = f"the answer would have more than {ANSWER_ROWS_MAX} rows"
            return make_response(request, ResponseCode.SYSTEM_ERROR, large)
        encoded = body(rows)
        if len(encoded) > ANSWER_BYTES_MAX:
            large = f"the answer would have more than {ANSWER_BYTES_MAX} bytes"
            return make_response(request, ResponseCode.SYSTEM_ERROR, large)
        return make_response(request, ResponseCode.SUCCESS, body=encoded)

    async def _begin(self) -> bool:
        """Return when an answer may be made; False if too many wait for that."""
        if self.running < WALKS_MAX:
            self.running += 1
            return True
        if len(self._waiting) >= WALKS_WAITING_MAX:
            return False
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._end()  # it was its turn, which is the next one's now
            raise
        return True

    def _end(self) -> None:
        """Let the next one that waits take the place of one that has ended."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.running -= 1

    async def _collect(self, steps: Iterator[Row | None]) -> list[Row] | None:
        """Return all rows, None if there are too many."""
        now_ns = self._clock.monotonic_ns
        rows: list[Row] = []
        end_ns = now_ns() + SLICE_NS
        for number, row in enumerate(steps, 1):
            if row is not None:
                rows.append(row)
                if len(rows) > ANSWER_ROWS_MAX:
                    return None
            if number % SLICE == 0 or now_ns() >= end_ns:
                await asyncio.sleep(0)
                end_ns = now_ns() + SLICE_NS
        await asyncio.sleep(0)
        return rows
