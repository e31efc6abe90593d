"""The common comparisons of SQL92 expressions, cheaper: a property and numbers of Java's `Integer`.

They raise `ValueError` for a text that is no such number, as the general ones do. Pure.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Final

from broker.pulls.java_values import integer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Evaluate = Callable[[Mapping[str, str]], bool | None]

GREATER: Final = (1,)
"""What an order must be, as `broker.pulls.java_values.order` says it."""
GREATER_OR_EQUAL: Final = (0, 1)
LESS: Final = (-1,)
LESS_OR_EQUAL: Final = (-1, 0)
_OPERATORS: Final[dict[tuple[int, ...], Callable[[int, int], bool]]] = {
    GREATER: operator.gt,
    GREATER_OR_EQUAL: operator.ge,
    LESS: operator.lt,
    LESS_OR_EQUAL: operator.le,
}


def ordered_integer(name: str, value: int, accepted: tuple[int, ...]) -> Evaluate:
    """Return the order of a property and a value."""
    compare = _OPERATORS[accepted]

    def ordered(properties: Mapping[str, str]) -> bool | None:
        text = properties.get(name)
        return None if text is None else compare(integer(text), value)

    return ordered


def between_integers(name: str, low: int, high: int) -> Evaluate:
    """Return whether a property lies in a range; its ends belong to it."""

    def between(properties: Mapping[str, str]) -> bool | None:
        text = properties.get(name)
        return None if text is None else low <= integer(text) <= high

    return between
