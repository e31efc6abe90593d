"""A broker that was of an earlier version, which did not know all tables, makes them from the log.

The earlier version here does not know how far delayed messages are delivered: it passes over what
copies say of it, and writes no such table.
"""

import json

import msgspec
import pytest

from broker import controller
from broker.config import BrokerConfig
from broker.delays.service import SCHEDULE_TOPIC
from broker.retention.compaction import StateImage, state_problem
from broker.sends.schedule import scheduled
from broker.state.snapshot import FIRST_TABLES, Snapshot
from broker.tables import Tables
from ledgermq.remoting.protocol.message import decode_records
from ledgermq.runtime.disk import RealDisk
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.results import PutStatus
from tests.unit.broker.fakes import FakeClock
from tests.unit.store.faults.damage import disk_of
from tests.unit.store.faults.world import ROOT, Cluster, make

TABLE = "delayOffset.json"
LEVEL = 2
DELAY_MS = 5_000
SAVED_MS = 6_000


@pytest.fixture(name="earlier")
def _earlier(monkeypatch):
    """Return the names of the members that are of the earlier version when they start."""
    names = set()
    build = controller.build_services

    def build_earlier(core, processors):
        services = build(core, processors)
        if core.config.dledger_self_id in names:
            state = core.tables.state
            del state.tables[TABLE], state._appliers["delivered"]
        return services

    monkeypatch.setattr(controller, "build_services", build_earlier)
    return names


def send_delayed(cluster, name, body):
    """Send a message with a delay; return how that ended."""
    answers = []
    message = scheduled(make("T", 0, body, b"K\x01v"), LEVEL, 18)
    cluster.do(
        lambda: cluster.store(name).writer.put(message, lambda *a: answers.append(a)), name=name
    )
    cluster.loop.run_until_true(lambda: answers, 5_000)
    return answers[0][0]


def delivered(cluster, name):
    """Return the bodies in the queue that delayed messages were sent to."""
    store = cluster.store(name).reader

    def read():
        found = store.get("T", 0, store.min_offset("T", 0), 32, 1 << 20, None)
        return [message.body for message in decode_records(b"".join(found.buffers))]

    return cluster.do(read, name=name)


def is_started(cluster, name):
    return name in cluster.brokers and cluster.brokers[name]._started


def progress(cluster, name="n0"):
    return cluster.brokers[name]._services.delays.progress.delivered_before(LEVEL - 1)


def unname(disk):
    """Have the file of the index name no tables, as it did not at first."""
    path = f"{ROOT}/config/appliedIndex.json"
    saved = json.loads(disk.read(path))
    assert TABLE not in saved.pop("tables")
    disk.replace(path, json.dumps(saved).encode())


def after_an_upgrade(earlier):
    """Return what was delivered when a broker alone in its group was upgraded, and its progress."""
    cluster = Cluster({"n0": disk_of({})})
    try:
        assert cluster.start() is None
        assert send_delayed(cluster, "n0", b"first") is PutStatus.OK
        cluster.run_for(DELAY_MS + SAVED_MS)
        assert cluster.stop() is None  # it leaves a table that the next version does not know
        earlier.add("n0")
        assert cluster.start() is None
        assert send_delayed(cluster, "n0", b"second") is PutStatus.OK
        cluster.run_for(DELAY_MS + SAVED_MS)
        assert cluster.stop() is None
        unname(cluster.disks["n0"])
        earlier.clear()
        assert cluster.start() is None
        begun = progress(cluster)
        cluster.run_for(SAVED_MS)
        assert cluster.stop() is None  # and a start that finds all of them named
        assert cluster.start() is None
        cluster.run_for(DELAY_MS)
        assert progress(cluster) == 2
        return delivered(cluster, "n0"), begun
    finally:
        cluster.kill()
        cluster.close()


# An earlier version that leads begins again with each start: it knows no progress at all.
ONCE_BY_EACH = [b"first", b"first", b"second"]


def test_an_upgraded_broker_delivers_nothing_again(earlier):
    assert after_an_upgrade(earlier) == (ONCE_BY_EACH, 2)


def test_planted_tables_that_nobody_named_are_found_here(earlier):
    with planted(BY_TESTS["unnamed-tables-believed"]):
        bodies, begun = after_an_upgrade(earlier)
    assert begun < 2
    assert len(bodies) > len(ONCE_BY_EACH)


def after_an_install(earlier):
    """Return what a new member knows that installed an image of a leader of the earlier version."""
    names = ("n0", "n1", "n2")
    earlier.update(names[:2])
    cluster = Cluster({name: disk_of({}) for name in names})
    try:
        for name in names[:2]:
            cluster.boot(name)
        cluster.loop.run_until_true(cluster.writable, 20_000)
        return known_of_an_image(cluster)
    finally:
        for name in names:
            cluster.kill(name)
        cluster.close()


def known_of_an_image(cluster):
    """Have the leader drop the beginning of its log; return what n2 knows then, twice."""
    leader = cluster.writable()
    for number in range(60):
        assert cluster.put("F", 0, b"%d" % number * 40, name=leader) is PutStatus.OK
    assert send_delayed(cluster, leader, b"once") is PutStatus.OK
    cluster.run_for(DELAY_MS + SAVED_MS)
    compactor = cluster.brokers[leader].compactor
    done = cluster.loop.spawn(cluster.hosts[leader].process, compactor.compact())
    assert cluster.loop.run_until_true(done.done, 20_000)
    assert done.result()["dropped_entries"] > 0
    cluster.boot("n2")
    end = cluster.log(leader).end_index
    assert cluster.loop.run_until_true(
        lambda: is_started(cluster, "n2") and cluster.brokers["n2"].applied_index >= end, 20_000
    )
    assert cluster.log("n2").first_index > 0
    assert cluster.store("n2").reader.max_offset(SCHEDULE_TOPIC, LEVEL - 1) == 1
    known = [progress(cluster, "n2")]
    cluster.run_for(SAVED_MS)
    assert cluster.stop("n2") is None
    cluster.boot("n2")
    cluster.run_for(SAVED_MS)
    known.append(progress(cluster, "n2"))
    return known


def test_who_installs_an_image_of_an_earlier_version_makes_what_it_lacks(earlier):
    assert after_an_install(earlier) == [1, 1]


def test_planted_images_believed_whole_are_found_here(earlier):
    with planted(BY_TESTS["image-believed-whole"]):
        assert after_an_install(earlier)[0] == 0


def after_a_start_with_an_image(earlier):
    """Return what a broker knows whose own image of an earlier version is all that it has."""
    cluster = Cluster({"n0": disk_of({})})
    try:
        earlier.add("n0")
        assert cluster.start() is None
        for number in range(60):
            assert cluster.put("F", 0, b"%d" % number * 40) is PutStatus.OK
        assert send_delayed(cluster, "n0", b"once") is PutStatus.OK
        cluster.run_for(DELAY_MS + SAVED_MS)
        done = cluster.loop.spawn(
            cluster.hosts["n0"].process, cluster.brokers["n0"].compactor.compact()
        )
        assert cluster.loop.run_until_true(done.done, 20_000)
        assert cluster.stop() is None
        earlier.clear()
        disk = cluster.disks["n0"]
        for name in disk.names(f"{ROOT}/config"):
            disk.remove(f"{ROOT}/config/{name}")
        assert cluster.start() is None
        assert cluster.log().first_index > 0
        cluster.run_for(DELAY_MS)
        return progress(cluster), delivered(cluster, "n0")
    finally:
        cluster.kill()
        cluster.close()


def test_who_starts_from_an_image_of_an_earlier_version_makes_what_it_lacks(earlier):
    assert after_a_start_with_an_image(earlier) == (1, [b"once"])


def test_planted_own_images_believed_whole_are_found_here(earlier):
    with planted(BY_TESTS["image-believed-whole-at-a-start"]):
        assert after_a_start_with_an_image(earlier)[1] == [b"once", b"once"]


def test_an_image_without_topics_is_none_of_a_broker():
    tables = Tables(BrokerConfig(broker_cluster_name="C", broker_name="b"), FakeClock())
    snapshot = Snapshot("/none", tables.state, RealDisk())
    files = {name: text for name, text in snapshot.take().items() if name in FIRST_TABLES}
    assert not state_problem(snapshot, msgspec.msgpack.encode(StateImage(files, [])))
    del files["topics.json"]
    problem = state_problem(snapshot, msgspec.msgpack.encode(StateImage(files, [])))
    assert problem == "it lacks topics.json"
