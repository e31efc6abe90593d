"""Tables and logs that are held by column read like rows, and take a tenth of them."""

import tracemalloc
from array import array

import pyarrow as pa
import pytest

from chaos.checker.clocks import widened
from chaos.history import columns as columns_module
from chaos.history.columns import Coded, Constant, Nullable, Texts, column_of, narrowest, stored
from chaos.history.entries import BLOCK_ROWS, Entries
from chaos.history.segment import EntryRow
from chaos.stored import LOOKED_AT, stored_column, stored_rows

FEW = [None, "a", "b", "a"]
VALUES = (
    FEW,
    [True, None, False, True],
    [3, 3, 3],
    [None] * 3,
    [0, None, 1 << 40],
    [-(1 << 63), (1 << 63) - 1, 5],
    [-(1 << 63), None, (1 << 63) - 1],
    [["ok"], ["info", "ok"], None, ["ok"]],
    [1.5, 1.5, 2.0],
)


@pytest.mark.parametrize("values", VALUES, ids=str)
@pytest.mark.parametrize("most", [1 << 12, 1], ids=["few", "many"])
def test_a_column_holds_what_it_is_given(values, most, monkeypatch):
    monkeypatch.setattr(columns_module, "CODES_MAX", most)
    monkeypatch.setattr("chaos.stored.CODES_MAX", most)
    for made in (column_of(values), *_from_arrow(values)):
        assert [made[at] for at in range(len(values))] == values


def _from_arrow(values):
    whole = pa.array(values)
    parts = (pa.chunked_array([whole]), pa.chunked_array([whole[:1], whole[1:]]))
    return [stored_column(one, is_hot=hot) for one in parts for hot in (True, False)]


def test_texts_that_do_not_recur_are_compressed_and_read_in_any_order():
    values = [None if at % 1_000 == 7 else f"text number {at}" for at in range(LOOKED_AT + 300)]
    made = stored_column(pa.chunked_array([values[:100], values[100:]]))
    assert isinstance(made, Texts)
    assert [made[at] for at in range(len(values))] == values
    assert (made[LOOKED_AT], made[0], made[7]) == (values[LOOKED_AT], values[0], None)


def test_texts_that_recur_are_held_once():
    values = [f"batch {at // 8}" for at in range(8 * 5_000)]
    made = stored_column(pa.chunked_array([values]))
    assert isinstance(made, Coded)
    assert [made[at] for at in (0, 7, 8, 39_999)] == [values[at] for at in (0, 7, 8, 39_999)]


def test_a_row_reads_like_a_dict():
    rows = stored({"a": [1, 2], "b": ["x", None]}, 2)
    first, second = rows
    assert (first["a"], second["b"], first.get("b"), first.get("c"), first.get("c", 7)) == (
        1, None, "x", None, 7,
    )  # fmt: skip
    assert first | {"b": "y"} == {"a": 1, "b": "y"} == {**first, "b": "y"}
    assert ("a" in first, "c" in first, bool(first)) == (True, False, True)
    assert repr(second) == "{'a': 2, 'b': None}"
    with pytest.raises(KeyError):
        first["c"]


def test_widened_times_are_those_of_operations():
    rows = stored({"t_inv": [5, 6], "t_cmp": [7, None], "msg_key": [1, 2]}, 2)
    assert [row | {} for row in widened("sends", rows, 2)] == [
        {"t_inv": 3, "t_cmp": 9, "msg_key": 1}, {"t_inv": 4, "t_cmp": None, "msg_key": 2},
    ]  # fmt: skip
    assert widened("sends", rows, 0) is rows
    assert widened("drain", rows, 2) is rows


@pytest.mark.parametrize(
    ("low", "high", "code"),
    [(0, 127, "b"), (-129, 0, "h"), (0, 1 << 31, "I"), (-1, 1 << 31, "q"), (0, (1 << 63) - 1, "q")],
)
def test_numbers_are_as_narrow_as_they_may_be(low, high, code):
    assert narrowest(low, high) == code
    assert list(array(code, [low, high])) == [low, high]
    with pytest.raises(OverflowError):
        narrowest(low, 1 << 63)


def entries(number: int) -> list[EntryRow]:
    return [
        EntryRow(
            at, at // 9, 90 * at, at * 7919 % (1 << 32), 90, at % 5 != 0, "message", "t",
            at % 4, at // 4, None if at % 7 == 0 else at << 40, -at if at % 3 else None, "ab",
        )
        for at in range(number)
    ]  # fmt: skip


def test_entries_come_back_as_they_were_added():
    rows = entries(BLOCK_ROWS + 5)
    made = Entries(rows[:10])
    made.add(iter(rows[10:]))
    assert list(made) == rows
    assert (len(made), made[3], made[-2:]) == (len(rows), rows[3], rows[-2:])
    assert not Entries()
    odd = [EntryRow(1 << 70, -1, 0, 0, 0, crc_ok=False, type="unreadable")]
    assert list(Entries(odd)) == odd


def test_what_is_held_by_column_takes_little():
    """A delivery takes a hundred bytes, an entry forty; as a dict and a tuple a kilobyte each."""
    number = 20_000
    times = [1_700_000_000_000 + 977 * at for at in range(number)]
    given = {name: pa.chunked_array([times]) for name in ("t_recv", "t_fetch_inv", "msg_key")}
    given |= {"grp": pa.chunked_array([[f"g{at % 3}" for at in range(number)]])}
    given |= {"node": pa.chunked_array([[None] * number], type=pa.string())}
    made = entries(number)
    tracemalloc.start()
    try:
        rows = stored_rows(given, number, {"grp"})
        of_rows, _ = tracemalloc.get_traced_memory()
        log = Entries(made)
        of_both, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(rows) == len(log) == number
    assert of_rows < 110 * number
    assert of_both - of_rows < 60 * number


def test_forms_of_columns_say_what_they_hold():
    assert Constant(3)[9] == 3
    assert Nullable(array("b", [1, -1]), -1)[1] is None
