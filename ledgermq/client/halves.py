"""Half messages: where one lies, and the request that decides it (END_TRANSACTION, 37). Pure.

A half is what a broker stores and shows nobody until its producer has decided. It is named by its
offset in the log and by that in the queue of halves. Source: EndTransactionRequestHeader,
DefaultMQProducerImpl.endTransaction 4.9 (spec/wire.md 7.8).
"""

from collections.abc import Mapping
from enum import IntEnum

import msgspec

from ledgermq.client.errors import InvalidMessage
from ledgermq.client.message import Message, SendResult
from ledgermq.remoting.protocol.codes import LanguageCode, RequestCode
from ledgermq.remoting.protocol.command import FLAG_ONEWAY, RemotingCommand
from ledgermq.remoting.protocol.errors import RemoteProtocolError
from ledgermq.remoting.protocol.message import parse_offset_message_id
from ledgermq.remoting.protocol.properties import CHECK_IMMUNITY, PGROUP, TRAN_MSG


class TransactionState(IntEnum):
    """What a producer says about its half; the values are those of the request."""

    UNKNOWN = 0
    """Not yet decided: the broker asks again."""
    COMMIT = 8
    """Consumers get the message."""
    ROLLBACK = 12
    """Nobody ever does."""


class HalfMessage(Message, frozen=True, gc=False):
    """A message whose half is stored, as the listener gets it to run the local transaction."""

    transaction_id: str = ""
    """The message's unique key: `check` finds it as ``message.message_id()``."""

    @classmethod
    def of(cls, message: Message, transaction_id: str) -> "HalfMessage":
        """Return ``message`` with its id."""
        return cls(
            topic=message.topic,
            body=message.body,
            tags=message.tags,
            keys=message.keys,
            properties=message.properties,
            flag=message.flag,
            sharding_key=message.sharding_key,
            transaction_id=transaction_id,
        )


class TransactionResult(SendResult, frozen=True, gc=False, kw_only=True):
    """An acknowledged half, and what became of it."""

    state: TransactionState
    """What the local transaction said; UNKNOWN also if it raised or took too long."""
    told: bool
    """Whether that was sent to the broker. Otherwise, and if it is lost, the broker asks."""


class Half(msgspec.Struct, frozen=True):
    """Where a half lies; ``broker_name`` is empty if the broker itself has asked."""

    msg_id: str
    log_offset: int
    queue_offset: int
    broker_name: str = ""

    @classmethod
    def of_sent(cls, result: SendResult) -> "Half":
        """Return where a broker has stored a half. Errors: `RemoteProtocolError`."""
        _, _, log_offset = parse_offset_message_id(result.offset_msg_id)
        return cls(result.msg_id, log_offset, result.queue_offset, result.queue.broker_name)

    @classmethod
    def of_question(cls, fields: Mapping[str, str], msg_id: str) -> "Half":
        """Return which half a broker asks about (39). Errors: `RemoteProtocolError`."""
        try:
            offsets = int(fields["commitLogOffset"]), int(fields["tranStateTableOffset"])
        except (KeyError, ValueError) as error:
            raise RemoteProtocolError(f"check of a transaction: {str(fields)[:300]}") from error
        return cls(msg_id, *offsets)

    def end(self, group: str, state: TransactionState) -> RemotingCommand:
        """Return the request that decides it."""
        is_asked = not self.broker_name
        fields = {
            "producerGroup": group,
            "tranStateTableOffset": str(self.queue_offset),
            "commitLogOffset": str(self.log_offset),
            "commitOrRollback": str(int(state)),
            "fromTransactionCheck": "true" if is_asked else "false",
            "msgId": self.msg_id,
            "transactionId": self.msg_id,
        }
        if not is_asked:
            fields["bname"] = self.broker_name
        return RemotingCommand(
            code=RequestCode.END_TRANSACTION,
            flag=FLAG_ONEWAY,
            language=LanguageCode.PYTHON,
            ext_fields=fields,
        )


def half_properties(group: str, immunity_s: int) -> dict[str, str]:
    """Return what makes a message a half of a producer group.

    Brokers ask nobody about it for ``immunity_s``; where that is 0, as long as they are set to.
    """
    immunity = {CHECK_IMMUNITY: str(immunity_s)} if immunity_s else {}
    return {TRAN_MSG: "true", PGROUP: group, **immunity}


def check_transactional(message: object) -> None:
    """Raise ``InvalidMessage`` unless this is one message that is not delayed."""
    if not isinstance(message, Message):
        kind = type(message).__name__
        raise InvalidMessage(f"a transaction has one message, not {kind}: batches have none")
    if message.delay_level:
        raise InvalidMessage(
            f"delay_level {message.delay_level}: a message of a transaction cannot be delayed"
        )
