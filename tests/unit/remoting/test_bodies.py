"""JSON bodies, strict and as fastjson writes them."""

import contextlib
import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.remoting.protocol.administration import ClientStatusTable, ConsumerRunningInfo
from ledgermq.remoting.protocol.bodies import (
    BrokerData,
    ConsumerData,
    DataVersion,
    HeartbeatData,
    LockResult,
    ProducerData,
    QueueData,
    QueueKey,
    RegisterBrokerBody,
    SubscriptionData,
    TopicConfig,
    TopicConfigWrapper,
    TopicList,
    TopicRouteData,
    body_crc32,
    decode_body,
    decode_file,
    decode_heartbeat,
    decode_register_body,
    decode_topic_route,
    encode_body,
    encode_register_body,
    queue_key,
    queue_map,
)
from ledgermq.remoting.protocol.errors import RemoteProtocolError
from ledgermq.remoting.protocol.tolerant_json import loads

names = st.text("abcXYZ%|_-09", min_size=1, max_size=10)
small = st.integers(0, 1000)
subscriptions = st.builds(
    SubscriptionData,
    topic=names,
    sub_string=names,
    code_set=st.lists(small),
    tags_set=st.lists(names),
)
heartbeats = st.builds(
    HeartbeatData,
    client_id=names,
    producer_data_set=st.lists(st.builds(ProducerData, group_name=names)),
    consumer_data_set=st.lists(
        st.builds(
            ConsumerData,
            group_name=names,
            subscription_data_set=st.lists(subscriptions, max_size=2),
        ),
        max_size=2,
    ),
)
routes = st.builds(
    TopicRouteData,
    broker_datas=st.lists(
        st.builds(
            BrokerData,
            broker_name=names,
            cluster=names,
            broker_addrs=st.dictionaries(st.integers(0, 9), names, max_size=3),
        ),
        max_size=2,
    ),
    queue_datas=st.lists(
        st.builds(
            QueueData, broker_name=names, perm=small, read_queue_nums=small, write_queue_nums=small
        ),
        max_size=2,
    ),
    order_topic_conf=st.none() | names,
)
registrations = st.builds(
    RegisterBrokerBody,
    filter_server_list=st.lists(names, max_size=2),
    topic_config_serialize_wrapper=st.builds(
        TopicConfigWrapper,
        data_version=st.builds(DataVersion, counter=small, timestamp=small),
        topic_config_table=st.lists(
            st.builds(
                TopicConfig,
                topic_name=names,
                perm=small,
                read_queue_nums=small,
                write_queue_nums=small,
            ),
            max_size=3,
        ).map(lambda topics: {topic.topic_name: topic for topic in topics}),
    ),
)


@given(st.one_of(heartbeats, routes, registrations))
def test_decode_of_encode_is_the_same(body):
    assert decode_body(encode_body(body), type(body)) == body


@given(registrations, st.booleans())
def test_registrations_read_back_compressed_and_plain(body, compressed):
    data = encode_register_body(body, compressed=compressed)
    assert decode_register_body(data, compressed=compressed) == body


@given(st.binary(), st.booleans())
def test_any_bytes_give_a_body_or_a_remote_protocol_error(data, compressed):
    for decode in (
        decode_topic_route,
        decode_heartbeat,
        lambda source: decode_register_body(source, compressed=compressed),
        lambda source: decode_register_body(zlib.compress(source), compressed=True),
    ):
        with contextlib.suppress(RemoteProtocolError):
            decode(data)


def test_none_is_left_out_and_empty_collections_are_not():
    assert encode_body(TopicRouteData()) == (
        b'{"brokerDatas":[],"filterServerTable":{},"queueDatas":[]}'
    )
    assert encode_body(TopicList(topic_list=["T"])) == b'{"topicList":["T"]}'
    assert encode_body(LockResult()) == b'{"lockOKMQSet":[]}'


def test_routes_of_old_servers_and_null_members_are_read():
    route = decode_topic_route(
        b'{"brokerDatas":[{"brokerAddrs":{0:"a:1",1:"b:2"},"brokerName":"b","cluster":"c"}],'
        b'"queueDatas":null,"orderTopicConf":null,"topicQueueMappingByBroker":{}}'
    )
    assert route.broker_datas[0].broker_addrs == {0: "a:1", 1: "b:2"}
    assert route.queue_datas == []


def test_references_of_fastjson_are_followed():
    body = decode_heartbeat(
        b'{"clientID":"c","producerDataSet":[{"groupName":"p"},{"$ref":"$.producerDataSet[0]"}]}'
    )
    assert [producer.group_name for producer in body.producer_data_set] == ["p", "p"]


def test_a_body_of_another_shape_is_refused():
    with pytest.raises(RemoteProtocolError, match="HeartbeatData"):
        decode_heartbeat(b'{"clientID":[]}')


def test_maps_by_message_queue_have_objects_for_keys():
    queue = QueueKey("b", 0, "T")
    written = bytes(queue_map([(queue, {"offset": 5}), (QueueKey("b", 1, "T"), 6)]))
    assert written == (
        b'{{"brokerName":"b","queueId":0,"topic":"T"}:{"offset":5},'
        b'{"brokerName":"b","queueId":1,"topic":"T"}:6}'
    )
    keys = [queue_key(key) for key in loads(written)]
    assert keys == [queue, QueueKey("b", 1, "T")]
    assert queue_key('{"brokerName":"b","queueId":0,"topic":"T"}') == queue
    for wrong in ("x", 5, ((1, 2), 3)):
        with pytest.raises(RemoteProtocolError):
            queue_key(wrong)


def test_the_checksum_has_no_top_bit():
    assert body_crc32(b"a") == zlib.crc32(b"a") & 0x7FFFFFFF
    assert decode_register_body(b"", compressed=False) == RegisterBrokerBody()


@pytest.mark.parametrize(
    "plain",
    [
        b"",
        b"\0\0\0\x02{}",
        b"\xff\xff\xff\xff",
        b"\0\0\0\x02{}\0\0\0\x01\0\0\0\x03T 8\0\0\0\x02[]",
        b"\0\0\0\x02{}\0\0\0\x01\0\0\0\x12T x 8 6 SINGLE_TAG\0\0\0\x02[]",
    ],
)
def test_a_broken_compressed_registration_is_refused(plain):
    with pytest.raises(RemoteProtocolError):
        decode_register_body(zlib.compress(plain), compressed=True)
    with pytest.raises(RemoteProtocolError):
        decode_register_body(zlib.compress(plain)[:-2], compressed=True)


@pytest.mark.parametrize(
    "body", [b"[" * 20_000, b'{"a":' * 20_000, b'{"a":{"$ref":"$"}}', b'{"a":[{"$ref":"$.a"}]}']
)
def test_a_body_nested_too_deeply_is_refused(body):
    with pytest.raises(RemoteProtocolError):
        decode_heartbeat(body)


def test_a_heartbeat_of_the_cpp_client_states_enumerations_by_number():
    body = (
        b'{"clientID":"1@2","consumerDataSet":[{"consumeFromWhere":4,"consumeType":0,'
        b'"groupName":"g","messageModel":0,"subscriptionDataSet":[{"codeSet":[1],"subString":"a",'
        b'"subVersion":"123","tagsSet":["a"],"topic":"T"}],"unitMode":false}],'
        b'"producerDataSet":[{"groupName":"p"}]}'
    )
    for source in (body, body.replace(b'"groupName":"p"', b"groupName:'p'")):
        (consumer,) = decode_heartbeat(source).consumer_data_set
        assert consumer.consume_from_where == "CONSUME_FROM_FIRST_OFFSET"
        assert consumer.consume_type == "CONSUME_ACTIVELY"
        assert consumer.message_model == "BROADCASTING"
        assert consumer.subscription_data_set[0].sub_version == 123


def test_enumerations_of_a_registered_topic_may_be_numbers():
    topic = b'{"topicName":"T","topicFilterType":1,"order":0,"perm":"6"}'
    assert decode_body(topic, TopicConfig).topic_filter_type == "MULTI_TAG"


@pytest.mark.parametrize(
    "source",
    [
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","messageModel":2}]}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":-1}]}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":3}]}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeFromWhere":6}]}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeFromWhere":true}]}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeFromWhere":1.5}]}',
        b'{"clientID":"c","consumerDataSet":[null]}',
        b'{"clientID":"c","consumerDataSet":{"groupName":"g"}}',
        b'{"clientID":["c"]}',
        b"{}",
        b"[]",
        b"",
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":'
        b'[{"topic":"T","subVersion":%d}]}]}' % 2**63,
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":'
        b'[{"topic":"T","codeSet":[%d]}]}]}' % 2**31,
        b'{"clientID":"c"' + b"," * 50_001,
        b'{"clientID":"' + b"c" * (1 << 21) + b'"}',
    ],
)
def test_a_heartbeat_that_is_none_is_refused(source):
    with pytest.raises(RemoteProtocolError):
        decode_heartbeat(source)


def test_what_is_no_request_has_no_such_limits():
    topics = {f"t{i}": {"topicName": f"t{i}"} for i in range(20_000)}
    body = json.dumps({"topicConfigSerializeWrapper": {"topicConfigTable": topics}}).encode()
    found = decode_register_body(
        body.replace(b'"topicName"', b'"perm":6,"readQueueNums":1,"writeQueueNums":1,"topicName"'),
        compressed=False,
    )
    assert len(found.topic_config_serialize_wrapper.topic_config_table) == 20_000
    assert len(decode_file(b"{" + b"a:1," * 10_000 + b"}", dict[str, int])) == 1
    with pytest.raises(RemoteProtocolError):
        decode_body(b"{" + b"a:1," * 10_000 + b"}", dict[str, int])


def test_a_text_that_looks_like_null_beside_a_text_that_was_made_before():
    """A client id or an expression may hold ``:null``; maps with queues as keys are no JSON."""
    offsets = queue_map([(QueueKey("b", 0, "T"), 5)])
    table = encode_body(ClientStatusTable(consumer_table={"10.0.0.1@x:null": offsets}))
    queues = b'{{"brokerName":"b","queueId":0,"topic":"T"}:5}'
    assert table == b'{"consumerTable":{"10.0.0.1@x:null":' + queues + b"}}"
    wanted = SubscriptionData(topic="T", sub_string="a = 'b:null'", expression_type=None)
    told = encode_body(
        ConsumerRunningInfo(
            jstack=None, mq_table=offsets, properties={}, status_table={}, subscription_set=[wanted]
        )
    )
    assert b'"mqTable":' + queues in told
    assert b"a = 'b:null'" in told
    assert b'"expressionType"' not in told, "a null is left out as ever"
