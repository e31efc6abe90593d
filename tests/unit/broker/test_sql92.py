"""SQL92 expressions: where they are refused, and what one costs."""

import time

import pytest

from broker.pulls import sql92
from broker.pulls.filters import (
    BYTES_PER_READ,
    TERM_BYTES_PER_READ,
    TERMS_PER_READ,
    Filters,
)
from broker.pulls.java_values import order_doubles
from broker.pulls.sql92 import Sql92Error, compile_sql92
from broker.serving_limits import (
    SQL_DEPTH_MAX,
    SQL_FILTERS_MAX,
    SQL_LENGTH_MAX,
    SQL_TOKENS_MAX,
)
from mutants.patches import BY_TESTS
from mutants.planting import planted


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("n > > 3", "line 1, column 5"),
        ("n >\n > 3", "line 2, column 2"),
        ("n >", "its end"),
        ("", "its end"),
        ("n = 1 m", "line 1, column 7"),
        ("n LIKE 'x%'", "line 1, column 3"),
        ("price + 1 > 2", "line 1, column 7"),
        ("a.b = 1", "line 1, column 2"),
        ("n = 'x", "line 1, column 5"),
        ("5", "boolean"),
        ("n = NULL", "NULL cannot be compared"),
        ("n > 'x'", "'x' cannot be ordered"),
        ("n BETWEEN 3 AND 1", "3 is more than 1"),
        ("'x' IN ('x')", "must be a property"),
        ("n = 9223372036854775808", "too large"),
        ("n > 0.0", "less than"),
    ],
)
def test_a_refusal_says_where_or_why(expression, said):
    with pytest.raises(Sql92Error, match=said):
        compile_sql92(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "a = 1 OR " * 2_000 + "a = 1",
        "(" * SQL_LENGTH_MAX,
        "(" * 200 + "a = 1" + ")" * 200,
        "NOT " * 200 + "a",
        "a = 1 = 1" + " = 1" * 200,
        "-" * SQL_LENGTH_MAX,
        "a = 1" + "-" * (SQL_LENGTH_MAX - 5),
        "/*" * (SQL_LENGTH_MAX // 2),
        "a IN (" + "'x'," * 1_000 + "'y')",
        "a = '" + "''" * 2_000,
        "x" * (SQL_LENGTH_MAX + 1),
        "a = 1" + " " * (1 << 20),
    ],
)
def test_endless_expressions_are_refused_in_bounded_time(expression):
    compile_sql92("a = 1")  # The grammar is read once.
    begin = time.process_time()
    with pytest.raises(Sql92Error):
        compile_sql92(expression)
    assert time.process_time() - begin < 0.5, "quadratic ones took minutes"


def test_the_limits_are_what_still_passes():
    words = SQL_TOKENS_MAX // 4
    assert compile_sql92(" OR ".join(["a = 1"] * words)).matches({"a": "1"})
    with pytest.raises(Sql92Error, match="words and signs"):
        compile_sql92(" OR ".join(["a = 1"] * (words + 1)))
    depth = SQL_DEPTH_MAX - 2
    assert compile_sql92("(" * depth + "a = 1" + ")" * depth).matches({"a": "1"})
    with pytest.raises(Sql92Error, match="deep"):
        compile_sql92("(" * (depth + 1) + "a = 1" + ")" * (depth + 1))


def test_what_a_message_lacks_matches_neither_way():
    for expression in ("a = 1", "NOT (a = 1)", "a <> 1", "NOT (a > 1 AND b = 2)"):
        assert not compile_sql92(expression).matches({"b": "2"})
    with planted(BY_TESTS["sql-null-is-false"]):
        assert compile_sql92("NOT (a = 1)").matches({"b": "2"})


def test_without_a_bound_of_words_an_expression_costs_what_it_likes():
    many = " OR ".join(["a = 1"] * 300)
    with planted(BY_TESTS["sql-words-unbounded"]):
        sql92.compile_sql92(many)
    with pytest.raises(Sql92Error, match="words and signs"):
        compile_sql92(many)


def test_a_logical_chain_of_any_length_is_no_recursion():
    chain = compile_sql92(" AND ".join(["a = 1"] * (SQL_TOKENS_MAX // 4)))
    assert chain.matches({"a": "1"})
    assert not chain.matches({"a": "2"})


def test_a_long_property_is_no_number_and_costs_little():
    for text in ("9" * 30_000, "-" + "0" * 30_000 + "1", "1e" + "9" * 30_000):
        begin = time.process_time()
        assert not compile_sql92("a = 5").matches({"a": text})
        compile_sql92("a = 5.5").matches({"a": text})
        assert time.process_time() - begin < 0.5
    assert compile_sql92("a = 1").matches({"a": "0" * 40 + "1"})


def test_doubles_are_ordered_as_java_orders_them():
    rising = [float("-inf"), -1.0, -0.0, 0.0, 1.0, float("inf"), float("nan")]
    for i, low in enumerate(rising):
        for j, high in enumerate(rising):
            assert order_doubles(low, high) == (i > j) - (i < j)


def test_filters_are_remembered_by_use_and_cost_by_their_terms():
    filters = Filters()
    first = filters.by_sql("a = 0")
    for number in range(1, SQL_FILTERS_MAX):
        filters.by_sql(f"a = {number}")
    assert filters.by_sql("a = 0") is first, "used again, so it stays"
    filters.by_sql("a = 1000")
    filters.by_sql("a = 1001")
    assert filters.by_sql("a = 0") is first
    many = filters.by_sql(" OR ".join(["a = 1"] * 100))
    assert many.bytes_max < first.bytes_max == BYTES_PER_READ
    assert many.bytes_max * 300 <= TERM_BYTES_PER_READ
    assert many.records_max < first.records_max <= TERMS_PER_READ
    assert many.size_bytes > 50 * first.size_bytes
    assert many.records_max >= 1
