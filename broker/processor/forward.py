"""What tools ask a connected consumer through its broker: how it runs (307), a message (309).

The client is asked over its own connection and what it answers is passed on, its code and remark
too. A few such questions are under way at a time, each for ten seconds at most; the addresses that
ask have fair shares of them.
Source: spec/wire.md 3.9; RocketMQ AdminBrokerProcessor.callConsumer, consumeMessageDirectly 4.9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from broker.answers import DAMAGED, shown
from broker.fair_share import FairShare
from broker.limits import FORWARDED_MAX
from broker.one_a_turn import OneATurn
from dledger.errors import DamagedEntry
from ledgermq.remoting.protocol.administration import ConsumeDirectlyHeader, RunningInfoHeader
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand, make_response
from ledgermq.remoting.protocol.errors import InvalidHeader, RemotingError, RequestTimeout
from ledgermq.remoting.protocol.headers import decode_header, header_fields
from ledgermq.remoting.protocol.hosts import party_of
from ledgermq.remoting.transport.requests import serves

if TYPE_CHECKING:
    from broker.groups.client_registry import Client, ConsumerRegistry

ASK_MS: Final = 10_000
VERSION_MIN: Final = 62
"""3.1.8: who is older knows neither request."""
_ID_LENGTHS: Final = (32, 56)
"""Digits of a message id: of an address in 4 or 16 bytes, its port, and the offset in the log."""
_OFFSET_DIGITS: Final = 16


class MessageStore(Protocol):
    """What is needed of the store."""

    def message_at(self, physical_offset: int) -> memoryview | None:
        """Return a committed message record, or None."""


class _Asker(Protocol):
    """A connection."""

    remote: tuple[str, int]


class ForwardProcessor:
    """Passes questions on to the consumers of one broker."""

    def __init__(self, consumers: ConsumerRegistry, store: MessageStore, broker_name: str) -> None:
        self._consumers = consumers
        self._store = store
        self._reads = OneATurn()
        self._broker_name = broker_name
        self._share = FairShare(FORWARDED_MAX)

    @property
    def running(self) -> int:
        """Questions under way."""
        return self._share.used

    @serves(
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        what="ask a connected consumer how it runs",
        header=RunningInfoHeader,
        limits=(FORWARDED_MAX,),
    )
    async def handle_running_info(
        self, connection: _Asker, request: RemotingCommand
    ) -> RemotingCommand:
        """Take GET_CONSUMER_RUNNING_INFO (307)."""
        header = decode_header(request, RunningInfoHeader)
        return await self._ask(connection, request, header, b"")

    @serves(
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        what="have a connected consumer consume a message now",
        header=ConsumeDirectlyHeader,
        limits=(FORWARDED_MAX,),
    )
    async def handle_consume(self, connection: _Asker, request: RemotingCommand) -> RemotingCommand:
        """Take CONSUME_MESSAGE_DIRECTLY (309)."""
        header = decode_header(request, ConsumeDirectlyHeader)
        await self._reads.turn(party_of(connection.remote[0]))
        try:
            record = self._store.message_at(_offset_in(header.msg_id))
        except DamagedEntry:
            return make_response(request, *DAMAGED)
        if record is None:
            remark = f"no message has the id {shown(header.msg_id)}"
            return make_response(request, ResponseCode.SYSTEM_ERROR, remark)
        header.broker_name = self._broker_name
        return await self._ask(connection, request, header, bytes(record))

    async def _ask(
        self,
        connection: _Asker,
        request: RemotingCommand,
        header: RunningInfoHeader | ConsumeDirectlyHeader,
        body: bytes,
    ) -> RemotingCommand:
        """Ask a member of a group, and return what it says as the answer of ``request``."""
        group, client_id = header.consumer_group, header.client_id
        asker = party_of(connection.remote[0])
        client = self._client(group, client_id)
        name = f"<{shown(group)}> <{shown(client_id)}>"
        if client is None:
            return _refused(request, f"The Consumer {name} not online")
        if client.version < VERSION_MIN:
            return _refused(request, f"The Consumer {name} is older than 3.1.8, please upgrade it")
        if not self._share.fits(asker):
            busy = f"{self.running} consumers are being asked, try again later"
            return make_response(request, ResponseCode.SYSTEM_BUSY, busy)
        asked = RemotingCommand(request.code, ext_fields=header_fields(header), body=body)
        self._share.take(asker, 1)
        try:
            answer = await client.connection.request(asked, ASK_MS)
        except RequestTimeout:
            remark = f"consumer {name} Timeout: no answer within {ASK_MS} ms"
            return make_response(request, ResponseCode.CONSUME_MSG_TIMEOUT, remark)
        except RemotingError as error:
            return _refused(request, f"invoke consumer {name} Exception: {error}")
        finally:
            self._share.take(asker, -1)
        fields = answer.ext_fields or None
        return make_response(request, answer.code, answer.remark, fields, bytes(answer.body))

    def _client(self, group: str, client_id: str) -> Client | None:
        found = self._consumers.get(group)
        members = () if found is None else found.clients.values()
        return next((one for one in members if one.client_id == client_id), None)


def _refused(request: RemotingCommand, remark: str) -> RemotingCommand:
    return make_response(request, ResponseCode.SYSTEM_ERROR, remark)


def _offset_in(message_id: str) -> int:
    """Return the offset in the log that a message id names. Errors: `InvalidHeader`."""
    try:
        if len(message_id) in _ID_LENGTHS:
            bytes.fromhex(message_id)
            return int(message_id[-_OFFSET_DIGITS:], 16)
    except ValueError:
        pass
    raise InvalidHeader(f"{shown(message_id)} is no id of a broker's message")
