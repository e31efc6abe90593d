"""The transaction producer: consumers get a message only if the sender's own work succeeded.

The message is stored as a half, the listener runs the local transaction, and its outcome decides
the half. Nothing waits for that decision to be taken: where it is lost, or unknown, the broker asks
(`ledgermq.client.checks`). Source: TransactionMQProducer, DefaultMQProducerImpl.
sendMessageInTransaction 4.9 (spec/wire.md 7.8).
"""

import logging
from collections.abc import Mapping
from functools import partial

import msgspec

from ledgermq.client.checks import Checks
from ledgermq.client.config import ClientConfig, TransactionOptions
from ledgermq.client.deciding import Deciding, TransactionListener
from ledgermq.client.halves import (
    Half,
    HalfMessage,
    TransactionResult,
    TransactionState,
    check_transactional,
    half_properties,
)
from ledgermq.client.hooks import SendKind
from ledgermq.client.message import Message, MessageQueue, SendResult, SendStatus
from ledgermq.client.producer import Producer
from ledgermq.client.selectors import QueueSelector, destination_of
from ledgermq.client.send_codec import prepare_single
from ledgermq.client.validation import check_topic
from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.errors import RemotingError
from ledgermq.remoting.protocol.message import TRANSACTION_PREPARED
from ledgermq.remoting.transport.connection import Connection
from ledgermq.remoting.transport.dispatch import Handler
from ledgermq.runtime.clock import Clock, SystemClock
from ledgermq.runtime.rng import Rng

_log = logging.getLogger(__name__)
_SYSTEM_CLOCK = SystemClock()


class TransactionProducer(Producer):
    """A producer that can also send messages in transactions.

    Brokers ask any producer of ``config.group`` how a transaction ended, so all of them need a
    listener that can tell: it looks into what the local transactions wrote, not into its memory.
    """

    def __init__(
        self,
        config: ClientConfig,
        listener: TransactionListener,
        options: TransactionOptions | None = None,
        *,
        clock: Clock = _SYSTEM_CLOCK,
        rng: Rng | None = None,
    ) -> None:
        options = options or TransactionOptions()
        self._deciding = Deciding(listener, options)
        super().__init__(config, clock=clock, rng=rng)
        self.checks = Checks(
            config.group, self._deciding, self._instance.background, options.checks_max, self._hooks
        )
        self._halves_properties = half_properties(config.group, options.immunity_s)
        self._open = 0
        """Transactions of callers that wait."""

    async def send_in_transaction(
        self,
        message: Message,
        arg: object = None,
        *,
        queue: MessageQueue | QueueSelector | None = None,
        timeout_ms: int | None = None,
    ) -> TransactionResult:
        """Store a half of ``message``, run the local transaction, and say how it ended.

        ``arg`` is handed to the listener. ``timeout_ms`` is the budget for storing the half.
        Errors: as `send`, and then the local transaction was not begun. ``SendFailed`` with outcome
        UNKNOWN may leave a half, about which the broker asks; ``InvalidMessage`` for a delayed
        message or several.
        """
        check_transactional(message)
        self._open += 1
        try:
            sent = await self._send_half(message, queue, timeout_ms)
            half = Half.of_sent(sent)
            self._make_known(half.broker_name)
            if sent.status is SendStatus.SEND_OK:
                state = await self._deciding.execute(HalfMessage.of(message, sent.msg_id), arg)
            else:  # Not on enough disks to build on it, as RocketMQ judges.
                state = TransactionState.ROLLBACK
            told = await self._end(half, state, message)
        finally:
            self._open -= 1
        return TransactionResult(*msgspec.structs.astuple(sent), state=state, told=told)

    async def stop(self) -> None:
        """Let transactions under way come to their decision, then stop as `Producer.stop` does.

        They get ``stop_timeout_ms`` together with the sends. Those that are not decided by then,
        the broker asks the other producers of the group about.
        """
        self.checks.close()
        await super().stop()

    async def _send_half(
        self, message: Message, queue: MessageQueue | QueueSelector | None, timeout_ms: int | None
    ) -> SendResult:
        check_topic(message.topic)
        born_ms = self.clock.wall_ms()
        outgoing = prepare_single(
            message,
            self._next_id(born_ms),
            born_ms,
            max_bytes=self.config.max_message_bytes,
            compress_over=self.config.compress_over_bytes,
            own=self._halves_properties,
        )
        outgoing.sys_flag |= TRANSACTION_PREPARED
        send = partial(self.deliver, outgoing, destination_of(queue, message), timeout_ms)
        return await self.told(send, (message,), SendKind.HALF)

    def _make_known(self, broker_name: str) -> None:
        """Have the broker of a half know this producer: it asks whom heartbeats told it of."""
        link = self.links.maybe_link(broker_name)
        if link is not None:
            self._instance.greet_over(link.addr, link.connection)

    async def _end(self, half: Half, state: TransactionState, message: Message) -> bool:
        """Tell the leader of the half's broker; returns whether the request left."""
        try:
            link = await self.links.connect(half.broker_name, self.config.connect_timeout_ms)
        except RemotingError as error:
            _log.warning(
                "msg_id=%s event=decision_unsent state=%s error=%s", half.msg_id, state.name, error
            )
            return False
        link.connection.send_oneway(half.end(self.config.group, state))
        if self._hooks is not None:
            self._hooks.decided(
                message, half.msg_id, state, broker_addr=link.addr, from_check=False
            )
        return True

    def _handlers(self) -> Mapping[int, Handler]:
        return {
            **super()._handlers(),
            RequestCode.CHECK_TRANSACTION_STATE: self._on_check,
        }

    def _on_check(self, connection: Connection, command: RemotingCommand) -> None:
        self.checks.take(connection, command)

    def _is_drained(self) -> bool:
        return not self._pending and not self._open and self.checks.is_idle
