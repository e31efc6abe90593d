"""Requests that no client library would send: fields, properties and bodies drawn from a stream.

Pure. What is acknowledged all the same is judged like any other message, so bodies are those of
`chaos.history.payload` wherever the shape leaves a body at all.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from sim.workload import ODD_TOPIC, TOPIC

if TYPE_CHECKING:
    from sim.rng import SplitRng

INT32_MAX: Final = (1 << 31) - 1
INT64_MAX: Final = (1 << 63) - 1
COMPRESSED: Final = 0x1
TRANSACTION: Final = 0xC
HOSTS_V6: Final = (0x10, 0x20, 0x30)
ODD_NUMBERS: Final = (
    "", "-1", "0", "1", str(INT32_MAX), str(-INT32_MAX - 1), str(INT32_MAX + 1), str(INT64_MAX),
    str(-INT64_MAX - 1), str(1 << 70), "1e9", "0x10", " 7", "7 ", "NaN", "null", "true", "\u0663",
    "9" * 400,
)  # fmt: skip
NAMES: Final = (
    "", " ", "a" * 127, "a" * 128, "a" * 255, "a" * 256, "a/b", "../../up", "ü" * 60, "a\x00b",
    "a\x01b\x02c", "%RETRY%readers", "TBW102", "rmq_sys_LEDGER_STATE", "SCHEDULE_TOPIC_XXXX",
    "OFFSET_MOVED_EVENT", "\ud7ff", "*",
)  # fmt: skip
DIGITS: Final = 5_000


class OddSend(NamedTuple):
    """A send request before it has a body."""

    topic: str
    sys_flag: int
    fields: dict[str, str]

    @property
    def is_plain(self) -> bool:
        """Whether what is stored can be found again by its key."""
        is_delayed = "DELAY\x01" in self.fields.get("i", "")
        return not self.sys_flag & (COMPRESSED | TRANSACTION) and not is_delayed


def odd_send(rng: SplitRng, properties: str) -> OddSend:
    """Return a single send; ``properties`` are those by which its message is judged."""
    topic = _topic(rng)
    sys_flag = _sys_flag(rng, is_shared=topic == TOPIC)
    text = properties if topic == TOPIC else odd_properties(rng, properties)
    return OddSend(
        topic,
        sys_flag,
        {
            "a": rng.choice(("senders", "odd", *NAMES)) if rng.chance(0.1) else "odd",
            "b": topic,
            "c": "TBW102",
            "d": rng.choice(ODD_NUMBERS) if rng.chance(0.05) else "4",
            "e": rng.choice(ODD_NUMBERS) if rng.chance(0.05) else str(rng.randint(0, 4)),
            "f": str(sys_flag),
            "g": str(rng.choice((0, -1, 1, INT64_MAX, 1_600_000_000_000))),
            "h": str(rng.choice((0, 0, 1, -1, INT32_MAX, -INT32_MAX - 1))),
            "i": text,
            "j": rng.choice(("0", "0", "16", str(INT32_MAX), "-1")),
            "k": "false",
            "m": "false",
        },
    )


def odd_properties(rng: SplitRng, known: str) -> str:
    """Return properties around the ``known`` ones."""
    shapes = (
        known + "\x02DELAY\x01" + "7" * rng.choice((1, 20, 400, DIGITS)),
        known + "\x02pad\x01" + "p" * rng.choice((100, 20_000, 32_600, 33_000)),
        known + "".join(f"\x02n{at}\x01v" for at in range(rng.choice((10, 400, 3_000)))),
        known.replace("\x02", "\x02\x02"),
        known + "\x02" + rng.choice(("x", "x\x01", "\x01x", "\x01", "x\x01y\x01z")),
        "TAGS\x01first\x02" + known,
        known + "\x02TAGS\x01" + "t" * rng.choice((1, 1_000, 20_000)),
        known + "\x02WAIT\x01false\x02REAL_TOPIC\x01x\x02INNER_NUM\x019",
        known,
        known,
    )
    return rng.choice(shapes)


def _topic(rng: SplitRng) -> str:
    match rng.weighted((0, 1, 2, 3), (0.35, 0.3, 0.25, 0.1)):
        case 0:
            return TOPIC
        case 1:
            return ODD_TOPIC
        case 2:
            return f"{ODD_TOPIC}-{rng.randint(0, 5)}"
        case _:
            return rng.choice(NAMES)


def _sys_flag(rng: SplitRng, *, is_shared: bool) -> int:
    """Return a flag; to a topic that others read, none that makes the message unreadable."""
    flag = rng.choice((0, *HOSTS_V6, 1 << rng.randint(0, 30), rng.randint(0, INT32_MAX)))
    return flag & ~(COMPRESSED | TRANSACTION) if is_shared else flag


def odd_fields(rng: SplitRng, fields: dict[str, str]) -> dict[str, str]:
    """Return ``fields`` with some of them gone, changed, or added to."""
    odd = dict(fields)
    for name in list(odd):
        match rng.randint(0, 5):
            case 0:
                del odd[name]
            case 1:
                odd[name] = rng.choice(ODD_NUMBERS)
            case 2:
                odd[name] = rng.choice(NAMES)
    if rng.chance(0.2):
        odd["more"] = "m" * rng.choice((1, 1_000, 70_000))
    return odd


def odd_heartbeat(rng: SplitRng, number: int) -> bytes:
    """Return the body of a heartbeat."""
    group = b'{"groupName":"odd-%d-%d"}'
    match rng.randint(0, 4):
        case 0:
            groups = b",".join(group % (number, at) for at in range(rng.choice((10, 300, 2_000))))
            return b'{"clientID":"odd-%d","producerDataSet":[%s]}' % (number, groups)
        case 1:
            levels = rng.choice((8, 20, 40))
            parts = [b'{"x":[1]}']
            parts += [b'[{"$ref":"$.a[%d]"},{"$ref":"$.a[%d]"}]' % (at, at) for at in range(levels)]
            return b'{"a":[%s],"clientID":"odd"}' % b",".join(parts)
        case 2:
            depth = rng.choice((50, 900, 20_000))
            return b'{"clientID":"odd","consumerDataSet":' + b"[" * depth + b"]" * depth + b"}"
        case 3:
            topics = b",".join(
                b'{"topic":"odd-%d","subString":"%s","subVersion":"x"}' % (at, b"t||" * 40)
                for at in range(rng.choice((3, 200)))
            )
            return (
                b'{"clientID":"odd-%d","consumerDataSet":[{"groupName":"odd-%d",'
                b'"consumeFromWhere":"CONSUME_FROM_NOWHERE","subscriptionDataSet":[%s]}]}'
                % (number, number, topics)
            )
        case _:
            return rng.choice((b"", b"null", b"[]", b'{"clientID":7}', b"\xff\xfe", b'{"a":'))


def odd_lock(rng: SplitRng, number: int, broker: str) -> bytes:
    """Return the body of a lock request; its queues are those of no polite client."""
    count = rng.choice((1, 50, 1_000))
    name = "l" * rng.choice((3, 100, 2_000))
    queues = b",".join(
        b'{"brokerName":"%s","queueId":%d,"topic":"%s-%d"}'
        % (broker.encode(), rng.choice((at, INT32_MAX - at, -at)), name.encode(), at % 7)
        for at in range(count)
    )
    return b'{"clientId":"odd-%d","consumerGroup":"odd","mqSet":[%s]}' % (number, queues)


def elements(parts: list[tuple[bytes, bytes]]) -> bytes:
    """Return the body of a batch of ``(body, properties)``."""
    out = []
    for body, properties in parts:
        size = 22 + len(body) + len(properties)
        out.append(struct.pack(">iIIii", size, 0, 0, 0, len(body)) + body)
        out.append(struct.pack(">H", len(properties)) + properties)
    return b"".join(out)


def garbled(rng: SplitRng, frame: bytes) -> bytes:
    """Return bytes that were a frame, or never were one."""
    match rng.randint(0, 3):
        case 0:
            return bytes(rng.randint(0, 255) for _ in range(rng.randint(1, 200)))
        case 1:
            return frame[: rng.randint(0, len(frame) - 1)]
        case 2:
            data = bytearray(frame)
            for _ in range(rng.randint(1, 3)):
                data[rng.randint(0, len(data) - 1)] ^= 1 << rng.randint(0, 7)
            return bytes(data)
        case _:
            return struct.pack(
                ">iI", rng.choice((-1, 0, 4, 1 << 24, INT32_MAX)), rng.randint(0, INT32_MAX)
            )
