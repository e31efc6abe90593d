"""Every request code with the fields of its header and the shape of its body, as data.

The fuzzer's own table, so that a server that reads another field than it should is not copied
here. Pure. Source: docs/protocol.md; RocketMQ's request headers.
"""

from enum import Enum
from typing import Final, NamedTuple


class Kind(Enum):
    """What a field means; it decides which odd values are tried."""

    TOPIC = "topic"
    GROUP = "group"
    TEXT = "text"
    INT = "int"
    LONG = "long"
    QUEUE = "queue"
    OFFSET = "offset"
    FLAG = "flag"
    BOOL = "bool"
    PROPERTIES = "properties"
    ADDRESS = "address"
    ID = "id"
    SUBSCRIPTION = "subscription"
    FILTER_TYPE = "filter_type"


class Body(Enum):
    """What a body holds."""

    NONE = "none"
    MESSAGE = "message"
    BATCH = "batch"
    HEARTBEAT = "heartbeat"
    LOCK = "lock"
    CHECK = "check"
    REGISTRATION = "registration"
    VERSION = "version"
    GROUP_CONFIG = "group_config"


class Request(NamedTuple):
    """One request code."""

    code: int
    fields: dict[str, Kind]
    body: Body = Body.NONE
    weight: int = 1
    """How often it is drawn, next to others."""


_SEND: Final = {
    "a": Kind.GROUP, "b": Kind.TOPIC, "c": Kind.TOPIC, "d": Kind.INT, "e": Kind.QUEUE,
    "f": Kind.FLAG, "g": Kind.LONG, "h": Kind.INT, "i": Kind.PROPERTIES, "j": Kind.INT,
    "k": Kind.BOOL, "l": Kind.INT, "m": Kind.BOOL, "n": Kind.TEXT,
}  # fmt: skip
_SEND_LONG: Final = {
    "producerGroup": Kind.GROUP, "topic": Kind.TOPIC, "defaultTopic": Kind.TOPIC,
    "defaultTopicQueueNums": Kind.INT, "queueId": Kind.QUEUE, "sysFlag": Kind.FLAG,
    "bornTimestamp": Kind.LONG, "flag": Kind.INT, "properties": Kind.PROPERTIES,
    "reconsumeTimes": Kind.INT, "unitMode": Kind.BOOL, "maxReconsumeTimes": Kind.INT,
}  # fmt: skip
_PULL: Final = {
    "consumerGroup": Kind.GROUP, "topic": Kind.TOPIC, "queueId": Kind.QUEUE,
    "queueOffset": Kind.OFFSET, "maxMsgNums": Kind.INT, "sysFlag": Kind.FLAG,
    "commitOffset": Kind.OFFSET, "suspendTimeoutMillis": Kind.LONG,
    "subscription": Kind.SUBSCRIPTION, "subVersion": Kind.LONG, "expressionType": Kind.TEXT,
}  # fmt: skip
_QUEUE: Final = {"topic": Kind.TOPIC, "queueId": Kind.QUEUE}
_BROKER: Final = {
    "brokerName": Kind.TEXT, "brokerAddr": Kind.ADDRESS, "clusterName": Kind.TEXT,
    "brokerId": Kind.LONG,
}  # fmt: skip
_KV: Final = {"namespace": Kind.TEXT, "key": Kind.TEXT, "value": Kind.TEXT}

AT_BROKERS: Final = (
    Request(310, _SEND, Body.MESSAGE, 40),
    Request(10, _SEND_LONG, Body.MESSAGE, 10),
    Request(320, _SEND | {"m": Kind.BOOL}, Body.BATCH, 20),
    Request(11, _PULL, weight=20),
    Request(361, _PULL, weight=2),
    Request(
        12,
        {
            "topic": Kind.TOPIC,
            "key": Kind.TEXT,
            "maxNum": Kind.INT,
            "beginTimestamp": Kind.LONG,
            "endTimestamp": Kind.LONG,
        },
        weight=2,
    ),
    Request(
        14, {"consumerGroup": Kind.GROUP, "topic": Kind.TOPIC, "queueId": Kind.QUEUE}, weight=4
    ),
    Request(
        15,
        {
            "consumerGroup": Kind.GROUP,
            "topic": Kind.TOPIC,
            "queueId": Kind.QUEUE,
            "commitOffset": Kind.OFFSET,
        },
        weight=15,
    ),
    Request(
        17,
        {
            "topic": Kind.TOPIC,
            "defaultTopic": Kind.TOPIC,
            "readQueueNums": Kind.INT,
            "writeQueueNums": Kind.INT,
            "perm": Kind.INT,
            "topicFilterType": Kind.FILTER_TYPE,
            "topicSysFlag": Kind.INT,
            "order": Kind.BOOL,
            "attributes": Kind.TEXT,
        },
        weight=3,
    ),
    Request(21, {}),
    Request(25, {}, Body.GROUP_CONFIG),
    Request(26, {}),
    Request(28, {}),
    Request(29, _QUEUE | {"timestamp": Kind.LONG, "boundaryType": Kind.TEXT}, weight=2),
    Request(30, _QUEUE, weight=2),
    Request(31, _QUEUE, weight=2),
    Request(32, _QUEUE),
    Request(33, {"offset": Kind.OFFSET}, weight=2),
    Request(34, {}, Body.HEARTBEAT, 8),
    Request(
        35,
        {"clientID": Kind.TEXT, "producerGroup": Kind.GROUP, "consumerGroup": Kind.GROUP},
        weight=2,
    ),
    Request(
        36,
        {
            "offset": Kind.OFFSET,
            "group": Kind.GROUP,
            "delayLevel": Kind.INT,
            "originMsgId": Kind.ID,
            "originTopic": Kind.TOPIC,
            "unitMode": Kind.BOOL,
            "maxReconsumeTimes": Kind.INT,
        },
        weight=2,
    ),
    Request(37, {"transactionId": Kind.ID, "commitLogOffset": Kind.OFFSET}),
    Request(38, {"consumerGroup": Kind.GROUP}, weight=2),
    Request(41, {}, Body.LOCK, 4),
    Request(42, {}, Body.LOCK, 2),
    Request(43, {}),
    Request(45, {}),
    Request(60, {}),
    Request(61, {}),
    Request(402, {}),
    Request(46, {}, Body.CHECK, 2),
    Request(
        50,
        {
            "accessKey": Kind.TEXT,
            "secretKey": Kind.TEXT,
            "whiteRemoteAddress": Kind.ADDRESS,
            "admin": Kind.BOOL,
            "defaultTopicPerm": Kind.TEXT,
            "defaultGroupPerm": Kind.TEXT,
            "topicPerms": Kind.TEXT,
            "groupPerms": Kind.TEXT,
        },
    ),
    Request(51, {"accessKey": Kind.TEXT}),
    Request(52, {}),
    Request(53, {"globalWhiteAddrs": Kind.ADDRESS, "aclFileFullPath": Kind.TEXT}),
    Request(54, {}),
    Request(200, {}, Body.GROUP_CONFIG, 2),
    Request(201, {}),
    Request(202, {"topic": Kind.TOPIC}),
    Request(203, {"consumerGroup": Kind.GROUP}),
    Request(204, {"producerGroup": Kind.GROUP}),
    Request(208, {"consumerGroup": Kind.GROUP, "topic": Kind.TOPIC, "topicList": Kind.TEXT}),
    Request(
        222,
        {
            "topic": Kind.TOPIC,
            "group": Kind.GROUP,
            "timestamp": Kind.LONG,
            "isForce": Kind.BOOL,
            "queueId": Kind.QUEUE,
            "offset": Kind.OFFSET,
        },
    ),
    Request(223, {"topic": Kind.TOPIC, "group": Kind.GROUP, "clientAddr": Kind.TEXT}),
    Request(300, {"topic": Kind.TOPIC}),
    Request(303, {"topic": Kind.TOPIC, "group": Kind.GROUP}),
    Request(305, {}),
    Request(306, {}),
    Request(307, {"consumerGroup": Kind.GROUP, "clientId": Kind.TEXT, "jstackEnable": Kind.BOOL}),
    Request(309, {"consumerGroup": Kind.GROUP, "clientId": Kind.TEXT, "msgId": Kind.ID}),
    Request(308, {"topic": Kind.TOPIC, "compareGroup": Kind.GROUP, "filterGroups": Kind.TEXT}),
    Request(
        314,
        {
            "srcGroup": Kind.GROUP,
            "destGroup": Kind.GROUP,
            "topic": Kind.TOPIC,
            "offline": Kind.BOOL,
        },
    ),
    Request(315, {"statsName": Kind.TEXT, "statsKey": Kind.TEXT}),
    Request(316, {}),
    Request(317, {"isOrder": Kind.BOOL}),
    Request(321, _QUEUE | {"index": Kind.OFFSET, "count": Kind.INT}),
    Request(323, {"msgId": Kind.ID}),
    Request(328, {}),
    Request(329, {}),
    Request(324, _SEND, Body.MESSAGE),
    Request(325, _SEND, Body.MESSAGE),
    Request(343, {"group": Kind.GROUP}),
    Request(351, {"topic": Kind.TOPIC}),
    Request(352, {"group": Kind.GROUP}),
    Request(29001, {}),
    Request(29002, {"op": Kind.TEXT, "node": Kind.TEXT, "address": Kind.ADDRESS}, weight=2),
    Request(29003, {"target": Kind.TEXT, "node": Kind.TEXT}, weight=1),
    Request(29005, {}),
    Request(29006, {}),
)
"""29004, 215 and 207 are left out: with loopback's rights they take what is to be read back."""

AT_NAME_SERVERS: Final = (
    Request(100, _KV, weight=4),
    Request(101, _KV, weight=2),
    Request(102, _KV, weight=2),
    Request(
        103,
        _BROKER
        | {
            "haServerAddr": Kind.ADDRESS,
            "compressed": Kind.BOOL,
            "bodyCrc32": Kind.INT,
            "raftTerm": Kind.LONG,
        },
        Body.REGISTRATION,
        10,
    ),
    Request(104, _BROKER, weight=2),
    Request(105, {"topic": Kind.TOPIC}, weight=20),
    Request(106, {}),
    Request(206, {}),
    Request(219, {"namespace": Kind.TEXT}),
    Request(224, {"cluster": Kind.TEXT}),
    Request(304, {}),
    Request(322, _BROKER, Body.VERSION, 2),
    Request(904, _BROKER),
    Request(901, {"clusterName": Kind.TEXT, "brokerName": Kind.TEXT}),
)
"""205, 216 and 327 are left out: whoever may send them takes topics out of the routes."""
