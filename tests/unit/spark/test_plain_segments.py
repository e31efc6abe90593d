"""Files of plain commit logs: both checkers' decoders read the same rows from any bytes."""

import json
import struct
import tarfile
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.checker import check_history
from chaos.checker.model import History, Replica
from chaos.history import payload
from chaos.history.plain_segment import BLANK_MAGIC, decode_plain
from chaos.history.segment import STATE_TOPIC, EntryRow
from chaos.load import load_replica
from spark.commit_log import find_replicas
from spark.copies import FORMS
from tests.fixtures import store
from tests.spark.generate import Entry, encode_record

TAG = bytes(range(16))
BASE = 4096


def rows_of(data, base=BASE, end=None):
    """The rows of the Spark job's decoder, as those of the other."""
    form, view = FORMS["plain"], memoryview(data)
    walk = form.walk(view, base, end)
    columns = form.decode(view, base, walk.starts)
    rows = [EntryRow(*values) for values in zip(*columns.values(), strict=True)]
    if walk.broken_at >= 0:
        at = walk.broken_at
        rows.append(EntryRow(-1, -1, base + at, 0, len(data) - at, crc_ok=False, type="unreadable"))
    return rows


def same(data, base=BASE, end=None):
    rows = rows_of(data, base, end)
    assert rows == list(decode_plain(data, base, end))
    return rows


def plain_file(count=4, *, base=BASE, blank=0, topic="orders", flag=0):
    data = b""
    for number in range(count):
        body = payload.encode_body(TAG, payload.make_key(1, number), 40 + number)
        entry = Entry(number, 1, 0, number, zlib.compress(body) if flag & 1 else body, topic, flag)
        data += encode_record(entry, base + len(data) - 48)
    return data + (struct.pack(">iI", blank, BLANK_MAGIC) + b"left over" if blank else b"")


@pytest.mark.parametrize("flag", [0, 1, 4, 8, 12])
@pytest.mark.parametrize("topic", ["orders", "t" * 200, STATE_TOPIC])
def test_sound_files_are_read_alike(flag, topic):
    rows = same(plain_file(flag=flag, topic=topic))
    assert len(rows) == 4
    assert all(row.crc_ok for row in rows)
    if flag in {0, 1, 8} and topic != STATE_TOPIC:
        assert [row.msg_key for row in rows] == [payload.make_key(1, n) for n in range(4)]


def test_an_entry_is_named_by_its_last_byte_and_the_blank_covers_the_rest():
    data = plain_file(3, blank=1000)
    rows = same(data)
    assert [row.type for row in rows] == ["message"] * 3 + ["noop"]
    assert sum(row.size for row in rows) == len(data) - len(b"left over") - 8 + 1000
    assert rows[0].entry_index == BASE + rows[0].size - 1
    assert rows[-1].entry_index == BASE + sum(row.size for row in rows) - 1


def test_what_lies_behind_the_known_end_is_left_out_alike():
    rows = same(plain_file(4))
    assert len(same(plain_file(4), end=rows[1].entry_index)) == 2
    assert same(plain_file(4), end=BASE - 1) == []


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1 << 12), st.binary(min_size=1, max_size=9)), max_size=3))
def test_spoiled_files_are_read_alike(spoiled):
    data = bytearray(plain_file(4, blank=500))
    for place, junk in spoiled:
        at = place % len(data)
        data[at : at + len(junk)] = junk
    same(bytes(data))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=400), st.integers(0, 2**40))
def test_any_bytes_are_read_alike(data, base):
    same(data, base)


@pytest.mark.parametrize("name", ["master-4.9.7-killed", "master-4.9.7-clean"])
def test_the_log_of_a_real_master_is_read_alike(name):
    read = 0
    with tarfile.open(store(name)) as archive:
        for member in archive.getmembers():
            if "/commitlog/" in member.name and member.isfile():
                data = archive.extractfile(member).read()
                rows = same(data, int(member.name[-20:]))
                assert all(row.crc_ok for row in rows)
                read += len(rows)
    assert read > 1000


def dump(path, node, data, commit):
    """Write what the harness copies of a node."""
    directory = path / node
    (directory / "data").mkdir(parents=True)
    (directory / "data" / f"{0:020d}").write_bytes(data)
    meta = {"node": node, "group": "a", "format": "plain", "commit_index": commit}
    meta |= {"first_index": 0, "end_index": commit}
    (directory / "meta.json").write_text(json.dumps(meta))
    return load_replica(directory)


def history(*replicas: Replica) -> History:
    return History(replicas=replicas, promised={"a": 2}, sends=[], deliveries=[])


def test_a_slave_has_the_beginning_of_its_masters_log(tmp_path):
    data = plain_file(4, base=0)
    rows = list(decode_plain(data, 0))
    master = dump(tmp_path, "n0", data, len(data) - 1)
    slave = dump(tmp_path, "n1", data[: rows[1].entry_index + 1], rows[1].entry_index)
    found = check_history(history(master, slave)).results
    assert (found["A34"].verdict, found["A35"].verdict) == ("valid", "valid")
    assert [replica.form for replica in find_replicas(_as_run(tmp_path))] == ["plain"] * 2


def test_a_slave_with_another_record_is_found(tmp_path):
    data = bytearray(plain_file(4, base=0))
    master = dump(tmp_path, "n0", bytes(data), len(data) - 1)
    data[-20] ^= 1  # in the properties: the record is sound
    slave = dump(tmp_path, "n1", bytes(data), len(data) - 1)
    found = check_history(history(master, slave)).results
    assert (found["A34"].count, found["A35"].count) == (1, 1)


def test_bytes_that_no_log_has_are_found(tmp_path):
    data = plain_file(4, base=0)
    lacking = [dump(tmp_path, node, data, len(data) + 99) for node in ("n0", "n1")]
    found = check_history(history(*lacking)).results["A35"]
    assert found.count == 1
    assert "100 bytes" in found.evidence[0]["explain"]


def _as_run(path):
    run = path / "run"
    run.mkdir()
    (run / "replicas").mkdir()
    for node in ("n0", "n1"):
        (path / node).rename(run / "replicas" / node)
    return run
