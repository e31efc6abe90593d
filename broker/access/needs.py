"""What each request needs: nothing, an account, rights of topics and groups, an administrator.

A request that is not listed needs an administrator. Where RocketMQ 4.9.7 asks for a signature alone
(batches, replies, offsets, locks, resets, its own access file), rights are asked for here.
`docs/access.md` has the list. Pure, but for the messages that a request names by their place.

Source: PlainAccessValidator.parse, Permission.ADMIN_CODE 4.9.7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from broker.access.rules import PUB, SUB, Right
from ledgermq.remoting.protocol.bodies import decode_body, decode_heartbeat
from ledgermq.remoting.protocol.codes import RequestCode as Code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ledgermq.remoting.protocol.command import RemotingCommand

    Rights = Callable[[RemotingCommand], Iterable[Right]]

RETRY_PREFIX: Final = "%RETRY%"


class _Queue(msgspec.Struct):
    topic: str = ""


class _LockBody(msgspec.Struct, rename="camel"):
    consumer_group: str = ""
    mq_set: list[_Queue] = []


def of_topic(name: str, any_of: int) -> Right:
    """Return a right of a topic; the retry topic of a group is the group's."""
    if name.startswith(RETRY_PREFIX):
        return Right(name.removeprefix(RETRY_PREFIX), is_group=True, any_of=SUB)
    return Right(name, is_group=False, any_of=any_of)


def of_group(name: str) -> Right:
    """Return the right to consume as a group."""
    return Right(name, is_group=True, any_of=SUB)


def _fields(topics: tuple[str, ...], groups: tuple[str, ...], any_of: int) -> Rights:
    """Return what reads the names from these fields; one that is not there is not used either."""

    def rights(request: RemotingCommand) -> Iterable[Right]:
        fields = request.ext_fields
        for name in topics:
            if name in fields:
                yield of_topic(fields[name], any_of)
        for name in groups:
            if fields.get(name):
                yield of_group(fields[name])

    return rights


def _heartbeat(request: RemotingCommand) -> Iterable[Right]:
    for consumer in decode_heartbeat(request.body).consumer_data_set:
        yield of_group(consumer.group_name)
        for subscription in consumer.subscription_data_set:
            yield of_topic(subscription.topic, SUB)


def _locks(request: RemotingCommand) -> Iterable[Right]:
    body = decode_body(request.body, _LockBody)
    yield of_group(body.consumer_group)
    for name in dict.fromkeys(queue.topic for queue in body.mq_set):
        yield of_topic(name, SUB)


_SEND: Final = _fields(("b", "topic"), (), PUB)
"""Under both names that a topic has, whatever the code: every one that is there counts."""
_PULL: Final = _fields(("topic",), ("consumerGroup",), SUB)
_READ: Final = _fields(("topic",), (), SUB)
_LOOK: Final = _fields(("topic",), (), PUB | SUB)
_GROUP: Final = _fields((), ("consumerGroup", "group"), SUB)

RIGHTS: Final[dict[int, Rights]] = {
    **dict.fromkeys(
        (
            Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE,
            Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2,
        ),
        _SEND,
    ),
    **dict.fromkeys(
        (
            Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE, Code.QUERY_CONSUMER_OFFSET,
            Code.UPDATE_CONSUMER_OFFSET, Code.QUERY_CONSUME_QUEUE,
        ),
        _PULL,
    ),
    Code.QUERY_MESSAGE: _READ,
    **dict.fromkeys(
        (
            Code.SEARCH_OFFSET_BY_TIMESTAMP, Code.GET_MAX_OFFSET, Code.GET_MIN_OFFSET,
            Code.GET_EARLIEST_MSG_STORETIME,
        ),
        _LOOK,
    ),
    **dict.fromkeys(
        (Code.UNREGISTER_CLIENT, Code.GET_CONSUMER_LIST_BY_GROUP, Code.CONSUMER_SEND_MSG_BACK),
        _GROUP,
    ),
    Code.HEART_BEAT: _heartbeat,
    Code.LOCK_BATCH_MQ: _locks,
    Code.UNLOCK_BATCH_MQ: _locks,
}  # fmt: skip
"""By request code."""

PLACES: Final[dict[int, tuple[str, int]]] = {
    Code.VIEW_MESSAGE_BY_ID: ("offset", SUB),
    Code.CONSUMER_SEND_MSG_BACK: ("offset", SUB),
    Code.END_TRANSACTION: ("commitLogOffset", PUB),
}
"""Requests that name a message by its place: in which field, and what they need of its topic."""

ACCOUNT: Final = frozenset(
    {
        Code.GET_ALL_TOPIC_CONFIG, Code.GET_BROKER_CONFIG, Code.GET_BROKER_RUNTIME_INFO,
        Code.GET_ALL_CONSUMER_OFFSET, Code.GET_ALL_DELAY_OFFSET, Code.CHECK_CLIENT_CONFIG,
        Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, Code.GET_TOPIC_STATS_INFO,
        Code.GET_CONSUMER_CONNECTION_LIST, Code.GET_PRODUCER_CONNECTION_LIST,
        Code.GET_CONSUME_STATS, Code.QUERY_TOPIC_CONSUME_BY_WHO, Code.QUERY_CONSUME_TIME_SPAN,
        Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, Code.VIEW_BROKER_STATS_DATA,
        Code.GET_BROKER_CONSUME_STATS, Code.GET_ALL_PRODUCER_INFO, Code.QUERY_TOPICS_BY_CONSUMER,
        Code.GET_TOPIC_CONFIG, Code.GET_SUBSCRIPTIONGROUP_CONFIG, Code.GET_BROKER_EPOCH_CACHE,
        Code.READ_INDEX, Code.GET_TIMER_CHECK_POINT, Code.GET_TIMER_METRICS,
        Code.GET_ALL_MESSAGE_REQUEST_MODE,
    }
)  # fmt: skip
"""Figures and tables, no message: whoever has an account may ask."""

ANYBODY: Final = frozenset({Code.RAFT_STATUS})
"""Who leads, and how far the log is: probes ask."""

ADMIN: Final = frozenset(
    {
        Code.UPDATE_AND_CREATE_TOPIC, Code.UPDATE_BROKER_CONFIG, Code.DELETE_TOPIC_IN_BROKER,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, Code.DELETE_SUBSCRIPTIONGROUP,
        Code.UPDATE_AND_CREATE_ACL_CONFIG, Code.DELETE_ACL_CONFIG,
        Code.GET_BROKER_CLUSTER_ACL_INFO, Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        Code.GET_BROKER_CLUSTER_ACL_CONFIG, Code.INVOKE_BROKER_TO_RESET_OFFSET,
        Code.CLONE_GROUP_OFFSET, Code.QUERY_CORRECTION_OFFSET,
        Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, Code.GET_CONSUMER_RUNNING_INFO,
        Code.CONSUME_MESSAGE_DIRECTLY, Code.CLEAN_EXPIRED_CONSUMEQUEUE, Code.CLEAN_UNUSED_TOPIC,
        Code.DELETE_EXPIRED_COMMITLOG, Code.CHANGE_MEMBERSHIP, Code.TRANSFER_LEADER, Code.COMPACT,
        Code.RESUME_CHECK_HALF_MESSAGE,
    }
)  # fmt: skip
"""What changes something for others, or reaches into their clients."""
