"""``ledgermq admin raftEvents`` over a directory that somebody gives us."""

import os

import pytest

from cli.raft import read_events
from dledger.codec.events import encode_file_head
from ledgermq.runtime.errors import FatalError
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.offline.files import StoreFile

HUGE_BYTES = 1 << 33


def sparse(path):
    path.write_bytes(encode_file_head(1))
    os.truncate(path, HUGE_BYTES)


def test_a_file_that_no_replica_wrote_is_refused_by_its_name(tmp_path):
    """It took as much memory as the file said."""
    sparse(tmp_path / "entries-1")
    with pytest.raises(FatalError, match="entries-1"):
        read_events(tmp_path)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_what_is_no_file_is_no_reason_to_wait(tmp_path, make):
    make(tmp_path / "entries-1")
    assert read_events(tmp_path) == []


def test_the_bound_of_what_is_read_is_needed(tmp_path, monkeypatch):
    def read(_file, _offset, size):
        raise AssertionError(size)

    sparse(tmp_path / "entries-1")
    monkeypatch.setattr(StoreFile, "read_exact", read)
    with (
        planted(BY_TESTS["tools-read-files-of-any-size"]),
        pytest.raises(AssertionError, match=str(HUGE_BYTES)),
    ):
        read_events(tmp_path)
