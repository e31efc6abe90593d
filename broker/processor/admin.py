"""Administration: UPDATE_AND_CREATE_TOPIC (17) and RAFT_STATUS (29001).

Source: spec/wire.md 3.9; RocketMQ AdminBrokerProcessor.updateAndCreateTopic 4.9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from broker.answers import SLAVE_REMARK, put_failure, shown
from broker.cluster.guard import refused
from broker.limits import TOPIC_QUEUES_MAX
from broker.state.topic_config import (
    DLQ_PREFIX,
    FILTER_TYPES,
    PERM_MAX,
    RETRY_PREFIX,
    topic_name_error,
)
from ledgermq.remoting.protocol.bodies import TopicConfig
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand, make_response
from ledgermq.remoting.protocol.headers import CreateTopicHeader, decode_header
from ledgermq.remoting.protocol.limits import TOPIC_LENGTH_MAX
from ledgermq.remoting.transport.requests import Permission, ServedBy, serves
from store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.cluster.guard import Guard
    from broker.sends.creation import Creator
    from broker.state.replicated_state import Proposer
    from broker.state.topic_config import TopicTable

_FULL: Final = "the topic table is full: name servers take no larger one"
#: RocketMQ 4.9 answers a successful 17 with this remark; recorded clients got it.
_TOPIC_REMARK: Final = "not set any response code"
_MESSAGE_TYPE: Final = "message.type"


class _Asker(Protocol):
    """A connection."""

    remote: tuple[str, int]


class AdminProcessor:
    """Answers administration requests of one broker."""

    def __init__(
        self,
        *,
        topics: TopicTable,
        creator: Creator,
        proposer: Proposer,
        guard: Guard,
        status: Callable[[], dict[str, Any]],
    ) -> None:
        self._topics = topics
        self._creator = creator
        self._proposer = proposer
        self._guard = guard
        self._status = status

    @serves(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        what="create or change a topic",
        header=CreateTopicHeader,
        limits=(TOPIC_LENGTH_MAX, TOPIC_QUEUES_MAX),
        served_by=ServedBy.LEADER_BY_ITSELF,
        permission=Permission.SETTINGS_BY_ITSELF,
    )
    async def handle_update_topic(
        self, connection: _Asker, request: RemotingCommand
    ) -> RemotingCommand:
        """Take UPDATE_AND_CREATE_TOPIC."""
        if not self._proposer.writable:
            return make_response(request, ResponseCode.SYSTEM_ERROR, SLAVE_REMARK)
        header = decode_header(request, CreateTopicHeader)
        error = self._refusal(header)
        if error is not None:
            return make_response(request, ResponseCode.SYSTEM_ERROR, error)
        if self._topics.full and self._topics.get(header.topic) is None:
            return make_response(request, ResponseCode.SYSTEM_BUSY, _FULL)
        wanted = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=header.topic_filter_type,
            topic_sys_flag=header.topic_sys_flag or 0,
            order=header.order,
        )
        if self._takes_away(wanted):
            host = connection.remote[0]
            problem = self._guard.refusal_of_settings(host, request)
            if problem is not None:
                return refused(host, request, problem)
        status = await self._creator.change_topic(wanted)
        if status is not PutStatus.OK:
            return put_failure(request, status)
        return make_response(request, ResponseCode.SUCCESS, _TOPIC_REMARK)

    @serves(RequestCode.RAFT_STATUS, what="ours: role, term, indexes as JSON")
    def handle_raft_status(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take RAFT_STATUS."""
        body = msgspec.json.encode(self._status())
        return make_response(request, ResponseCode.SUCCESS, body=body)

    def _takes_away(self, wanted: TopicConfig) -> bool:
        """Tell whether somebody could do less than before, or than he could if nothing were set.

        A topic of a consumer group that does not exist yet would be its group's.
        """
        entry = self._topics.get(wanted.topic_name)
        if entry is None:
            return wanted.topic_name.startswith((RETRY_PREFIX, DLQ_PREFIX))
        known = entry.config
        has_less = (
            known.perm & ~wanted.perm
            or wanted.read_queue_nums < known.read_queue_nums
            or wanted.write_queue_nums < known.write_queue_nums
        )
        return bool(has_less) or (
            (wanted.topic_filter_type, wanted.topic_sys_flag, wanted.order)
            != (known.topic_filter_type, known.topic_sys_flag, known.order)
        )

    def _refusal(self, header: CreateTopicHeader) -> str | None:
        """Return why a topic may not be created so, or None."""
        topic, kind = header.topic, header.topic_filter_type
        if self._topics.is_system(topic):
            return f"The topic[{shown(topic)}] is conflict with system topic."
        error = topic_name_error(topic)
        if error is not None:
            return error
        counts = (header.read_queue_nums, header.write_queue_nums)
        if not all(0 <= queues <= TOPIC_QUEUES_MAX for queues in counts):
            return f"The topic[{topic}] may have 0 to {TOPIC_QUEUES_MAX} queues."
        if not 0 <= header.perm <= PERM_MAX:
            return f"perm = [{header.perm}] value invalid"
        if kind not in FILTER_TYPES:
            return f"topicFilterType = [{shown(kind)}] value invalid"
        return _attributes_error(header.attributes or "")


def _attributes_error(text: str) -> str | None:
    """Return why attributes of RocketMQ 5, ``+a=b,-c``, may not be set, or None.

    The kind of messages that a topic is meant for is a note, which RocketMQ's brokers do not look
    at either. Others change how a topic is stored or removed: what they promise is not held here.
    """
    for item in text.split(","):
        name = item.strip().lstrip("+-").partition("=")[0].strip()
        if name not in {"", _MESSAGE_TYPE}:
            return f"the attribute {shown(name)} is RocketMQ 5's; this broker has {_MESSAGE_TYPE}"
    return None
