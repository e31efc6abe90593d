"""Topics as tools see them: all (21), one (351), those of the system (305); their removal (215).

A topic that is removed is gone from tables and routes, and nobody can read it. Its queues stay
until retention takes their messages, and when it is made anew they go on at the offsets that they
had: offsets that began at 0 again would lie before those that consumers have.

Source: spec/wire.md 3.9; RocketMQ AdminBrokerProcessor.getAllTopicConfig,
getSystemTopicListFromBroker 4.9, getTopicConfig 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from broker.answers import SLAVE_REMARK, put_failure, shown
from broker.state.topic_config import topic_name_error
from ledgermq.remoting.protocol.administration import TopicHeader, TopicTableBody
from ledgermq.remoting.protocol.bodies import TopicList, encode_body
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand, make_response
from ledgermq.remoting.protocol.headers import DeleteTopicHeader, decode_header
from ledgermq.remoting.transport.requests import Permission, ServedBy, serves
from store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.sends.creation import Creator
    from broker.state.topic_config import TopicTable


class TopicsProcessor:
    """Answers which topics one broker has."""

    def __init__(
        self, topics: TopicTable, creator: Creator, is_writable: Callable[[], bool]
    ) -> None:
        self._topics = topics
        self._creator = creator
        self._is_writable = is_writable

    @serves(RequestCode.GET_ALL_TOPIC_CONFIG, what="settings of all topics")
    def handle_all(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take GET_ALL_TOPIC_CONFIG (21)."""
        body = TopicTableBody(
            data_version=self._topics.data_version,
            topic_config_table=msgspec.Raw(self._topics.encode()),
        )
        return make_response(request, ResponseCode.SUCCESS, None, {}, encode_body(body))

    @serves(RequestCode.GET_TOPIC_CONFIG, what="settings of a topic", header=TopicHeader)
    def handle_one(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take GET_TOPIC_CONFIG (351), which RocketMQ 5's tools ask first."""
        name = decode_header(request, TopicHeader).topic
        entry = self._topics.get(name)
        if entry is None:
            remark = f"No topic in this broker. topic: {shown(name)}"
            return make_response(request, ResponseCode.TOPIC_NOT_EXIST, remark)
        return make_response(request, ResponseCode.SUCCESS, body=encode_body(entry.config))

    @serves(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, what="names of the system's topics")
    def handle_system(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take GET_SYSTEM_TOPIC_LIST_FROM_BROKER (305)."""
        body = encode_body(TopicList(topic_list=self._topics.system_names()))
        return make_response(request, ResponseCode.SUCCESS, body=body)

    @serves(
        RequestCode.DELETE_TOPIC_IN_BROKER,
        what="remove a topic from tables and routes",
        header=DeleteTopicHeader,
        served_by=ServedBy.LEADER_BY_ITSELF,
        permission=Permission.ADMINISTRATION,
    )
    async def handle_delete(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take DELETE_TOPIC_IN_BROKER (215)."""
        if not self._is_writable():
            return make_response(request, ResponseCode.SYSTEM_ERROR, SLAVE_REMARK)
        name = decode_header(request, DeleteTopicHeader).topic
        is_here = self._topics.get(name) is not None
        # One that RocketMQ once made may have a longer name, in a directory that was adopted.
        remark = None if is_here else topic_name_error(name)
        if self._topics.is_system(name):
            remark = f"The topic[{shown(name)}] is conflict with system topic."
        if remark is not None:
            return make_response(request, ResponseCode.SYSTEM_ERROR, remark)
        if is_here:
            status = await self._creator.remove_topic(name)
            if status is not PutStatus.OK:
                return put_failure(request, status)
        return make_response(request, ResponseCode.SUCCESS)
