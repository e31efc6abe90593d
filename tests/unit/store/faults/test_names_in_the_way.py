"""What has the name of a queue's directory, or of the tables', is met at the start, not later."""

import os
import shutil

import pytest

from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.queues import names
from store.queues.names import check_queue_names
from tests.unit.store.faults.promises import START_MS
from tests.unit.store.faults.stores import built
from tests.unit.store.faults.test_strange_names import Disk, store_folder
from tests.unit.store.faults.world import Cluster


def put_file(path):
    path.write_text("x")


def put_pipe(path):
    os.mkfifo(path)


def put_link(path):
    path.symlink_to("/nowhere/at/all")


THINGS = (put_file, put_pipe, put_link)
PLACES = ("consumequeue/U", "consumequeue/U/0", "consumequeue/%RETRY%g|x/2147483647")


def start(place, put, *, raft):
    """Put something into a sound directory; return why a broker does not start there."""
    files, _ = built(raft=raft)
    with store_folder(files) as root:
        path = root / place
        if path.is_dir():
            shutil.rmtree(path)
        path.parent.mkdir(exist_ok=True)
        put(path)
        disk = Disk(str(root))
        cluster = Cluster({"n0": disk}, raft=raft)
        try:
            error = cluster.start(limit_ms=START_MS)
            return "" if error is None else str(error).replace(str(root), "")
        finally:
            cluster.close()
            disk.close()


@pytest.mark.parametrize("raft", [False, True])
@pytest.mark.parametrize("put", THINGS)
@pytest.mark.parametrize("place", PLACES)
def test_what_lies_where_a_queue_must_is_refused_by_name(place, put, raft):
    assert f"/{place} exists and is not a directory" in start(place, put, raft=raft)


@pytest.mark.parametrize("raft", [False, True])
@pytest.mark.parametrize("put", [put_file, put_pipe])
def test_what_lies_where_the_key_index_must_is_refused_before_a_message_is_taken(put, raft):
    with store_folder({}) as root:
        put(root / "index")
        disk = Disk(str(root))
        cluster = Cluster({"n0": disk}, raft=raft)
        try:
            error = str(cluster.start(limit_ms=START_MS))
        finally:
            cluster.close()
            disk.close()
    assert "/index exists and is not a directory: move it away" in error


def test_a_start_that_does_not_look_at_the_names_is_found():
    with planted(BY_TESTS["names-of-queues-unseen"]), pytest.raises(AssertionError):
        test_what_lies_where_a_queue_must_is_refused_by_name(PLACES[0], put_file, raft=False)


@pytest.mark.parametrize(
    "place", ["consumequeue/notes.txt", "consumequeue/lost+found", "consumequeue/U/00"]
)
def test_what_no_topic_and_no_queue_is_called_is_left_alone(place):
    assert not start(place, put_file, raft=False)


@pytest.mark.parametrize("raft", [False, True])
def test_tables_behind_a_link_to_nothing_are_refused_by_name(raft):
    assert "/config is a link to nothing" in start("config", put_link, raft=raft)


def test_a_start_that_passes_over_the_folder_of_the_tables_is_found():
    with planted(BY_TESTS["tables-behind-a-link-to-nothing"]), pytest.raises(AssertionError):
        test_tables_behind_a_link_to_nothing_are_refused_by_name(raft=True)


def test_a_link_to_a_directory_is_one(tmp_path):
    (tmp_path / "elsewhere/0").mkdir(parents=True)
    (tmp_path / "queues").mkdir()
    (tmp_path / "queues/T").symlink_to(tmp_path / "elsewhere")
    check_queue_names(str(tmp_path / "queues"))
    check_queue_names(str(tmp_path / "nothing"))


def test_of_very_many_topics_the_queues_are_not_looked_at(tmp_path, monkeypatch):
    monkeypatch.setattr(names, "LOOKED_INTO_MAX", 0)
    (tmp_path / "T").mkdir()
    (tmp_path / "T/0").touch()
    check_queue_names(str(tmp_path))
