"""Committed entries of any content, as somebody at a peer port without a key may forge them.

Their CRC is right, so no replica refuses them. Each one must come to the same queues and tables,
write both down, and read them again; what is told of them is in
`tests/unit/store/test_quarantine.py`.
"""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import pytest

from broker.state.kinds import StateKind
from ledgermq.remoting.protocol.message import RECORD_HEADS
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.layout import FLAG_NOT_INDEXED, STATE_TOPIC_BYTES, state_properties
from tests.unit.broker.test_bad_state import HUGE, texts, whole_tables
from tests.unit.store.fakes import HOST, FakeNode, World

if TYPE_CHECKING:
    from broker.tables import Tables

ENTRIES: Final = 150
HEADER_BYTES: Final = 48
MAGIC: Final = 0xDAA320A7
INTS: Final = (-(2**31), -1, 0, 1, 7, 10**6, 2**31 - 1)
LONGS: Final = (-(2**63), -1, 0, 1, 5, 2**40, 2**53, 2**57, 2**63 - 1)
COPIES: Final = (*LONGS, 0x4C51 << 48, 0x4C52 << 48 | 5, 0x4C51 << 48 | 0xFF << 40)
FLAGS: Final = (0, 0, 1, 4, 8, 12, 16, 32, 48, 256, 0x400, 2**31 - 1, FLAG_NOT_INDEXED)
TOPICS: Final = (
    b"t", b"t", b"SCHEDULE_TOPIC_XXXX", b"RMQ_SYS_TRANS_HALF_TOPIC", b"RMQ_SYS_TRANS_OP_HALF_TOPIC",
    STATE_TOPIC_BYTES, b"TRANS_CHECK_MAX_TIME_TOPIC", b"%RETRY%g", b"", b"\0", b"..", b"../../x",
    b"a/b", b"\xff\xfe", b"x" * 127,
)  # fmt: skip
PROPERTIES: Final = (
    b"", b"KEYS\x01k\x02", b"KEYS\x01" + b"k " * 900, b"DELAY\x013\x02", b"\x01\x02" * 50,
    b"\xff" * 9, b"REAL_TOPIC\x01x\x02REAL_QID\x01-5\x02PGROUP\x01g\x02",
    b"UNIQ_KEY\x01" + b"u" * 900,
    b"CHECK_IMMUNITY_TIME_IN_SECONDS\x019999999\x02PGROUP\x01" + b"g" * 300,
)  # fmt: skip
BODIES: Final = (b"", b"x", b"1,2,3", b"9" * 30, bytes(100), b"[1,2]", b"\xff" * 9)
PAYLOADS: Final = (
    b"", b"null", b"[]", b"{}", b"[" * 5_000, b"5", b"-5", b"9" * 400, b"[-1,-1]", b"[1,2,3,4,5]",
    b"[-1,-1,-1,-1,-1,-1]", b'{"@":{"0":1},"":{"0":2},"a":{"0":3}}', b'{"a":' * 2_000, b"\xff\xff",
    b'{"config":{"topicName":"../x","readQueueNums":-1},"timestamp":-1}',
    b'{"offsets":{"t@g":[-1]}}',
    b'{"group":"g","clientId":"c","queues":[{"brokerName":"","queueId":-1,"topic":"t"}]}',
    *(payload for _, payload in HUGE.values()),
)  # fmt: skip


def message(rng: random.Random, physical: int) -> bytes:
    """Return a record as no broker writes one."""

    def odd(choices: tuple[Any, ...], usual: int = 0) -> Any:
        return rng.choice(choices) if rng.random() < 0.3 else usual

    body, topic, properties = rng.choice(BODIES), rng.choice(TOPICS), rng.choice(PROPERTIES)
    flags, sizes = odd(FLAGS), (-1, 0, 5, 255, 65_535)
    head = RECORD_HEADS[flags >> 4 & 3]
    topic_size, size_of = len(topic), rng.random()
    total = head.size + len(body) + 1 + len(topic) + 2 + len(properties)
    return b"".join((
        head.pack(
            rng.choice(sizes) if size_of < 0.05 else total, MAGIC, crc32(body) & 0x7FFFFFFF,
            odd(INTS), odd(INTS), odd(LONGS), rng.choice((physical, physical, -1)), flags,
            odd(LONGS), HOST, odd(LONGS), HOST, odd(INTS), odd(COPIES),
            rng.choice(sizes) if 0.05 < size_of < 0.1 else len(body),
        ),
        body, bytes([255 if 0.1 < size_of < 0.15 else topic_size]), topic,
        struct.pack(">H", 65_535 if 0.15 < size_of < 0.2 else len(properties)), properties,
    ))  # fmt: skip


def statement(rng: random.Random, physical: int) -> bytes:
    """Return a record of state."""
    payload = rng.choice(PAYLOADS)
    properties = state_properties(rng.choice([*StateKind, "nonsense", ""]))
    head = RECORD_HEADS[0]
    total = head.size + len(payload) + 1 + len(STATE_TOPIC_BYTES) + 2 + len(properties)
    return b"".join((
        head.pack(
            total, MAGIC, crc32(payload) & 0x7FFFFFFF, 0, 0, 0, physical, FLAG_NOT_INDEXED, 1, HOST,
            1, HOST, 0, 0, len(payload),
        ),
        payload, bytes([len(STATE_TOPIC_BYTES)]), STATE_TOPIC_BYTES,
        struct.pack(">H", len(properties)), properties,
    ))  # fmt: skip


def forged(seed: int) -> FakeNode:
    rng, node = random.Random(seed), FakeNode()
    for _ in range(ENTRIES):
        draw = rng.random()
        make = message if draw < 0.6 else statement
        body = rng.randbytes(rng.choice((0, 7, 91))) if draw > 0.95 else make(rng, node.end + 48)
        node.add(node.end, 1, body)
    node.term, node.commit_index = 1, node.end_index
    return node


def replica_of(node: FakeNode) -> tuple[World, Tables, list[bytes]]:
    """Return a store, the tables and their texts, of a replica that has dispatched all of a log."""
    world = World(node=node).begin()
    made = whole_tables()
    for index, kind, payload in world.listener.states:
        made.state.apply(index, kind, payload)
    return world, made, texts(made)


@pytest.mark.parametrize("seed", range(12))
def test_every_replica_comes_to_the_same_and_can_write_it_down(seed: int) -> None:
    node = forged(seed)
    world, made, written = replica_of(node)
    queues = world.queue_bytes()
    other, _, again = replica_of(node)
    assert (other.queue_bytes(), again) == (queues, written)
    assert not world.fatal
    restored = whole_tables()
    for name, table in restored.state.tables.items():
        table.restore(made.state.tables[name].snapshot())
    assert texts(restored) == written


def test_planted_belief_in_an_offset_is_found_here() -> None:
    def write_all_down() -> None:
        for seed in range(12):
            replica_of(forged(seed))[0].queue_bytes()

    with planted(BY_TESTS["queue-begins-anywhere"]), pytest.raises(OverflowError):
        write_all_down()
