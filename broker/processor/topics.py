"""Topics as tools see them: all of them (21), one (351), those of the system (305). Looks only.

Source: spec/wire.md 3.9; RocketMQ AdminBrokerProcessor.getAllTopicConfig,
getSystemTopicListFromBroker 4.9, getTopicConfig 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from broker.answers import shown
from ledgermq.remoting.protocol.administration import TopicHeader, TopicTableBody
from ledgermq.remoting.protocol.bodies import TopicList, encode_body
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand, make_response
from ledgermq.remoting.protocol.headers import decode_header
from ledgermq.remoting.transport.requests import serves

if TYPE_CHECKING:
    from broker.state.topic_config import TopicTable


class TopicsProcessor:
    """Answers which topics one broker has."""

    def __init__(self, topics: TopicTable) -> None:
        self._topics = topics

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
