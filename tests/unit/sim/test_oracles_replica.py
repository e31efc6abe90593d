"""What an oracle reads of a log whose bytes were corrupted."""

from functools import partial
from types import SimpleNamespace

import pytest

from dledger.codec.entry import encode_span
from sim.oracles.replica import Damaged, Replica

SEGMENT = 4096


def log_of(count):
    """The bytes of a segment with so many entries of term 3, and where each lies."""
    data, places = b"", []
    for index in range(count):
        places.append(len(data))
        data += bytes(encode_span(index, 3, len(data), (b"body %d" % index,)).data)
    return bytearray(data.ljust(SEGMENT, b"\0")), places


def view_of(data, position, size):
    if position + size > len(data):
        raise LookupError(position)
    return memoryview(data)[position : position + size]


def replica_of(data, count, *, known=None, is_corrupt=False):
    store = SimpleNamespace(
        first_index=0,
        last_index=count - 1,
        first_position=0,
        view=partial(view_of, data),
    )
    node = SimpleNamespace(_store=store, config=SimpleNamespace(data_segment_bytes=SEGMENT))
    replica = Replica("n0", 1)
    replica.node = node
    replica.state = SimpleNamespace(term=3)
    replica.is_corrupt = is_corrupt
    replica.known = known or {}
    return replica


def marks_of(data, count):
    replica = replica_of(data, count)
    replica.read_anew()
    return replica.marks


def corrupt(data, at):
    """Damage header and body of the entry at ``at``: neither says any more what it was."""
    data[at + 17] ^= 8
    data[at + 50] ^= 8


def test_entry_whose_header_and_body_have_corrupted_is_known_by_its_place():
    data, places = log_of(4)
    sound = marks_of(data, 4)
    known = {(index, mark.term): mark for index, mark in enumerate(sound)}
    corrupt(data, places[2])
    replica = replica_of(data, 4, known=known, is_corrupt=True)
    replica.read_anew()
    assert replica.marks == sound, "and what lies behind it is read"


def test_corrupt_bytes_on_a_disk_that_nobody_damaged_are_not_excused():
    data, places = log_of(4)
    sound = marks_of(data, 4)
    corrupt(data, places[2])
    replica = replica_of(data, 4, known={(2, 3): sound[2]})
    replica.read_anew()
    assert replica.marks[2] != sound[2]


def test_place_where_no_entry_is_known_stays_damaged():
    data, places = log_of(4)
    data[places[2]] ^= 0xFF
    data[places[2] + 8 + 7] ^= 1
    with pytest.raises(Damaged):
        replica_of(data, 4, is_corrupt=True).read_anew()


def test_entry_that_a_leader_has_just_made_is_not_taken_for_another_of_that_place():
    data, places = log_of(3)
    sound = marks_of(data, 3)
    known = {(0, 3): sound[0], (1, 3): sound[1], (2, 2): sound[2]._replace(term=2, crc=1)}
    replica = replica_of(data, 3, known=known, is_corrupt=True)
    replica.read_anew()
    assert replica.marks == sound

    data[places[2] + 50] ^= 8
    replica.read_anew()
    assert replica.marks[2] == known[2, 2], "its body is not what its header says"


def test_entry_whose_size_and_body_have_corrupted_is_no_other_entry():
    data, places = log_of(4)
    sound = marks_of(data, 4)
    known = {(index, mark.term): mark for index, mark in enumerate(sound)}
    data[places[2] + 7] ^= 16  # its size: index, term and position are as they were
    data[places[2] + 50] ^= 8
    replica = replica_of(data, 4, known=known, is_corrupt=True)
    replica.read_anew()
    assert replica.marks == sound


def test_another_entry_of_that_index_and_term_is_seen_on_a_corrupt_disk_too():
    data, places = log_of(3)
    sound = marks_of(data, 3)
    known = {(index, mark.term): mark for index, mark in enumerate(sound)}
    other = bytes(encode_span(2, 3, places[2], (b"body of another",)).data)
    data[places[2] : places[2] + len(other)] = other
    replica = replica_of(data, 3, known=known, is_corrupt=True)
    replica.read_anew()
    assert replica.marks[2] != sound[2]


def test_entry_with_a_corrupt_body_is_not_one_that_was_cut_from_its_place():
    data, places = log_of(4)
    sound = marks_of(data, 4)
    cut = sound[2]._replace(term=1, size=700, crc=7)
    known = {(2, 1): cut, **{(index, mark.term): mark for index, mark in enumerate(sound)}}
    data[places[2] + 50] ^= 8
    replica = replica_of(data, 4, known=known, is_corrupt=True)
    replica.read_anew()
    assert replica.marks == sound


def test_an_entry_that_went_to_the_next_segment_is_not_one_that_lay_in_the_rest_of_this_one():
    data, places = log_of(3)
    known = {(index, mark.term): mark for index, mark in enumerate(marks_of(data, 3))}
    data[places[2] :] = b"\xff" * 4 + bytes(SEGMENT - places[2] - 4)
    whole = data + bytes(encode_span(2, 2, SEGMENT, (b"of a former leader",)).data)
    replica = replica_of(whole.ljust(2 * SEGMENT, b"\0"), 3, known=known, is_corrupt=True)
    replica.read_anew()
    assert replica.marks[2].term == 2
    assert replica.marks[2].position == SEGMENT


def running(data, count):
    """A replica whose process runs, and whose log was looked at."""
    replica = replica_of(data, count)
    replica.store, replica.disk = replica.node._store, SimpleNamespace(writes=0)
    replica.read_anew()
    replica.is_up, replica.process = True, SimpleNamespace(alive=True)
    return replica


def test_entry_that_is_corrupted_while_its_process_runs_is_not_cut():
    data, places = log_of(4)
    replica = running(data, 4)
    corrupt(data, places[3])
    replica.mark_corrupt()
    replica.disk.writes += 1
    assert replica.follow() == (3, 3), "it lies where it lay, as the damage left it"


def test_entry_that_is_cut_from_a_corrupt_log_is_seen_to_go():
    data, places = log_of(4)
    replica = running(data, 4)
    corrupt(data, places[3])
    replica.mark_corrupt()
    other = bytes(encode_span(3, 4, places[3], (b"body of another",)).data)
    data[places[3] : places[3] + len(other)] = other
    replica.disk.writes += 1
    assert replica.follow() == (2, 3)
    assert replica.marks[3].term == 4


def test_a_snapshot_is_told_from_a_log_that_was_trimmed():
    data, _ = log_of(4)
    replica = running(data, 4)
    replica.store.first_index = 2
    replica.disk.writes += 1
    replica.follow()
    assert (replica.base, replica.snapshots) == (2, 0)
    replica.store.first_index, replica.store.last_index = 9, 8
    replica.disk.writes += 1
    replica.follow()
    assert (replica.base, replica.snapshots) == (9, 1), "nothing of it was there before"
