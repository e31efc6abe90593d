"""Bugs that an outsider planted and neither plans nor tests had shown: a test for each."""

import asyncio
from types import SimpleNamespace

import pytest

from broker import retention_policy
from broker.retention_policy import Level, RetentionConfig, Segment, Situation
from broker.sends.creation import Creator
from dledger.codec.properties import Checkpoint
from dledger.storage.state_files import CheckpointFile
from ledgermq.client.local_offsets import LocalOffsets
from ledgermq.client.message import MessageQueue
from ledgermq.remoting.protocol.bodies import TopicConfig
from ledgermq.remoting.protocol.codes import ResponseCode
from ledgermq.runtime.disk import RealDisk
from mutants.patches import BY_TESTS
from mutants.planting import planted
from namesrv.controller.liveness import Heard, Liveness
from store.results import PutStatus

QUEUE = MessageQueue("t", "b", 0)


class FailsOnce(RealDisk):
    """A disk whose first write of a whole file fails."""

    has_failed = False

    def replace(self, path, data):
        if not self.has_failed:
            self.has_failed = True
            raise OSError(28, "no space")
        super().replace(path, data)


async def _written_behind_a_failure(directory):
    offsets = LocalOffsets(str(directory), "c", "g", FailsOnce())
    offsets.open()
    offsets.put(QUEUE, 5)
    await offsets.flush()
    await offsets.flush()
    offsets.close()
    again = LocalOffsets(str(directory), "c", "g")
    again.open()
    try:
        return again.get(QUEUE)
    finally:
        again.close()


def test_offsets_whose_write_failed_are_written_next_time(tmp_path):
    assert asyncio.run(_written_behind_a_failure(tmp_path / "sound")) == 5
    with planted(BY_TESTS["failed-write-counts"]):
        assert asyncio.run(_written_behind_a_failure(tmp_path / "planted")) == -1


def _answer_of(status):
    """What a send is told whose topic was proposed with that outcome."""

    async def propose(_kind, _payload):
        return status

    async def publish():
        return None

    creator = Creator(
        topics=SimpleNamespace(get=lambda _name: None, full=False), groups=None,
        proposer=SimpleNamespace(propose=propose), publisher=SimpleNamespace(publish=publish),
        clock=SimpleNamespace(wall_ms=lambda: 0), serve=None, enter=None, is_orderly=None,
    )  # fmt: skip
    creator.waiting.open("new")
    return asyncio.run(creator._create_parked(TopicConfig(topic_name="new")))


@pytest.mark.parametrize("status", [PutStatus.UNKNOWN, PutStatus.QUORUM_TIMEOUT])
def test_a_send_whose_topic_may_come_yet_is_told_to_come_again(status):
    assert _answer_of(status)[0] == ResponseCode.SERVICE_NOT_AVAILABLE
    assert _answer_of(PutStatus.OK) is None
    with planted(BY_TESTS["topic-that-may-come-is-there"]):
        assert _answer_of(status) is None


def _first_alive():
    liveness = Liveness()
    for replica, epoch, end in ((1, 1, 900), (2, 2, 300), (3, 2, 200)):
        liveness.hear("g", replica, Heard(0, 1_000, f"a{replica}", replica, epoch, end))
    return liveness.alive("g", (1, 2, 3), 10)


def test_a_later_epoch_goes_before_a_longer_log():
    assert _first_alive() == (2, 3, 1)
    with planted(BY_TESTS["longest-log-of-any-epoch"]):
        assert _first_alive() == (1, 2, 3)


def _begins_at(covered):
    segments = [Segment(at, at + 10, 0) for at in (0, 10, 20)]
    situation = Situation(10**12, 4, Level.OK)
    return retention_policy.expired_before(segments, covered, situation, RetentionConfig())


def test_a_segment_that_is_covered_in_part_stays():
    assert [_begins_at(covered) for covered in (9, 10, 19, 20)] == [None, 10, 10, 20]
    with planted(BY_TESTS["covered-in-part"]):
        assert [_begins_at(covered) for covered in (9, 10, 19, 20)] == [10, 20, 20, 20]


def _noted_behind_a_cut(directory):
    """What a start believes once a checkpoint of before a cut was written behind it."""
    directory.mkdir()
    file = CheckpointFile(RealDisk(), str(directory))
    file.load()
    cuts = file.cuts
    file.lower(5)
    file.save(Checkpoint(9, 5), cuts)
    file.close()
    return CheckpointFile(RealDisk(), str(directory)).load().end_index


def test_a_checkpoint_of_before_a_cut_is_not_written_behind_it(tmp_path):
    assert _noted_behind_a_cut(tmp_path / "sound") <= 5
    with planted(BY_TESTS["checkpoint-of-before-a-cut"]):
        assert _noted_behind_a_cut(tmp_path / "planted") == 9
