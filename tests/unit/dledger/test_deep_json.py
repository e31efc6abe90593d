"""JSON nested as deep as it can be, where members and files have configurations, is refused."""

from zlib import crc32

import pytest

from dledger.codec import configuration, snapshot
from dledger.errors import CorruptEntry
from dledger.storage.membership_file import MembershipFile
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.errors import FatalError
from mutants.patches import BY_TESTS
from mutants.planting import planted

DEEP = b"[" * 100_000 + b"]" * 100_000
MEMBERS = b'"version":0,"voters":{"n0":"h:1"},"learners":{}'


@pytest.mark.parametrize("text", [DEEP, b'{"x":' + DEEP + b"," + MEMBERS + b"}"])
def test_a_configuration(text):
    with pytest.raises(CorruptEntry, match="no configuration"):
        configuration.decode_configuration(text)
    with pytest.raises(CorruptEntry, match="no configuration"):
        configuration.read_configuration(b'{"voters":' + text + b"}")


def test_a_planted_configuration_that_ends_its_reader():
    with planted(BY_TESTS["deep-configuration-ends-a-member"]), pytest.raises(RecursionError):
        configuration.decode_configuration(b'{"x":' + DEEP + b"," + MEMBERS + b"}")


def head_of_a_snapshot():
    packed = b'{"index":-1,"term":0,"x":' + DEEP + b"," + MEMBERS + b"}"
    fields = snapshot.FIELDS.pack(30, 2, 4096, 30, len(packed), 5)
    rest = fields + packed + b"state"
    head = snapshot.HEAD.pack(snapshot.MAGIC, snapshot.VERSION, crc32(rest))
    return head + rest


def test_the_head_of_a_snapshot():
    with pytest.raises(ValueError, match="no configuration"):
        snapshot.decode_snapshot(head_of_a_snapshot())


def test_a_planted_head_that_ends_its_reader():
    with planted(BY_TESTS["deep-snapshot-ends-a-member"]), pytest.raises(RecursionError):
        snapshot.decode_snapshot(head_of_a_snapshot())


def test_the_file_of_the_members_is_named(tmp_path):
    (tmp_path / "membership").write_bytes(b'{"x":' + DEEP + b',"entries":[]}\n')
    store = type("Store", (), {"snapshots": type("Snapshots", (), {"meta": None})})
    with pytest.raises(FatalError, match="membership is damaged"):
        MembershipFile(RealDisk(), str(tmp_path)).load(store)
