"""The store that three real RocketMQ 4.9.7 brokers wrote, read and indexed by ours."""

import base64
import shutil
import tarfile

import pytest

from dledger.config import DLedgerConfig
from dledger.node import DLedgerNode
from dledger.replicated_log import ReplicatedLog
from ledgermq.remoting.protocol.hosts import pack_host
from ledgermq.remoting.protocol.message import decode_records
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import RealDisk
from store.config import StoreConfig
from store.message_store import MessageStore
from store.results import GetStatus
from tests import fixtures
from tests.unit.store.fakes import Listener

QUEUE_FILE_BYTES = 40_000


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    root = tmp_path_factory.mktemp("recorded")
    with tarfile.open(fixtures.store("dledger-4.9.7")) as archive:
        archive.extractall(root, filter="data")
    return root


@pytest.fixture
def opened(recorded, tmp_path):
    """Our store over the first replica's log, without the queues that RocketMQ made."""
    shutil.copytree(recorded / "store-n0" / "dledger-n0", tmp_path / "dledger-n0")
    index = tmp_path / "dledger-n0" / "index" / "00000000000000000000"
    node = DLedgerNode(
        DLedgerConfig(
            group="RaftNode00",
            self_id="n0",
            peers={"n0": ""},
            directory=str(tmp_path / "dledger-n0"),
            data_segment_bytes=1 << 20,
            index_segment_bytes=index.stat().st_size,
        )
    )
    soon = []
    store = MessageStore(
        StoreConfig(
            directory=str(tmp_path),
            store_host=pack_host("127.0.0.1", 30911),
            queue_file_bytes=QUEUE_FILE_BYTES,
        ),
        RealDisk(),
        SystemClock(),
        Listener(),
        call_soon=soon.append,
    )
    log = ReplicatedLog(node)
    store.attach(log)
    log.serve(store.log_user)
    store.load()
    node.open()
    log.on_committed(node.end_index)
    while soon:
        soon.pop(0)()
    yield tmp_path, store
    node._store.close()


def queue_files(root):
    return {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("replica", ["store-n0", "store-n1", "store-n2"])
def test_consume_queues_are_those_of_rocketmq_byte_for_byte(recorded, opened, replica):
    root, store = opened
    assert store.checkpoints.write_now()
    theirs = queue_files(recorded / replica / "consumequeue")
    ours = queue_files(root / "consumequeue")
    assert sorted(ours) == sorted(theirs)
    assert len(ours) == 20
    for name, path in theirs.items():
        assert ours[name].read_bytes() == path.read_bytes(), name


def test_every_message_is_read_as_the_java_client_read_it(opened):
    _, store = opened
    queues, messages = {}, {}
    for line in fixtures.stored_messages("dledger-4.9.7"):
        if "queue" in line:
            queue = line["queue"]
            queues[queue["topic"], queue["queueId"]] = (queue["min"], queue["max"])
        else:
            messages[line["topic"], line["queueId"], line["queueOffset"]] = line
    for (topic, queue_id), (low, high) in queues.items():
        assert store.reader.min_offset(topic, queue_id) == low
        assert store.reader.max_offset(topic, queue_id) == high
        offset = low
        while offset < high:
            result = store.reader.get(topic, queue_id, offset, 32, 262_144, None)
            assert result.status is GetStatus.FOUND
            for record in decode_records(b"".join(result.buffers), check_crc=True):
                check(store, record, messages.pop((topic, queue_id, offset)))
                offset += 1
            assert offset == result.next_offset
    assert not messages


def check(store, record, line):
    assert record.physical_offset == line["commitLogOffset"]
    assert record.size == line["storeSize"]
    assert record.queue_offset == line["queueOffset"]
    assert record.store_timestamp == line["storeTimestamp"]
    assert record.message_id() == line["msgId"]
    assert record.offset_message_id() == line["offsetMsgId"]
    assert record.content() == base64.b64decode(line["bodyBase64"])
    assert len(store.reader.message_at(record.physical_offset)) == record.size


def test_a_second_start_dispatches_nothing_again(opened):
    root, store = opened
    assert store.checkpoints.write_now()
    before = {name: path.stat().st_mtime_ns for name, path in queue_files(root).items()}
    again = MessageStore(store._config, RealDisk(), SystemClock(), Listener())
    again.attach(store._log)
    again.load(store.applied)
    again.log_user.on_committed(store.applied)
    assert again.applied == store.applied
    assert again.reader.max_offset("RaftNode00", 0) == 2501
    assert {name: path.stat().st_mtime_ns for name, path in queue_files(root).items()} == before
