"""Spans in memory: what is found, what is forgotten, and that a walk gives what the disk gives."""

from hypothesis import given
from hypothesis import strategies as st

from dledger.codec.entry import encode_entry
from dledger.codec.entry import index_units as units_of
from dledger.core.model import Span
from dledger.storage.recent import RecentSpans


def span(first, count, position=0, term=1):
    data = b""
    for index in range(first, first + count):
        data += encode_entry(index, term, position + len(data), b"body %d" % index)
    units = units_of(data, first, first + count - 1, term)
    return Span(first, first + count - 1, term, position, data, units)


def spans(counts):
    first = position = 0
    for count in counts:
        made = span(first, count, position)
        yield made
        first, position = made.last_index + 1, made.end_position


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.integers(0, 30), st.integers(0, 30))
def test_what_was_cut_off_or_passed_by_is_not_found(counts, cut, begin):
    recent = RecentSpans()
    for made in spans(counts):
        recent.add(made)
    end = sum(counts)
    recent.forget_from(cut)
    found = recent.maybe_find(begin)
    if begin < min(cut, end):
        assert found is not None
        assert found.first_index <= begin <= found.last_index < cut
        assert recent.first_index() == found.first_index
    else:
        assert found is None


def test_the_oldest_go_when_there_are_too_many_bytes():
    made = list(spans([2, 2, 2]))
    recent = RecentSpans(bytes_max=len(made[1].data) + len(made[2].data))
    for one in made:
        recent.add(one)
    assert recent.first_index() == 2
    assert recent.maybe_find(1) is None
    assert recent.maybe_find(5) is made[2]
    assert recent.maybe_find(3) is None, "who has passed it does not come back"


def test_one_span_above_the_limit_is_not_kept():
    recent = RecentSpans(bytes_max=10)
    recent.add(span(0, 3))
    assert recent.first_index() is None
