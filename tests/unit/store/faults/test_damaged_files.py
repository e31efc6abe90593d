"""Any damage to the files of a broker on its own: it serves what is whole, or refuses and says why.

``STORE_FAULT_CASES=5000 .venv/bin/pytest tests/unit/store/faults`` runs so many cases of each.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger import replica
from dledger.codec.properties import Checkpoint
from dledger.storage import log_store
from dledger.storage.state_files import CheckpointFile
from ledgermq.remoting.protocol.errors import RemoteProtocolError
from store.queues.consume_queue import ConsumeQueue
from store.recovery import start as recovery
from tests.unit.store.faults.damage import CONTENT, NAMES, Damage, damages, disk_of
from tests.unit.store.faults.promises import check_start, check_state
from tests.unit.store.faults.stores import built
from tests.unit.store.faults.world import ROOT, SEGMENT, Cluster

FAULTS = settings(settings.get_profile("faults"))
INDEX_AND_DATA = ("index/00000000000000004096", "data/00000000000000028672")
"""Of which the first has the units of entries in the second."""
RAFT = st.booleans()
"""A group of one, or a plain log."""


@FAULTS
@given(damages(CONTENT, max_size=1), RAFT)
def test_a_file_with_other_bytes_is_served_as_it_was_or_refused(found, raft):
    check_start(*built(raft=raft), found, raft=raft)


@FAULTS
@given(damages(NAMES), RAFT)
def test_files_removed_doubled_or_renamed_are_served_as_they_were_or_refused(found, raft):
    check_start(*built(raft=raft), found, raft=raft)


@FAULTS
@given(damages(min_size=2, max_size=6), RAFT)
def test_many_damages_at_once_give_no_wrong_message(found, raft):
    check_start(*built(raft=raft), found, raft=raft)


@FAULTS
@given(damages(CONTENT, max_size=3), RAFT)
def test_blocks_of_queues_that_are_checked_at_their_first_read_give_no_wrong_message(found, raft):
    files, sent = built(raft=raft)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recovery, "CHECKED_BYTES", 0)
        patch.setattr(recovery, "BLOCK_COST_BYTES", 0)
        check_start(files, sent, found, raft=raft)


def at(path, kind, *places):
    return Damage(kind, f"{ROOT}/{path}", places or (0.5,), 7)


@pytest.mark.parametrize(
    ("damage", "outcome"),
    [
        (at("dledger-n0/data/00000000000000008192", "flip"), "whole with holes"),
        (at("dledger-n0/data/00000000000000008192", "remove"), "refused"),
        (at("dledger-n0/data/00000000000000000000", "remove"), "refused"),
        (at("dledger-n0/index/00000000000000000000", "remove"), "refused"),
        (at("dledger-n0/index/00000000000000000512", "flip"), "whole"),
        (at("dledger-n0/identity", "overwrite", 0.99), "refused"),
        (at("dledger-n0/checkpoint", "remove"), "whole"),
        (at("consumequeue/t0/0/00000000000000000400", "flip"), "whole"),
        (at("consumequeue.checkpoint", "flip"), "whole"),
        (at("config/topics.json", "garbage"), "whole"),
        (at("config/consumerOffset.json", "remove"), "whole"),
    ],
)
def test_what_becomes_of_each_kind_of_file(damage, outcome):
    assert check_start(*built(), [damage]) == outcome


@pytest.mark.parametrize(
    ("damage", "outcome"),
    [
        (at("commitlog/00000000000000008192", "flip"), "whole"),
        (at("commitlog/00000000000000008192", "remove"), "refused"),
        (at("commitlog/00000000000000000000", "remove"), "begins later"),
        (at("commitlog/00000000000000045056", "zero"), "refused"),
        (at("checkpoint", "garbage"), "whole"),
        (at("consumequeue/t0/0/00000000000000000000", "remove"), "whole"),
        (at("consumequeue/t0/0/00000000000000000400", "flip"), "whole"),
        (at("consumequeue.checkpoint", "flip"), "whole"),
        (at("config/topics.json", "garbage"), "whole"),
        (at("config/consumerOffset.json", "remove"), "whole"),
    ],
)
def test_what_becomes_of_each_kind_of_file_of_a_plain_broker(damage, outcome):
    assert check_start(*built(raft=False), [damage], raft=False) == outcome


def test_without_its_last_file_a_plain_log_ends_earlier():
    files, _ = built(raft=False)
    log = [path for path in files if "/commitlog/" in path]
    last = max(path for path in log if any(files[path]))
    gone = [Damage("remove", path, (0,), 0) for path in log if path >= last]
    assert check_start(*built(raft=False), gone, raft=False) == "cut"


def test_without_its_checkpoint_a_queue_that_lost_its_first_file_is_made_anew():
    gone = ("consumequeue.checkpoint", "consumequeue/t2/0/00000000000000000000")
    assert (
        check_start(*built(raft=False), [at(path, "remove") for path in gone], raft=False)
        == "whole"
    )


@pytest.mark.parametrize("folder", ["consumequeue", "dledger-n0/index"])
def test_with_all_files_of_queues_or_index_gone_they_are_made_anew(folder):
    files, _ = built()
    gone = [path for path in files if path.startswith(f"{ROOT}/{folder}/")]
    assert len(gone) > 5
    assert check_start(*built(), [Damage("remove", path, (0,), 0) for path in gone]) == "whole"


def test_without_its_last_segments_a_log_of_one_is_read_as_far_as_it_goes():
    files, _ = built()
    last = sorted(path for path in files if "/data/" in path)[-2:]
    gone = [*last, f"{ROOT}/consumequeue.checkpoint"]
    outcome = check_start(*built(), [Damage("remove", path, (0,), 0) for path in gone])
    assert outcome == "mute"


def test_what_is_damaged_in_log_and_index_at_once_is_told():
    files, _ = built()
    index, data = (f"{ROOT}/dledger-n0/{name}" for name in INDEX_AND_DATA)
    found = [Damage("truncate", index, (0.0,), 0), Damage("flip", data, (0.0,), 0)]
    assert check_start(files, built()[1], found) == "whole with holes"


def test_state_that_is_ahead_of_a_log_without_its_end_is_applied_again():
    files, sent = built()
    path = f"{ROOT}/config/appliedIndex.json"
    ahead = files | {path: b'{"appliedIndex":100000}'}
    cluster = Cluster({"n0": disk_of(ahead)})
    cluster.sent = sent
    assert cluster.start() is None
    check_state(cluster, sent)
    assert cluster.store().state_end < cluster.log().end_position
    cluster.close()


def test_a_log_of_dledger_that_was_trimmed_is_taken_over_and_started_again():
    files, _ = built()
    segments = [path for path in files if "/data/" in path]
    kept = {
        path: data
        for path, data in files.items()
        if path not in segments[:2] and not path.endswith("/identity")
    }
    disk = disk_of(kept)
    for _ in range(2):
        cluster = Cluster({"n0": disk})
        assert cluster.start() is None
        assert cluster.brokers["n0"].node.first_position == 2 * SEGMENT
        assert cluster.stop() is None
        cluster.close()


class Equal:
    """A CRC that is always right."""

    __hash__ = None

    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False


def test_a_store_that_checks_no_crc_of_its_log_would_be_found(monkeypatch):
    monkeypatch.setattr(log_store, "crc32", lambda _: Equal())
    damage = at("dledger-n0/data/00000000000000008192", "flip", *(n / 40 for n in range(40)))
    with pytest.raises((AssertionError, RemoteProtocolError)):
        check_start(*built(), [damage])


def test_a_store_that_checks_no_crc_of_its_queues_would_be_found(monkeypatch):
    monkeypatch.setattr(ConsumeQueue, "check", lambda *_: None)
    with pytest.raises(AssertionError):
        check_start(*built(), [at("consumequeue/t0/0/00000000000000000400", "flip")])


def test_a_log_whose_missing_beginning_is_taken_for_trimmed_would_be_found(monkeypatch):
    claim = replica.claim_directory

    def claim_as_adopted(*arguments, **options):
        identity, lock = claim(*arguments, **options)
        return identity._replace(adopted=True), lock

    monkeypatch.setattr(replica, "claim_directory", claim_as_adopted)
    with pytest.raises(AssertionError):
        check_start(*built(), [at("dledger-n0/data/00000000000000000000", "remove")])


def test_a_log_that_cuts_what_was_synced_would_be_found(monkeypatch):
    monkeypatch.setattr(CheckpointFile, "load", lambda _: Checkpoint())
    with pytest.raises(AssertionError):
        check_start(*built(), [at("dledger-n0/data/00000000000000053248", "flip", 0.4, 0.5)])
