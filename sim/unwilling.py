"""Has brokers fail at what members ask, by chance, until the faults are over.

What fails changes nothing: it is answered before its handler has seen it. A commit that wants no
answer gets none, and is lost. Source: spec/wire.md 1.7; NettyRemotingAbstract.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from broker.answers import write_command
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import FLAG_ONEWAY, decode_head, make_response
from ledgermq.remoting.transport.dispatch import hot_keys
from sim.oracles.failing import BY_CHANCE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from broker.controller import BrokerController
    from ledgermq.remoting.protocol.command import RemotingCommand
    from ledgermq.remoting.protocol.frame import Frame
    from ledgermq.remoting.transport.connection import Connection, HotHandler
    from ledgermq.remoting.transport.dispatch import Answer, Handler
    from sim.faults.unwilling import Unwilling
    from sim.rng import SplitRng

_QUESTIONS: Final = (
    RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET,
)  # fmt: skip


class UnwillingBrokers:
    """The brokers of a run.

    Args:
        settings: None: each does what it is asked.
        is_over: whether the faults are over.
        on_failed: hears of each request that fails.
    """

    def __init__(
        self,
        settings: Unwilling | None,
        is_over: Callable[[], bool],
        on_failed: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._is_over = is_over
        self._on_failed = on_failed
        is_busy = settings is not None and settings.is_busy
        self._answer = (
            ResponseCode.SYSTEM_BUSY if is_busy else ResponseCode.SYSTEM_ERROR, BY_CHANCE
        )  # fmt: skip

    def listen(self, controller: BrokerController, rng: SplitRng) -> None:
        """Have a broker fail that is about to start."""
        if self._settings is None:
            return
        server = controller.server
        for code, share in _shares(self._settings):
            stream = rng.split(code.name)
            if (hot := server._hot_by_code.get(code)) is not None:
                failing: Any = partial(self._serve_hot, hot, (share, stream))
                server._hot_by_code[code] = failing
                server.hot.update(dict.fromkeys(hot_keys(code), failing))
            else:
                handler = server._handlers[code]
                server._handlers[code] = partial(self._serve, handler, (share, stream))

    def _fails(self, chance: tuple[float, SplitRng]) -> bool:
        share, rng = chance
        if self._is_over() or not rng.chance(share):
            return False
        self._on_failed("failed_by_chance")
        return True

    def _serve(
        self, serve: Handler, chance: tuple[float, SplitRng], connection: Connection,
        request: RemotingCommand,
    ) -> Answer | Awaitable[Answer]:  # fmt: skip
        return make_response(request, *self._answer) if self._fails(chance) else serve(
            connection, request
        )  # fmt: skip

    def _serve_hot(
        self, serve: HotHandler, chance: tuple[float, SplitRng], connection: Connection,
        frame: Frame,
    ) -> None:  # fmt: skip
        if not self._fails(chance):
            serve(connection, frame)
            return
        head = decode_head(frame)
        if not head.flag & FLAG_ONEWAY:
            write_command(connection, frame.serialize_type, head.opaque, self._answer, {})


def _shares(settings: Unwilling) -> Iterator[tuple[RequestCode, float]]:
    """Yield what fails, and how often."""
    yield RequestCode.UPDATE_CONSUMER_OFFSET, settings.commits
    for code in _QUESTIONS:
        yield code, settings.offsets
    yield RequestCode.GET_CONSUMER_LIST_BY_GROUP, settings.members
    yield RequestCode.LOCK_BATCH_MQ, settings.locks
    yield RequestCode.UNLOCK_BATCH_MQ, settings.locks
