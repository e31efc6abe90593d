"""Which processor serves which request code.

Requests that work on the log itself, not through the store, end the process by a broken invariant.

Source: spec/wire.md 2.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker.processor.admin import RAFT_STATUS, AdminProcessor
from broker.processor.compact import COMPACT, CompactProcessor
from broker.processor.membership import CHANGE_MEMBERSHIP, MembershipProcessor
from broker.processor.raft import READ_INDEX, TRANSFER_LEADER, RaftProcessor
from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.runtime.errors import async_invariants_are_fatal as of_the_log

#: 361 of 5.x clients: a pull of a lite consumer, the same in all else.
LITE_PULL_MESSAGE: Final = 361

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.cluster.guard import Guard
    from broker.processor.clean import CleanProcessor
    from broker.processor.client import ClientProcessor
    from broker.processor.lock import LockProcessor
    from broker.processor.no_group import NoGroup
    from broker.processor.offset import OffsetProcessor
    from broker.processor.pull import PullProcessor
    from broker.processor.query import QueryProcessor
    from broker.processor.send import SendProcessor


class Processors(NamedTuple):
    """All processors of a broker."""

    send: SendProcessor
    pull: PullProcessor
    client: ClientProcessor
    offset: OffsetProcessor
    query: QueryProcessor
    lock: LockProcessor
    admin: AdminProcessor
    raft: RaftProcessor | NoGroup
    guard: Guard
    membership: MembershipProcessor | NoGroup
    compact: CompactProcessor | NoGroup
    clean: CleanProcessor


def hot_handlers(processors: Processors) -> dict[int, Callable[[Any, Any], None]]:
    """Return the handlers that take frames."""
    return {
        RequestCode.SEND_MESSAGE: processors.send.handle,
        RequestCode.SEND_MESSAGE_V2: processors.send.handle,
        RequestCode.SEND_BATCH_MESSAGE: processors.send.handle_batch,
        RequestCode.PULL_MESSAGE: processors.pull.handle,
        LITE_PULL_MESSAGE: processors.pull.handle,
        RequestCode.UPDATE_CONSUMER_OFFSET: processors.offset.handle_update,
        RequestCode.HEART_BEAT: processors.client.handle_heartbeat,
    }


def command_handlers(processors: Processors) -> dict[int, Callable[[Any, Any], Any]]:
    """Return the handlers that take commands."""
    protect = processors.guard.protect
    return {
        RequestCode.QUERY_CONSUMER_OFFSET: processors.offset.handle_query,
        RequestCode.UPDATE_AND_CREATE_TOPIC: processors.admin.handle_update_topic,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: processors.query.handle_by_time,
        RequestCode.GET_MAX_OFFSET: processors.query.handle_max_offset,
        RequestCode.GET_MIN_OFFSET: processors.query.handle_min_offset,
        RequestCode.GET_EARLIEST_MSG_STORETIME: processors.query.handle_earliest,
        RequestCode.QUERY_MESSAGE: processors.query.handle_by_key,
        RequestCode.VIEW_MESSAGE_BY_ID: processors.query.handle_by_id,
        RequestCode.UNREGISTER_CLIENT: processors.client.handle_unregister,
        RequestCode.CONSUMER_SEND_MSG_BACK: processors.admin.handle_send_back,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: processors.client.handle_list,
        RequestCode.LOCK_BATCH_MQ: processors.lock.handle_lock,
        RequestCode.UNLOCK_BATCH_MQ: processors.lock.handle_unlock,
        RAFT_STATUS: processors.admin.handle_raft_status,
        COMPACT: protect(of_the_log(processors.compact.handle)),
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: processors.clean.handle_expired_queues,
        RequestCode.CLEAN_UNUSED_TOPIC: processors.clean.handle_unused_topics,
        RequestCode.DELETE_EXPIRED_COMMITLOG: of_the_log(processors.clean.handle_expired_log),
        CHANGE_MEMBERSHIP: protect(of_the_log(processors.membership.handle)),
        TRANSFER_LEADER: protect(of_the_log(processors.raft.handle_transfer)),
        READ_INDEX: of_the_log(processors.raft.handle_read_index),
    }
