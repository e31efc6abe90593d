"""Cleaning on demand: of log (DELETE_EXPIRED_COMMITLOG 329), queues (306), and topics (316).

RocketMQ answers at once with nothing but success, and so do we; asked with the field ``report``,
the work is done first and the answer is JSON that tells of it. Any replica answers, for itself.
A queue whose messages are all gone is never forgotten, as RocketMQ does at 306: it would begin to
count anew, and its consumers stand beyond its end. So are those of a topic that was removed: 316
removes nothing.
Source: spec/wire.md 2.1, 3.9; spec/disk.md 5.8; RocketMQ AdminBrokerProcessor 4.9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand, make_response
from ledgermq.remoting.transport.requests import serves

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from broker.retention.service import Retention

REPORT: Final = "report"


class QueueStore(Protocol):
    """What cleaning needs of the store."""

    @property
    def is_dropping(self) -> bool:
        """Whether that is going on."""
        ...

    async def drop_queue_files(self) -> int:
        """Remove the files of queues that lie before the beginning of the log; return how many."""
        ...


class CleanProcessor:
    """Answers requests to clean of one broker."""

    def __init__(
        self,
        retention: Retention,
        store: QueueStore,
        serve: Callable[[str, Coroutine[None, None, object]], object],
    ) -> None:
        self._retention = retention
        self._store = store
        self._serve = serve

    @serves(
        RequestCode.DELETE_EXPIRED_COMMITLOG,
        what="drop expired segments of this replica's log",
        fields=(REPORT,),
        of_the_log=True,
    )
    async def handle_expired_log(
        self, _connection: object, request: RemotingCommand
    ) -> RemotingCommand:
        """Take DELETE_EXPIRED_COMMITLOG."""
        self._retention.ask()
        if REPORT in request.ext_fields:
            return _report(request, await self._retention.whole_round())
        self._serve("expired log", self._retention.whole_round())
        return make_response(request, ResponseCode.SUCCESS)

    @serves(
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        what="remove this replica's queue files before the beginning of the log",
        fields=(REPORT,),
    )
    async def handle_expired_queues(
        self, _connection: object, request: RemotingCommand
    ) -> RemotingCommand:
        """Take CLEAN_EXPIRED_CONSUMEQUEUE."""
        if REPORT in request.ext_fields:
            return _report(request, {"dropped_files": await self._store.drop_queue_files()})
        if not self._store.is_dropping:
            self._serve("expired queues", self._store.drop_queue_files())
        return make_response(request, ResponseCode.SUCCESS)

    @serves(RequestCode.CLEAN_UNUSED_TOPIC, what="remove unused topics", fields=(REPORT,))
    def handle_unused_topics(
        self, _connection: object, request: RemotingCommand
    ) -> RemotingCommand:
        """Take CLEAN_UNUSED_TOPIC."""
        return _report(request, {"dropped_files": 0})


def _report(request: RemotingCommand, report: dict[str, object]) -> RemotingCommand:
    body = msgspec.json.encode(report) if REPORT in request.ext_fields else b""
    return make_response(request, ResponseCode.SUCCESS, body=body)
