"""What brokers refuse by chance, until the faults are over: puts, and messages that come back.

Puts are refused as if too much waited for a majority. What waits is bounded in bytes, and the bound
is far beyond what a plan writes. A smaller one would shut out entries that are larger, for ever. So
puts are refused by chance, whatever their size: each caller has to stand that at any time. A
message that is given back (36) is refused as if its broker could not read it: its consumer sends
the copy itself, which is another way to the next delivery, or to the dead letters.
Source: docs/protocol.md; spec/wire.md 3.4.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from dledger.errors import PendingFull
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import make_response

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from broker.controller import BrokerController
    from ledgermq.remoting.protocol.command import RemotingCommand
    from ledgermq.remoting.transport.connection import Connection
    from ledgermq.remoting.transport.dispatch import Answer, Handler
    from sim.rng import SplitRng


class Refusals:
    """Refuses puts, and what is given back, at the brokers of a run.

    Args:
        shares: of the puts that are refused, and of what is given back; 0: none.
        is_over: whether the faults are over.
        on_refused: hears of each.
    """

    def __init__(
        self,
        shares: tuple[float, float],
        is_over: Callable[[], bool],
        on_refused: Callable[[str], None],
    ) -> None:
        self._share, self._share_back = shares
        self._is_over = is_over
        self._on_refused = on_refused

    def listen(self, controller: BrokerController, rng: SplitRng) -> None:
        """Refuse at a broker that is about to start."""
        if self._share:
            commit_log = controller.store.writer._commit_log
            commit_log._reserve = partial(self._reserve, commit_log._reserve, rng)
        if self._share_back:
            handlers, code = controller.server._handlers, RequestCode.CONSUMER_SEND_MSG_BACK
            handlers[code] = partial(self._take_back, handlers[code], rng.split("given back"))

    def _reserve(self, reserve: Callable[[int], int], rng: SplitRng, body_bytes: int) -> int:
        """See `LogWriter.reserve`. Errors: `PendingFull`, too: this one is refused."""
        if not self._is_over() and rng.chance(self._share):
            self._on_refused("refused")
            raise PendingFull(1, 0)
        return reserve(body_bytes)

    def _take_back(
        self, take: Handler, rng: SplitRng, connection: Connection, request: RemotingCommand
    ) -> Answer | Awaitable[Answer]:
        """Serve a message that is given back, or say that it cannot be read."""
        if self._is_over() or not rng.chance(self._share_back):
            return take(connection, request)
        self._on_refused("not_taken_back")
        remark = "look message by offset failed"
        return make_response(request, ResponseCode.SYSTEM_ERROR, remark)
