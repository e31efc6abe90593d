"""The plain stores that a RocketMQ 4.9.7 wrote: killed, and recovered and closed by it."""

import base64
import struct
import tarfile

import pytest

from ledgermq.remoting.protocol.message import decode_record, encode_record
from ledgermq.runtime.disk import RealDisk
from tests import fixtures
from tests.unit.store.plain.records import Log

SEGMENT = 256 * 1024
END = 3 * SEGMENT + 233_211
ENTRIES = 714 + 214 + 214 + 191


def messages():
    return [row for row in fixtures.stored_messages("master-4.9.7") if "commitLogOffset" in row]


@pytest.fixture(params=["clean", "killed"])
def store(request, tmp_path):
    with tarfile.open(fixtures.store(f"master-4.9.7-{request.param}")) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "store"


def start(store, **options):
    is_clean = not (store / "abort").exists()
    times = struct.unpack_from(">qqq", (store / "checkpoint").read_bytes())
    return Log(
        RealDisk(),
        directory=str(store / "commitlog"),
        segment_bytes=SEGMENT,
        clean=is_clean,
        **{"safe_timestamp_ms": min(times) - 3000, **options},
    )


def test_it_opens_where_rocketmq_ended(store):
    log = start(store)
    assert log.end_position == log.committed_position == END
    assert log.recovered.cut_bytes == 0
    assert len(log.entries()) == ENTRIES
    names = sorted(path.name for path in (store / "commitlog").iterdir())
    assert names == [f"{number * SEGMENT:020}" for number in range(4)]


def test_every_message_is_at_its_offset(store):
    log = start(store)
    rows = messages()
    assert len(rows) > 1200
    for row in rows:
        found = log.body_at(row["commitLogOffset"], row["storeSize"])
        message = decode_record(found, check_crc=True)
        assert message.queue_offset == row["queueOffset"]
        assert message.offset_message_id() == row["offsetMsgId"]
        assert message.content() == base64.b64decode(row["bodyBase64"])
        assert log.maybe_size(row["commitLogOffset"]) == row["storeSize"]


def test_every_record_is_encoded_again_byte_for_byte(store):
    """Half and op messages, batches, compressed bodies: whatever lies in the log."""
    for _, entry in start(store).entries():
        assert encode_record(decode_record(entry)) == entry


def test_start_changes_nothing_but_files_made_ahead(store):
    before = {path.name: path.read_bytes() for path in (store / "commitlog").iterdir()}
    start(store, safe_timestamp_ms=0)
    after = {path.name: path.read_bytes() for path in (store / "commitlog").iterdir()}
    assert all(before[name] == data for name, data in after.items())
    assert not any(any(data) for name, data in before.items() if name not in after)


def test_we_go_on_behind_its_last_message(store):
    log = start(store)
    last = decode_record(log.last_body())
    positions = [log.put(body=b"x" * 20_000, stored=last.store_timestamp + 1) for _ in range(2)]
    assert positions == [END, 4 * SEGMENT]
    log.flush()
    log.sync()
    log.files.close()
    again = start(store)
    assert [at for at, _ in again.entries()][-2:] == positions
    assert len(again.entries()) == ENTRIES + 2
