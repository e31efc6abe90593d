"""What a replica notes about itself, and what is left of it after a kill."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.history.raft_event import KINDS, decode_events, words
from dledger.codec.entry import decode_header, encode_span
from dledger.codec.events import KIND_CODES
from dledger.config import DLedgerConfig
from dledger.core.model import Role
from dledger.core.ready import Event, EventKind, Ready
from dledger.recorder import Recorder, last_body_crc
from dledger.storage.event_ring import EventRing
from ledgermq.runtime.disk import RealDisk

FILE_BYTES = 64 * 1024


class Ticking:
    def __init__(self):
        self._ns = itertools.count(1_000)

    def monotonic_ms(self):
        return 0

    def monotonic_ns(self):
        return next(self._ns)

    def wall_ms(self):
        return 1_700_000_000_000


def recorder(path, boot_id="b1", *, term=0, last_index=-1, commit_index=-1, disk=None, **settings):
    config = DLedgerConfig(
        group="group", self_id="n0", peers={"n0": ""}, directory=str(path),
        **{"event_file_bytes": FILE_BYTES, **settings},
    )  # fmt: skip
    found = Recorder(config, disk or RealDisk(), Ticking(), boot_id)
    found.open(term, last_index, commit_index)
    return found


def rows(path):
    return decode_events(file.read_bytes() for file in sorted((path / "raft_event").iterdir()))


def ready(*, spans=(), committed=None, events=()):
    return Ready(None, None, tuple(spans), (), (), committed, tuple(events))


def span(first_index, *bodies, term=1):
    return encode_span(first_index, term, 0, bodies)


def vote(term, candidate="n1", *, granted=True):
    kind = EventKind.VOTE if granted else EventKind.VOTE_REFUSED
    return Event(kind, term, Role.FOLLOWER, candidate, 7, 3)


def test_kinds_of_writer_and_reader_are_the_same():
    assert ("?", *KIND_CODES) == KINDS
    assert list(KIND_CODES.values()) == list(range(1, len(KINDS)))


def test_start_is_an_event_that_says_who_and_when(tmp_path):
    recorder(tmp_path, term=4, last_index=9, commit_index=8)
    (row,) = rows(tmp_path)
    assert (row["kind"], row["term"], row["index"], row["prev_index"]) == ("boot", 4, 9, 8)
    assert words(row["extra"]) == {
        "boot": "b1", "node": "n0", "group": "group", "wall_ms": "1700000000000",
    }  # fmt: skip


def test_rare_events_are_on_file_before_the_call_returns(tmp_path):
    recorder(tmp_path).note(
        Event(EventKind.ROLE, 5, Role.CANDIDATE),
        vote(5, "n2"),
        vote(5, "n1", granted=False),
        Event(EventKind.TRUNCATE, 5, Role.FOLLOWER, "n2", 3, 9),
        Event(EventKind.TRANSFER, 5, Role.LEADER, "n1", 3, extra="started"),
    )
    found = [(r["kind"], r["term"], r["index"], r["prev_index"], r["peer"]) for r in rows(tmp_path)]
    assert found[1:] == [
        ("become_candidate", 5, -1, -1, None),
        ("vote_granted", 5, 7, 3, "n2"),
        ("vote_refused", 5, 7, 3, "n1"),
        ("truncate", 5, 3, 9, "n2"),
        ("transfer", 5, 3, -1, "n1"),
    ]
    assert rows(tmp_path)[-1]["extra"] == "started"


def test_every_kind_of_event_has_a_name(tmp_path):
    subject = recorder(tmp_path)
    for kind in EventKind:
        subject.note(Event(kind, 1, Role.LEADER))
    found = [row["kind"] for row in rows(tmp_path)]
    assert len(set(found)) == len(found) == len(EventKind) + 1
    assert "other" not in found


def test_one_event_a_span_and_one_a_commit(tmp_path):
    subject = recorder(tmp_path)
    one = span(0, b"a", b"b", b"c")
    subject.on_done(ready(spans=(one, span(3, b"d", term=2)), committed=2))
    subject.on_done(ready(committed=3))
    assert len(rows(tmp_path)) == 1, "not written yet"
    subject.flush()
    found = [(r["kind"], r["term"], r["index"], r["prev_index"]) for r in rows(tmp_path)[1:]]
    assert found == [
        ("append", 1, 2, -1), ("append", 2, 3, 2), ("commit", 0, 2, -1), ("commit", 0, 3, 2),
    ]  # fmt: skip
    last = one.data[len(one.data) - 49 :]
    assert rows(tmp_path)[1]["hash"] == last_body_crc(one) == decode_header(last, 0).body_crc != 0


def test_commits_carry_the_last_term_that_was_noted(tmp_path):
    """A regress of the term must not be an artefact of the order in which rows are written."""
    subject = recorder(tmp_path, term=3)
    subject.note(vote(3))
    subject.on_done(ready(committed=1))
    subject.note(Event(EventKind.ROLE, 4, Role.FOLLOWER))
    subject.on_done(ready(committed=2))
    subject.flush()
    assert [row["term"] for row in rows(tmp_path)] == [3, 3, 3, 4, 4]
    assert [row["seq"] for row in rows(tmp_path)] == [1, 2, 3, 4, 5]


def test_process_that_dies_leaves_all_but_what_waits_for_the_tick(tmp_path):
    subject = recorder(tmp_path)
    subject.note(vote(1))
    subject.on_done(ready(committed=4))
    assert [row["kind"] for row in rows(tmp_path)] == ["boot", "vote_granted"]
    recorder(tmp_path, "b2", term=1).note(vote(2))
    assert [(row["kind"], row["boot_id"]) for row in rows(tmp_path)] == [
        ("boot", "b1"), ("vote_granted", "b1"), ("boot", "b2"), ("vote_granted", "b2"),
    ]  # fmt: skip


def test_files_are_bounded_and_keep_the_newest_in_order(tmp_path):
    subject = recorder(tmp_path)
    for number in range(10_000):
        subject.on_done(ready(committed=number))
        if number % 100 == 0:
            subject.flush()
    subject.close()
    sizes = {file.name: file.stat().st_size for file in (tmp_path / "raft_event").iterdir()}
    assert sizes == dict.fromkeys(("entries-0", "entries-1", "rare-0", "rare-1"), FILE_BYTES)
    found = [row for row in rows(tmp_path) if row["kind"] == "commit"]
    assert 1_000 < len(found) < 10_000
    assert [row["index"] for row in found] == list(range(10_000 - len(found), 10_000))
    assert {row["boot_id"] for row in found} == {"b1"}


def test_appends_do_not_wash_away_elections(tmp_path):
    subject = recorder(tmp_path)
    subject.note(vote(1))
    for number in range(20_000):
        subject.on_done(ready(committed=number))
    subject.close()
    assert [row["kind"] for row in rows(tmp_path)[:2]] == ["boot", "vote_granted"]


def test_many_starts_keep_their_history(tmp_path):
    for number in range(30):
        subject = recorder(tmp_path, f"b{number}", term=number)
        subject.note(vote(number + 1))
        if number % 2:
            subject.close()
    found = rows(tmp_path)
    assert [row["boot_id"] for row in found[::2]] == [f"b{number}" for number in range(30)]
    assert [row["seq"] for row in found] == list(range(1, 61))


def test_life_of_an_event_does_not_depend_on_the_order_of_the_files(tmp_path):
    """Appends and commits lie in files of their own, which are read before or after the boots."""
    for boot in ("b1", "b2"):
        one = recorder(tmp_path, boot)
        one.on_done(ready(committed=3))
        one.close()
    files = [file.read_bytes() for file in sorted((tmp_path / "raft_event").iterdir())]
    assert len(files) > 1
    told = decode_events(files)
    assert told == decode_events(reversed(files))
    last = max(row["seq"] for row in told if row["kind"] == "boot")
    assert {row["boot_id"] for row in told if row["seq"] >= last} == {"b2"}


def test_torn_end_is_left_out_and_written_over(tmp_path):
    subject = recorder(tmp_path)
    subject.note(vote(1))
    subject.note(vote(2))
    file = tmp_path / "raft_event" / "rare-0"
    whole = bytearray(file.read_bytes())
    end = len(bytes(whole).rstrip(b"\0"))
    whole[end - 1] ^= 0xFF
    file.write_bytes(whole)
    assert [row["term"] for row in rows(tmp_path)] == [0, 1]
    recorder(tmp_path, "b2").note(vote(9))
    assert [row["term"] for row in rows(tmp_path)] == [0, 1, 0, 9]


def test_what_an_earlier_boot_left_behind_the_end_is_not_read(tmp_path):
    """A power cut lost block 2 of boot 1 and kept block 3; boot 2 writes a block of equal size."""
    disk = RealDisk()
    ring = EventRing(disk, str(tmp_path / "x"), FILE_BYTES)
    record = b"r" * 60
    ring.write(1, record, record)
    for _ in range(2):
        ring.write(1, record, record)
    path = tmp_path / "x-0"
    data = bytearray(path.read_bytes())
    size = 16 + len(record)
    data[16 + size * 2 : 16 + size * 3] = bytes(size)
    path.write_bytes(data)
    ring = EventRing(disk, str(tmp_path / "x"), FILE_BYTES)
    assert ring._at == 16 + size * 2
    ring.write(2, record, record)
    ring = EventRing(disk, str(tmp_path / "x"), FILE_BYTES)
    assert ring._at == 16 + size * 3


def test_disk_that_fails_stops_the_recording_and_nothing_else(tmp_path, caplog):
    class Full(RealDisk):
        full = False

        def open(self, path, *, size):
            file = super().open(path, size=size)
            pwrite = file.pwrite

            class Wrapped:
                def __getattr__(self, name):
                    return getattr(file, name)

                def pwrite(self, offset, buffers):
                    if Full.full:
                        raise OSError(28, "No space left on device")
                    pwrite(offset, buffers)

            return Wrapped()

    subject = recorder(tmp_path, disk=Full())
    Full.full = True
    subject.note(vote(1))
    subject.note(vote(2))
    subject.on_done(ready(committed=1))
    subject.flush()
    subject.close()
    assert caplog.text.count("event=events_not_recorded node=n0") == 1


def test_directory_that_cannot_be_made_is_no_reason_not_to_start(tmp_path, caplog):
    (tmp_path / "raft_event").write_text("in the way")
    recorder(tmp_path).note(vote(1))
    assert "event=events_not_recorded" in caplog.text


def test_files_of_another_size_are_begun_anew(tmp_path):
    recorder(tmp_path).close()
    recorder(tmp_path, "b2", event_file_bytes=2 * FILE_BYTES).close()
    assert [row["boot_id"] for row in rows(tmp_path)] == ["b2"]


def test_recording_can_be_switched_off(tmp_path):
    subject = recorder(tmp_path, event_file_bytes=0)
    subject.note(vote(1))
    subject.on_done(ready(committed=1))
    subject.close()
    assert not (tmp_path / "raft_event").exists()


@pytest.mark.parametrize("size", [0, 15, 40])
def test_files_too_short_hold_nothing(size):
    assert decode_events([bytes(size)]) == []


@given(st.binary(max_size=200))
def test_any_bytes_give_rows_or_nothing(tail):
    assert decode_events([b"LMQE" + (1).to_bytes(4, "big") + (1).to_bytes(8, "big") + tail]) == []
