"""The table of open halves, and what halves and copies look like."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.sends.half import half_of
from broker.sends.properties import PropertyRewriter
from broker.transactions.halves import CHUNK_ROWS_MAX, COPIED, Half, OpenHalves
from broker.transactions.table import HalfTable, offsets_of_op
from ledgermq.remoting.protocol.errors import RemoteProtocolError
from store.layout import HALF_TOPIC_BYTES
from store.origins import group_number, maybe_said, parked_origin
from tests.unit.store.fakes import message

# The table, pure


HALVES = st.integers(0, 5_000)


@given(st.lists(st.tuples(st.booleans(), HALVES), max_size=80))
def test_open_halves_are_a_map(steps: list[tuple[bool, int]]) -> None:
    rows, model = OpenHalves(), dict[int, Half]()
    for is_added, offset in steps:
        half = Half(offset, 100 + 3 * offset, 7, -1, 0)
        if is_added:
            rows.add(half)
            model.setdefault(offset, half)
        else:
            rows.remove(offset)
            model.pop(offset, None)
        assert len(rows) == len(model)
        assert rows.at_offset(offset) == rows.find(half.physical) == model.get(offset)
    ordered = [model[offset] for offset in sorted(model)]
    assert list(rows) == list(rows.copy()) == ordered
    assert rows.behind(-1, 10) == ordered[:10]
    assert rows.behind(100 + 3 * 2_500, 10) == [one for one in ordered if one.offset > 2_500][:10]


def test_many_rows_stay_in_order_and_small() -> None:
    rows = OpenHalves()
    for offset in range(10 * CHUNK_ROWS_MAX):
        rows.add(Half(offset, 1_000 * offset, offset, -1, 0))
    for offset in range(0, 10 * CHUNK_ROWS_MAX, 2):
        rows.add(Half(offset, 1_000 * offset, offset, -1, 0))
    assert len(rows) == 10 * CHUNK_ROWS_MAX
    for offset in range(10 * CHUNK_ROWS_MAX):
        if offset % 100:
            rows.remove(offset)
    assert [one.offset for one in rows] == list(range(0, 10 * CHUNK_ROWS_MAX, 100))
    assert len(rows._chunks) <= 2
    behind, place = [], -1
    while more := rows.behind(place, 7):
        behind += more
        place = more[-1].physical
    assert behind == list(rows)
    for offset in (50, 350, 10_150):
        rows.add(Half(offset, 1_000 * offset, 0, -1, 0))
        assert rows.find(1_000 * offset) == rows.at_offset(offset)
    assert [one.offset for one in rows] == sorted(one.offset for one in rows)


def test_the_table_is_read_back_as_it_was_written() -> None:
    table, other = HalfTable(), HalfTable()
    for offset in range(600):
        numbers = offset, 1_000 + offset, offset % 7, offset % 5
        table.open(b"[%d,%d,5,-1,%d,%d]" % numbers)
    table.mark_copied(b"1003")
    table.count(b"[[4,2],[3,9],[9999,1]]")
    table.close(b"7")
    table.close(b"8,9,")
    steps = table.snapshot_steps()
    first = next(steps)
    table.close(b"10")
    text = first + b"".join(steps)
    other.restore(text)
    assert other.snapshot() == text
    assert other.end == 600
    assert other.room._used_by == Counter(half.group for half in other.rows)
    assert other.room.used == table.room.used + 1 == len(other.rows)
    assert other.sources._used_by == Counter(half.source for half in other.rows)
    assert other.sources.used == table.sources.used + 1
    assert other.rows.at_offset(3) == Half(3, 1_003, 5, -1, COPIED, 3, 3)
    assert other.rows.at_offset(4) == Half(4, 1_004, 5, -1, 2, 4, 4)
    assert other.rows.at_offset(10) is not None, "a snapshot is of one moment"
    assert [other.rows.at_offset(offset) for offset in (7, 8, 9)] == [None] * 3


@pytest.mark.parametrize("row", ['"1 2 3"', '"a b c d e"', '"1 2 3 4 99999999"', "7", '""'])
def test_a_text_that_is_no_table_is_refused(row: str) -> None:
    with pytest.raises(RemoteProtocolError):
        HalfTable().restore(b'{"end": 1, "halves": [%b]}' % row.encode())


def test_groups_have_numbers_of_their_own() -> None:
    numbers = [group_number(name) for name in (b"a", b"b", b"ab", b"\xff", b"%RETRY%a")]
    assert len(set(numbers)) == len(numbers)
    assert all(0 < number < 2**63 for number in numbers)
    assert group_number(b"") == 0
    assert group_number(b"\xff") == group_number("\ufffd".encode())


def test_op_messages_of_either_version_are_read() -> None:
    assert offsets_of_op(b"12") == [12]
    assert offsets_of_op(b"12,13,") == [12, 13]
    assert offsets_of_op(b"") == offsets_of_op(b"x,-1") == []


def test_a_half_is_byte_for_byte_what_the_real_broker_stores() -> None:
    sent = (
        b"KEYS\x01c\x02TRAN_MSG\x01true\x02UNIQ_KEY\x01FD00000000000000000000000000000243915FFD2B27"
        b"672AF88B0000\x02WAIT\x01true\x02PGROUP\x01pg_tx_d506h\x02TAGS\x01T"
    )
    let_in = PropertyRewriter("FixtureCluster", lambda: b"ID").rewrite(sent)
    half = half_of(message(topic="fx_tx_d506h", properties=let_in.text))
    assert (half.topic, half.queue_id) == (HALF_TOPIC_BYTES, 0)
    assert half.properties == (
        b"REAL_TOPIC\x01fx_tx_d506h\x02KEYS\x01c\x02TRAN_MSG\x01true\x02UNIQ_KEY\x01FD0000000000000"
        b"0000000000000000243915FFD2B27672AF88B0000\x02CLUSTER\x01FixtureCluster\x02PGROUP\x01pg_tx_d506h\x02"
        b"WAIT\x01true\x02TAGS\x01T\x02REAL_QID\x010"
    )


def test_copies_say_which_half_they_stand_for() -> None:
    assert maybe_said(77, 8) == maybe_said(parked_origin(77), 0) == ("tx-copied", b"77")
    assert maybe_said(0, 8) == ("tx-copied", b"0")
    assert [maybe_said(*one) for one in ((77, 0), (77, 12), (77, 4), (-1, 8))] == [None] * 4
