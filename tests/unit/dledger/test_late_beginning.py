"""A log whose first entry does not lie at 0: that of a group that RocketMQ had let begin later.

RocketMQ lets DLedger's log begin where its own commit log ends when a broker is made a member of a
group (DLedgerCommitLog.dividedCommitlogOffset). Who is new there, or comes back empty, gets all of
it, and starts with it again.
"""

import pytest

from dledger.codec.entry import encode_span
from dledger.codec.properties import decode_identity
from dledger.config import DLedgerConfig
from dledger.core.messages import Append, AppendReply
from dledger.driver import Driver
from dledger.replica import open_replica
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.errors import FatalError
from ledgermq.runtime.rng import SystemRng
from tests.unit.dledger.test_snapshot import make_log

SEGMENT = 4096


def open_member(path, index_units=16):
    config = DLedgerConfig(
        group="g", self_id="n2", peers=dict.fromkeys(("n0", "n1", "n2"), "127.0.0.1:1"),
        directory=str(path), data_segment_bytes=SEGMENT, index_segment_bytes=32 * index_units,
    )  # fmt: skip
    return open_replica(config, RealDisk(), SystemRng(), lambda *_: pytest.fail("it never leads"))


def fill(replica, *messages):
    """Return what a member sends back."""
    sent = []
    driver = Driver(
        replica.raft, replica.store, replica.hard_state_file,
        flush_disk_type=DLedgerConfig.flush_disk_type, send=sent.append,
    )  # fmt: skip
    for message in messages:
        replica.raft.step(message)
        while (ready := replica.raft.ready()) is not None:
            if driver.begin(ready):
                driver.persist_state(ready)
            driver.complete(ready)
    return sent


def append(first, position):
    span = encode_span(first, 1, position, [b"a", b"b"])
    return Append("n0", "n2", 1, first - 1, 1 if first else 0, -1, span)


@pytest.mark.parametrize("begin", [SEGMENT * 3, 3 << 30, 1 << 41])
def test_a_member_without_entries_gets_them_and_starts_again(tmp_path, begin):
    replica = open_member(tmp_path)
    sent = fill(replica, append(0, begin), append(2, begin + 98))
    assert [type(one).__name__ for one in sent] == ["RecoveringReply"] * 2  # it was empty
    assert sent[-1].match_index == 3
    for _ in range(2):
        store = replica.store
        assert (store.first_index, store.first_position, store.last_index) == (0, begin, 3)
        assert bytes(store.body_view(3)) == b"b"
        replica.close()
        replica = open_member(tmp_path)
    replica.close()


def test_first_entries_that_a_loss_of_power_took_come_again(tmp_path):
    """Their file was made, which is synced; they were not."""
    begin = SEGMENT * 3
    replica = open_member(tmp_path)
    fill(replica, append(0, begin))
    replica.close()
    for folder in ("data", "index"):
        for file in (tmp_path / folder).iterdir():
            file.write_bytes(bytes(file.stat().st_size))
    replica = open_member(tmp_path)
    assert replica.store.last_index == -1
    assert fill(replica, append(0, begin), append(2, begin + 98))[-1].match_index == 3
    replica.close()
    replica = open_member(tmp_path)
    store = replica.store
    assert (store.first_index, store.first_position, store.last_index) == (0, begin, 3)
    replica.close()


def test_first_entries_that_were_cut_off_come_again(tmp_path):
    """The process ended between the cut and the write of what a new leader has there."""
    begin = SEGMENT * 3
    replica = open_member(tmp_path)
    fill(replica, append(0, begin))
    replica.store.truncate(0)
    replica.close()
    replica = open_member(tmp_path)
    assert fill(replica, append(0, begin))[-1].match_index == 1
    replica.close()


def test_a_damaged_first_entry_is_refused(tmp_path):
    replica = open_member(tmp_path)
    fill(replica, append(0, SEGMENT * 3))
    replica.close()
    (file,) = (tmp_path / "data").iterdir()
    file.write_bytes(bytes(48) + file.read_bytes()[48:])
    with pytest.raises(FatalError, match="the first entry is damaged"):
        open_member(tmp_path)


def test_a_log_that_has_lost_its_first_segment_is_refused(tmp_path):
    replica = open_member(tmp_path)
    position, first = SEGMENT * 3, 0
    for _ in range(30):
        body = b"x" * 400
        room = SEGMENT - position % SEGMENT
        position += room if room < 448 + 8 else 0
        span = encode_span(first, 1, position, [body])
        prev_term = 1 if first else 0
        fill(replica, Append("n0", "n2", 1, first - 1, prev_term, -1, span))
        position, first = position + 448, first + 1
    replica.close()
    min((tmp_path / "data").iterdir()).unlink()
    with pytest.raises(FatalError, match="no snapshot stands for what was before"):
        open_member(tmp_path)


def test_the_second_entries_must_follow(tmp_path):
    replica = open_member(tmp_path)
    sent = fill(replica, append(0, SEGMENT), append(2, 3 << 30))
    assert [one.match_index for one in sent] == [1]
    assert not any(isinstance(one, AppendReply) for one in sent)
    replica.close()


def adopted_without_its_term(path, *, log_is_gone=False):
    """Adopt a log of DLedger's whose beginning it removed; start once without ``currterm``."""
    make_log(path, 200).close()
    for file in sorted((path / "data").iterdir())[:4]:
        file.unlink()
    (path / "currterm").write_text("currTerm=3\n")
    open_member(path, 10).close()
    (path / "currterm").rename(path / "kept")
    if log_is_gone:
        for file in [*(path / "data").iterdir(), *(path / "index").iterdir()]:
            file.unlink()
        open_member(path, 10).close()
    else:
        with pytest.raises(FatalError, match="currterm"):
            open_member(path, 10)
        (path / "kept").rename(path / "currterm")
        open_member(path, 10).close()
    return decode_identity((path / "identity").read_bytes()).adopted


def test_an_adopted_directory_that_missed_its_term_once_is_known_as_one(tmp_path):
    assert adopted_without_its_term(tmp_path / "n")
    assert not adopted_without_its_term(tmp_path / "m", log_is_gone=True)
