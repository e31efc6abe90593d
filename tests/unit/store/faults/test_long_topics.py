"""A log with topics of more than 127 bytes: RocketMQ 5 names retry topics of its POP so."""

import pytest

from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import RealDisk
from store.offline.folder import open_folder
from store.offline.rebuild import Rebuild
from store.recovery.checkpoint import StoreTimes, encode_times
from store.results import PutStatus
from tests.unit.store.faults.damage import disk_of
from tests.unit.store.faults.test_topic_made_again import T0, Log, bodies
from tests.unit.store.faults.world import QUEUE_FILE, ROOT, SEGMENT, Cluster, make
from tests.unit.store.offline.stores import health, write

LONG = [b"long %d" % number for number in range(3)]
OTHERS = [b"other %d" % number for number in range(3)]


def files_of(topic, *, clean=True):
    """What RocketMQ leaves of two queues."""
    log = Log()
    files = {
        f"{ROOT}/consumequeue/other/0/{0:020}": log.add("other", OTHERS).ljust(QUEUE_FILE, b"\0"),
        f"{ROOT}/consumequeue/{topic}/0/{0:020}": log.add(topic, LONG).ljust(QUEUE_FILE, b"\0"),
        f"{ROOT}/commitlog/{0:020}": log.data.ljust(SEGMENT, b"\0"),
        f"{ROOT}/checkpoint": encode_times(StoreTimes(*[T0 + len(log.data)] * 3)),
    }
    return files if clean else files | {f"{ROOT}/abort": b""}


def put(cluster, topic):
    """Send one message; return how it ended."""
    ends = []
    store = cluster.store("n0")
    cluster.do(lambda: store.writer.put(make(topic, 0, b"new", b""), lambda *end: ends.append(end)))
    cluster.run_for(1_000)
    return ends[0][0]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("size", [127, 128, 200, 255])
def test_its_messages_are_served_and_none_is_added(size, clean):
    topic = "%RETRY%".ljust(size, "x")
    cluster = Cluster({"n0": disk_of(files_of(topic, clean=clean))}, raft=False)
    try:
        for _ in range(2):
            assert cluster.start() is None
            found = cluster.read()
            assert bodies(found, topic) == LONG
            assert bodies(found, "other") == OTHERS
            cluster.kill()
        assert cluster.start() is None
        assert put(cluster, topic) is (PutStatus.OK if size < 128 else PutStatus.MESSAGE_ILLEGAL)
    finally:
        cluster.close()


def test_its_queues_are_made_anew(tmp_path):
    topic = "%RETRY%".ljust(200, "x")
    files = files_of(topic)
    del files[f"{ROOT}/checkpoint"]
    write(tmp_path, {path.removeprefix(f"{ROOT}/"): data for path, data in files.items()})
    assert health(tmp_path) == "healthy"
    work = Rebuild(open_folder(str(tmp_path)), RealDisk(), SystemClock())
    work.run(work.survey())
    assert health(tmp_path) == "healthy"
    made = (tmp_path / f"consumequeue/{topic}/0/{0:020}").read_bytes()
    assert made == files[f"{ROOT}/consumequeue/{topic}/0/{0:020}"]
