"""The files of a controller: what is synced, and what any crash leaves."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgermq.runtime.errors import FatalError
from mutants.patches import BY_TESTS
from mutants.planting import planted
from namesrv.controller.journal import (
    JOURNAL_BYTES,
    SyncedJournal,
    encode_record,
    is_torn,
    to_raw,
)
from namesrv.controller.limits import PLACE_MAX
from namesrv.controller.snapshot import (
    BadSnapshot,
    Snapshot,
    decode_snapshot,
    encode_snapshot,
)
from namesrv.controller.state import Group
from namesrv.controller.wire import (
    BOOTS_REMEMBERED,
    Append,
    AskVote,
    BadMessage,
    Entry,
    Install,
    NextIndex,
    Order,
    decode,
    encode,
)
from sim.context import SimCrash
from sim.disk import SimDisk
from sim.disk_rules import Action, Rule
from sim.inode import PowerLossMode
from sim.rng import SplitRng

DIRECTORY = "/var/controller"


def make_disk(seed=1):
    disk = SimDisk(SplitRng(seed))
    disk.make_directories(DIRECTORY)
    return disk


def raw(index, term=1, payload=None):
    return to_raw(Entry(index, term, payload))


def filled(disk, count=5):
    journal = SyncedJournal(disk, DIRECTORY)
    journal.add(*raw(1, 0))
    journal.setCurrentTerm(2, None)
    for index in range(2, count + 1):
        journal.add(*raw(index, 1, b"%d" % index))
    return journal


def reopened(disk, mode=PowerLossMode.LOST):
    disk.power_loss(mode)
    return SyncedJournal(disk, DIRECTORY)


@pytest.mark.parametrize("mode", list(PowerLossMode))
def test_what_was_added_survives_a_loss_of_power(mode):
    disk = make_disk()
    before = list(filled(disk))
    assert list(reopened(disk, mode)) == before
    with planted(BY_TESTS["controller-entry-not-synced"]):
        disk = make_disk()
        filled(disk)
    if mode is PowerLossMode.LOST:
        assert len(reopened(disk, mode)) == 1


@pytest.mark.parametrize("mode", list(PowerLossMode))
def test_term_and_vote_survive_a_loss_of_power(mode):
    disk = make_disk()
    filled(disk).setCurrentTerm(7, "n1")
    journal = reopened(disk, mode)
    assert (journal.getCurrentTerm(), journal.getVotedForNodeId()) == (7, "n1")
    with pytest.raises(FatalError, match="term 6 after 7"):
        journal.setCurrentTerm(6, None)
    with planted(BY_TESTS["controller-vote-not-kept"]):
        disk = make_disk(2)
        filled(disk).setCurrentTerm(7, "n1")
    with pytest.raises(FatalError, match="vote is missing or of term 0, and the log of term 1"):
        reopened(disk, mode)


def voted_for_in_a_known_term():
    """Return whom a controller voted for, that knew of the term before, once its power is lost."""
    disk = make_disk()
    journal = filled(disk)
    journal.setCurrentTerm(7, None)
    journal.setCurrentTerm(7, "n1")
    return reopened(disk, PowerLossMode.LOST).getVotedForNodeId()


def test_a_vote_in_a_term_that_was_known_is_kept():
    assert voted_for_in_a_known_term() == "n1"
    with planted(BY_TESTS["vote-in-memory-only"]):
        assert voted_for_in_a_known_term() is None


def test_entries_that_are_removed_and_added_again_are_never_off_the_disk():
    disk = make_disk()
    journal = filled(disk)
    before = list(journal)
    journal.deleteEntriesFrom(2)
    journal.add(*before[2])
    assert list(journal) == before[:3]
    assert list(reopened(disk)) == before
    with planted(BY_TESTS["controller-removes-before-it-compares"]):
        journal = SyncedJournal(disk, DIRECTORY)
        journal.deleteEntriesFrom(2)
    assert list(reopened(disk)) == before[:2]


def test_another_entry_takes_the_place_of_the_end():
    disk = make_disk()
    journal = filled(disk)
    journal.deleteEntriesFrom(3)
    journal.add(*raw(4, 2, b"other"))
    assert list(reopened(disk)) == list(journal)
    assert journal.last == (4, 2)
    assert journal.term_of(5) is None


def test_a_log_is_never_removed_as_a_whole():
    disk = make_disk()
    journal = filled(disk)
    before = list(journal)
    journal.deleteEntriesTo(5)
    assert list(journal) == list(reopened(disk)) == before
    journal = SyncedJournal(disk, DIRECTORY)
    journal.deleteEntriesTo(3)
    assert list(journal) == before[3:]


def test_what_was_committed_is_never_replaced():
    def replace():
        journal = filled(make_disk())
        journal.setRaftCommitIndex(4)
        journal.deleteEntriesFrom(3)
        journal.add(*raw(4, 2, b"other"))

    with pytest.raises(FatalError, match="diverged"):
        replace()
    with planted(BY_TESTS["controller-replaces-what-was-committed"]):
        replace()


def test_a_record_that_was_being_written_is_no_entry():
    disk = make_disk()
    journal = filled(disk)
    end = journal._end
    disk.corrupt(f"{DIRECTORY}/journal", end - 1)
    assert len(reopened(disk)) == 4


@pytest.mark.parametrize("count", [3, 9, 40])
def test_damage_before_the_end_is_refused(count):
    """Whichever bit it is, and however little lies behind it."""
    end = filled(make_disk(), count - 1)._end
    for place in range(max(0, end - 120), end):
        disk = make_disk()
        filled(disk, count)
        disk.corrupt(f"{DIRECTORY}/journal", place, 1 << place % 8)
        with pytest.raises(FatalError, match="is damaged at"):
            reopened(disk)
    with planted(BY_TESTS["controller-drops-what-is-damaged"]):
        assert len(reopened(disk)) == count - 2


def check_damage_of_the_last_record_is_refused():
    begin, end = filled(make_disk(), 4)._end, filled(make_disk())._end
    for place in range(begin, end):
        disk = make_disk()
        filled(disk)
        disk.corrupt(f"{DIRECTORY}/journal", place, 1 << place % 8)
        with pytest.raises(FatalError, match=f"is damaged at {begin}: it was synced to {end}"):
            SyncedJournal(disk, DIRECTORY)


def test_damage_of_the_last_record_is_refused_where_it_was_seen_to_be_synced():
    check_damage_of_the_last_record_is_refused()
    with planted(BY_TESTS["controller-last-record-may-go"]), pytest.raises(pytest.fail.Exception):
        check_damage_of_the_last_record_is_refused()


def left_of_a_damaged_first_record():
    """Return what a refused start leaves of a log of one record, and what was there."""
    disk = make_disk()
    journal = SyncedJournal(disk, DIRECTORY)
    journal.add(*raw(1, 0))
    journal.setCurrentTerm(2, None)
    disk.corrupt(f"{DIRECTORY}/journal", 1)
    before = bytes(disk.look(f"{DIRECTORY}/journal"))
    with pytest.raises(FatalError, match="beside a vote of term 2"):
        SyncedJournal(disk, DIRECTORY)
    return bytes(disk.look(f"{DIRECTORY}/journal")), before


def test_a_refused_start_leaves_a_damaged_first_record_as_it_is():
    found, before = left_of_a_damaged_first_record()
    assert found == before
    with planted(BY_TESTS["controller-zeroes-its-only-record"]):
        found, before = left_of_a_damaged_first_record()
    assert found != before


def script(disk, said):
    """Add, replace the end, start again, add."""
    journal = filled(disk)
    said[:] = list(journal)
    journal.deleteEntriesFrom(3)
    del said[3:]
    journal.add(*raw(4, 2, b"other"))
    said[:] = list(journal)
    journal._destroy()
    journal = SyncedJournal(disk, DIRECTORY)
    journal.add(*raw(5, 2, b"last"))
    said[:] = list(journal)


@pytest.mark.parametrize("mode", list(PowerLossMode))
def test_no_loss_of_power_passes_for_damage(mode):
    rule = Rule(action=Action.CRASH_BEFORE, skip=10**6)
    disk = make_disk()
    disk.add_rule(rule)
    script(disk, [])
    steps = 10**6 - rule.skip
    assert steps > 40
    for step in range(steps):
        disk, said = make_disk(step), []
        disk.add_rule(Rule(action=Action.CRASH_BEFORE, skip=step, count=1))
        with pytest.raises(SimCrash):
            script(disk, said)
        found = list(reopened(disk, mode))
        assert found[: len(said)] == said, step
        assert list(reopened(disk, mode)) == found


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2_000), st.integers(0, 4_096), st.integers(0, 2**10 - 1))
def test_a_record_of_which_some_sectors_are_missing_is_torn(offset, size, arrived):
    record = encode_record(raw(7, 3, b"x" * size))
    found = bytearray(record)
    for place in range(len(record)):
        number = (offset + place) // 512 - offset // 512
        if not arrived >> number & 1:
            found[place] = 0
    rest = bytes(found).rstrip(b"\0")
    assert rest == record.rstrip(b"\0") or is_torn(rest, offset)


def test_a_log_that_is_gone_beside_its_vote_is_refused():
    for change in (
        lambda disk: disk.remove(f"{DIRECTORY}/journal"),
        lambda disk: disk.replace(f"{DIRECTORY}/journal", b""),
        lambda disk: disk.replace(f"{DIRECTORY}/journal", bytes(JOURNAL_BYTES)),
    ):
        disk = make_disk()
        filled(disk)
        change(disk)
        with pytest.raises(FatalError, match="journal is empty beside a vote of term 2"):
            reopened(disk)


@pytest.mark.parametrize("data", [None, b'{"version":1,"term":0,"voted_for":null}'])
def test_a_vote_behind_its_log_is_refused(data):
    disk = make_disk()
    filled(disk)
    disk.remove(f"{DIRECTORY}/vote")
    if data is not None:
        disk.replace(f"{DIRECTORY}/vote", data)
    with pytest.raises(FatalError, match="vote is missing or of term 0, and the log of term 1"):
        reopened(disk)


@pytest.mark.parametrize("mode", list(PowerLossMode))
def test_a_first_start_may_be_cut_short_anywhere(mode):
    disk = make_disk()
    SyncedJournal(disk, DIRECTORY)
    journal = reopened(disk, mode)
    assert len(journal) == 0
    journal.add(*raw(1, 0))
    assert len(reopened(disk, mode)) == 1


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b'{"version":2,"term":1,"voted_for":null}', b"\xff",
     b'{"version":1,"term":0,"voted_for":"\xff"}',
     b'{"version":1,"term":9223372036854775807,"voted_for":null}',
     b'{"version":1,"term":9007199254740993,"voted_for":null}',
    ],
)  # fmt: skip
def test_a_vote_that_is_none_is_refused(data):
    disk = make_disk()
    disk.replace(f"{DIRECTORY}/vote", data)
    with pytest.raises(FatalError, match="vote"):
        SyncedJournal(disk, DIRECTORY)


def snapshot(last, term=1):
    groups = {"a": Group(cluster="C")}
    before = Entry(last - 1, term, b"%d" % (last - 1))
    return encode_snapshot(before, Entry(last, term, b"%d" % last), groups)


def test_a_snapshot_stands_for_what_is_before_it():
    disk = make_disk()
    filled(disk, 9)
    disk.replace(f"{DIRECTORY}/snapshot", snapshot(6))
    journal = reopened(disk)
    assert [index for _, index, _ in journal] == [5, 6, 7, 8, 9]
    assert journal.getRaftCommitIndex() == 6
    assert list(reopened(disk)) == list(journal)


def test_a_snapshot_of_a_leader_stands_for_a_shorter_or_other_log():
    for term in (1, 2):
        disk = make_disk()
        filled(disk, 4)
        disk.replace(f"{DIRECTORY}/snapshot", snapshot(20, term))
        journal = reopened(disk)
        assert [(index, found) for _, index, found in journal] == [(19, term), (20, term)]


def test_a_log_without_its_snapshot_is_refused():
    disk = make_disk()
    filled(disk, 9)
    disk.replace(f"{DIRECTORY}/snapshot", snapshot(6))
    reopened(disk)
    disk.remove(f"{DIRECTORY}/snapshot")
    with pytest.raises(FatalError, match="snapshot is gone"):
        reopened(disk)


def test_a_snapshot_is_read_as_it_was_written():
    found = decode_snapshot(snapshot(6))
    assert isinstance(found, Snapshot)
    assert (found.last.index, found.groups) == (6, {"a": Group(cluster="C")})


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 400), st.integers(1, 255), st.integers(0, 400))
def test_no_damaged_snapshot_is_taken(place, mask, cut):
    data = bytearray(snapshot(6))
    if cut < len(data):
        with pytest.raises(BadSnapshot):
            decode_snapshot(bytes(data[:cut]))
    data[place % len(data)] ^= mask
    with pytest.raises(BadSnapshot):
        decode_snapshot(bytes(data))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(data):
    try:
        envelope = decode(data)
    except BadMessage:
        return
    assert envelope.version == 1


@pytest.mark.parametrize(
    "message",
    [
        Append(3, 0, 5, 1, (Entry(7, 1, None),)), Append(3, 0, 5, 2, (Entry(6, 1, None),)),
        Append(3, 0, 5, 1, (Entry(6, 4, None),)), Append(3, 0, 5, 1, (Entry(6, 2, b"x" * 5000),)),
        AskVote(-1, 0, 0),
    ],
)  # fmt: skip
def test_a_message_that_cannot_be_is_refused(message):
    with pytest.raises(BadMessage):
        decode(encode("n1", 1, 1, message))


@pytest.mark.parametrize(
    "payload", [b"", b"no command", b'{"version":2,"command":{"type":"Other"}}', b"\xff"]
)
def test_an_entry_that_is_no_command_is_refused(payload):
    data = encode("n1", 1, 1, Append(3, 0, 5, 1, (Entry(6, 2, None), Entry(7, 3, payload))))
    with pytest.raises(BadMessage, match="entry 7 of term 3 is no command"):
        decode(data)
    with planted(BY_TESTS["controller-stores-what-is-no-command"]):
        decode(data)


@pytest.mark.parametrize("place", [int(PLACE_MAX), PLACE_MAX + 1])
def test_terms_and_places_end_long_before_numbers_do(place):
    for message in (AskVote(place, 1, 1), AskVote(1, place, 1), NextIndex(1, place, False, True)):
        data = encode("n1", 1, 1, message)
        if place == PLACE_MAX:
            assert decode(data).message == message
        else:
            with pytest.raises(BadMessage, match="9007199254740992"):
                decode(data)


def test_a_message_that_is_too_large_is_not_sent():
    with pytest.raises(BadMessage):
        encode("n1", 1, 1, Install(1, 0, bytes(13 * 1024 * 1024), True, False))


def make_take():
    """Return what takes a message of a start, at a moment."""
    order = Order()

    def take(boot, number, now_ms=0, sender="n1"):
        return order.take(decode(encode(sender, boot, number, AskVote(1, 1, 1))), now_ms)

    return take


def test_late_and_repeated_messages_are_told_apart():
    take = make_take()
    assert [take(7, 1), take(7, 3), take(7, 2), take(7, 3)] == [True, True, False, False]
    assert take(7, 1, sender="n2")
    assert [take(4, 1), take(7, 9), take(4, 2)] == [True, False, True]


def test_a_message_of_another_start_shuts_a_peer_out_for_a_moment_only():
    def heard_again():
        take = make_take()
        assert [take(7, 1), take(4, 1, 100), take(7, 2, 900)] == [True, True, False]
        assert not take(4, 1, 1_000), "sent again"
        return [take(7, 1, 1_100), take(7, 2, 1_100), take(4, 2, 1_200)]

    assert heard_again() == [False, True, False]
    with planted(BY_TESTS["controller-shut-out-for-good"]):
        assert not heard_again()[1]


def test_it_is_bounded_how_many_starts_are_remembered():
    take = make_take()
    assert take(1, 5)
    assert all(take(boot, 1, boot) for boot in range(2, 2 + BOOTS_REMEMBERED))
    assert take(1, 5, 99), "forgotten, and so as good as new"
