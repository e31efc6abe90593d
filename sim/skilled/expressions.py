"""Expressions of SQL92 that are drawn, and what each says of a message.

What it says is written here from the language (spec/wire.md 7.3), not from who evaluates it at
brokers. A part says that it is so, that it is not, or neither (None), where something is missing;
a property that is read as a number and is none ends it all: the message does not match.
Pure. Source: spec/wire.md 7.3; RocketMQ SelectorParser.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from sim.rng import SplitRng

Properties = Mapping[str, str]
Says = Callable[[Properties], bool | None]

SIZE, WEIGHT, CITY, SEEN = "size", "weight", "city", "seen"
NAMES: Final = (SIZE, WEIGHT, CITY, SEEN)
INT_MAX: Final = 2_147_483_647
NUMBERS: Final = (
    "", "", "0", "1", "4", "5", "6", "10", "-5", "+5", "05", str(INT_MAX), str(INT_MAX + 1),
    str(-INT_MAX - 1), "many", "5.0", "2.5",
)  # fmt: skip
"""What messages have as a number; nothing where it is empty."""
CITIES: Final = ("", "", "paris", "Paris", "pa", "is", "berlin", "it's", "5")
FLAGS: Final = ("", "true", "TRUE", "false", "yes")
INTEGERS: Final = (0, 1, 4, 5, 6, 10, -5, INT_MAX - 1, INT_MAX, -INT_MAX)
LARGE: Final = (INT_MAX + 1, -INT_MAX - 2, 5_000_000_000)
"""Numbers that only a long has; a small one is an int, with its mark as well."""
DOUBLES: Final = ("2.5", "5.0", "0.5", "1e1")
DEPTH_MAX: Final = 3
LONG: Final = range(-(1 << 63), 1 << 63)
INT: Final = range(-INT_MAX - 1, INT_MAX + 1)
_WHOLE: Final = re.compile(r"[+-]?[0-9]+\Z")
_REAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\Z")


class UnreadableError(Exception):
    """A property is no number, or not one that its type has."""


class Expression(NamedTuple):
    """An expression, and what it says."""

    text: str
    says: Says

    def matches(self, properties: Properties) -> bool:
        """Tell whether a message is wanted."""
        try:
            return self.says(properties) is True
        except UnreadableError:
            return False


def draw_properties(rng: SplitRng) -> dict[str, str]:
    """Return properties of a message; some are missing."""
    values = {SIZE: NUMBERS, WEIGHT: NUMBERS, CITY: CITIES, SEEN: FLAGS}
    drawn = {name: rng.split(name).choice(texts) for name, texts in values.items()}
    return {name: text for name, text in drawn.items() if text}


def draw_expression(rng: SplitRng, depth: int = DEPTH_MAX) -> Expression:
    """Return some expression: alternatives of which each may ask for several things."""
    parts = [
        _joined([_part(rng.split(f"{one}-{at}"), depth) for at in range(count)], " AND ", by=False)
        for one, count in enumerate(rng.split("counts").choice(((1,), (1,), (2,), (1, 1), (2, 1))))
    ]
    return _joined(parts, " OR ", by=True)


def _joined(parts: list[Expression], word: str, *, by: bool) -> Expression:
    if len(parts) == 1:
        return parts[0]
    return Expression(word.join(part.text for part in parts), _decided(parts, by=by))


def _decided(parts: list[Expression], *, by: bool) -> Says:
    """The first part that says ``by`` decides; else it is NULL if any is, and the other value."""

    def says(properties: Properties) -> bool | None:
        found: bool | None = not by
        for part in parts:
            one = part.says(properties)
            if one is by:
                return by
            found = None if one is None else found
        return found

    return says


def _not(says: Says) -> Says:
    def denied(properties: Properties) -> bool | None:
        found = says(properties)
        return None if found is None else not found

    return denied


def _part(rng: SplitRng, depth: int) -> Expression:
    if depth > 1 and rng.split("inner").chance(0.3):
        inner = draw_expression(rng.split("in it"), depth - 1)
        if rng.split("not").chance(0.5):
            return Expression(f"NOT ({inner.text})", _not(inner.says))
        return Expression(f"({inner.text})", inner.says)
    kinds = (_compared, _compared, _between, _between, _in, _searched, _null, _flag, _equal_text)
    kind = rng.split("kind").choice(kinds)
    return kind(rng)


# Numbers


class Constant(NamedTuple):
    """A number of an expression, and how a property is read beside it."""

    text: str
    value: float
    read: Callable[[str], float]


def _integer(text: str) -> int:
    if not _WHOLE.match(text) or int(text) not in INT:
        raise UnreadableError(text)
    return int(text)


def _long(text: str) -> int:
    if not _WHOLE.match(text) or int(text) not in LONG:
        raise UnreadableError(text)
    return int(text)


def _real(text: str) -> float:
    if not _REAL.match(text):
        raise UnreadableError(text)
    return float(text)


def _constants(rng: SplitRng, count: int) -> list[Constant]:
    """Return numbers of one type, the smaller ones first."""
    kind = rng.split("type").choice(("int", "int", "int", "long", "double"))
    drawn = [rng.split(f"number{at}") for at in range(count)]
    if kind == "double":
        texts = [one.choice(DOUBLES) for one in drawn]
        found = [Constant(text, float(text), _real) for text in texts]
    else:
        mark = "" if rng.split("mark").chance(0.7) else "L"
        numbers, read = (INTEGERS, _integer) if kind == "int" else (LARGE, _long)
        values = [one.choice(numbers) for one in drawn]
        found = [Constant(f"{value}{mark}", value, read) for value in values]
    return sorted(found, key=lambda one: one.value)


def _compared(rng: SplitRng) -> Expression:
    name = rng.split("name").choice((SIZE, WEIGHT))
    (constant,) = _constants(rng, 1)
    signs: dict[str, Callable[[float, float], bool]] = {
        "=": lambda a, b: a == b, "<>": lambda a, b: a != b, "<": lambda a, b: a < b,
        "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
    }  # fmt: skip
    sign = rng.split("sign").choice(list(signs))

    def says(properties: Properties) -> bool | None:
        text = properties.get(name)
        return None if text is None else signs[sign](constant.read(text), constant.value)

    return Expression(f"{name} {sign} {constant.text}", says)


def _between(rng: SplitRng) -> Expression:
    name = rng.split("name").choice((SIZE, WEIGHT))
    low, high = _constants(rng, 2)
    is_denied = rng.split("denied").chance(0.3)

    def says(properties: Properties) -> bool | None:
        text = properties.get(name)
        if text is None:
            return None
        return (low.value <= low.read(text) <= high.value) is not is_denied

    word = "NOT BETWEEN" if is_denied else "BETWEEN"
    return Expression(f"{name} {word} {low.text} AND {high.text}", says)


# Texts


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _in(rng: SplitRng) -> Expression:
    name = rng.split("name").choice((CITY, CITY, SIZE))
    texts = [rng.split(f"text{at}").choice((*CITIES[2:], "0", "05")) for at in range(3)]
    is_denied = rng.split("denied").chance(0.3)

    def says(properties: Properties) -> bool | None:
        text = properties.get(name)
        return None if text is None else (text in texts) is not is_denied

    word = "NOT IN" if is_denied else "IN"
    return Expression(f"{name} {word} ({', '.join(map(_quoted, texts))})", says)


def _searched(rng: SplitRng) -> Expression:
    """Neither with nor without "not" it is so where there is no such property."""
    tests: dict[str, Callable[[str, str], bool]] = {
        "CONTAINS": lambda text, part: part in text,
        "STARTSWITH": lambda text, part: text[: len(part)] == part,
        "ENDSWITH": lambda text, part: text[-len(part) :] == part,
    }
    word, part = rng.split("word").choice(list(tests)), rng.split("part").choice(CITIES[2:])
    is_denied = rng.split("denied").chance(0.3)

    def says(properties: Properties) -> bool:
        text = properties.get(CITY)
        return text is not None and tests[word](text, part) is not is_denied

    return Expression(f"{CITY} {'NOT ' * is_denied}{word} {_quoted(part)}", says)


def _equal_text(rng: SplitRng) -> Expression:
    wanted, is_denied = rng.split("text").choice(CITIES[2:]), rng.split("denied").chance(0.3)

    def says(properties: Properties) -> bool | None:
        text = properties.get(CITY)
        return None if text is None else (text == wanted) is not is_denied

    return Expression(f"{CITY} {'<>' if is_denied else '='} {_quoted(wanted)}", says)


def _null(rng: SplitRng) -> Expression:
    name, is_denied = rng.split("name").choice(NAMES), rng.split("denied").chance(0.5)
    return Expression(
        f"{name} IS {'NOT ' * is_denied}NULL",
        lambda properties: (name not in properties) is not is_denied,
    )


def _flag(rng: SplitRng) -> Expression:
    """What is not the word for true means false."""
    wanted = rng.split("wanted").chance(0.5)

    def says(properties: Properties) -> bool | None:
        text = properties.get(SEEN)
        return None if text is None else (text.lower() == "true") is wanted

    return Expression(f"{SEEN} = {'TRUE' if wanted else 'FALSE'}", says)
