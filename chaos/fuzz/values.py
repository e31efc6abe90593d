"""Odd values for a field, drawn by what the field means. Pure.

Most draws are what an ordinary client would send, so that a request gets past the first check and
the one odd field in it is what is tried.
"""

import json
import random
import struct
import zlib
from collections.abc import Callable
from typing import Any, Final

from chaos.fuzz.requests import Body, Kind

TOPICS: Final = tuple(f"fuzz-{number}" for number in range(16))
GROUPS: Final = tuple(f"group-{number}" for number in range(8))
QUEUES: Final = 4

_INTS: Final = (
    "0", "1", "-1", "4", "8", "16", "127", "128", "255", "256", "32767", "32768", "65535", "65536",
    "2147483647", "2147483648", "-2147483648", "-2147483649", "9223372036854775807",
    "9223372036854775808", "-9223372036854775808", "9" * 30, "9" * 5_000, "1e9", "0x10", "1.5", "",
    " 1", "+1", "NaN", "null", "true", "\u0661", "1_000",
)  # fmt: skip
_TEXTS: Final = (
    "", " ", "x", "x" * 127, "x" * 128, "x" * 255, "x" * 256, "x" * 4_096, "a/../b", "..", "/etc",
    "a b", "a\tb", "a\nevent=forged", "a\x00b", "a\x01b\x02c\x01d", "\u00e9\u4e2d\U0001f40e",
    "\u202e", "%s%n{}", "%RETRY%", "%DLQ%g", "%RETRY%" + "g" * 255, "TBW102", "SCHEDULE_TOPIC_XXXX",
    "rmq_sys_LEDGER_STATE", "RMQ_SYS_TRANS_HALF_TOPIC", "OFFSET_MOVED_EVENT", "RaftGroup0",
    "DefaultCluster", "*", "A||B", "a || b || ", "TAG", "SQL92", '{"$ref":"$"}', "n0", "n9",
)  # fmt: skip
_ADDRESSES: Final = (
    "127.0.0.1:1", "127.0.0.1:10911", "localhost:0", "nowhere", ":1", "[::1]:1", "a..b:1",
    "127.0.0.1:99999", "h" * 300 + ":1", "127.0.0.1:-1",
)  # fmt: skip
_PROPERTIES: Final = (
    "", "KEYS\x01k\x02", "TAGS\x01red\x02KEYS\x01a b c\x02", "DELAY\x013\x02", "DELAY\x010\x02",
    "DELAY\x01" + "9" * 5_000 + "\x02", "DELAY\x01-1\x02", "DELAY\x01\u0663\x02",
    "TRAN_MSG\x01true\x02", "UNIQ_KEY\x01" + "A" * 32 + "\x02", "UNIQ_KEY\x01\x02",
    "WAIT\x01false\x02", "CLUSTER\x01other\x02", "\x01\x02", "\x02\x02\x02", "a\x01", "\x01a", "a",
    "a\x01b\x01c\x02", "TAGS\x01" + "t" * 32_000, "x\x01" + "y" * 32_760, "x\x01" + "y" * 40_000,
    "KEYS\x01" + " ".join(str(n) for n in range(5_000)), "\ud83d", "a\x01\ud83d\x02",
    "".join(f"p{n}\x01v\x02" for n in range(2_000)), "".join(f"\x01{n}\x02" for n in range(500)),
    "RETRY_TOPIC\x01t\x02REAL_TOPIC\x01t\x02", "1ST_PULL_OFF\x011\x02",
)  # fmt: skip
_FLAGS: Final = (0, 1, 2, 4, 8, 12, 16, 32, 48, 64, 128, 256, 0x300, 0x400, 0x7FFFFFFF, -1)


def value(rng: random.Random, kind: Kind, *, odd: bool) -> str:
    """Return a value for a field."""
    if not odd:
        return _ordinary(rng, kind)
    match kind:
        case Kind.FLAG if rng.random() < 0.8:
            return str(rng.choice(_FLAGS))
        case Kind.INT | Kind.LONG | Kind.QUEUE | Kind.OFFSET | Kind.FLAG:
            return rng.choice(_INTS)
        case Kind.PROPERTIES:
            return rng.choice(_PROPERTIES)
        case Kind.ADDRESS:
            return rng.choice(_ADDRESSES)
        case _:
            return rng.choice(_TEXTS) if rng.random() < 0.9 else f"new-{rng.randrange(300)}"


def _ordinary(rng: random.Random, kind: Kind) -> str:
    if kind is Kind.PROPERTIES:
        return f"KEYS\x01k{rng.randrange(1000)}\x02TAGS\x01{rng.choice('abc')}\x02"
    if kind is Kind.ADDRESS:
        return f"127.0.0.1:{rng.randrange(20_000, 20_050)}"
    return rng.choice(_ORDINARY.get(kind, ("x", "n1", "orders")))


_NUMBERS: Final = ("0", "1", "10", "100", "1700000000000")
_ORDINARY: Final[dict[Kind, tuple[str, ...]]] = {
    Kind.TOPIC: TOPICS,
    Kind.GROUP: GROUPS,
    Kind.QUEUE: tuple(map(str, range(QUEUES))),
    Kind.INT: ("1", "4", "8", "32"),
    Kind.LONG: _NUMBERS,
    Kind.OFFSET: _NUMBERS,
    Kind.FLAG: ("0",),
    Kind.BOOL: ("true", "false"),
    Kind.SUBSCRIPTION: ("*", "a", "a || b"),
    Kind.FILTER_TYPE: ("SINGLE_TAG",),
}


def body(rng: random.Random, kind: Body, *, odd: bool) -> bytes:
    """Return a body."""
    match kind:
        case Body.NONE:
            return b"" if not odd else rng.randbytes(rng.choice((1, 100, 10_000)))
        case Body.MESSAGE:
            return _message(rng, odd=odd)
        case Body.BATCH:
            return _batch(rng, odd=odd)
        case _:
            return _json(rng, _document(rng, kind, odd=odd), odd=odd)


def _message(rng: random.Random, *, odd: bool) -> bytes:
    if not odd:
        return rng.randbytes(rng.choice((1, 16, 200)))
    if rng.random() < 0.02:
        return bytes(rng.choice((4_194_304, 4_194_305, 1_048_576)))
    return rng.choice((b"", b"\x00", zlib.compress(b"z" * 100_000), bytes(70_000)))


def _batch(rng: random.Random, *, odd: bool) -> bytes:
    count = rng.choice((1, 2, 5, 20))
    if odd and rng.random() < 0.05:
        count = rng.choice((1_000, 20_000, 70_000))
    parts = []
    for _ in range(count):
        content = rng.randbytes(rng.choice((1, 10, 100)))
        text = b"" if count > 100 else rng.choice((b"", b"KEYS\x01k\x02", b"TAGS\x01a"))
        if odd and rng.random() < 0.2 and count <= 100:
            text = rng.choice(_PROPERTIES).encode("utf-8", "replace")[:65_535]
        size = 22 + len(content) + len(text)
        fields = [size, 0, 0, 0, len(content)]
        if odd and rng.random() < 0.1:
            fields[rng.randrange(5)] = rng.choice((-1, 0, 2**31 - 1, -(2**31), 7))
        parts += [struct.pack(">5i", *fields), content, struct.pack(">H", len(text)), text]
    whole = b"".join(parts)
    return whole[: rng.randrange(len(whole))] if odd and rng.random() < 0.1 else whole


def _document(rng: random.Random, kind: Body, *, odd: bool) -> dict[str, Any]:
    def draw(what: Kind) -> str:
        return value(rng, what, odd=odd and rng.random() < 0.5)

    return _DOCUMENTS[kind](rng, draw, odd)


Draw = Callable[[Kind], str]


def _heartbeat(rng: random.Random, draw: Draw, odd: bool) -> dict[str, Any]:  # noqa: FBT001 - a row of a table
    subscriptions = [
        {
            "topic": draw(Kind.TOPIC),
            "subString": draw(Kind.SUBSCRIPTION),
            "subVersion": rng.choice((0, 1, 2**62)),
            "expressionType": rng.choice(("SQL92", "ODD", "TAG")) if odd else "TAG",
            "classFilterMode": False,
            "codeSet": [1],
            "tagsSet": ["a"],
        }
        for _ in range(rng.choice((0, 1, 3, 40 if odd else 3)))
    ]
    consumers = [
        {
            "groupName": draw(Kind.GROUP),
            "consumeType": rng.choice(("CONSUME_PASSIVELY", 1, 7, None) if odd else (1,)),
            "messageModel": rng.choice(("CLUSTERING", 0, "ODD") if odd else (1,)),
            "consumeFromWhere": rng.choice((0, 99) if odd else ("CONSUME_FROM_LAST_OFFSET",)),
            "subscriptionDataSet": subscriptions,
            "unitMode": False,
        }
        for _ in range(rng.choice((0, 1, 2)))
    ]
    producers = [{"groupName": draw(Kind.GROUP)} for _ in range(rng.choice((0, 1, 30)))]
    return {
        "clientID": draw(Kind.TEXT),
        "consumerDataSet": consumers,
        "producerDataSet": producers,
    }


def _lock(rng: random.Random, draw: Draw, odd: bool) -> dict[str, Any]:  # noqa: FBT001 - a row of a table
    numbers = (*range(QUEUES), 2**31 - 1, -1) if odd else range(QUEUES)
    queues = [
        {"brokerName": "RaftGroup0", "queueId": rng.choice(numbers), "topic": draw(Kind.TOPIC)}
        for _ in range(rng.choice((0, 1, 4, 300 if odd else 4)))
    ]
    return {"clientId": draw(Kind.TEXT), "consumerGroup": draw(Kind.GROUP), "mqSet": queues}


EXPRESSIONS = (
    "n > 3", "n > > 3", "n BETWEEN 1 AND 3 OR city IS NOT NULL", "NOT " * 100 + "n", "(" * 5_000,
    "n IN ('x'" + ", 'y'" * 3_000 + ")", "-" * 4_096, "", "n = 'it''s' -- c\n", "TRUE",
)  # fmt: skip


def _check(rng: random.Random, draw: Draw, odd: bool) -> dict[str, Any]:  # noqa: FBT001 - a row of a table
    wanted = {
        "topic": draw(Kind.TOPIC),
        "subString": rng.choice(EXPRESSIONS) if odd else "n > 3",
        "expressionType": rng.choice(("SQL92", "TAG", "ODD", None)) if odd else "SQL92",
    }
    return {"clientId": draw(Kind.TEXT), "group": draw(Kind.GROUP), "subscriptionData": wanted}


def _registration(rng: random.Random, draw: Draw, odd: bool) -> dict[str, Any]:  # noqa: FBT001 - a row of a table
    table = {
        name: {
            "order": False,
            "perm": rng.choice((6, 7, 0, -1, 99)) if odd else 6,
            "readQueueNums": rng.choice((4, 0, -1, 2**31)) if odd else 4,
            "topicFilterType": "SINGLE_TAG",
            "topicName": name,
            "topicSysFlag": 0,
            "writeQueueNums": 4,
        }
        for name in (draw(Kind.TOPIC) for _ in range(rng.choice((0, 1, 5, 50))))
    }
    version = {"counter": rng.randrange(9), "timestamp": 1}
    wrapper = {"dataVersion": version, "topicConfigTable": table}
    return {"filterServerList": [], "topicConfigSerializeWrapper": wrapper}


def _version(rng: random.Random, draw: Draw, odd: bool) -> dict[str, Any]:  # noqa: FBT001 - a row of a table
    del draw
    return {"counter": rng.choice((0, -1, 2**70)) if odd else 0, "timestamp": 1}


def _group_config(rng: random.Random, draw: Draw, odd: bool) -> dict[str, Any]:  # noqa: FBT001 - a row of a table
    return {
        "groupName": draw(Kind.GROUP),
        "retryMaxTimes": rng.choice((16, -1, 2**40)) if odd else 16,
        "retryQueueNums": rng.choice((1, 0, 10**9)) if odd else 1,
        "consumeEnable": True,
    }


_DOCUMENTS: Final[dict[Body, Callable[[random.Random, Draw, bool], dict[str, Any]]]] = {
    Body.HEARTBEAT: _heartbeat,
    Body.LOCK: _lock,
    Body.CHECK: _check,
    Body.REGISTRATION: _registration,
    Body.VERSION: _version,
    Body.GROUP_CONFIG: _group_config,
}


def _json(rng: random.Random, document: object, *, odd: bool) -> bytes:
    """Return a document as JSON, or spoilt, or another one altogether."""
    text = json.dumps(document).encode()
    if not odd or rng.random() < 0.3:
        return text
    if rng.random() < 0.5:
        return rng.choice(_OTHER_JSON)
    return rng.choice(
        (
            text[: rng.randrange(len(text) + 1)],
            text.replace(b'"', b"'"),
            text.replace(b":", b":" + b" " * rng.choice((1, 1_000))),
            bytes(byte ^ (rng.random() < 0.01) for byte in text),
        )
    )


def _doubling() -> bytes:
    """Return an object in which each member refers twice to the one before."""
    parts = ['"a0":[1,1]']
    parts += [f'"a{n}":[{{"$ref":"$.a{n - 1}"}},{{"$ref":"$.a{n - 1}"}}]' for n in range(1, 40)]
    return ("{" + ",".join(parts) + "}").encode()


_OTHER_JSON: Final = (
    b'{"$ref":"$"}',
    _doubling(),
    b"[" * 100,
    b"[" * 10_000,
    b"[" * 200_000,
    b'{"a":' + b"9" * 10_000 + b"}",
    b'{"x":"' + b"y" * 1_000_000 + b'"}',
    b"{'x':'" + b"y" * 1_000_000 + b"'}",
    b"null",
    b"",
)
