"""What brokers ask about transactions (CHECK_TRANSACTION_STATE, 39), and our answers.

A broker asks a producer of the group when nobody has decided a half for some time: any of them, so
perhaps one that never saw the transaction. A few questions are with the listener at a time, the
others wait, and what is too much is dropped: brokers ask again. Of a transaction that is asked
about while it waits or is with the listener, the last question is answered: each comes with a new
place of the half. Source: ClientRemotingProcessor.checkTransactionState, DefaultMQProducerImpl.
checkTransactionState 4.9 (spec/wire.md 7.8).
"""

import logging

from ledgermq.client.background import Background
from ledgermq.client.deciding import Deciding
from ledgermq.client.halves import Half, TransactionState
from ledgermq.client.hooks import Hooks
from ledgermq.client.limits import CHECKS_WAITING_BYTES_MAX, CHECKS_WAITING_MAX
from ledgermq.client.pulled import inflate
from ledgermq.client.validation import GROUP_CHARS_MAX
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.errors import RemoteProtocolError
from ledgermq.remoting.protocol.message import FLAG_COMPRESSED, MessageExt, decode_records
from ledgermq.remoting.protocol.properties import PGROUP
from ledgermq.remoting.transport.connection import Connection

_log = logging.getLogger(__name__)


class Checks:
    """The questions to one producer."""

    def __init__(
        self,
        group: str,
        deciding: Deciding,
        background: Background,
        at_once: int,
        hooks: Hooks | None,
    ) -> None:
        self._group = group
        self._deciding = deciding
        self._background = background
        self._at_once = at_once
        self._hooks = hooks
        self._workers = 0
        self._waiting: dict[str, _Check] = {}
        self._asking: dict[str, _Check] = {}
        self._bytes = 0
        self._closed = False
        self.dropped = 0
        """Questions that were not answered because there were too many."""
        self.foreign = 0
        """Questions about transactions of other groups."""

    @property
    def is_idle(self) -> bool:
        """Whether the listener is asked nothing."""
        return not self._asking

    def close(self) -> None:
        """Ask the listener no more; what it has been asked is still answered."""
        self._closed = True
        self._waiting.clear()
        self._bytes = 0

    def take(self, connection: Connection, command: RemotingCommand) -> None:
        """Take a question. Errors: `RemoteProtocolError` if it is none."""
        messages = decode_records(bytes(command.body))
        if len(messages) != 1:
            raise RemoteProtocolError(f"check of a transaction with {len(messages)} messages")
        message = messages[0]
        group = message.maybe_property(PGROUP)
        if group != self._group:
            self.foreign += 1
            if self.foreign & (self.foreign - 1) == 0:
                _log.warning(
                    "group=%s event=check_of_another_group other=%s count=%d",
                    self._group, str(group)[:GROUP_CHARS_MAX], self.foreign,
                )  # fmt: skip
            return
        if message.sys_flag & FLAG_COMPRESSED:
            inflate(message)
        msg_id = message.message_id()
        half = Half.of_question(command.ext_fields, msg_id)
        if self._closed:
            return
        if self._deciding.is_executing(msg_id):
            # The local transaction still runs, so that nobody can know its end.
            self._answer(connection, half, message, TransactionState.UNKNOWN)
            return
        known = self._asking.get(msg_id) or self._waiting.get(msg_id)
        if known is not None:
            known.half, known.connection = half, connection
            return
        self._add(msg_id, _Check(half, message, connection))

    def _add(self, msg_id: str, check: "_Check") -> None:
        size_bytes = check.size_bytes
        is_much = self._bytes + size_bytes > CHECKS_WAITING_BYTES_MAX
        if len(self._waiting) >= CHECKS_WAITING_MAX or (self._waiting and is_much):
            self.dropped += 1
            if self.dropped & (self.dropped - 1) == 0:
                _log.warning("group=%s event=checks_dropped count=%d", self._group, self.dropped)
            return
        self._waiting[msg_id] = check
        self._bytes += size_bytes
        if self._workers < self._at_once:
            self._workers += 1
            self._background.spawn(self._work, "transaction-checks")

    def _answer(
        self, connection: Connection, half: Half, message: MessageExt, state: TransactionState
    ) -> None:
        """Answer where the question came from: that broker has the half."""
        if connection.closed:
            _log.info("msg_id=%s event=check_unanswered state=%s", half.msg_id, state.name)
            return
        connection.send_oneway(half.end(self._group, state))
        if self._hooks is not None:
            addr = "{}:{}".format(*connection.remote)
            self._hooks.decided(message, half.msg_id, state, broker_addr=addr, from_check=True)

    async def _work(self) -> None:
        try:
            while self._waiting:
                msg_id = next(iter(self._waiting))
                check = self._waiting.pop(msg_id)
                self._bytes -= check.size_bytes
                self._asking[msg_id] = check
                try:
                    state = await self._deciding.check(check.message, msg_id)
                finally:
                    del self._asking[msg_id]
                self._answer(check.connection, check.half, check.message, state)
        finally:
            self._workers -= 1


class _Check:
    """A question, as it came last."""

    __slots__ = ("connection", "half", "message", "size_bytes")

    def __init__(self, half: Half, message: MessageExt, connection: Connection) -> None:
        self.half = half
        self.message = message
        self.connection = connection
        self.size_bytes = len(message.body) + len(message.properties)
