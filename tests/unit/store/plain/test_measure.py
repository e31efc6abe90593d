"""Records side by side, measured together: never anything but what each alone is found to be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mutants.patches import BY_TESTS
from mutants.planting import planted
from sim.disk import SimDisk
from sim.rng import SplitRng
from store.plain import record as plain
from store.plain.record import blank, inspect
from tests.unit.store.plain.records import Log, record

BASE = 4096
KINDS = (
    {}, {"topic": "t" * 127}, {"properties": b"A\x01b\x02"}, {"body": b"x" * 300},
    {"topic": "t" * 128}, {"sys_flag": 0x10}, {"sys_flag": 0x30},
)  # fmt: skip
MANY = 100


def side_by_side(kinds):
    data = b""
    for kind in kinds:
        data += record(BASE + len(data), **KINDS[kind])
    return data


def alone(view, end, position):
    """Return the sizes that `inspect` finds, one after the other."""
    sizes, at = [], 0
    while 0 < (size := inspect(view, at, position + at)) <= end - at:
        sizes.append(size)
        at += size
    return sizes


@given(st.lists(st.integers(0, len(KINDS) - 1), max_size=6), st.integers(0, 2000), st.booleans())
def test_it_measures_what_is_sound_and_whole_up_to_the_first_of_another_kind(kinds, end, is_blank):
    data = side_by_side(kinds)
    view = memoryview(data + (blank(8) if is_blank else bytes(100)))
    usual = next((at for at, kind in enumerate(kinds) if kind > 3), len(kinds))
    expected = alone(view, end, BASE)[:usual]
    assert plain.measure(view, 0, end, BASE, MANY) == expected
    assert plain.measure(view, 0, end, BASE, 2) == expected[:2]


def check_nothing_damaged_passes(at, value):
    data = bytearray(side_by_side((0, 3, 2)))
    data[at % len(data)] ^= value
    view = memoryview(data)
    measured = plain.measure(view, 0, len(data), BASE, MANY)
    assert measured == alone(view, len(data), BASE)[: len(measured)]


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_what_is_damaged_is_not_measured(at, value):
    check_nothing_damaged_passes(at, value)


@pytest.mark.parametrize(
    ("bug", "at"),
    [
        (BY_TESTS["measured-without-a-crc"], record(0).index(b"body")),
        (BY_TESTS["measured-wherever-it-says"], 30),
    ],
)
def test_planted_damage_passes(bug, at):
    with planted(bug), pytest.raises(AssertionError):
        check_nothing_damaged_passes(at, 1)


def test_garbage_never_raises():
    data = side_by_side((0, 0))
    for cut in range(len(data)):
        view = memoryview(data)[:cut]
        assert plain.measure(view, 0, cut, BASE, MANY) == alone(view, cut, BASE)
        assert plain.measure(memoryview(data[:cut] + b"\xff" * 60), 0, cut, BASE, MANY) == alone(
            view, cut, BASE
        )


def test_a_record_that_says_to_go_on_behind_the_file_is_not_measured():
    data = bytearray(side_by_side((0, 0)))
    at = len(data) // 2
    data[at : at + 4] = (3000).to_bytes(4, "big")
    data[at + 8 : at + 12] = bytes(4)
    data[at + 84 : at + 88] = (2000).to_bytes(4, "big")
    view = memoryview(data)
    assert plain.measure(view, 0, 64 * 1024, BASE, MANY) == alone(view, 64 * 1024, BASE) == [at]


def test_a_walk_over_several_files_hands_out_every_record_once():
    log = Log(SimDisk(SplitRng(1)))
    put = [(log.put(body=b"%d" % n * 60, **KINDS[n % 7 if n % 7 > 3 else 0]), n) for n in range(90)]
    log.flush()
    for limit in (1, 7, MANY):
        found, start = [], 0
        while start < log.end_position:
            some = list(log.walk(start, log.end_position, limit))
            assert len(some) <= limit
            found += some
            start = some[-1][0] + some[-1][3]
        assert [position for position, *_ in found] == [position for position, _ in put]
        for position, chunk, at, size in found:
            assert bytes(chunk[at : at + size]) == log.files.read(position, size)
