"""A file that becomes too much is refused before it takes memory, wherever it is read."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chaos import inflated
from chaos.exchange.sources import SourceError, rows_of
from chaos.foreign import TableReader
from chaos.inflated import check_inflated
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted

ROWS = 20_000
TEXT = "x" * 100_000
"""2 GB in 20,000 rows, and some kilobytes in a file."""


def bomb(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    indices = pa.array([0] * ROWS, pa.int32())
    column = pa.DictionaryArray.from_arrays(indices, pa.array([TEXT]))
    table = pa.table({"msg_key": column, "n": pa.array(range(ROWS))})
    pq.write_table(table, path, store_schema=False)
    assert path.stat().st_size < 200_000
    return path


def test_a_text_that_all_rows_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(pa.ArrowInvalid, match="msg_key becomes more than"):
        check_inflated(bomb(tmp_path / "x.parquet"))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.dictionary(pa.int32(), pa.string()), TEXT),
        (pa.large_string(), TEXT),
        (pa.list_(pa.string()), [TEXT, TEXT]),
        (pa.struct([("at", pa.large_binary())]), {"at": TEXT.encode()}),
        (pa.map_(pa.string(), pa.string()), [("k", TEXT)]),
        (pa.list_(pa.struct([("at", pa.string())])), [{"at": TEXT}]),
    ],
)
def test_texts_are_counted_in_whatever_a_column_has_them(
    kind: pa.DataType, value: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As files are written that say how they were in memory, and in what is nested."""
    monkeypatch.setattr(inflated, "BATCH_BYTES_MAX", 10 * len(TEXT))
    file = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a.b": pa.array([value, None, value], kind)}), file)
    check_inflated(file)
    pq.write_table(pa.table({"a.b": pa.array([value] * 11, kind)}), file)
    with pytest.raises(pa.ArrowInvalid, match=r"a\.b becomes more than"):
        check_inflated(file)


def test_lists_of_texts_may_lie_in_row_groups_that_no_batch_ends_with(tmp_path: Path) -> None:
    """A run of more than 1,048,576 sends has two such groups; each has a dictionary of its own."""
    file = tmp_path / "x.parquet"
    table = pa.table({"tries": [[f"node-{row % 5}"] for row in range(25_000)]})
    pq.write_table(table, file, row_group_size=7_000)
    check_inflated(file)
    texts = pa.table({"tries": [[f"{row:0100}"] for row in range(30_000)]})
    pq.write_table(texts, file, row_group_size=20_000)  # the writer gives its dictionary up midway
    check_inflated(file)


def test_equal_values_have_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x.parquet"
    pq.write_table(pa.table({"n": pa.array([[7] * 5_000] * 20)}), file)
    assert file.stat().st_size < 5_000
    check_inflated(file)
    monkeypatch.setattr(inflated, "GROUP_BYTES_MAX", 700_000)
    with pytest.raises(pa.ArrowInvalid, match="a column of a row group takes more than"):
        check_inflated(file)


def test_a_table_of_a_run_is_named_and_not_read(tmp_path: Path) -> None:
    bomb(tmp_path / "tables" / "sends" / "a.parquet")
    problems: list[str] = []
    assert TableReader(tmp_path, problems).read("sends") == []
    assert "becomes more than" in problems[0]


def test_an_import_is_refused(tmp_path: Path) -> None:
    file = bomb(tmp_path / "x.parquet")
    with pytest.raises(SourceError, match="becomes more than"):
        next(rows_of(file, "parquet"))
    with planted(HARNESS_BUGS["texts-counted-once"]):
        check_inflated(file)


def test_all_texts_together_and_row_groups_have_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": ["xy", None, "xy"], "b": [b"12345", b"", None]}), file)
    check_inflated(file, 9)
    with pytest.raises(pa.ArrowInvalid, match="the texts become more than 8 bytes"):
        check_inflated(file, 8)
    monkeypatch.setattr(inflated, "GROUP_BYTES_MAX", 10)
    with pytest.raises(pa.ArrowInvalid, match="a row group takes more than 10 bytes"):
        check_inflated(file)
