"""SQL92 expressions over message properties, compiled to closures.

The language is a part of JMS selectors: `AND`, `OR`, `NOT`, comparisons, `BETWEEN`, `IN`,
`IS NULL`, `CONTAINS`, `STARTSWITH`, `ENDSWITH`. An identifier names a property; a message without
it gives NULL. A property is text: it is read as the type of what it is compared with, and where
that cannot be done the message does not match.

Pure. What an expression says of a message is what RocketMQ's filter says: the types are Java's
(`Integer`, `Long`, `Double`), and so are their order and the texts that are numbers.
Source: spec/wire.md 7.3; RocketMQ SelectorParser.jj, ComparisonExpression, UnaryExpression,
LogicExpression, ConstantExpression (5.3.3).
"""

from __future__ import annotations

import math
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from lark import Lark, Transformer, UnexpectedInput, UnexpectedToken, v_args

from broker.pulls.java_values import (
    DOUBLE_MIN,
    INT,
    LONG,
    READ,
    Long,
    double,
    order,
    order_doubles,
)
from broker.pulls.sql_integers import (
    GREATER,
    GREATER_OR_EQUAL,
    LESS,
    LESS_OR_EQUAL,
    between_integers,
    ordered_integer,
)
from broker.serving_limits import SQL_DEPTH_MAX, SQL_LENGTH_MAX, SQL_TOKENS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Evaluate = Callable[[Mapping[str, str]], Any]

_GRAMMAR: Final = r"""
    start: or_
    or_: and_ ("OR"i and_)*
    and_: equality ("AND"i equality)*
    ?equality: comparison
        | equality "=" comparison -> equal
        | equality "<>" comparison -> not_equal
        | equality "IS"i "NULL"i -> is_null
        | equality "IS"i "NOT"i "NULL"i -> is_not_null
    ?comparison: unary
        | comparison ">" unary -> greater
        | comparison ">=" unary -> greater_or_equal
        | comparison "<" unary -> less
        | comparison "<=" unary -> less_or_equal
        | comparison "BETWEEN"i unary "AND"i unary -> between
        | comparison "NOT"i "BETWEEN"i unary "AND"i unary -> not_between
        | comparison "IN"i "(" STRING ("," STRING)* ")" -> in_
        | comparison "NOT"i "IN"i "(" STRING ("," STRING)* ")" -> not_in
        | comparison "CONTAINS"i STRING -> contains
        | comparison "NOT"i "CONTAINS"i STRING -> not_contains
        | comparison "STARTSWITH"i STRING -> starts_with
        | comparison "NOT"i "STARTSWITH"i STRING -> not_starts_with
        | comparison "ENDSWITH"i STRING -> ends_with
        | comparison "NOT"i "ENDSWITH"i STRING -> not_ends_with
    ?unary: "+" unary -> plus
        | "-" unary -> negate
        | "NOT"i unary -> not_
        | primary
    ?primary: "TRUE"i -> true
        | "FALSE"i -> false
        | "NULL"i -> null
        | DECIMAL -> decimal
        | FLOAT -> float_
        | STRING -> string
        | NAME -> property_
        | "(" or_ ")" -> parentheses
    NAME: /[a-z_$][a-z0-9_$]*/i
    DECIMAL: /(0|[1-9][0-9]*)l?/i
    FLOAT.2: /[0-9]+\.[0-9]*(e[+-]?[0-9]+)?|\.[0-9]+(e[+-]?[0-9]+)?|[0-9]+e[+-]?[0-9]+/i
    STRING: /'(''|[^'])*'/
    LINE_COMMENT: /--[^\r\n]*+[\r\n]/
    BLOCK_COMMENT: /\/\*[^*]*\*(\*|[^*\/][^*]*\*)*\//
    BLANK: /[ \t\n\r\f]+/
    %ignore LINE_COMMENT
    %ignore BLOCK_COMMENT
    %ignore BLANK
"""


class Sql92Error(ValueError):
    """An expression is refused; the text says why, and where."""


class Compiled(NamedTuple):
    """An expression that was compiled."""

    matches: Callable[[Mapping[str, str]], bool]
    #: Nodes of it: what one evaluation costs.
    terms: int
    #: The properties that it reads, sorted.
    names: tuple[str, ...]


def compile_sql92(expression: str) -> Compiled:
    """Return what tells whether the properties of a message match. Errors: `Sql92Error`."""
    if len(expression) > SQL_LENGTH_MAX:
        raise Sql92Error(f"expression of {len(expression)} characters")
    try:
        tokens = list(islice(_parser().lex(expression), SQL_TOKENS_MAX + 1))
        if len(tokens) > SQL_TOKENS_MAX:
            raise Sql92Error(f"more than {SQL_TOKENS_MAX} words and signs")
        root = _as_boolean(cast("_Node", _parser().parse(expression)))
    except UnexpectedInput as error:
        is_cut_short = isinstance(error, UnexpectedToken) and error.token.type == "$END"
        place = "its end" if is_cut_short else f"line {error.line}, column {error.column}"
        raise Sql92Error(f"not understood at {place}") from error
    evaluate = root.evaluate

    def matches(properties: Mapping[str, str]) -> bool:
        try:
            return evaluate(properties) is True
        except ValueError:
            return False  # a property is no value of the type that it is compared with

    names = {str(token) for token in tokens if token.type == "NAME"}
    return Compiled(matches, root.terms, tuple(sorted(names)))


def prepare() -> None:
    """Make what reads expressions; else the first one takes much longer than all others."""
    _parser()


@cache
def _parser() -> Lark:
    return Lark(
        _GRAMMAR, parser="lalr", lexer="basic", maybe_placeholders=False, transformer=_Builder()
    )


class _Node(NamedTuple):
    """A part of an expression."""

    evaluate: Evaluate
    depth: int = 1
    is_boolean: bool = False
    is_constant: bool = False
    #: What a constant is.
    value: Any = None
    #: The property that this is, "" for none.
    name: str = ""
    #: Nodes below and this one: what an evaluation costs.
    terms: int = 1


def _as_boolean(node: _Node) -> _Node:
    """Return a node as an operand of logic. Errors: `Sql92Error`."""
    if node.is_boolean:
        return node
    if not node.name:
        raise Sql92Error("it does not result in a boolean value")
    evaluate = node.evaluate
    # A property is a text and no boolean.
    return _Node(
        lambda properties: None if evaluate(properties) is None else False,
        node.depth, is_boolean=True, terms=node.terms,
    )  # fmt: skip


def _negated(evaluate: Evaluate) -> Evaluate:
    def negate(properties: Mapping[str, str]) -> bool | None:
        found = evaluate(properties)
        return None if found is None else not found

    return negate


def _can_be_ordered(node: _Node) -> None:
    if node.is_constant and type(node.value) not in (int, Long, float):
        raise Sql92Error(f"{node.value!r} cannot be ordered")
    if node.is_boolean:
        raise Sql92Error("a boolean value cannot be ordered")


def _equal(left: _Node, right: _Node) -> Evaluate:
    if left.name and right.is_constant and right.value is not None:
        return _equal_to_constant(left.name, right.value)
    get_left, get_right = left.evaluate, right.evaluate

    def equal(properties: Mapping[str, str]) -> bool | None:
        a, b = get_left(properties), get_right(properties)
        if a is None:
            return True if b is None else None
        return False if b is None else order(a, b) == 0

    return equal


def _equal_to_constant(name: str, value: Any) -> Evaluate:  # noqa: ANN401 - as above
    """Return the common case, cheaper: a property and a value."""
    read = READ.get(type(value))
    if read is None:

        def equal_text(properties: Mapping[str, str]) -> bool | None:
            text = properties.get(name)
            return None if text is None else text == value

        return equal_text
    if type(value) is float:

        def equal_double(properties: Mapping[str, str]) -> bool | None:
            text = properties.get(name)
            return None if text is None else order_doubles(double(text), value) == 0

        return equal_double

    def equal_value(properties: Mapping[str, str]) -> bool | None:
        text = properties.get(name)
        return None if text is None else read(text) == value

    return equal_value


def _ordered(left: _Node, right: _Node, accepted: tuple[int, ...]) -> Evaluate:
    _can_be_ordered(left)
    _can_be_ordered(right)
    get_left, get_right = left.evaluate, right.evaluate

    if left.name and type(right.value) is int:
        return ordered_integer(left.name, right.value, accepted)

    def ordered(properties: Mapping[str, str]) -> bool | None:
        a = get_left(properties)
        if a is None:
            return None
        b = get_right(properties)
        if b is None:
            return None
        if type(a) is str and type(b) is str:
            return order_doubles(double(a), double(b)) in accepted
        return order(a, b) in accepted

    return ordered


def _between(value: _Node, low: _Node, high: _Node) -> Evaluate:
    if value.name and type(low.value) is type(high.value) is int:
        return between_integers(value.name, low.value, high.value)
    return _all([_ordered(value, low, GREATER_OR_EQUAL), _ordered(value, high, LESS_OR_EQUAL)])


def _all(parts: list[Evaluate]) -> Evaluate:
    def conjunction(properties: Mapping[str, str]) -> bool | None:
        result: bool | None = True
        for part in parts:
            found = part(properties)
            if found is False:
                return False
            if found is None:
                result = None
        return result

    return conjunction


def _any(parts: list[Evaluate]) -> Evaluate:
    def disjunction(properties: Mapping[str, str]) -> bool | None:
        result: bool | None = False
        for part in parts:
            found = part(properties)
            if found is True:
                return True
            if found is None:
                result = None
        return result

    return disjunction


def _text_of(literal: str) -> str:
    return literal[1:-1].replace("''", "'")


@v_args(inline=True)
class _Builder(Transformer[Any, Any]):
    """Turns a parsed expression into closures, innermost first."""

    def _node(
        self,
        evaluate: Evaluate,
        *parts: _Node,
        **traits: Any,  # noqa: ANN401 - fields of the node
    ) -> _Node:
        depth = 1 + max((part.depth for part in parts), default=0)
        if depth > SQL_DEPTH_MAX:
            raise Sql92Error(f"nested more than {SQL_DEPTH_MAX} deep")
        terms = 1 + sum(part.terms for part in parts)
        return _Node(evaluate, depth, terms=terms, **traits)

    def _logic(self, evaluate: Evaluate, *parts: _Node) -> _Node:
        return self._node(evaluate, *parts, is_boolean=True)

    def _constant(self, value: Any, *, is_boolean: bool = False) -> _Node:  # noqa: ANN401 - any value
        return self._node(
            lambda _properties: value, is_constant=True, value=value, is_boolean=is_boolean
        )

    # Leaves

    def property_(self, token: str) -> _Node:
        name = str(token)
        return self._node(lambda properties: properties.get(name), name=name)

    def string(self, token: str) -> _Node:
        return self._constant(_text_of(token))

    def decimal(self, token: str) -> _Node:
        value = int(token.rstrip("lL")) if len(token) < 21 else 2**63
        if value not in LONG:
            raise Sql92Error(f"{token[:40]} is too large")
        return self._constant(value if value in INT else Long(value))

    def float_(self, token: str) -> _Node:
        value = float(token)
        if math.isinf(value):
            raise Sql92Error(f"{token[:40]} is too large")
        if value < DOUBLE_MIN:
            raise Sql92Error(f"{token[:40]} is less than {DOUBLE_MIN}")
        return self._constant(value)

    def true(self) -> _Node:
        return self._constant(value=True, is_boolean=True)

    def false(self) -> _Node:
        return self._constant(value=False, is_boolean=True)

    def null(self) -> _Node:
        return self._constant(value=None, is_boolean=True)

    # Logic

    def start(self, root: _Node) -> _Node:
        return root

    def or_(self, *parts: _Node) -> _Node:
        return self._joined(_any, parts)

    def and_(self, *parts: _Node) -> _Node:
        return self._joined(_all, parts)

    def _joined(
        self, join: Callable[[list[Evaluate]], Evaluate], parts: tuple[_Node, ...]
    ) -> _Node:
        if len(parts) == 1:
            return parts[0]
        return self._logic(join([_as_boolean(part).evaluate for part in parts]), *parts)

    def parentheses(self, inner: _Node) -> _Node:
        return self._node(
            inner.evaluate, inner, is_boolean=inner.is_boolean, is_constant=inner.is_constant,
            value=inner.value, name=inner.name,
        )  # fmt: skip

    def plus(self, operand: _Node) -> _Node:
        return self.parentheses(operand)

    def negate(self, operand: _Node) -> _Node:
        get = operand.evaluate

        def negate(properties: Mapping[str, str]) -> int | float | None:
            value = get(properties)
            if type(value) is float:
                return -value
            if type(value) is int:
                return (-value + 2**31) % 2**32 - 2**31
            return Long(-value) if type(value) is Long else None

        return self._node(negate, operand)

    def not_(self, operand: _Node) -> _Node:
        return self._logic(_negated(_as_boolean(operand).evaluate), operand)

    # Comparisons

    def equal(self, left: _Node, right: _Node) -> _Node:
        for side in (left, right):
            if side.is_constant and side.value is None:
                raise Sql92Error("NULL cannot be compared")
        both_constant = left.is_constant and right.is_constant
        if both_constant and left.is_boolean and not right.is_boolean:
            raise Sql92Error(f"{left.value!r} cannot be compared with {right.value!r}")
        return self._logic(_equal(left, right), left, right)

    def not_equal(self, left: _Node, right: _Node) -> _Node:
        found = self.equal(left, right)
        return self._logic(_negated(found.evaluate), found)

    def is_null(self, operand: _Node) -> _Node:
        get = operand.evaluate
        return self._logic(lambda properties: get(properties) is None, operand)

    def is_not_null(self, operand: _Node) -> _Node:
        get = operand.evaluate
        return self._logic(lambda properties: get(properties) is not None, operand)

    def greater(self, left: _Node, right: _Node) -> _Node:
        return self._logic(_ordered(left, right, GREATER), left, right)

    def greater_or_equal(self, left: _Node, right: _Node) -> _Node:
        return self._logic(_ordered(left, right, GREATER_OR_EQUAL), left, right)

    def less(self, left: _Node, right: _Node) -> _Node:
        return self._logic(_ordered(left, right, LESS), left, right)

    def less_or_equal(self, left: _Node, right: _Node) -> _Node:
        return self._logic(_ordered(left, right, LESS_OR_EQUAL), left, right)

    def between(self, value: _Node, low: _Node, high: _Node) -> _Node:
        _check_range(low, high)
        return self._logic(_between(value, low, high), value, low, high)

    def not_between(self, value: _Node, low: _Node, high: _Node) -> _Node:
        parts = [_ordered(value, low, LESS), _ordered(value, high, GREATER)]
        return self._logic(_any(parts), value, low, high)

    def in_(self, value: _Node, *literals: str) -> _Node:
        if not value.name:
            raise Sql92Error("the left side of IN must be a property")
        name, texts = value.name, frozenset(_text_of(literal) for literal in literals)

        def is_in(properties: Mapping[str, str]) -> bool | None:
            text = properties.get(name)
            return None if text is None else text in texts

        return self._logic(is_in, value)

    def not_in(self, value: _Node, *literals: str) -> _Node:
        found = self.in_(value, *literals)
        return self._logic(_negated(found.evaluate), found)

    def _search(
        self, value: _Node, literal: str, test: Callable[[str, str], bool], *, found: bool = True
    ) -> _Node:
        """Say nothing of a value that is no text, nor of the empty text: not even "lacks it"."""
        get, wanted = value.evaluate, _text_of(literal)
        if not wanted:
            return self._logic(lambda _properties: False, value)

        def search(properties: Mapping[str, str]) -> bool:
            text = get(properties)
            return type(text) is str and test(text, wanted) is found

        return self._logic(search, value)

    def contains(self, value: _Node, literal: str) -> _Node:
        return self._search(value, literal, str.__contains__)

    def not_contains(self, value: _Node, literal: str) -> _Node:
        return self._search(value, literal, str.__contains__, found=False)

    def starts_with(self, value: _Node, literal: str) -> _Node:
        return self._search(value, literal, str.startswith)

    def not_starts_with(self, value: _Node, literal: str) -> _Node:
        return self._search(value, literal, str.startswith, found=False)

    def ends_with(self, value: _Node, literal: str) -> _Node:
        return self._search(value, literal, str.endswith)

    def not_ends_with(self, value: _Node, literal: str) -> _Node:
        return self._search(value, literal, str.endswith, found=False)


def _check_range(low: _Node, high: _Node) -> None:
    """Errors: `Sql92Error` for a range of constants that cannot be one."""
    if not (low.is_constant and high.is_constant):
        return
    if low.value is None or high.value is None:
        raise Sql92Error("NULL cannot be an end of a range")
    if not (low.is_boolean or high.is_boolean or str in (type(low.value), type(high.value))) and (
        low.value > high.value
    ):
        raise Sql92Error(f"{low.value!r} is more than {high.value!r}")
