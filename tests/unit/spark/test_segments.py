"""Two decoders of segments, one of each checker, read the same rows from any bytes."""

import struct
import tarfile
import uuid
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.history import payload
from chaos.history.segment import STATE_TOPIC, EntryRow, decode_segment
from spark import segments
from spark.bodies import digest, inflate, key_and_tag, tag_of_run
from spark.segments import COLUMNS, decode
from tests.fixtures import store
from tests.spark.generate import Entry, encode_segment

TAG = bytes(range(16))
FLAGS = (0, 1, 4, 8, 12, 0x10, 0x20, 0x30)


def rows_of(data, base=0, end=None):
    """The rows of this job's decoder, as those of the other."""
    found = []
    for columns in decode(memoryview(data), base, end):
        assert tuple(columns) == COLUMNS
        found += [EntryRow(*values) for values in zip(*columns.values(), strict=True)]
    return found


def same(data, base=0, end=None):
    rows = rows_of(data, base, end)
    assert rows == list(decode_segment(data, base, end))
    return rows


def segment(count=4, topic="orders", flag=0, **more):
    bodies = [payload.encode_body(TAG, payload.make_key(1, n), 40 + n) for n in range(count)]
    if flag & 1:
        bodies = [zlib.compress(body) for body in bodies]
    listed = [Entry(n, 3, n % 2, n, body, topic, flag, **more) for n, body in enumerate(bodies)]
    return encode_segment(listed, 4096)


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("topic", ["orders", "t" * 200, STATE_TOPIC, "größer"])
def test_sound_segments_are_read_alike(flag, topic):
    rows = same(segment(flag=flag, topic=topic), 4096)
    assert len(rows) == 4
    if flag in {0, 1, 8} and topic != STATE_TOPIC:
        assert [row.msg_key for row in rows] == [payload.make_key(1, n) for n in range(4)]
        assert all(row.crc_ok for row in rows)


def test_several_batches_follow_each_other(monkeypatch):
    monkeypatch.setattr(segments, "ROWS_PER_BATCH", 3)
    assert [row.entry_index for row in same(segment(10), 4096)] == list(range(10))


@pytest.mark.parametrize("end", [-1, 0, 2, 3, 9])
def test_what_lies_behind_the_known_end_is_left_out_alike(end):
    assert len(same(segment(), 4096, end)) == max(0, min(4, end + 1))


@pytest.mark.parametrize("channel", [1, 2, -1])
@pytest.mark.parametrize("seal", [0, 1, None])
@pytest.mark.parametrize("topic", ["orders", STATE_TOPIC])
def test_changes_of_members_are_checked_alike(channel, seal, topic):
    data = bytearray(segment(1, topic=topic))
    data[32:36] = struct.pack(">i", channel)
    data[36:40] = struct.pack(">I", zlib.crc32(data[:36]) if seal is None else seal)
    (row,) = same(bytes(data), 4096)
    assert row.crc_ok == (channel == 1 and seal in {0, None} and topic == STATE_TOPIC)


def test_a_short_record_with_long_addresses_is_unknown():
    record = bytearray(100)
    record[:8] = struct.pack(">II", 100, segments.V1)
    record[36:40] = struct.pack(">i", 0x30)
    head = struct.pack(">iiqqqiiIi", 1, 148, 0, 1, 0, 0, 0, 0, 100)
    (row,) = same(head + bytes(record))
    assert (row.type, row.crc_ok) == ("unknown", False)


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(FLAGS), st.lists(st.tuples(st.integers(0), st.binary(max_size=12)), max_size=4),
    st.none() | st.integers(-1, 6),
)  # fmt: skip
def test_spoiled_segments_are_read_alike(flag, spoiled, end):
    data = bytearray(segment(flag=flag))
    for place, junk in spoiled:
        at = place % len(data)
        data[at : at + len(junk)] = junk
    same(bytes(data), 4096, end)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400), st.integers(0, 2**40))
def test_any_bytes_are_read_alike(data, base):
    same(data, base)


def test_the_store_of_a_real_group_is_read_alike():
    read = 0
    with tarfile.open(store("dledger-4.9.7")) as archive:
        for member in archive.getmembers():
            if "/data/" in member.name and member.isfile():
                data = archive.extractfile(member).read()
                read += len(same(data, int(member.name[-20:])))
    assert read > 6000


@given(st.binary(max_size=80) | st.builds(
    payload.encode_body, st.binary(min_size=16, max_size=16), st.integers(0, 2**62),
    st.integers(0, 90),
))  # fmt: skip
def test_bodies_are_read_alike(body):
    ours, theirs = key_and_tag(body), payload.decode_body(body)
    assert ours == ((None, None) if theirs is None else (theirs.msg_key, theirs.run_tag))
    assert digest(body) == payload.body_hash(body)
    assert inflate(zlib.compress(body)) == body
    assert inflate(zlib.compress(body)[:-1]) is None
    assert inflate(b"no stream") is None


@pytest.mark.parametrize("run_id", ["a-run", "ü", uuid.UUID(int=10**30).hex.upper(), "f" * 31])
def test_runs_have_one_tag(run_id):
    assert tag_of_run(run_id) == payload.run_tag(run_id)
