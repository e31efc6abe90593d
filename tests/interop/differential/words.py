"""What requests are made of: names, numbers and texts, right ones and odd ones."""

from __future__ import annotations

from tests.interop.differential.sides import BROKER

BORN_MS = 1_700_000_000_000
SCHEDULE_TOPIC = "SCHEDULE_" + "TOPIC_XXXX"
TOPICS = tuple(f"orders{number}" for number in range(6))
ODD_TOPICS = (
    "nosuch", "%RETRY%members0", "%RETRY%nobody", "%DLQ%members0", "%DLQ%nobody", "TBW102",
    "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "OFFSET_MOVED_EVENT", "SELF_TEST_TOPIC", "BenchmarkTest", "TRANS_CHECK_MAX_TIME_TOPIC",
    "DifferCluster", BROKER, "RMQ_SYS_TRACE_TOPIC", "", " ", "a b",
    "a.b", "Größe", "x" * 127, "x" * 128, "a/b", "rmq_sys_any", "-", "a|b", "%",
)  # fmt: skip
APART, CARELESS = "apart", "careless"
"""Topic and group of requests after which the two sides are known to hold different things."""
SINGLE = "single"
GROUPS = tuple(f"members{number}" for number in range(4))
ODD_GROUPS = (
    "nobody", "", "a b", "x" * 120, "x" * 255, "x" * 256, "DEFAULT_CONSUMER", "TOOLS_CONSUMER",
    "CLIENT_INNER_PRODUCER", "SELF_TEST_C_GROUP", "CID_ONSAPI_OWNER", "a.b", "ü",
)  # fmt: skip
NUMBERS = (0, 1, 2, 3, 4, 7, 8, 31, 32, 33, 100, 2**31 - 1, -1, -2, -(2**31))
LONGS = (*NUMBERS, 2**31, 2**40, 2**63 - 1, -(2**63))
NO_NUMBERS = ("abc", "", " 1", "1.5", "+1", "1e3", "0x10", "9223372036854775808", "true", None)
NO_BOOLS = ("TRUE", "yes", "1", "", None, 1, "falsch")
TAGS = ("red", "green", "blue", "")
EXPRESSIONS = (
    ("*", "TAG"), ("red", "TAG"), ("red || green", "TAG"), ("red||", "TAG"), ("", "TAG"),
    ("||", "TAG"), ("price > 3", "SQL92"), ("price >", "SQL92"), ("", "SQL92"),
    ("TAGS = 'red'", "SQL92"), ("red", "OTHER"), ("red", None), (None, "TAG"),
)  # fmt: skip
EXPRESSIONS_OF_MEMBERS = (
    ("*", "TAG"), ("red", "TAG"), ("red || green", "TAG"), ("price > 3", "SQL92"),
    ("price >", "SQL92"), ("TAGS = 'red'", "SQL92"),
)  # fmt: skip
CLIENTS = ("10.0.0.1@1", "10.0.0.1@2")

SPOILING = frozenset({10, 310, 320, 324, 325, 15, 17, 36, 11, 222, 314})
"""Codes that change something where the one side takes for granted what the other one refuses."""
SPOILT = {
    "topic": APART, "b": APART, "consumerGroup": CARELESS, "group": CARELESS,
    "destGroup": CARELESS,
}  # fmt: skip

LONG = {
    "a": "producerGroup", "b": "topic", "c": "defaultTopic", "d": "defaultTopicQueueNums",
    "e": "queueId", "f": "sysFlag", "g": "bornTimestamp", "h": "flag", "i": "properties",
    "j": "reconsumeTimes", "k": "unitMode", "l": "maxReconsumeTimes", "m": "batch",
}  # fmt: skip
