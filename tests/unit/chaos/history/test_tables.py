"""The tables as data, and their Arrow form."""

import pyarrow as pa
import pytest

from chaos.history.arrow import arrow_schema, arrow_type, split_members
from chaos.history.tables import TABLES, Column, parse_columns


def test_columns_are_read_one_per_line():
    assert parse_columns("a long!\n b map<string,string>") == (
        Column("a", "long", nullable=False),
        Column("b", "map<string,string>"),
    )


@pytest.mark.parametrize("table", TABLES)
def test_every_table_has_an_arrow_schema_and_distinct_names(table):
    names = [column.name for column in TABLES[table]]
    assert len(set(names)) == len(names)
    assert names[0] == "run_id"
    assert arrow_schema(table).names == names


def test_nested_types():
    assert arrow_type("array<struct<t:string,n:long>>") == pa.list_(
        pa.struct([("t", pa.string()), ("n", pa.int64())])
    )
    assert arrow_type("map<string,array<int>>") == pa.map_(pa.string(), pa.list_(pa.int32()))
    assert split_members("a:int,b:map<string,int>,c:long") == [
        "a:int",
        "b:map<string,int>",
        "c:long",
    ]


def test_an_unknown_word_is_refused():
    with pytest.raises(KeyError):
        arrow_type("decimal")
