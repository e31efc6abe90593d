"""Answers of the name server, handlers called without a network."""

import asyncio
import zlib

import pytest

from ledgermq.remoting.protocol.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigWrapper,
    body_crc32,
    encode_body,
    encode_register_body,
)
from ledgermq.remoting.protocol.certificates import Identity, Role, node_identity
from ledgermq.remoting.protocol.command import RemotingCommand, encode_command
from ledgermq.remoting.protocol.errors import InvalidHeader, RemoteProtocolError, RequestTimeout
from ledgermq.remoting.protocol.limits import BODY_BYTES_MAX, REGISTER_BYTES_MAX
from ledgermq.remoting.protocol.signing import NAMESRV_AUDIENCE, KeyCredentials, Trust, sign
from ledgermq.remoting.protocol.tolerant_json import loads
from mutants.patches import BY_TESTS
from mutants.planting import planted
from namesrv.config import NamesrvConfig
from namesrv.guard import Guard
from namesrv.guard import _may as may
from namesrv.kv_config import KvConfig
from namesrv.processor import Processor
from namesrv.route_table import Registration, RouteTable
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
    """As much of a connection as the name server looks at.

    ``broker_id`` is what the broker at the other end says it has; None if it says nothing.
    """

    def __init__(self, number: int = 1, broker_id: int | None = 0) -> None:
        self.id = number
        self.remote = ("127.0.0.1", 4)
        self.broker_id = broker_id

    async def request(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        if self.broker_id is None:
            raise RequestTimeout("nobody answers")
        fields = {"brokerId": str(self.broker_id)} if self.broker_id >= 0 else {}
        return RemotingCommand(0 if fields else 3, ext_fields=fields)


class Server:
    """The handlers of a name server, called without a network."""

    def __init__(self, **config: object) -> None:
        self.table = RouteTable()
        kv_config = KvConfig(FakeDisk(), "")
        self.connection = FakeConnection()
        self.others: dict[int, FakeConnection] = {}
        self.credentials: KeyCredentials | None = None
        self.audience = NAMESRV_AUDIENCE
        self.nonce = 0
        processor = self.processor = Processor(
            NamesrvConfig(**config), self.table, kv_config, FakeClock(), self.find
        )
        self.trust = Trust()
        self.requests = processor.requests(Guard(lambda: self.trust, lambda: 1_000_000))
        self._handlers = self.requests.commands

    def find(self, number: int) -> "FakeConnection | None":
        return self.connection if number == self.connection.id else self.others.get(number)

    def as_other(self, connection: FakeConnection) -> "Server":
        """Have the next requests come over another connection."""
        self.others[self.connection.id] = self.connection
        self.connection = connection
        return self

    def ask(self, code: int, body: bytes = b"", **fields: str) -> RemotingCommand:
        command = RemotingCommand(code, opaque=5, ext_fields=fields, body=body)
        if self.credentials is not None:
            self.nonce += 1
            command = sign(
                command, self.credentials, now_ms=1_000_000, nonce=str(self.nonce),
                audience=self.audience,
            )  # fmt: skip
        answer = self._handlers[code](self.connection, command)
        return answer if isinstance(answer, RemotingCommand) else asyncio.run(answer)

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


def test_a_slave_of_another_cluster_is_told_no_master_and_changes_nothing():
    server = Server()
    server.register()
    before = server.ask(106).body
    answer = server.register(brokerId="1", brokerAddr="s:1", clusterName="d")
    assert (answer.code, answer.ext_fields) == (1, {})
    assert "the master a:1 of this name is of brokerClusterName=c" in answer.remark
    assert server.ask(106).body == before
    assert server.register(clusterName="d").code == 0, "its master has moved to that cluster"
    assert server.register(brokerId="1", brokerAddr="s:1", clusterName="d").code == 0
    with planted(BY_TESTS["slave-of-another-cluster"]):
        assert server.register(brokerId="2", brokerAddr="s:2", clusterName="c").code == 0


def test_members_of_a_group_may_be_given_another_cluster_one_by_one():
    server = Server()
    server.register(raftTerm="4")
    assert server.register(brokerId="1", brokerAddr="s:1", clusterName="d").code == 0


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


@pytest.mark.parametrize("field", ["brokerAddr", "haServerAddr"])
@pytest.mark.parametrize("address", ["..:10911", "a\0b:10911", "host:" + "1" * 200])
def test_an_address_that_no_resolver_takes_is_not_registered(field, address):
    server = Server()
    with pytest.raises(InvalidHeader):
        server.register(**{field: address})
    assert loads(server.ask(106).body)["brokerAddrTable"] == {}


def test_an_older_term_is_refused_with_both_terms_named():
    server = Server()
    assert server.register(raftTerm="4").code == 0
    answer = server.register(raftTerm="3", brokerAddr="old:1")
    assert answer.code == 1
    assert "term 3 is older than the master's 4" in answer.remark


def test_routes_follow_every_change():
    server = Server()
    refused = server.ask(105, topic="T")
    assert refused.code == 17
    assert refused.remark.startswith("No topic route info in name server for the topic: T")
    server.register()
    first = server.ask(105, topic="T")
    assert first.body == server.ask(105, topic="T").body
    assert loads(first.body) == {
        "brokerDatas": [
            {
                "brokerAddrs": {"0": "a:1"},
                "brokerName": "b",
                "cluster": "c",
                "enableActingMaster": False,
            }
        ],
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


def test_a_topic_is_deleted_on_all_brokers_where_no_cluster_is_named():
    """Source: DefaultRequestProcessor.deleteTopicInNamesrv: null and an empty name are alike."""
    for fields, is_left in (({"clusterName": "d"}, True), ({"clusterName": ""}, False)):
        server = Server()
        server.register()
        assert server.ask(216, topic="T", **fields).code == 0
        assert (server.ask(105, topic="T").code == 0) is is_left


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
    monkeypatch.setattr("namesrv.kv_config.KV_BYTES_MAX", 2)
    assert server.ask(100, namespace="n", key="k", value="v").code == 1


def rival(number: int = 2) -> FakeConnection:
    return FakeConnection(number)


@pytest.mark.parametrize("holder_id", [0, -1])
@pytest.mark.parametrize(
    "claim",
    [
        {"brokerAddr": "evil:1", "raftTerm": "5"},
        {"brokerAddr": "evil:1", "raftTerm": str(2**48)},
        {"brokerName": "other"},
        {"brokerId": "7"},
    ],
    ids=["next term", "highest term", "its address for another name", "another id for it"],
)
def test_a_claim_alone_displaces_no_broker_that_lives(claim, holder_id):
    server = Server()
    server.register(raftTerm="4")
    server.connection.broker_id = holder_id
    before = server.ask(106).body
    answer = server.as_other(rival()).register(**({"raftTerm": "5"} | claim))
    assert (answer.code, "lives" in (answer.remark or "")) == (1, True)
    assert server.ask(106).body == before


@pytest.mark.parametrize(
    ("claim", "advice"),
    [
        ({"brokerId": "0"}, "; give one of the two another brokerName"),
        ({"brokerId": "3"}, "; give one of the two another brokerId"),
        ({"brokerId": "0", "raftTerm": "5"}, "and it lives"),
        ({"brokerId": "7", "brokerAddr": "a:1"}, "and it lives"),
    ],
)
def test_who_is_kept_out_is_told_what_to_change(claim, advice):
    server = Server()
    for broker_id in ("0", "3"):
        server.connection = FakeConnection(int(broker_id) + 1, int(broker_id))
        server.others[server.connection.id] = server.connection
        server.register(brokerId=broker_id, brokerAddr=f"{'a' if broker_id == '0' else 's'}:1")
    answer = server.as_other(rival(9)).register(**({"brokerAddr": "second:1"} | claim))
    assert (answer.code, (answer.remark or "").endswith(advice)) == (1, True), answer.remark


def test_a_refusal_is_told_once_for_each_reason_and_again_after_a_success(caplog):
    server = Server()
    first, second = server.connection, rival()
    server.register()
    server.as_other(second)

    def told(address):
        return caplog.text.count(f"event=register_refused broker=b id=0 addr={address} ")

    for _ in range(3):
        assert server.register(brokerAddr="second:1").code == 1
    server.register(brokerAddr="third:1")
    assert (told("second:1"), told("third:1")) == (1, 1)
    first.broker_id = None
    assert server.register(brokerAddr="second:1").code == 0
    first.broker_id, second.broker_id = 0, None
    assert server.as_other(first).register().code == 0
    assert server.as_other(second).register(brokerAddr="second:1").code == 1
    assert told("second:1") == 2


@pytest.mark.parametrize("holder_id", [None, 2], ids=["silent", "a follower by now"])
def test_who_is_gone_or_gave_up_its_place_is_displaced(holder_id):
    server = Server()
    server.register(raftTerm="4")
    server.connection.broker_id = holder_id
    answer = server.as_other(rival()).register(brokerAddr="new:1", raftTerm="5")
    assert answer.code == 0
    assert b"new:1" in server.ask(105, topic="T").body


class Going(FakeConnection):
    """A holder that says nothing, and in whose place another one has come by then."""

    def __init__(self, number: int, server: Server, follower: FakeConnection) -> None:
        super().__init__(number, None)
        self._server = server
        self._follower = follower

    async def request(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        name, number = "b", self._follower.id
        for addr in (f"h{self.id}:1", f"h{number}:1"):
            self._server.table.unregister(name, addr)
        came = Registration(
            cluster="c", broker_name=name, broker_id=0, addr=f"h{number}:1", connection=number
        )
        for _ in self._server.table.register(came, 0).rest or ():
            pass
        return await super().request(command, timeout_ms)


def claim_behind(going: int) -> int:
    """Return what a claim is answered whose holder lives, and came behind others that went."""
    server = Server()
    holder: FakeConnection = FakeConnection(going + 1, 0)
    server.others[holder.id] = holder
    for number in range(going, 0, -1):
        holder = server.others[number] = Going(number, server, holder)
    server.connection = holder
    assert server.register(brokerAddr="h1:1").code == 0
    return server.as_other(rival(9)).register(brokerAddr="new:1").code


def test_who_comes_while_another_one_is_asked_is_asked_too():
    assert [claim_behind(going) for going in (1, 2, 3)] == [1, 1, 1]
    assert claim_behind(30) == 1, "nobody knows who lives"
    with planted(BY_TESTS["claim-displaces-who-came-last"]):
        assert [claim_behind(going) for going in (1, 2)] == [0, 0]


def test_a_planted_belief_in_claims_is_seen():
    with planted(BY_TESTS["claim-believed"]), pytest.raises(AssertionError):
        test_a_claim_alone_displaces_no_broker_that_lives(
            {"brokerAddr": "evil:1", "raftTerm": "5"}, 0
        )


def test_a_broker_is_taken_out_only_by_the_connection_that_registered_it():
    server = Server()
    server.register()
    fields = {"brokerName": "b", "brokerAddr": "a:1", "clusterName": "c", "brokerId": "0"}
    assert server.as_other(rival()).ask(104, **fields).code == 1
    assert server.ask(105, topic="T").code == 0
    version = encode_body(registered().topic_config_serialize_wrapper.data_version)
    assert server.ask(322, version, **fields).ext_fields == {"changed": "true"}


@pytest.mark.parametrize(
    "changes",
    [
        {"brokerId": str(2**70)},
        {"brokerId": "-1"},
        {"raftTerm": str(2**60)},
        {"raftTerm": "-2"},
        {"brokerName": ""},
        {"brokerName": "a" * 256},
        {"brokerName": "a\nevent=forged"},
        {"clusterName": "c" * 256},
        {"brokerAddr": "nowhere"},
        {"brokerAddr": "a:99999"},
        {"brokerAddr": "a:" + "9" * 5000},
        {"brokerAddr": "a" * 400 + ":1"},
        {"brokerAddr": "..:10911"},
        {"haServerAddr": "nowhere"},
        {"haServerAddr": "a" * 64 + ".example:10912"},
    ],
)
def test_a_registration_that_cannot_be_true_is_refused(changes):
    server = Server()
    with pytest.raises(InvalidHeader):
        server.register(**changes)
    assert loads(server.ask(106).body)["brokerAddrTable"] == {}


def test_a_planted_belief_in_any_header_is_seen():
    with planted(BY_TESTS["impossible-registration-believed"]), pytest.raises(BaseException):  # noqa: B017,PT011
        test_a_registration_that_cannot_be_true_is_refused({"brokerId": "-1"})


def test_a_topic_that_no_route_can_show_is_left_out_and_the_others_are_taken():
    table = {
        name: TopicConfig(topic_name=name, read_queue_nums=queues, perm=perm)
        for name, queues, perm in (
            ("good", 4, 6), ("many", 65_537, 6), ("odd", 4, 8), ("../x", 4, 6), ("less", -1, 6),
            ("%RETRY%" + "g" * 248, 1, 6), ("t" * 256, 1, 6),
        )
    }  # fmt: skip
    wrapper = TopicConfigWrapper(topic_config_table=table)
    body = encode_register_body(RegisterBrokerBody(topic_config_serialize_wrapper=wrapper))
    server = Server()
    assert server.register(body).code == 0
    assert loads(server.ask(206).body)["topicList"] == ["good", "%RETRY%" + "g" * 248]


def test_a_large_registration_is_taken_in_slices_and_in_the_order_in_which_they_came():
    def body(counter: int) -> bytes:
        table = {f"T{i}": TopicConfig(topic_name=f"T{i}", read_queue_nums=counter)
                 for i in range(5_000)}  # fmt: skip
        version = DataVersion(counter=counter, timestamp=1)
        wrapper = TopicConfigWrapper(data_version=version, topic_config_table=table)
        return encode_register_body(RegisterBrokerBody(topic_config_serialize_wrapper=wrapper))

    server = Server()
    handler = server._handlers[103]
    fields = {"brokerName": "b", "brokerAddr": "a:1", "clusterName": "c", "brokerId": "0"}
    turns = 0

    async def both() -> list[RemotingCommand]:
        nonlocal turns
        tasks = [
            asyncio.ensure_future(
                handler(server.connection, RemotingCommand(103, ext_fields=fields, body=body(n)))
            )
            for n in (1, 2)
        ]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            turns += 1
        return [task.result() for task in tasks]

    assert [answer.code for answer in asyncio.run(both())] == [0, 0]
    assert turns > 6
    assert loads(server.ask(105, topic="T4999").body)["queueDatas"][0]["readQueueNums"] == 2


def test_more_registrations_at_once_are_told_to_come_again():
    server = Server()

    async def many() -> list[int]:
        fields = {"brokerName": "b", "brokerAddr": "a:1", "clusterName": "c", "brokerId": "0",
                  "compressed": "true"}  # fmt: skip
        body = encode_register_body(registered(), compressed=True)
        asked = []
        for _ in range(5):
            command = RemotingCommand(103, ext_fields=fields, body=body)
            answer = server._handlers[103](server.connection, command)
            if not isinstance(answer, RemotingCommand):
                answer = asyncio.ensure_future(answer)
                await asyncio.sleep(0)
            asked.append(answer)
        return [one.code if isinstance(one, RemotingCommand) else (await one).code for one in asked]

    codes = asyncio.run(many())
    assert set(codes) <= {0, 2}
    assert codes[0] == 0


@pytest.mark.parametrize(
    ("namespace", "key", "value"),
    [("", "k", "v"), ("n", "", "v"), ("n" * 256, "k", "v"), ("n", "k" * 256, "v"),
     ("n", "k", "v" * 65_537)],
)  # fmt: skip
def test_a_configuration_value_out_of_bounds_is_refused(namespace, key, value):
    server = Server()
    assert server.ask(100, namespace=namespace, key=key, value=value).code == 1
    assert server.ask(219, namespace=namespace or "n").code == 22


KEY = b"0123456789abcdef"


def test_with_a_key_only_signed_registrations_count():
    server = Server()
    server.trust.keys = (KEY,)
    refused = server.register()
    assert (refused.code, "peerSharedKeyFile" in (refused.remark or "")) == (16, True)
    server.credentials = KeyCredentials(b"another key of 16", "x")
    assert server.register().code == 16
    server.credentials = KeyCredentials(KEY, "b/n0")
    server.audience = "b/n0"
    assert server.register().code == 16, "it was meant for a broker"
    server.audience = NAMESRV_AUDIENCE
    assert server.register().code == 0
    server.credentials = None
    fields = {"brokerName": "b", "brokerAddr": "a:1", "clusterName": "c", "brokerId": "0"}
    assert server.ask(104, **fields).code == 16
    assert server.ask(105, topic="T").code == 0, "whoever asks for a route needs no key"


def test_a_planted_registration_without_a_signature_is_seen():
    with planted(BY_TESTS["unsigned-registration-taken"]), pytest.raises(AssertionError):
        test_with_a_key_only_signed_registrations_count()


def test_what_changes_routes_is_taken_from_this_machine_or_signed():
    server = Server()
    server.trust.keys = (KEY,)
    value = {"namespace": "n", "key": "k", "value": "v"}
    assert server.ask(100, **value).code == 0
    server.connection.remote = ("10.0.0.9", 4)
    for code in (100, 102, 205, 216, 327):
        assert server.ask(code, **value, brokerName="b", topic="T").code == 16
    server.credentials = KeyCredentials(KEY, "someone")
    assert server.ask(100, **value).code == 0


@pytest.mark.parametrize(
    ("identity", "code", "name", "allowed"),
    [
        (node_identity("b", "n0"), 103, "b", True),
        (node_identity("b", "n0"), 103, "other", False),
        (node_identity("b", "n0"), 205, "other", True),
        (Identity(Role.ADMIN, "ann"), 103, "b", False),
        (Identity(Role.ADMIN, "ann"), 205, "b", True),
        (Identity(Role.KEY, "anyone"), 103, "b", True),
    ],
)
def test_a_certificate_registers_only_the_name_of_its_group(identity, code, name, allowed):
    declared = {code: one for one in Server().requests.declarations for code in one.codes}
    command = RemotingCommand(code, ext_fields={"brokerName": name})
    assert may(identity, command, declared[code].permission) is allowed


def test_a_registration_that_is_too_large_is_told_to_come_compressed():
    answer = Server().register(b" " * (REGISTER_BYTES_MAX + 1))
    assert (answer.code, "compressed" in answer.remark) == (1, True)


def test_lists_are_made_once_for_each_state_of_the_table():
    server = Server()
    server.register()
    for code, fields in (
        (106, {}),
        (206, {}),
        (224, {"cluster": "c"}),
        (304, {}),
        (105, {"topic": "T"}),
    ):
        first = server.ask(code, **fields).body
        assert server.ask(code, **fields).body is first
    before = server.ask(206).body
    server.register(brokerName="z", brokerAddr="z:1")
    assert b'"z"' in server.ask(106).body
    assert server.ask(206).body is not before


def test_settings_are_told_and_none_is_changed():
    server = Server(listen_port=1234, shared_key="k" * 40)
    assert b"listenPort=1234\n" in server.ask(319).body
    assert b"k" * 40 not in server.ask(319).body
    refused = server.ask(318, b"listenPort=1\n")
    assert (refused.code, "listenPort: no setting changes" in refused.remark) == (16, True)
    assert server.ask(318, b"clusterTest=true\n").code == 16, "RocketMQ's"
    assert server.ask(318, b"noSuchKey=1\n").remark == "no such setting: noSuchKey"
    for half in (server.ask(318, rb"\ud800=1"), server.ask(318, rb"\uDFFFx=1")):
        assert encode_command(half), "half a character would leave no answer but an error"
    assert server.ask(318).code == 1
    assert server.ask(318, b"a" * (BODY_BYTES_MAX + 1)).code == 1
    long = server.ask(318, b"clusterTest=true\n" * 500)
    assert (long.code, long.remark) == (1, "too large a body"), "a line costs 5 us of the loop"
    assert b"listenPort=1234\n" in server.ask(319).body
