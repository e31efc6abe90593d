"""Access control: addresses, the file's rules, what each request needs, and the door in front."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace

import pytest

from broker.access.addresses import Addresses, parts_of
from broker.access.door import AccessDoor, Around
from broker.access.needs import ACCOUNT, ADMIN, ANYBODY, PLACES, RIGHTS
from broker.access.rules import OF_ALL_TOPICS, BadRules, read_rules
from broker.cluster.guard import Guard
from broker.config import BrokerConfig
from ledgermq.remoting.protocol.access import AccountKey, signature_of
from ledgermq.remoting.protocol.codes import RequestCode as Code
from ledgermq.remoting.protocol.command import (
    RemotingCommand,
    decode_command,
    encode_command,
    make_response,
)
from ledgermq.remoting.protocol.frame import FrameDecoder
from ledgermq.remoting.protocol.signing import KeyCredentials, sign
from ledgermq.remoting.transport.credentials import CredentialStore, SecuritySettings
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.served import broker_codes, broker_requests
from tests.unit.broker.fakes import FakeClock

HOST = "10.1.1.1"
RULES = {
    "globalWhiteRemoteAddresses": ["10.9.9.*"],
    "accounts": [
        {"accessKey": "rooooot", "secretKey": "secret-r", "admin": True},
        {
            "accessKey": "publisher", "secretKey": "secret-p", "defaultTopicPerm": "DENY",
            "defaultGroupPerm": "DENY", "topicPerms": ["orders=PUB"],
        },
        {
            "accessKey": "consumer", "secretKey": "secret-c", "whiteRemoteAddress": "10.2.0.1",
            "topicPerms": ["orders=SUB"], "groupPerms": ["g=SUB"],
        },
        {
            "accessKey": "nearly-admin", "secretKey": "secret-n", "admin": True,
            "topicPerms": ["orders=PUB|SUB"],
        },
        {
            "accessKey": "anything", "secretKey": "secret-a", "defaultTopicPerm": "PUB|SUB",
            "defaultGroupPerm": "SUB", "topicPerms": ["hidden=DENY"],
        },
    ],
}  # fmt: skip
KEYS = {
    one["accessKey"]: AccountKey(one["accessKey"], one["secretKey"]) for one in RULES["accounts"]
}
PLACED = {100: "orders", 200: "hidden", 300: "%RETRY%g"}
SHARED = "a key of enough characters"


def door(rules=None, *, key=""):
    """Return a door; ``rules`` are a document, or a list whose only item are those of now."""
    clock = FakeClock()
    store = CredentialStore(SecuritySettings(shared_key=key), "g/n0", clock.wall_ms)
    store.load()
    config = BrokerConfig(broker_name="g")
    changing = rules if isinstance(rules, list) else [read_rules(RULES if rules is None else rules)]
    around = Around(
        rules=lambda: changing[0], guard=Guard(store, config, clock.wall_ms), topic_at=PLACED.get,
        clock=clock,
    )  # fmt: skip
    return AccessDoor(around, broker_requests(in_group=False).declarations)


def signed(who, code, fields=None, body=b""):
    return KEYS[who].sign(RemotingCommand(code, ext_fields=fields or {}, body=body))


def refusal(who, code, fields=None, body=b"", host=HOST):
    return door().refusal(host, signed(who, code, fields, body))


# Addresses


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("*", ["10.0.0.1", "fd00::1", "?"], []),
        ("", [], ["10.0.0.1", "?"]),
        ("10.0.0.7", ["10.0.0.7", "::ffff:10.0.0.7"], ["10.0.0.8", "fd00::7"]),
        ("10.0.0.7,10.0.0.9", ["10.0.0.7", "10.0.0.9"], ["10.0.0.8"]),
        ("10.0.0.{7,9}", ["10.0.0.7", "10.0.0.9"], ["10.0.0.8"]),
        ("10.0.1-4.*", ["10.0.1.0", "10.0.4.255"], ["10.0.5.1", "10.0.0.1"]),
        ("10.*", ["10.3.4.5"], ["11.0.0.1", "?"]),
        ("fd00::7", ["fd00::7", "fd00:0:0:0:0:0:0:7", "fd00::7%eth0"], ["fd00::8", "0.0.0.7"]),
        ("fd00::1-f:*", ["fd00::5:9"], ["fd00::10:9"]),
        ("fd00:1:*", ["fd00:1::9"], ["fd00:2::9"]),
    ],
)  # fmt: skip
def test_an_entry_means_these_addresses_and_no_others(text, inside, outside):
    found = Addresses(text)
    assert [host for host in (*inside, *outside) if found.match(parts_of(host))] == inside


@pytest.mark.parametrize(
    "text",
    ["10.0.0", "10.0.0.256", "10.0.0.x", "10.0.4-1.1", "-1.0.0.1", "10.0.0.1.2", "1::2::3", "host"],
)
def test_what_is_no_address_is_refused_and_named(text):
    with pytest.raises(ValueError, match=text.replace(".", r"\.")):
        Addresses(text)


# The file


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ([], "keys and values"),
        ({"account": []}, "unknown key 'account'"),
        ({"accounts": {"a": 1}}, "accounts: a list"),
        (
            {"accounts": [{"accessKey": "short", "secretKey": "long enough"}]},
            "account 1: accessKey",
        ),
        ({"accounts": [{"accessKey": "long enough"}]}, "account 1: accessKey"),
        ({"accounts": [{**RULES["accounts"][1], "topicPerms": ["orders"]}]}, "NAME=PERMISSION"),
        ({"accounts": [{**RULES["accounts"][1], "topicPerms": ["orders=ALL"]}]}, "one of DENY"),
        ({"accounts": [{**RULES["accounts"][1], "topicPerms": "orders=PUB"}]}, "a list of texts"),
        ({"accounts": [{**RULES["accounts"][1], "admin": "yes"}]}, "true or false"),
        ({"accounts": [{**RULES["accounts"][1], "topicPerm": []}]}, "unknown key 'topicPerm'"),
        ({"accounts": [RULES["accounts"][0]] * 2}, "stands there twice"),
        ({"globalWhiteRemoteAddresses": ["everywhere"]}, "everywhere"),
        (None, "nothing is in it"),
    ],
)
def test_a_file_that_is_wrong_is_refused_without_its_secrets(document, says):
    with pytest.raises(ValueError, match=says) as error:
        read_rules(document)
    assert "secret" not in str(error.value).replace("secretKey", "")


def test_a_refusal_is_of_one_kind():
    with pytest.raises(BadRules):
        read_rules({"accounts": 3})


# The signature


def test_the_signature_is_the_one_that_java_makes():
    """``AclSigner.calSignature`` of 4.9.7 over the values of sorted fields, then the body."""
    fields = {"topic": "orders", "AccessKey": "rooooot", "group": "g", "Signature": "not signed"}
    assert signature_of(b"12345678", fields, b"body") == "AFnlwWRwAThn+8yPuDxmCKQ3g9o="


def forged_is_refused():
    request = signed("publisher", Code.SEND_MESSAGE_V2, {"b": "orders"})
    request.body = b"another body"
    return door().refusal(HOST, request) == "the signature is not that of account publisher"


def test_who_does_not_know_the_secret_is_refused():
    assert forged_is_refused()
    assert "no AccessKey" in door().refusal(HOST, RemotingCommand(310, ext_fields={"b": "orders"}))
    stranger = AccountKey("nobody-here", "secret-p").sign(RemotingCommand(310))
    assert door().refusal(HOST, stranger) == "no account nobody-here"
    unsigned = RemotingCommand(310, ext_fields={"b": "orders", "AccessKey": "publisher"})
    assert "signature" in door().refusal(HOST, unsigned)


def test_the_flag_that_java_adds_after_signing_is_not_signed():
    request = signed("rooooot", Code.QUERY_MESSAGE, {"topic": "orders"})
    request.ext_fields["_UNIQUE_KEY_QUERY"] = "true"
    assert door().refusal(HOST, request) is None


# What requests need


def test_every_request_that_a_broker_serves_has_its_need_and_only_one():
    kinds = [set(ACCOUNT), set(ADMIN), set(ANYBODY), {*RIGHTS, *PLACES}]
    switched = {Code.GET_BROKER_EPOCH_CACHE}  # by a broker with controllers
    assert broker_codes() | switched == set().union(*kinds)
    assert sum(map(len, kinds)) == len(set().union(*kinds))


SEND_CODES = (
    Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, Code.SEND_REPLY_MESSAGE,
    Code.SEND_REPLY_MESSAGE_V2,
)  # fmt: skip


def consumer_cannot_send():
    return all(
        refusal("consumer", code, {"b": "orders", "topic": "orders"})
        == "consumer lacks PUB of topic orders"
        for code in SEND_CODES
    )


def test_who_may_only_read_cannot_send():
    assert consumer_cannot_send()
    for code in SEND_CODES:
        assert refusal("publisher", code, {"b": "orders", "topic": "orders"}) is None
        assert "lacks PUB of topic other" in refusal("publisher", code, {"b": "other"})
        assert "lacks PUB of topic other" in refusal("publisher", code, {"topic": "other"})
        both = {"b": "other", "topic": "orders"}
        assert "lacks PUB of topic other" in refusal("publisher", code, both)


def test_sending_to_the_retry_topic_of_a_group_is_consuming_as_it():
    assert refusal("consumer", Code.SEND_MESSAGE_V2, {"b": "%RETRY%g", "a": "x"}) is None
    assert "lacks SUB of group h" in refusal(
        "consumer", Code.SEND_MESSAGE_V2, {"b": "%RETRY%h", "a": "g"}
    )
    assert "lacks SUB of group g" in refusal("publisher", Code.SEND_MESSAGE_V2, {"b": "%RETRY%g"})


def test_everybody_with_an_account_may_send_traces_and_nothing_else_of_them():
    assert refusal("consumer", Code.SEND_MESSAGE_V2, {"b": "RMQ_SYS_TRACE_TOPIC"}) is None
    fields = {"topic": "RMQ_SYS_TRACE_TOPIC", "consumerGroup": "g"}
    assert "RMQ_SYS_TRACE_TOPIC" in refusal("consumer", Code.PULL_MESSAGE, fields)


@pytest.mark.parametrize(
    "code",
    [
        Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE, Code.UPDATE_CONSUMER_OFFSET,
        Code.QUERY_CONSUMER_OFFSET,
    ],
)  # fmt: skip
def test_consuming_takes_the_topic_and_the_group(code):
    assert refusal("consumer", code, {"topic": "orders", "consumerGroup": "g"}) is None
    assert refusal("consumer", code, {"topic": "%RETRY%g", "consumerGroup": "g"}) is None
    for topic, group, lacks in (
        ("other", "g", "SUB of topic other"), ("orders", "h", "SUB of group h"),
        ("%RETRY%h", "g", "SUB of group h"),
    ):  # fmt: skip
        fields = {"topic": topic, "consumerGroup": group}
        assert refusal("consumer", code, fields) == f"consumer lacks {lacks}"
    fields = {"topic": "orders", "consumerGroup": "g"}
    assert refusal("publisher", code, fields) == "publisher lacks SUB of topic orders"


def heartbeat(group, *topics):
    subscriptions = [{"topic": topic, "subString": "*"} for topic in topics]
    return json.dumps(
        {
            "clientID": "c",
            "consumerDataSet": [{"groupName": group, "subscriptionDataSet": subscriptions}],
            "producerDataSet": [{"groupName": "p"}],
        }
    ).encode()


def test_a_heartbeat_takes_all_that_it_subscribes_to():
    assert refusal("consumer", Code.HEART_BEAT, {}, heartbeat("g", "orders", "%RETRY%g")) is None
    assert "topic other" in refusal(
        "consumer", Code.HEART_BEAT, {}, heartbeat("g", "orders", "other")
    )
    assert "group h" in refusal("consumer", Code.HEART_BEAT, {}, heartbeat("h", "orders"))


def test_locks_take_the_group_and_the_topics():
    body = {"clientId": "c", "consumerGroup": "g", "mqSet": [{"topic": "orders", "queueId": 1}]}
    for code in (Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ):
        assert refusal("consumer", code, {}, json.dumps(body).encode()) is None
        other = json.dumps({**body, "consumerGroup": "h"}).encode()
        assert "group h" in refusal("consumer", code, {}, other)
        there = json.dumps({**body, "mqSet": [{"topic": "other"}]}).encode()
        assert "topic other" in refusal("consumer", code, {}, there)


def by_its_place_nothing_hidden_is_read():
    hidden = refusal("anything", Code.VIEW_MESSAGE_BY_ID, {"offset": "200"})
    return hidden == "anything lacks SUB of topic hidden"


def test_a_message_that_is_named_by_its_place_takes_its_topic():
    assert by_its_place_nothing_hidden_is_read()
    view, back, end = Code.VIEW_MESSAGE_BY_ID, Code.CONSUMER_SEND_MSG_BACK, Code.END_TRANSACTION
    assert refusal("anything", view, {"offset": "100"}) is None
    assert refusal("consumer", back, {"offset": "100", "group": "g"}) is None
    assert refusal("consumer", back, {"offset": "300", "group": "g"}) is None
    assert "group h" in refusal("consumer", back, {"offset": "100", "group": "h"})
    assert "topic hidden" in refusal("consumer", back, {"offset": "200", "group": "g"})
    assert refusal("publisher", end, {"commitLogOffset": "100"}) is None
    assert "topic hidden" in refusal("publisher", end, {"commitLogOffset": "200"})
    for text in ("400", "x", "", "9" * 30):  # there may be one by the time that it is looked for
        assert "names no message" in refusal("consumer", back, {"offset": text, "group": "g"})
    assert refusal("rooooot", view, {"offset": "200"}) is None


def on_its_way_nothing_hidden_is_read():
    return all(
        f"SUB of topic {topic}" in (refusal("anything", code, {"topic": topic}) or "")
        for topic in OF_ALL_TOPICS
        for code in (Code.PULL_MESSAGE, Code.QUERY_MESSAGE)
    )


def test_messages_of_a_topic_are_not_read_where_they_wait():
    assert {"SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"} <= OF_ALL_TOPICS
    assert on_its_way_nothing_hidden_is_read()
    every = {"accessKey": "anything", "secretKey": "secret-a", "defaultTopicPerm": "SUB"}
    some = {**every, "defaultTopicPerm": "DENY", "topicPerms": ["SCHEDULE_TOPIC_XXXX=SUB"]}
    request = signed("anything", Code.QUERY_MESSAGE, {"topic": "SCHEDULE_TOPIC_XXXX"})
    for account in (every, some):
        assert door({"accounts": [account]}).refusal(HOST, request) is None


def only_administrators_administer():
    return all(
        refusal("anything", code) == f"anything is no administrator, request {int(code)} is one's"
        for code in ADMIN
    )


def test_what_changes_something_for_others_takes_an_administrator():
    assert only_administrators_administer()
    for who in ("rooooot", "nearly-admin"):
        assert [code for code in ADMIN if refusal(who, code)] == []
    assert refusal("anything", 29_999) is not None, "what nobody has listed"


def test_an_administrator_with_lists_is_bound_by_them():
    assert refusal("nearly-admin", Code.SEND_MESSAGE_V2, {"b": "orders"}) is None
    assert "topic other" in refusal("nearly-admin", Code.SEND_MESSAGE_V2, {"b": "other"})
    assert refusal("rooooot", Code.SEND_MESSAGE_V2, {"b": "other"}) is None


def test_figures_take_any_account_and_probes_none():
    assert refusal("consumer", Code.GET_TOPIC_STATS_INFO, {"topic": "x"}) is None
    assert door().refusal(HOST, RemotingCommand(Code.RAFT_STATUS)) is None
    assert door().refusal(HOST, RemotingCommand(Code.GET_TOPIC_STATS_INFO)) is not None


def test_trusted_addresses_need_no_signature():
    bare = RemotingCommand(310, ext_fields={"b": "orders"})
    assert door().refusal("10.9.9.3", bare) is None
    assert door().refusal("10.9.8.3", bare) is not None
    named = RemotingCommand(310, ext_fields={"b": "orders", "AccessKey": "consumer"})
    assert door().refusal("10.2.0.1", named) is None, "RocketMQ asks for no right either"
    assert door().refusal("10.2.0.2", named) is not None


# Members


def of_a_member(code, audience, *, key=SHARED, nonce="1"):
    return sign(
        RemotingCommand(code), KeyCredentials(key.encode(), "g/n1"), now_ms=FakeClock().wall_ms(),
        nonce=nonce, audience=audience,
    )  # fmt: skip


def test_members_come_with_their_own_signature():
    here = door(key=SHARED)
    assert here.refusal(HOST, of_a_member(Code.GET_ALL_CONSUMER_OFFSET, "g")) is None
    again = here.refusal(HOST, of_a_member(Code.GET_ALL_CONSUMER_OFFSET, "g"))
    assert "sent before" in again
    other = of_a_member(Code.GET_ALL_CONSUMER_OFFSET, "g", key="another key, also long", nonce="2")
    assert "not that of the shared key" in here.refusal(HOST, other)
    assert "not for" in here.refusal(HOST, of_a_member(Code.GET_ALL_DELAY_OFFSET, "h", nonce="3"))
    assert door().refusal("127.0.0.1", of_a_member(Code.GET_ALL_CONSUMER_OFFSET, "g")) is not None


def test_a_guarded_request_of_a_member_is_left_to_the_guard_unused():
    here = door(key=SHARED)
    request = of_a_member(Code.DELETE_TOPIC_IN_BROKER, "g/g")
    assert here.refusal(HOST, request) is None
    assert here.refusal(HOST, request) is None, "the guard uses it up"
    for_all = of_a_member(Code.DELETE_TOPIC_IN_BROKER, "g", nonce="2")
    assert "not for" in here.refusal(HOST, for_all)


def test_an_account_and_a_member_may_sign_the_same_request():
    here = door(key=SHARED)
    both = KEYS["rooooot"].sign(of_a_member(Code.DELETE_TOPIC_IN_BROKER, "g/g"))
    assert here.refusal(HOST, both) is None
    assert here._guard.refusal(HOST, both) is None


# In front of the handlers


class Connection:
    def __init__(self, host=HOST):
        self.remote = (host, 1)
        self.sent = []
        self.state = {}

    def send(self, command):
        self.sent.append(command)


def frame_of(command):
    return FrameDecoder().feed(b"".join(encode_command(command)))[0]


def test_a_hot_handler_sees_only_what_was_looked_at():
    frames = []
    handle = door().hot({310: lambda _connection, frame: frames.append(frame)})[310]
    connection = Connection()
    # Two readers of one text: a key that stands there twice, and blanks.
    request = signed("publisher", Code.SEND_MESSAGE_V2, {"b": "orders"}, b"body")
    frame = frame_of(request)
    frame.header = frame.header.replace(b'"extFields":{', b'"extFields" : {"b":"hidden",')
    handle(connection, frame)
    assert frames[0].header != frame.header
    assert frames[0].header.count(b'"b"') == 1
    assert decode_command(frames[0]).ext_fields["b"] == "orders"
    assert decode_command(frames[0]).opaque == request.opaque
    assert frames[0].body == b"body"
    handle(connection, frame_of(signed("consumer", Code.SEND_MESSAGE_V2, {"b": "orders"})))
    assert len(frames) == 1
    assert connection.sent[0].code == 16
    assert connection.sent[0].remark == "consumer lacks PUB of topic orders (aclEnable)"
    oneway = signed("consumer", Code.SEND_MESSAGE_V2, {"b": "orders"})
    oneway.flag = 2
    handle(connection, frame_of(oneway))
    assert (len(frames), len(connection.sent)) == (1, 1)


PRODUCES = json.dumps({"clientID": "c", "producerDataSet": [{"groupName": "p"}]}).encode()


def halves_are_told_to_who_may_send_there():
    """Who may be asked about halves, once they said that they produce as a group."""
    here = door()
    handle = here.hot({34: lambda _connection, _frame: None})[34]
    connections = {who: Connection() for who in ("publisher", "consumer", "anything", "rooooot")}
    for who, connection in connections.items():
        handle(connection, frame_of(signed(who, Code.HEART_BEAT, body=PRODUCES)))
    trusted = connections["trusted"] = Connection("10.9.9.1")
    handle(trusted, frame_of(RemotingCommand(34, body=PRODUCES)))
    assert not any(connection.sent for connection in connections.values())
    return {
        topic: [who for who, one in connections.items() if here.may_hear(one, topic)]
        for topic in ("orders", "hidden")
    } == {
        "orders": ["publisher", "anything", "rooooot", "trusted"],
        "hidden": ["rooooot", "trusted"],
    }


def test_who_may_not_send_to_a_topic_is_asked_about_no_halves_of_it():
    assert halves_are_told_to_who_may_send_there()


def test_an_address_that_is_trusted_no_more_is_asked_about_no_halves():
    found = [read_rules(RULES)]
    here = door(found, key=SHARED)
    handle = here.hot({34: lambda _connection, _frame: None})[34]
    heartbeat = RemotingCommand(34, body=PRODUCES)
    by_member = sign(
        heartbeat, KeyCredentials(SHARED.encode(), "g/n1"), now_ms=FakeClock().wall_ms(),
        nonce="1", audience="g",
    )  # fmt: skip
    trusted, forger, member = Connection("10.9.9.1"), Connection("10.9.9.2"), Connection()
    for connection, command in (
        (trusted, heartbeat),
        (forger, RemotingCommand(34, ext_fields={"signature": "x"}, body=PRODUCES)),
        (member, by_member),
    ):
        handle(connection, frame_of(command))
        assert not connection.sent
        assert here.may_hear(connection, "orders")
    found[0] = read_rules(RULES | {"globalWhiteRemoteAddresses": []})
    told = [here.may_hear(connection, "orders") for connection in (trusted, forger, member)]
    assert told == [False, False, True], "whoever is no member and no account hears nothing"


def test_a_planted_trust_that_never_ends_is_found():
    with planted(BY_TESTS["halves-told-to-who-was-trusted"]), pytest.raises(AssertionError):
        test_an_address_that_is_trusted_no_more_is_asked_about_no_halves()


def a_second_code_opens_nothing():
    """310 stands first, and finds the handler; behind it what anybody may ask."""
    frames = []
    handle = door().hot({310: lambda _connection, frame: frames.append(frame)})[310]
    connection = Connection()
    for code in (Code.RAFT_STATUS, Code.GET_TOPIC_STATS_INFO):
        for command in (
            RemotingCommand(310, ext_fields={"b": "orders"}),
            signed("consumer", 310, {"b": "orders"}),
        ):
            frame = frame_of(command)
            head, behind = b'{"code":310,', b'{"code":310,"code":%d,' % code
            assert frame.header.startswith(head)
            frame.header = frame.header.replace(head, behind, 1)
            assert decode_command(frame).code == code, "the last one counts elsewhere"
            handle(connection, frame)
    return not frames and [answer.code for answer in connection.sent] == [16] * 4


def test_a_request_is_judged_by_the_code_whose_handler_takes_it():
    assert a_second_code_opens_nothing()


def test_a_command_is_refused_before_its_handler(caplog):
    asked = []

    def handler(_connection, request):
        asked.append(request)
        return make_response(request, 0)

    here = door()
    handle = here.commands({17: handler})[17]
    with caplog.at_level(logging.WARNING):
        for _ in range(50):
            answer = handle(Connection(), signed("consumer", 17, {"topic": "t"}))
    assert (answer.code, asked) == (16, [])
    assert handle(Connection(), signed("rooooot", 17)).code == 0
    assert here.refused == 50
    lines = [line for line in caplog.messages if "access_refused" in line]
    assert len(lines) == 1, "a line a second, however many are refused"
    assert "secret" not in lines[0]


def test_without_access_control_handlers_are_called_as_they_are():
    requests = broker_requests(in_group=False)
    controller = SimpleNamespace(config=BrokerConfig())
    from broker.access.build import Access

    commands, hot = Access(controller).handlers(requests, None)
    assert commands is requests.commands
    assert hot is requests.hot


@pytest.mark.parametrize(
    ("mutant", "rule"),
    [
        (BY_TESTS["account-signature-not-compared"], forged_is_refused),
        (BY_TESTS["reader-may-send"], consumer_cannot_send),
        (BY_TESTS["administration-open-to-accounts"], only_administrators_administer),
        (BY_TESTS["place-names-any-message"], by_its_place_nothing_hidden_is_read),
        (BY_TESTS["hidden-topic-read-on-its-way"], on_its_way_nothing_hidden_is_read),
        (BY_TESTS["asked-for-another-code"], a_second_code_opens_nothing),
        (BY_TESTS["halves-told-to-anybody"], halves_are_told_to_who_may_send_there),
    ],
)
def test_the_rules_find_the_bugs_planted_against_them(mutant, rule):
    with planted(mutant):
        assert not rule()
    assert rule()
