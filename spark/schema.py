"""Spark types of the history tables, generated from ``chaos.history.tables``.

Source: spec/proof.md 4.3.
"""

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from chaos.history.arrow import arrow_schema


def struct_type(table: str) -> StructType:
    """Return the schema of a history table. Errors: KeyError for an unknown table."""
    return from_arrow_schema(arrow_schema(table))
