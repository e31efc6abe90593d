"""The stores that three real RocketMQ 4.9.7 brokers wrote: opened, continued, and read again.

Two readers look at the result: our store, and the harness's decoder of segments, which shares no
code with it. Both read all recorded messages equal, and what we appended behind them.
"""

import asyncio
import base64
import shutil
import tarfile

import pytest

from chaos.history.segment import decode_segment
from dledger.config import DLedgerConfig
from dledger.node import DLedgerNode
from dledger.replicated_log import ReplicatedLog
from ledgermq.remoting.protocol.hosts import pack_host
from ledgermq.remoting.protocol.message import decode_records
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import RealDisk
from store.config import StoreConfig
from store.layout import STATE_TOPIC
from store.message_store import MessageStore
from store.results import GetStatus, PutStatus
from tests import fixtures
from tests.integration.faulty_disk import flip
from tests.unit.store.fakes import Listener, message

DEADLINE_S = 60
SEGMENT = 1 << 20
OURS = 600


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    root = tmp_path_factory.mktemp("recorded")
    with tarfile.open(fixtures.store("dledger-4.9.7")) as archive:
        archive.extractall(root, filter="data")
    return root


@pytest.fixture(scope="module")
def expected():
    """What the Java client read: by topic, queue and offset the body, and where it lies."""
    return {
        (line["topic"], line["queueId"], line["queueOffset"]): (
            base64.b64decode(line["bodyBase64"]),
            line["commitLogOffset"],
        )
        for line in fixtures.stored_messages("dledger-4.9.7")
        if "queue" not in line
    }


class Opened:
    """One replica's store, as a group of one."""

    def __init__(self, root, replica):
        directory = root / f"dledger-{replica}"
        index = next(iter(sorted((directory / "index").iterdir())))
        self.directory = directory
        self.node = DLedgerNode(
            DLedgerConfig(
                group="RaftNode00",
                self_id=replica,
                peers={replica: ""},
                directory=str(directory),
                data_segment_bytes=SEGMENT,
                index_segment_bytes=index.stat().st_size,
            )
        )
        self.store = MessageStore(
            StoreConfig(directory=str(root), store_host=pack_host("127.0.0.1", 30911), tick_ms=10),
            RealDisk(),
            SystemClock(),
            Listener(),
        )
        self.log = ReplicatedLog(self.node)
        self.store.attach(self.log)
        self.log.serve(self.store.log_user)

    async def __aenter__(self):
        self.node.open()
        self.store.load()
        await self.node.start(self.log)
        self.store.start()
        async with asyncio.timeout(DEADLINE_S):
            while not self.store.writer.writable:
                await asyncio.sleep(0.005)
        return self

    async def __aexit__(self, *failure):
        await self.store.stop()
        await self.node.stop()

    async def put(self, number):
        done = asyncio.get_running_loop().create_future()
        body = b"ours %d " % number * 100
        self.store.writer.put(
            message(topic="Ours", body=body), lambda *answer: done.set_result(answer)
        )
        return await asyncio.wait_for(done, DEADLINE_S)

    def read_all(self, topic, queue_id):
        offset = self.store.reader.min_offset(topic, queue_id)
        while offset < self.store.reader.max_offset(topic, queue_id):
            result = self.store.reader.get(topic, queue_id, offset, 32, 262_144, None)
            assert result.status is GetStatus.FOUND, (topic, queue_id, offset)
            yield from decode_records(b"".join(result.buffers), check_crc=True)
            offset = result.next_offset

    def check(self, expected, ours):
        found = {}
        for topic, queue_id in sorted({key[:2] for key in expected}):
            for record in self.read_all(topic, queue_id):
                key = (topic, queue_id, record.queue_offset)
                found[key] = (record.content(), record.physical_offset)
        assert found == expected
        bodies = [record.body for record in self.read_all("Ours", 0)]
        assert bodies == [b"ours %d " % number * 100 for number in range(ours)]


def rows(directory):
    """Every entry, as the harness's decoder has it."""
    found = []
    for path in sorted((directory / "data").iterdir()):
        found += decode_segment(path.read_bytes(), int(path.name))
    return found


@pytest.mark.parametrize("replica", ["n0", "n1", "n2"])
def test_recorded_store_is_continued_and_read_again(recorded, expected, tmp_path, replica):
    shutil.copytree(recorded / f"store-{replica}" / f"dledger-{replica}",
                    tmp_path / f"dledger-{replica}")  # fmt: skip
    directory = tmp_path / f"dledger-{replica}"
    before = rows(directory)
    assert len(expected) == 2614

    async def go_on(written):
        async with Opened(tmp_path, replica) as opened:
            opened.check(expected, written)
            for number in range(written, written + OURS):
                status, offset, _ = await opened.put(number)
                assert (status, offset) == (PutStatus.OK, number)
            opened.check(expected, written + OURS)

    asyncio.run(go_on(0))
    asyncio.run(go_on(OURS))
    after = rows(directory)
    assert after[: len(before)] == before, "what RocketMQ wrote is as it was, byte for byte"
    assert [row.entry_index for row in after] == list(range(len(after)))
    assert all(row.crc_ok for row in after)
    added = after[len(before) :]
    terms = [row.term for row in added]
    assert terms == sorted(terms)
    assert terms[0] > before[-1].term
    assert len([row for row in added if row.topic == "Ours"]) == 2 * OURS
    assert {row.topic for row in added} == {"Ours", STATE_TOPIC}
    assert len(list((directory / "data").iterdir())) > len(before[-1:]), "over several segments"


def test_entry_without_a_crc_is_checked_by_its_record(recorded, expected, tmp_path):
    """DLedger 0.3 computes no CRC for entries; RocketMQ's record has one for its body."""
    shutil.copytree(recorded / "store-n0" / "dledger-n0", tmp_path / "dledger-n0")
    (topic, queue_id, offset), (_, physical) = sorted(expected.items())[100]

    async def main():
        async with Opened(tmp_path, "n0") as opened:
            position = physical % SEGMENT
            name = f"{physical - position:020}"
            flip(opened.directory / "data" / name, position + 100)
            result = opened.store.reader.get(topic, queue_id, offset, 1, 262_144, None)
            assert (result.status, result.buffers) == (GetStatus.DAMAGED, [])
            flip(opened.directory / "data" / name, position + 100)

    asyncio.run(main())
