"""What a broker tells the name servers about itself: requests 103 and 104.

Pure. Source: spec/wire.md 3.2; RocketMQ RegisterBrokerRequestHeader, RegisterBrokerBody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledgermq.remoting.protocol.bodies import (
    RegisterBrokerBody,
    TopicConfigWrapper,
    body_crc32,
    encode_body,
    encode_register_body,
)
from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.headers import BrokerHeader, RegisterBrokerHeader, header_fields
from ledgermq.remoting.protocol.limits import REGISTER_BYTES_MAX
from ledgermq.remoting.protocol.signing import NAMESRV_AUDIENCE, sign

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.state.topic_config import TopicTable
    from ledgermq.remoting.protocol.signing import Credentials


def register_request(
    config: BrokerConfig, topics: TopicTable, broker_id: int, raft_term: int
) -> RemotingCommand:
    """Return the registration of this moment.

    The term lets our name servers refuse a leader of the past; real ones ignore it.
    """
    body = (
        b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":%b,'
        % encode_body(topics.data_version)
        + b'"topicConfigTable":%b}}' % topics.encode_permitted()
    )
    compressed = len(body) > REGISTER_BYTES_MAX
    if compressed:
        body = _compressed(topics)
    header = RegisterBrokerHeader(
        broker_name=config.registered_name,
        broker_addr=config.broker_addr,
        cluster_name=config.broker_cluster_name,
        broker_id=broker_id,
        ha_server_addr=config.ha_addr,
        compressed=compressed,
        body_crc32=body_crc32(body),
        raft_term=raft_term,
    )
    return RemotingCommand(RequestCode.REGISTER_BROKER, ext_fields=header_fields(header), body=body)


def _compressed(topics: TopicTable) -> bytes:
    """Return the form that has room for twice as many topics, at the price of making it anew.

    For tables of versions that had no bound. It lacks what routes do not need.
    """
    wrapper = TopicConfigWrapper(
        data_version=topics.data_version, topic_config_table=dict(topics.permitted())
    )
    return encode_register_body(
        RegisterBrokerBody(topic_config_serialize_wrapper=wrapper), compressed=True
    )


def unregister_request(config: BrokerConfig, broker_id: int) -> RemotingCommand:
    """Return the farewell."""
    header = BrokerHeader(
        broker_name=config.registered_name,
        broker_addr=config.broker_addr,
        cluster_name=config.broker_cluster_name,
        broker_id=broker_id,
    )
    return RemotingCommand(RequestCode.UNREGISTER_BROKER, ext_fields=header_fields(header))


def signed(
    command: RemotingCommand,
    credentials: Credentials | None,
    now_ms: int,
    nonce: str,
    audience: str = NAMESRV_AUDIENCE,
) -> RemotingCommand:
    """Return a request to a name server (or ``audience``), signed if there is what to sign with."""
    if credentials is None:
        return command
    return sign(command, credentials, now_ms=now_ms, nonce=nonce, audience=audience)
