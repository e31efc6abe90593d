"""Arrow schemas of the history tables, for whoever writes or reads them as Parquet in Python.

Knows only the DDL words that `chaos.history.tables` uses. Source: spec/proof.md 4.3.
"""

from typing import Any, Final

import pyarrow as pa

from chaos.history.tables import TABLES

_SIMPLE: Final[dict[str, Any]] = {
    "string": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


def arrow_schema(table: str) -> pa.Schema:
    """Return the Arrow schema of a history table. Errors: KeyError for an unknown table."""
    return pa.schema(
        [pa.field(c.name, arrow_type(c.type), nullable=c.nullable) for c in TABLES[table]]
    )


def arrow_type(ddl: str) -> pa.DataType:
    """Return the Arrow type of a DDL type. Errors: KeyError names an unknown word."""
    if ddl.startswith("array<"):
        return pa.list_(arrow_type(ddl[6:-1]))
    if ddl.startswith("map<"):
        key, value = split_members(ddl[4:-1])
        return pa.map_(arrow_type(key), arrow_type(value))
    if ddl.startswith("struct<"):
        members = (member.split(":", 1) for member in split_members(ddl[7:-1]))
        return pa.struct([pa.field(name, arrow_type(type_)) for name, type_ in members])
    return _SIMPLE[ddl]


def split_members(text: str) -> list[str]:
    """Split at the commas that are not inside angle brackets."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char == "<") - (char == ">")
        if char == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]
