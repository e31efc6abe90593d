"""Records of message traces, as RocketMQ's tools read them. Pure.

Fields are separated by 0x01, and a record ends with 0x02; what is missing is the text ``null``.

- Pub: time region group topic msgId tags keys storeHost bodyLength costMs msgType offsetMsgId
  success
- SubBefore: time region group requestId msgId retryTimes keys
- SubAfter: requestId msgId costMs success keys contextCode time group
- EndTransaction: time region group topic msgId tags keys storeHost msgType transactionId state
  fromCheck

Source: TraceDataEncoder, TraceConstants, ConsumeReturnType 4.9 (spec/wire.md 7.7).
"""

from typing import Final

from ledgermq.client.halves import TransactionState
from ledgermq.client.hooks import Consuming, Decided, Sending
from ledgermq.client.message import ConsumeStatus, SendStatus
from ledgermq.remoting.protocol.headers import DEFAULT_REGION
from ledgermq.remoting.protocol.message import MessageExt
from ledgermq.remoting.protocol.properties import KEYS, MSG_REGION, TRACE_ON

Record = tuple[str, tuple[str, ...]]
"""The text of one record or more, and the keys by which it is found."""

_COMMIT_TYPE: Final = 2
_STATE_NAMES: Final = {
    TransactionState.COMMIT: "COMMIT_MESSAGE",
    TransactionState.ROLLBACK: "ROLLBACK_MESSAGE",
    TransactionState.UNKNOWN: "UNKNOW",
}
_SUCCEEDED, _RAISED, _NOTHING, _LATER = 0, 2, 3, 4


def of_send(sending: Sending) -> list[Record]:
    """Return a record for each message of a send that was acknowledged."""
    result = sending.result
    if result is None:
        return []
    addr = result.attempts[-1].broker_addr if result.attempts else ""
    offset_ids = result.offset_msg_id.split(",")
    msg_ids = result.msg_id.split(",")
    if len(offset_ids) != len(msg_ids):
        offset_ids = [result.offset_msg_id] * len(msg_ids)
    is_stored = "true" if result.status is SendStatus.SEND_OK else "false"
    return [
        (
            _record(
                "Pub", sending.t_start_ms, result.region, sending.group, message.topic, msg_id,
                message.tags, message.keys, addr, len(message.body), sending.took_ms,
                int(sending.kind), offset_id, is_stored,
            ),
            _found_by(msg_id, message.keys),
        )
        for message, msg_id, offset_id in zip(sending.messages, msg_ids, offset_ids, strict=True)
    ]  # fmt: skip


def of_call(consuming: Consuming, request_id: str) -> list[Record]:
    """Return a record for each message that a listener is about to get."""
    return [
        (
            _record(
                "SubBefore", consuming.t_start_ms, message.maybe_property(MSG_REGION),
                consuming.group, request_id, message.message_id(), message.reconsume_times, keys,
            ),
            _found_by(message.message_id(), keys),
        )
        for message, keys in _traced(consuming)
    ]  # fmt: skip


def of_outcome(consuming: Consuming, request_id: str) -> list[Record]:
    """Return a record for each message that a listener has had."""
    cost_ms = consuming.took_ms // max(len(consuming.messages), 1)
    succeeded = "true" if consuming.succeeded else "false"
    return [
        (
            _record(
                "SubAfter", request_id, message.message_id(), cost_ms, succeeded, keys,
                _code_of(consuming), consuming.t_start_ms + consuming.took_ms, consuming.group,
            ),
            _found_by(message.message_id(), keys),
        )
        for message, keys in _traced(consuming)
    ]  # fmt: skip


def of_decision(decided: Decided) -> Record:
    """Return the record of a decision about a half."""
    text = _record(
        "EndTransaction", decided.t_ms, DEFAULT_REGION, decided.group, decided.topic,
        decided.msg_id, decided.tags, decided.keys, decided.broker_addr, _COMMIT_TYPE,
        decided.msg_id, _STATE_NAMES[decided.state], "true" if decided.from_check else "false",
    )  # fmt: skip
    return text, _found_by(decided.msg_id, decided.keys)


def _traced(consuming: Consuming) -> list[tuple[MessageExt, str]]:
    """Return the messages whose brokers want them traced, with their keys."""
    return [
        (message, message.maybe_property(KEYS) or "")
        for message in consuming.messages
        if message.maybe_property(TRACE_ON) != "false"
    ]


def _code_of(consuming: Consuming) -> int:
    if consuming.error is not None:
        return _RAISED
    if not isinstance(consuming.status, ConsumeStatus):
        return _NOTHING
    return _SUCCEEDED if consuming.succeeded else _LATER


def _found_by(msg_id: str, keys: str) -> tuple[str, ...]:
    return (msg_id, keys) if keys else (msg_id,)


def _record(*fields: str | int | None) -> str:
    return "\x01".join("null" if one in {None, ""} else str(one) for one in fields) + "\x02"
