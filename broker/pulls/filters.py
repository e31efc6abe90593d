"""What a pull wants of a queue: tags by hash code, or SQL92 over the properties of each message.

Expressions are compiled when a pull first needs them and remembered, within bounds; so a heartbeat
costs nothing, whatever it subscribes to.
Source: spec/wire.md 7.3; RocketMQ ExpressionMessageFilter.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from broker.limits import REMEMBERED_BYTES_MAX
from broker.pulls.sql92 import compile_sql92
from broker.pulls.tags import tag_codes
from broker.serving_limits import EXPRESSIONS_MAX, SQL_FILTERS_MAX
from ledgermq.remoting.protocol.codes import ResponseCode
from ledgermq.remoting.protocol.properties import parse_properties
from store.layout import CorruptRecord, read_properties
from store.results import RecordTest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.pulls.sql92 import Compiled

SQL92: Final = "SQL92"
TAG_TYPES: Final = (None, "", "TAG")

TERMS_PER_READ: Final = 4_000
"""Terms that are evaluated for one answer; the client asks on from where that ended."""
BYTES_PER_READ: Final = 1 << 20
"""Bytes of records that are looked into for one answer."""
TERM_BYTES_PER_READ: Final = 8 << 20
"""Likewise, times the terms: each term may search all of a long property."""
TERM_BYTES: Final = 600
"""What a term of a compiled expression takes."""
NAMES_SOUGHT_MAX: Final = 8
"""Names that are sought in the text of the properties; for more, all of it is read."""


def no_filter(kind: str | None) -> tuple[int, str]:
    """Return the answer to a kind of expression that this broker does not serve."""
    return (
        ResponseCode.SYSTEM_ERROR,
        f"The broker does not support consumer to filter message by {kind}",
    )


class Filters:
    """The filters of expressions, those in use remembered."""

    def __init__(self) -> None:
        self._codes: dict[str, frozenset[int] | None] = {}
        self._tests: dict[str, RecordTest] = {}

    def by_tags(self, expression: str | None) -> frozenset[int] | None:
        """Return the codes of ``A || B``, None for all. Errors: `ValueError`."""
        if not expression or expression == "*":
            return None
        try:
            return self._codes[expression]
        except KeyError:
            codes = tag_codes(expression)
            if len(expression) <= REMEMBERED_BYTES_MAX:
                if len(self._codes) >= EXPRESSIONS_MAX:
                    self._codes.clear()
                self._codes[expression] = codes
            return codes

    def by_sql(self, expression: str) -> RecordTest:
        """Return the filter of an SQL92 expression. Errors: `Sql92Error`, a `ValueError`."""
        test = self._tests.pop(expression, None)
        if test is None:
            test = _test(compile_sql92(expression))
            if len(self._tests) >= SQL_FILTERS_MAX:
                del self._tests[next(iter(self._tests))]
        self._tests[expression] = test
        return test


def _test(compiled: Compiled) -> RecordTest:
    matches, find = compiled.matches, _seeker(compiled.names)

    def test(record: memoryview) -> bool:
        try:
            properties = read_properties(record)
        except CorruptRecord:
            return True  # whoever has no filter gets it, too
        if find is None:
            return matches(parse_properties(properties))
        return matches(dict(find("\x02" + properties.decode("utf-8", "replace"))))

    terms = compiled.terms
    records_max = max(1, TERMS_PER_READ // terms)
    bytes_max = min(BYTES_PER_READ, TERM_BYTES_PER_READ // terms)
    return RecordTest(test, records_max, bytes_max, terms * TERM_BYTES)


def _seeker(names: Sequence[str]) -> Callable[[str], list[tuple[str, str]]] | None:
    """Return what finds properties in their text behind a separator, None to read all of them.

    It finds what `parse_properties` takes of these names, in the order of the text.
    """
    if not 0 < len(names) <= NAMES_SOUGHT_MAX:
        return None
    sought = "|".join(map(re.escape, names))
    return re.compile(f"\x02({sought})\x01(?=[^\x02])([^\x01\x02]*)").findall
