"""A filter says of a record what its expression says of the record's properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.pulls.filters import NAMES_SOUGHT_MAX, Filters
from broker.pulls.sql92 import compile_sql92
from ledgermq.remoting.protocol.message import MessageExt, encode_record
from ledgermq.remoting.protocol.properties import parse_properties
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store import layout
from store.layout import CorruptRecord, read_properties, read_record

EXPRESSIONS = (
    "a = 1", "a > 1 AND b = 'x'", "a IS NULL", "a IS NOT NULL OR aa = 1", "a = b",
    "_$1 BETWEEN 1 AND 3 AND a NOT IN ('1', 'x')", "1 = 1", "A = 1 AND a = 2",
    " OR ".join(f"n{number} = 1" for number in range(NAMES_SOUGHT_MAX + 1)),
)  # fmt: skip
PIECES = (
    b"a", b"b", b"aa", b"A", b"_$1", b"n8", b"1", b"2", b"x", b"\x01", b"\x02", b"\xff",
    "\N{BLACK HEART SUIT}".encode(), b"\xe2\x99", b"a\x011", b"\x02a\x01", b"\x02b\x01x",
)  # fmt: skip
FILTERS = Filters()
COMPILED = {one: (compile_sql92(one).matches, FILTERS.by_sql(one).matches) for one in EXPRESSIONS}


def record(properties: bytes, *, widths: tuple[int, int] = (4, 4), topic: str = "T") -> memoryview:
    """Return a record with these properties and hosts of so many bytes."""
    born, store = (bytes(width + 4) for width in widths)
    flags = 0x10 * (widths[0] > 4) | 0x20 * (widths[1] > 4)
    made = MessageExt(topic, 0, 0, flags, 0, 0, 0, born, 0, store, 0, 0, b"body", properties)
    return memoryview(encode_record(made))


@given(
    properties=st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join),
    widths=st.sampled_from([(4, 4), (16, 4), (4, 16), (16, 16)]),
)
def test_a_filter_reads_properties_as_everybody_does(
    properties: bytes, widths: tuple[int, int]
) -> None:
    one = record(properties, widths=widths)
    wanted = parse_properties(properties)
    for expression, (matches, test) in COMPILED.items():
        assert test(one) is matches(wanted), expression


@given(st.binary(max_size=64), st.sampled_from([(4, 4), (16, 4)]), st.data())
def test_properties_of_a_record_are_read_alike(
    properties: bytes, widths: tuple[int, int], data: st.DataObject
) -> None:
    whole = record(properties, widths=widths)
    assert read_properties(whole) == properties
    spoilt = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    for _ in range(data.draw(st.integers(0, 3)) if spoilt else 0):
        spoilt[data.draw(st.integers(0, len(spoilt) - 1))] = data.draw(st.integers(0, 255))
    try:
        expected: bytes | None = read_record(memoryview(spoilt))[6]
    except CorruptRecord:
        expected = None
    if expected is None:
        with pytest.raises(CorruptRecord):
            read_properties(memoryview(spoilt))
    else:
        assert read_properties(memoryview(spoilt)) == expected


@pytest.mark.parametrize(
    "properties", [b"a\x01\x01x", b"a\x011\x02a\x01\x01x", b"a\x01\x02a\x01\x01"]
)
def test_a_value_that_begins_with_a_separator_is_an_empty_one(properties: bytes) -> None:
    wanted = parse_properties(properties)
    for expression in ("a IS NULL", "a = ''", "a = 1"):
        matches = FILTERS.by_sql(expression).matches(record(properties))
        assert matches is compile_sql92(expression).matches(wanted), expression


def test_the_usual_record_is_not_read_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "read_record", None)
    assert read_properties(record(b"a\x011")) == b"a\x011"


def test_what_is_no_record_passes() -> None:
    assert FILTERS.by_sql("a = 1").matches(memoryview(b"none"))


def test_the_names_of_an_expression_are_those_that_it_reads() -> None:
    assert compile_sql92("b = 'in' AND a NOT IN ('c') or b is null").names == ("a", "b")
    assert compile_sql92("1 = 1").names == ()


def test_a_name_that_ends_as_another_is_found_out() -> None:
    one = record(b"aa\x011")
    assert not Filters().by_sql("a = 1").matches(one)
    with planted(BY_TESTS["other-properties-read"]):
        assert Filters().by_sql("a = 1").matches(one)
