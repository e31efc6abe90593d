"""END_TRANSACTION (37): a producer says how a transaction ends.

Java's client sends it oneway, so an error is told in the log of the broker, at most once a second;
who waits gets an answer. It names its half by the place in the log and by the offset in the half
topic, and must be of the group that sent it. A half is finished once: who comes second is told so,
whether the first one asked here or from the leader before.
Source: spec/wire.md 7.8; RocketMQ 4.9.7 EndTransactionProcessor; docs/transactions.md.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from broker.answers import BUSY, DAMAGED, PUT_ANSWERS, WritableConnection, shown, write_command
from broker.sends.room import SMALL_BYTES, message_bytes
from broker.transactions.halves import COPIED, Half
from broker.transactions.records import committed_of, said_by
from dledger.errors import DamagedEntry
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.headers import EndTransactionHeader, hot_decoder
from ledgermq.remoting.protocol.limits import GROUP_LENGTH_MAX
from ledgermq.remoting.protocol.message import (
    TRANSACTION_COMMIT,
    TRANSACTION_ROLLBACK,
    decode_record,
)
from ledgermq.remoting.transport.requests import ServedBy, serves
from ledgermq.remoting.transport.room import NoRoom
from store.layout import CorruptRecord, read_record
from store.origins import group_number
from store.results import PutStatus

if TYPE_CHECKING:
    from collections import defaultdict
    from collections.abc import Callable

    from broker.sends.room import LogRoom
    from broker.transactions.records import Said
    from broker.transactions.service import Transactions
    from ledgermq.remoting.protocol.frame import Frame
    from ledgermq.runtime.clock import Clock
    from store.read.reader import Reader
    from store.results import PutMessage
    from store.write.writer import Writer

_log = logging.getLogger(__name__)
_ONEWAY: Final = 2
_UNKNOWN: Final = 0
LOG_EVERY_MS: Final = 1_000
_decode: Final = hot_decoder(EndTransactionHeader)
_OK: Final = (ResponseCode.SUCCESS, None)

Answer = tuple[int, str | None]


class TransactionStore(Protocol):
    """What is needed of the store."""

    @property
    def reader(self) -> Reader:
        """Reads messages."""

    @property
    def writer(self) -> Writer:
        """Says whether this replica takes messages."""


class TransactionProcessor:
    """Takes the ends of transactions for one broker.

    Args:
        schedule: returns a message as it waits for its level of delay, if it has one.
        puts: stored messages by topic, which are added to.
        room: where large messages wait for those before them.
    """

    def __init__(
        self,
        *,
        transactions: Transactions,
        store: TransactionStore,
        schedule: Callable[[PutMessage], PutMessage],
        clock: Clock,
        puts: defaultdict[str, int],
        room: LogRoom,
    ) -> None:
        self._transactions = transactions
        self._table = transactions.table
        self._endings = transactions.endings
        self._recent = transactions.recent
        self._store = store
        self._schedule = schedule
        self._clock = clock
        self._puts = puts
        self._room = room
        self._told_ms = -LOG_EVERY_MS
        self._untold = 0

    @serves(
        RequestCode.END_TRANSACTION,
        what="commit or roll back a transaction ([transactions](transactions.md))",
        header=EndTransactionHeader,
        limits=(GROUP_LENGTH_MAX,),
        hot=True,
        served_by=ServedBy.LEADER_BY_ITSELF,
    )
    def handle(self, connection: WritableConnection, frame: Frame) -> None:
        """Take an END_TRANSACTION frame. Errors: `NoRoom`."""
        opaque, flag, _, header = _decode(frame)
        answer = partial(self._answer, connection, frame.serialize_type, opaque, flag, header)
        found = self._find(header)
        if isinstance(found, Half):
            if header.commit_or_rollback == TRANSACTION_COMMIT:
                self._check_room(found)
            self._finish(header, found, answer)
        else:
            answer(found)

    def _check_room(self, half: Half) -> None:
        """Have a commit wait while there is no room for the copy. Errors: `NoRoom`."""
        if not self._room.is_free():
            message = self._recent.find(half.physical)
            if message is None or message_bytes(message) > SMALL_BYTES:
                raise NoRoom(self._room)

    def _find(self, header: EndTransactionHeader) -> Half | Answer:
        """Return the open half that a request is about, or the answer to it."""
        if not self._store.writer.writable:
            return PUT_ANSWERS[PutStatus.NOT_LEADER]
        end = header.commit_or_rollback
        if end == _UNKNOWN:
            return _OK  # the producer is asked again when it is time to
        if end not in {TRANSACTION_COMMIT, TRANSACTION_ROLLBACK}:
            return _refused(f"commitOrRollback is {end}: 0, 8 or 12 is expected")
        taken_over = self._transactions.taken_over_before
        if taken_over and header.commit_log_offset < taken_over:
            return ResponseCode.SYSTEM_BUSY, BUSY  # the producer is asked again
        half = self._table.rows.find(header.commit_log_offset)
        if half is None:
            return _refused(
                f"no open transaction at commitLogOffset {header.commit_log_offset}: "
                "it is finished already, or there was none"
            )
        return self._refusal_of(half, header) or half

    def _refusal_of(self, half: Half, header: EndTransactionHeader) -> Answer | None:
        """Return why an open half is not to be finished so, by what its row says."""
        if half.offset != header.tran_state_table_offset:
            return _refused(
                f"The transaction state table offset wrong: {header.tran_state_table_offset}"
            )
        if half.asked == COPIED:
            return _refused("the transaction is committed already")
        if self._endings.is_under_way(half):
            return _refused("the transaction is being finished already")
        if half.group not in {0, group_number(header.producer_group.encode())}:
            return _refused(f"The producer group wrong: {shown(header.producer_group)}")
        return None

    def _finish(
        self, header: EndTransactionHeader, half: Half, answer: Callable[[Answer], None]
    ) -> None:
        message: PutMessage | memoryview | None = self._recent.find(half.physical)
        try:
            if message is None:
                message = self._store.reader.message_at(half.physical)
        except DamagedEntry:
            answer(DAMAGED)
            return
        said = None if message is None else said_by(_properties_of(message))
        if message is None or said is None:
            answer(_refused(f"find prepared transaction message failed, {half.physical}"))
            return
        error = _mismatch(header, said)
        if error is not None:
            answer(_refused(error))
            return
        self._recent.forget(half.physical)
        if header.commit_or_rollback == TRANSACTION_COMMIT:
            whole = decode_record(message) if isinstance(message, memoryview) else message
            copy = self._schedule(committed_of(half, said, whole))
            topic = copy.topic.decode("utf-8", "replace")  # that of its level, where it has one
            self._endings.finish(half, copy, partial(self._on_end, answer, topic))
        else:
            self._endings.finish(half, None, partial(self._on_end, answer, None))

    def _on_end(
        self, answer: Callable[[Answer], None], topic: str | None, status: PutStatus
    ) -> None:
        if status is not PutStatus.OK:
            answer(PUT_ANSWERS[status])
            return
        if topic is not None:
            self._puts[topic] += 1
        answer(_OK)

    def _answer(
        self,
        connection: WritableConnection,
        serialize_type: int,
        opaque: int,
        flag: int,
        header: EndTransactionHeader,
        answer: Answer,
    ) -> None:
        if answer[0] != ResponseCode.SUCCESS:
            self._tell(header, answer)
        if not flag & _ONEWAY:
            write_command(connection, serialize_type, opaque, answer)

    def _tell(self, header: EndTransactionHeader, answer: Answer) -> None:
        """Log a refusal, unless another one was logged just now."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._told_ms < LOG_EVERY_MS:
            self._untold += 1
            return
        untold, self._told_ms, self._untold = self._untold, now_ms, 0
        _log.warning(
            "event=end_transaction_refused group=%s offset=%d code=%d others=%d remark=%r",
            shown(header.producer_group), header.commit_log_offset, answer[0], untold, answer[1],
        )  # fmt: skip


def _properties_of(message: PutMessage | memoryview) -> bytes:
    """Return properties without a copy of the body; none if they cannot be read."""
    if not isinstance(message, memoryview):
        return message.properties
    try:
        return bytes(read_record(message)[6])
    except CorruptRecord:
        return b""


def _mismatch(header: EndTransactionHeader, said: Said) -> str | None:
    """Say why a half is not the one that a request means."""
    if header.producer_group != said.group:
        return f"The producer group wrong: {shown(header.producer_group)}"
    named = header.transaction_id
    if named and said.unique_key and named != said.unique_key:
        return f"transactionId {shown(named)} is that of another transaction"
    return None


def _refused(remark: str) -> Answer:
    return ResponseCode.SYSTEM_ERROR, remark
