"""The index of a whole broker whose disk crashes, fills up, or loses what was not synced.

The script and the disk are those of `tests.unit.store.faults`; here every message has keys, index
files are so small that the script fills some, and in the end each message that is in a queue is
found by its key, and nothing else.
"""

from dataclasses import replace
from functools import cache
from unittest.mock import patch
from zlib import crc32

import pytest

from store.index.keeper import IndexKeeper
from tests.unit.store.faults import crashes, disks
from tests.unit.store.faults.conftest import CASES
from tests.unit.store.faults.crashes import Case, reference
from tests.unit.store.faults.world import Cluster

CI_CASES = 40
MODES = [pytest.param(True, id="raft"), pytest.param(False, id="plain")]
ALWAYS = (0, 1 << 62)


class KeyedCluster(Cluster):
    """A cluster whose messages have keys, made of what they hold."""

    def config(self, name):
        return replace(super().config(name), max_hash_slot_num=8, max_index_num=40)

    def put_many(self, messages, **options):
        keyed = [
            (topic, queue_id, body, b"%b\x02UNIQ_KEY\x01%b" % (properties, key_of(body)))
            for topic, queue_id, body, properties in messages
        ]
        return super().put_many(keyed, **options)

    def read(self, name="n0"):
        found = super().read(name)
        if self.store(name).writer.writable:  # who does not lead refuses queries by key
            self.do(lambda: check_keys(self.store(name), found), name=name)
        return found


def key_of(body):
    return b"%08x" % (crc32(body) % 99)


def check_keys(store, found):
    """Check that messages are found by their keys, and no others."""
    by_key = {}
    for queue in found.values():
        for message in queue.values():
            key = message.maybe_property("UNIQ_KEY")
            if key is not None:
                by_key.setdefault((message.topic, key), []).append(message.physical_offset)
    for (topic, key), physicals in by_key.items():
        records = store.reader.messages_of_key(topic, key, 64, ALWAYS).records
        there = [int.from_bytes(record[28:36], "big") for record in records]
        assert there == sorted(physicals)[-64:], (topic, key)
    assert not store.reader.messages_of_key("t0", "nobody", 64, ALWAYS).records


@pytest.fixture(autouse=True)
def _with_keys(monkeypatch):
    monkeypatch.setattr(crashes, "Cluster", KeyedCluster)
    monkeypatch.setattr(disks, "Cluster", KeyedCluster)


@cache
def played(*, raft):
    return reference(raft=raft)


@pytest.mark.parametrize("raft", MODES)
def test_after_a_crash_at_any_step_every_message_is_found_by_its_keys(raft):
    steps, begins = played(raft=raft)
    count = CASES or CI_CASES
    for number in range(count):
        Case(number * steps // count, number, {"raft": raft}).run(begins)


@pytest.mark.parametrize("raft", MODES)
def test_with_a_full_disk_nothing_is_lost_and_found_when_there_is_space(raft):
    steps, _ = played(raft=raft)
    count = CASES or CI_CASES // 2
    for number in range(count):
        disks.full_from(number * steps // count, raft=raft)


@pytest.mark.parametrize("raft", MODES)
def test_after_a_crash_between_two_checkpoints_messages_are_found_by_their_keys(raft):
    """The queues are further than the index: dispatch begins with what that lacks."""
    cluster = KeyedCluster({"n0": crashes.disk_of({})}, raft=raft)
    try:
        cluster.start()
        with patch.object(IndexKeeper, "tick", return_value=True):
            cluster.put_many([("t0", 0, b"%d" % number, b"") for number in range(20)])
            cluster.run_for(12_000)  # tables and queues are on disk
        cluster.kill()
        assert cluster.start() is None
        found = cluster.read()
        assert sum(map(len, found.values())) >= 20
    finally:
        cluster.close()


def test_dispatch_that_does_not_ask_the_index_is_caught(monkeypatch):
    agree = IndexKeeper.agree
    monkeypatch.setattr(IndexKeeper, "agree", lambda *a: max(agree(*a), 1 << 60))
    with pytest.raises(AssertionError):
        test_after_a_crash_between_two_checkpoints_messages_are_found_by_their_keys(raft=True)
