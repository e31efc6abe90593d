"""Answers of the name server, handlers called without a network."""

import zlib

import pytest

from namesrv.config import NamesrvConfig
from namesrv.kv_config import KvConfig
from namesrv.processor import Processor
from namesrv.route_table import RouteTable
from remoting.protocol.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigWrapper,
    body_crc32,
    encode_body,
    encode_register_body,
)
from remoting.protocol.command import RemotingCommand
from remoting.protocol.errors import InvalidHeader, RemoteProtocolError
from remoting.protocol.tolerant_json import loads
from tests.unit.namesrv.test_kv_config import FakeDisk


class FakeClock:
    def __init__(self) -> None:
        self.now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms

    def monotonic_ns(self) -> int:
        return self.now_ms * 1_000_000

    def wall_ms(self) -> int:
        return self.now_ms


class FakeConnection:
    """As much of a connection as the name server looks at."""

    id = 1


class Server:
    """The handlers of a name server, called without a network."""

    def __init__(self, **config: object) -> None:
        self.table = RouteTable()
        kv_config = KvConfig(FakeDisk(), "")
        processor = Processor(NamesrvConfig(**config), self.table, kv_config, FakeClock())
        self._handlers = processor.handlers()

    def ask(self, code: int, body: bytes = b"", **fields: str) -> RemotingCommand:
        command = RemotingCommand(code, opaque=5, ext_fields=fields, body=body)
        return self._handlers[code](FakeConnection(), command)

    def register(self, body: bytes | None = None, **changes: str) -> RemotingCommand:
        plain = encode_register_body(registered()) if body is None else body
        fields = {
            "brokerName": "b",
            "brokerAddr": "a:1",
            "clusterName": "c",
            "brokerId": "0",
            "haServerAddr": "ha:1",
        }
        return self.ask(103, plain, **(fields | changes))


def registered(version: int = 0) -> RegisterBrokerBody:
    wrapper = TopicConfigWrapper(
        data_version=DataVersion(counter=version, timestamp=1),
        topic_config_table={"T": TopicConfig(topic_name="T", read_queue_nums=4)},
    )
    return RegisterBrokerBody(topic_config_serialize_wrapper=wrapper)


def test_registration_is_answered_with_empty_fields():
    answer = Server().register()
    assert (answer.code, answer.opaque, answer.ext_fields, answer.body) == (0, 5, {}, b"")
    assert answer.empty_ext_fields


def test_a_slave_is_told_its_master():
    server = Server()
    server.register()
    answer = server.register(brokerId="1", brokerAddr="s:1")
    assert answer.ext_fields == {"haServerAddr": "ha:1", "masterAddr": "a:1"}


@pytest.mark.parametrize("compressed", [False, True])
def test_bodies_are_read_compressed_and_plain_and_their_checksum_is_checked(compressed):
    server = Server()
    body = encode_register_body(registered(), compressed=compressed)
    flags = {"compressed": str(compressed).lower()}
    good = str(body_crc32(body))
    assert server.register(body, bodyCrc32=str(body_crc32(body) ^ 1), **flags).remark == (
        "crc32 not match"
    )
    assert server.ask(105, topic="T").code == 17
    assert server.register(body, bodyCrc32=good, **flags).code == 0
    assert server.ask(105, topic="T").code == 0


def test_a_broken_registration_changes_nothing():
    server = Server()
    with pytest.raises(RemoteProtocolError):
        server.register(zlib.compress(b"xx"), compressed="true")
    with pytest.raises(InvalidHeader):
        server.register(brokerId="none")
    assert loads(server.ask(106).body)["brokerAddrTable"] == {}


def test_an_older_term_is_refused_with_both_terms_named():
    server = Server()
    assert server.register(raftTerm="4").code == 0
    answer = server.register(raftTerm="3", brokerAddr="old:1")
    assert (answer.code, answer.remark) == (1, "term 3 is older than the master's 4")


def test_routes_follow_every_change():
    server = Server()
    refused = server.ask(105, topic="T")
    assert refused.code == 17
    assert refused.remark.startswith("No topic route info in name server for the topic: T")
    server.register()
    first = server.ask(105, topic="T")
    assert first.body == server.ask(105, topic="T").body
    assert loads(first.body) == {
        "brokerDatas": [{"brokerAddrs": {"0": "a:1"}, "brokerName": "b", "cluster": "c"}],
        "filterServerTable": {},
        "queueDatas": [
            {"brokerName": "b", "perm": 6, "readQueueNums": 4, "topicSysFlag": 0,
             "writeQueueNums": 16}
        ],
    }  # fmt: skip
    server.register(brokerId="1", brokerAddr="s:1")
    assert b'"1":"s:1"' in server.ask(105, topic="T").body
    assert (
        server.ask(104, brokerName="b", brokerAddr="a:1", clusterName="c", brokerId="0").code == 0
    )
    assert b'"0"' not in server.ask(105, topic="T").body


def test_order_configuration_reaches_routes_and_brokers_when_enabled():
    server = Server(order_message_enable=True)
    server.register()
    assert b"orderTopicConf" not in server.ask(105, topic="T").body
    server.ask(100, namespace="ORDER_TOPIC_CONFIG", key="T", value="b:4")
    assert loads(server.ask(105, topic="T").body)["orderTopicConf"] == "b:4"
    assert loads(server.register().body) == {"table": {"T": "b:4"}}
    assert Server(return_order_topic_config=False).register().body == b""


def test_lists():
    server = Server()
    server.register()
    assert loads(server.ask(206).body) == {"topicList": ["T"]}
    assert loads(server.ask(224, cluster="c").body) == {"topicList": ["T"]}
    assert loads(server.ask(304).body) == {"brokerAddr": "a:1", "topicList": ["c", "b"]}
    assert server.ask(205, brokerName="b").ext_fields == {"wipeTopicCount": "1"}
    assert server.ask(327, brokerName="b").ext_fields == {"addTopicCount": "1"}
    assert server.ask(216, topic="T").code == 0
    assert server.ask(105, topic="T").code == 17


def test_data_versions_are_compared():
    server = Server()
    fields = {"brokerName": "b", "brokerAddr": "a:1", "clusterName": "c", "brokerId": "0"}
    version = encode_body(registered().topic_config_serialize_wrapper.data_version)
    answer = server.ask(322, version, **fields)
    assert (answer.ext_fields, answer.body) == ({"changed": "true"}, b"")
    server.register()
    answer = server.ask(322, version, **fields)
    assert (answer.ext_fields, answer.body) == ({"changed": "false"}, version)


def test_key_value_configuration(monkeypatch):
    server = Server()
    missing = server.ask(101, namespace="n", key="k")
    assert (missing.code, missing.remark) == (22, "No config item, Namespace: n Key: k")
    assert server.ask(219, namespace="n").code == 22
    assert server.ask(100, namespace="n", key="k", value="v").code == 0
    assert server.ask(101, namespace="n", key="k").ext_fields == {"value": "v"}
    assert loads(server.ask(219, namespace="n").body) == {"table": {"k": "v"}}
    assert server.ask(102, namespace="n", key="k").code == 0
    assert server.ask(101, namespace="n", key="k").code == 22
    monkeypatch.setattr("namesrv.kv_config.VALUES_MAX", 0)
    assert server.ask(100, namespace="n", key="k", value="v").code == 1
