"""The decoder of segments: its own layouts, odd bytes, and what real RocketMQ wrote."""

import struct
import tarfile
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.history import payload
from chaos.history.segment import STATE_TOPIC, decode_segment
from tests.fixtures import store, stored_messages
from tests.spark.generate import Entry, encode_segment

TAG = bytes(16)


def body_of(number, size=40):
    return payload.encode_body(TAG, payload.make_key(1, number), size)


def entries(count, **kw):
    return [Entry(i, 3, i % 2, i // 2, body_of(i), **kw) for i in range(count)]


def test_every_entry_becomes_a_row():
    rows = list(decode_segment(encode_segment(entries(5), 4096), 4096))
    assert [r.entry_index for r in rows] == [0, 1, 2, 3, 4]
    assert rows[0].pos == 4096
    assert all(r.crc_ok and r.type == "message" and r.term == 3 for r in rows)
    assert [r.msg_key for r in rows] == [payload.make_key(1, i) for i in range(5)]
    assert rows[4].body_hash == payload.body_hash(body_of(4))
    assert (rows[3].topic, rows[3].queue_id, rows[3].queue_offset) == ("orders", 1, 1)
    assert rows[3].payload_run_id == TAG.hex()


def test_zeros_and_the_blank_mark_end_a_segment():
    data = encode_segment(entries(2), blank=0)
    assert len(list(decode_segment(data + bytes(500), 0))) == 2
    assert len(list(decode_segment(encode_segment(entries(2), blank=99) + b"junk" * 40, 0))) == 2
    assert list(decode_segment(b"", 0)) == []


def test_entries_after_the_known_end_are_leftovers():
    data = encode_segment(entries(5))
    assert [r.entry_index for r in decode_segment(data, 0, 2)] == [0, 1, 2]
    assert list(decode_segment(encode_segment([Entry(9, 1, 0, 0, b"x" * 60)]), 0, 5)) == []


def test_a_long_topic_is_version_2():
    topic = "t" * 200
    (row,) = decode_segment(encode_segment([Entry(0, 1, 0, 0, body_of(1), topic)]), 0)
    assert (row.topic, row.crc_ok, row.msg_key) == (topic, True, payload.make_key(1, 1))


@pytest.mark.parametrize(
    ("flag", "topic", "kind"),
    [
        (4, STATE_TOPIC, "state"),
        (4, "orders", "half"),
        (12, "orders", "half"),
        (8, "orders", "message"),
    ],
)
def test_what_is_not_a_plain_message_has_no_key(flag, topic, kind):
    (row,) = decode_segment(encode_segment([Entry(0, 1, 0, 0, body_of(1), topic, flag)]), 0)
    assert row.type == kind
    assert (row.msg_key is None) == (kind != "message")


def test_a_compressed_body_has_neither_key_nor_hash():
    (row,) = decode_segment(encode_segment([Entry(0, 1, 0, 0, body_of(1), sys_flag=1)]), 0)
    assert (row.type, row.msg_key, row.body_hash, row.crc_ok) == ("message", None, None, True)


@pytest.mark.parametrize("flags", [0x10, 0x20, 0x30])
def test_ipv6_hosts_shift_the_body(flags):
    plain = encode_segment([Entry(0, 1, 7, 9, body_of(1), sys_flag=flags)], blank=0)
    record = plain[48:]
    born = bytes(12) if flags & 0x10 else b""
    store = bytes(12) if flags & 0x20 else b""
    record = record[:56] + born + record[56:72] + store + record[72:]
    record = struct.pack(">i", len(record)) + record[4:]
    crc = zlib.crc32(record)
    head = struct.pack(">iiqqqiiIi", 1, 48 + len(record), 0, 1, 0, 0, 0, crc, len(record))
    (row,) = decode_segment(head + record, 0)
    assert (row.topic, row.queue_offset, row.msg_key) == ("orders", 9, payload.make_key(1, 1))
    assert row.crc_ok


def test_damage_is_told_and_does_not_stop_the_reading():
    data = bytearray(encode_segment(entries(3)))
    data[48 + 100] ^= 1  # inside the first body
    rows = list(decode_segment(data, 0))
    assert [r.crc_ok for r in rows] == [False, True, True]


def test_an_entry_crc_of_zero_was_not_computed():
    data = bytearray(encode_segment(entries(1)))
    data[40:44] = bytes(4)
    assert next(decode_segment(data, 0)).crc_ok


def test_a_record_crc_is_checked_even_if_the_entry_has_none():
    data = bytearray(encode_segment([Entry(0, 1, 0, 0, body_of(1), body_crc=5)]))
    data[40:44] = bytes(4)
    assert not next(decode_segment(data, 0)).crc_ok


def test_a_misplaced_entry_is_unsound():
    assert not next(decode_segment(encode_segment(entries(1), 0), 4096)).crc_ok


def test_a_spoiled_header_ends_with_one_unreadable_row():
    data = bytearray(encode_segment(entries(3)))
    size = struct.unpack_from(">i", data, 4)[0]
    data[size] = 9  # the magic of the second entry
    rows = list(decode_segment(data, 0))
    assert [(r.type, r.entry_index) for r in rows] == [("message", 0), ("unreadable", -1)]
    assert (rows[1].pos, rows[1].crc_ok) == (size, False)


def test_an_index_that_jumps_is_unreadable():
    broken = encode_segment([Entry(0, 1, 0, 0, body_of(1)), Entry(5, 1, 0, 1, body_of(2))])
    assert [r.type for r in decode_segment(broken, 0)] == ["message", "unreadable"]


def test_noops_and_strange_bodies():
    noop = struct.pack(">iiqqqiiIi", 2, 48, 0, 1, 0, 0, 0, 0, 0)
    text = b"not a record"
    head = struct.pack(">iiqqqiiIi", 1, 48 + len(text), 1, 1, 48, 0, 0, 0, len(text))
    big = b"\0" * 120
    last = struct.pack(">iiqqqiiIi", 1, 168, 2, 1, 108, 0, 0, 0, len(big))
    rows = list(decode_segment(noop + head + text + last + big, 0))
    assert [(r.type, r.crc_ok) for r in rows] == [
        ("noop", True),
        ("unknown", False),
        ("unknown", False),
    ]


@settings(max_examples=200)
@given(st.binary(max_size=400), st.integers(0, 400), st.integers(0, 2**31))
def test_any_bytes_give_rows_and_no_exception(junk, at, seed):
    data = bytearray(encode_segment(entries(3)))
    at %= len(data)
    data[at : at + len(junk)] = junk
    assert len(list(decode_segment(data, 0))) < 50
    assert len(list(decode_segment(junk, seed))) < 50


def test_the_store_of_a_real_dledger_group_is_read_entry_by_entry():
    """The recorded store of three RocketMQ 4.9.7 replicas, against what the Java client read."""
    lines = stored_messages("dledger-4.9.7")
    told = {m["commitLogOffset"]: m for m in lines if "commitLogOffset" in m}
    assert len(told) > 2000
    with tarfile.open(store("dledger-4.9.7")) as archive:
        found = {0: 0, 1: 0, 2: 0}
        expected = dict.fromkeys(found, 0)
        for member in sorted(archive.getmembers(), key=lambda m: m.name):
            if "/data/" not in member.name or not member.isfile():
                continue
            node = int(member.name.split("dledger-n")[1][0])
            data = archive.extractfile(member).read()
            for row in decode_segment(data, int(member.name[-20:])):
                assert row.crc_ok
                assert row.entry_index == expected[node]
                expected[node] += 1
                message = told.get(row.pos + 48)
                if message:
                    found[node] += 1
                    assert row.topic == message["topic"]
                    assert row.queue_id == message["queueId"]
                    assert row.queue_offset == message["queueOffset"]
                    assert row.size == message["storeSize"]
    assert all(n == found[0] > 2000 for n in found.values())
