"""Stores in which an earlier version wrote records that claim IPv6 hosts and have none.

The planted bug writes them; without it everything else is there, whatever stopped the broker.
"""

import logging

import pytest

from ledgermq.remoting.protocol.message import decode_records
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.offline.folder import open_folder
from store.offline.messages import Dump, Selection
from store.offline.statistics import collect
from store.offline.verify import verify
from store.results import PutStatus
from tests.unit.store.faults.damage import disk_of, image
from tests.unit.store.faults.world import ROOT, Cluster, make
from tests.unit.store.offline.stores import write

OLD = BY_TESTS["host-bits-of-the-message"]
NAMES = ("n0", "n1", "n2")


def put(cluster, body, sys_flag=0, name="n0"):
    """Send one message; returns how it ended."""
    answers = []
    message = make("t0", 0, body, b"")
    message.sys_flag = sys_flag
    cluster.do(
        lambda: cluster.store(name).writer.put(message, lambda *got: answers.append(got)), name=name
    )
    cluster.loop.run_until_true(lambda: answers or not cluster.is_alive(name), 10_000)
    return answers[0][0] if answers else None


def bodies(cluster, name="n0"):
    """Pull the queue from its first message to its end, as a consumer does."""
    found, offset = [], 0

    def pull():
        nonlocal offset
        store = cluster.store(name)
        while offset < store.reader.max_offset("t0", 0):
            result = store.reader.get("t0", 0, offset, 32, 1 << 20, None)
            assert result.next_offset > offset, result
            found.extend(r.body for r in decode_records(b"".join(result.buffers), check_crc=True))
            offset = result.next_offset

    cluster.do(pull, name=name)
    return found


def write_old(cluster, flags, name="n0"):
    """Have an earlier version store messages, some of which are none; returns the others."""
    sent = []
    with planted(OLD):
        for number, flag in enumerate(flags):
            body = b"message %d" % number
            assert put(cluster, body, flag, name) is PutStatus.OK
            if not flag:
                sent.append(body)
        cluster.run_for(1000)
    return sent


@pytest.mark.parametrize("flags", [(0, 0x10, 0, 0x20, 0, 0), (0, 0, 0x10), (0x20, 0), (0x30,)])
@pytest.mark.parametrize("raft", [False, True])
@pytest.mark.parametrize("end", ["kill", "stop"])
def test_what_lies_before_and_behind_is_served_after_any_end(raft, end, flags, tmp_path, caplog):
    cluster = Cluster({"n0": disk_of({})}, raft=raft)
    assert cluster.start() is None
    sent = write_old(cluster, flags)
    cluster.kill() if end == "kill" else cluster.stop()
    folder = write(tmp_path, {
        path.removeprefix(f"{ROOT}/"): data for path, data in image(cluster.disks["n0"]).items()
    })  # fmt: skip
    check_offline(folder, sum(map(bool, flags)), sent)
    for _ in range(2):
        with caplog.at_level(logging.ERROR):
            assert cluster.start() is None
        assert bodies(cluster) == sent
        sent.append(b"after %d" % len(sent))
        assert put(cluster, sent[-1]) is PutStatus.OK
        cluster.run_for(500)
        assert bodies(cluster) == sent
        cluster.kill()
    cluster.close()


def check_offline(folder, bad, sent):
    """A look from outside names the records, and no other damage of the log; the rest is read."""
    report = verify(open_folder(folder))
    named = [found for found in report.findings.listed if found.kind == "no message"]
    assert len(named) == bad
    assert {found.severity for found in named} == {"damage"}
    assert not [
        found
        for found in report.findings.listed
        if found.part == "log" and found.severity == "damage" and found.kind != "no message"
    ]
    dump = Dump(open_folder(folder), Selection())
    rows = [row for row in dump.message_rows() if row["topic"] == "t0"]
    assert len(rows) == len(sent)
    assert len(dump.damages) == bad
    assert collect(open_folder(folder)).damaged == bad


@pytest.mark.parametrize("victim", ["leader", "follower", "all"])
def test_a_group_goes_on_and_its_replicas_agree(victim, caplog):
    cluster = Cluster({name: disk_of({}) for name in NAMES})
    for name in NAMES:
        cluster.boot(name)
    assert cluster.loop.run_until_true(lambda: cluster.writable() is not None, 20_000)
    leader = cluster.writable()
    with caplog.at_level(logging.ERROR):
        sent = write_old(cluster, (0, 0x10, 0, 0, 0x20, 0), leader)
    assert all(cluster.is_alive(name) for name in NAMES)
    assert "event=record_quarantined" in caplog.text
    others = [name for name in NAMES if name != leader]
    victims = {"leader": [leader], "follower": others[:1], "all": NAMES}[victim]
    for name in victims:
        cluster.kill(name)
    for name in victims:
        cluster.boot(name)
    assert cluster.loop.run_until_true(lambda: cluster.writable() is not None, 30_000)
    cluster.run_for(3000)
    leader = cluster.writable()
    for number in range(3):
        sent.append(b"after %d" % number)
        assert put(cluster, sent[-1], name=leader) is PutStatus.OK
    cluster.run_for(2000)
    assert {name: bodies(cluster, name) for name in NAMES} == dict.fromkeys(NAMES, sent)
    assert all(cluster.is_alive(name) for name in NAMES)
    cluster.close()


@pytest.mark.parametrize(
    ("bug", "raft"),
    [
        (BY_TESTS["recovery-cuts-at-a-misread-record"], False),
        (BY_TESTS["a-bad-record-ends-the-process"], True),
    ],
)
def test_planted_bugs_are_found_here(bug, raft):
    cluster = Cluster({"n0": disk_of({})}, raft=raft)
    assert cluster.start() is None
    sent = write_old(cluster, (0, 0x10, 0, 0))
    cluster.kill()
    with planted(bug):
        error = cluster.start()
        assert error is not None or bodies(cluster) != sent
    cluster.kill()
    cluster.close()
