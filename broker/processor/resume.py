"""RESUME_CHECK_HALF_MESSAGE (323): a parked half is open again, and its producers are asked anew.

The copy that was parked is read from the log at the place that its offset message id names, and put
into the half topic as a send of it would be: a half of its own, that nobody was asked for yet. The
parked copy stays, as in RocketMQ: who has it resumed twice has two halves.
Source: RocketMQ AdminBrokerProcessor.resumeCheckHalfMessage 4.9.7; docs/transactions.md.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

import msgspec

from broker.answers import BUSY, DAMAGED, put_failure, shown
from broker.limits import COPIED_BYTES_MAX
from broker.one_a_turn import OneATurn
from broker.sends.room import SMALL_BYTES, message_bytes
from broker.sends.rules import KEPT_FLAGS, Refused
from broker.sends.schedule import with_properties
from broker.transactions.records import PARK_TOPIC, said_by
from dledger.errors import DamagedEntry
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import make_response
from ledgermq.remoting.protocol.errors import RemoteProtocolError
from ledgermq.remoting.protocol.headers import decode_header
from ledgermq.remoting.protocol.hosts import party_of
from ledgermq.remoting.protocol.message import decode_record, parse_offset_message_id
from ledgermq.remoting.transport.requests import Permission, ServedBy, serves
from store.layout import tags_code
from store.results import PutMessage, PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.sends.copy_budget import CopyBudget
    from broker.sends.room import LogRoom
    from ledgermq.remoting.protocol.command import RemotingCommand
    from store.read.reader import Reader
    from store.write.writer import Writer


class _Header(msgspec.Struct, rename="camel"):
    msg_id: str


class ResumeStore(Protocol):
    """What is needed of the store."""

    @property
    def reader(self) -> Reader:
        """Reads messages."""

    @property
    def writer(self) -> Writer:
        """Stores messages."""


class _Asker(Protocol):
    """A connection."""

    remote: tuple[str, int]


class ResumeProcessor:
    """Opens parked halves anew for one broker.

    Args:
        let_in: returns the half of a message. Errors: `Refused`.
        budget: of what small requests have copied.
        room: where large messages wait for those before them.
    """

    def __init__(
        self,
        store: ResumeStore,
        let_in: Callable[[PutMessage], PutMessage],
        budget: CopyBudget,
        room: LogRoom,
    ) -> None:
        self._store = store
        self._let_in = let_in
        self._budget = budget
        self._room = room
        self._reads = OneATurn()

    @serves(
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        what="open a parked half anew ([transactions](transactions.md))",
        header=_Header,
        limits=(COPIED_BYTES_MAX,),
        served_by=ServedBy.LEADER,
        permission=Permission.SETTINGS,
    )
    async def handle(self, connection: _Asker, request: RemotingCommand) -> RemotingCommand:
        """Take RESUME_CHECK_HALF_MESSAGE."""
        named, address = decode_header(request, _Header).msg_id, party_of(connection.remote[0])
        try:
            half = await self._half(named, address)
        except Refused as refused:
            return make_response(request, *refused.answer)
        status = await self._put(half)
        if not status.is_stored:
            return put_failure(request, status)
        return make_response(request, ResponseCode.SUCCESS)

    async def _half(self, named: str, address: str) -> PutMessage:
        """Return the half to be put, in turn; the log has room for it. Errors: `Refused`."""
        await self._reads.turn(address)
        half = self._read(named)
        if message_bytes(half) > SMALL_BYTES and not self._room.is_free():
            del half  # It may be large, and many may wait.
            await self._room.enter(address)
            half = self._read(named)
        if not self._budget.take(address, message_bytes(half)):
            raise Refused(BUSY, ResponseCode.SYSTEM_BUSY)
        return half

    def _read(self, named: str) -> PutMessage:
        """Return the half whose parked copy has this offset message id. Errors: `Refused`."""
        try:
            _, _, position = parse_offset_message_id(named)
            record = self._store.reader.message_at(position)
            message = None if record is None else decode_record(record)
        except DamagedEntry:
            code, remark = DAMAGED
            raise Refused(remark, code) from None
        except RemoteProtocolError:
            message = None
        said = None if message is None else said_by(message.properties)
        if message is None or said is None or message.topic != PARK_TOPIC:
            remark = f"no half that was put aside: {shown(named)}"
            raise Refused(remark, ResponseCode.SYSTEM_ERROR)
        text = with_properties(message.properties, ((b"TRANSACTION_CHECK_TIMES", b"0"),))
        return self._let_in(
            PutMessage(
                said.topic, said.queue_id, message.flag, message.sys_flag & KEPT_FLAGS,
                message.born_timestamp, message.born_host, message.reconsume_times, 0, text,
                message.body, tags_code(text),
            )
        )  # fmt: skip

    async def _put(self, half: PutMessage) -> PutStatus:
        """Store a half; a status that says so once it is in the log."""
        future: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()

        def done(status: PutStatus, _queue_offset: int, _physical_offset: int) -> None:
            if not future.done():
                future.set_result(status)

        self._store.writer.put(half, done)
        return await future
