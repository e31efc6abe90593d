"""Values as Java has them: which texts are numbers, and how values of its types are ordered.

`int` stands for `Integer`, `Long` for `Long`, `float` for `Double`. Pure.
Source: the Java platform's Integer, Long and Double (valueOf, compareTo); RocketMQ
ComparisonExpression.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

INT: Final = range(-(2**31), 2**31)
LONG: Final = range(-(2**63), 2**63)
DOUBLE_MIN: Final = 4.9e-324
NUMBER_LENGTH_MAX: Final = 400
"""Longer texts are no numbers here, whatever Java makes of their zeros: a look costs the length."""
_INTEGER_TEXT: Final = re.compile(r"[+-]?\d+\Z")
_DOUBLE_TEXT: Final = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<name>NaN|Infinity)"
    r"|(?P<decimal>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    r"|(?P<hex>0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?)\Z"
)
#: What `String.trim` takes away.
_TRIMMED: Final = "".join(map(chr, range(33)))


class Long(int):
    """A Java `Long`; an `int` is an `Integer`."""

    __slots__ = ()


def _whole(text: str, allowed: range) -> int:
    """Read a text as `Integer.valueOf` or `Long.valueOf` does. Errors: `ValueError`."""
    if len(text) > NUMBER_LENGTH_MAX or _INTEGER_TEXT.match(text) is None:
        raise ValueError(text)
    digits = text.lstrip("+-")
    value = int(text) if len(digits) < 20 else int(text[0] + "0" + digits.lstrip("0")[:20])
    if value not in allowed:
        raise ValueError(text)
    return value


def integer(text: str) -> int:
    """Read a text as `Integer.valueOf` does. Errors: `ValueError`."""
    if len(text) < 10 and text.isdecimal():
        return int(text)
    return _whole(text, INT)


def long(text: str) -> Long:
    """Read a text as `Long.valueOf` does. Errors: `ValueError`."""
    return Long(_whole(text, LONG))


def double(text: str) -> float:
    """Read a text as `Double.valueOf` does. Errors: `ValueError`."""
    if len(text) > NUMBER_LENGTH_MAX:
        raise ValueError("no number")
    found = _DOUBLE_TEXT.match(text.strip(_TRIMMED))
    if found is None:
        raise ValueError(text)
    if found["hex"] is not None:
        try:
            value = float.fromhex(found["hex"])
        except OverflowError:
            value = math.inf
    else:
        value = float(found["decimal"] or found["name"])
    return -value if found["sign"] == "-" else value


def boolean(text: str) -> bool:
    """Read a text as `Boolean.valueOf` does."""
    return len(text) == 4 and text.lower() == "true"


READ: Final[dict[type, Callable[[str], Any]]] = {
    int: integer,
    Long: long,
    float: double,
    bool: boolean,
}
"""How a property is read that is compared with a value of a type."""


def order_doubles(left: float, right: float) -> int:
    """Order as `Double.compareTo`: NaN is the largest and equals itself, -0.0 is below 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right != 0:
        return 0
    keys = [(math.isnan(value), math.copysign(1, value)) for value in (left, right)]
    if keys[0][0] and keys[1][0]:
        return 0
    return (keys[0] > keys[1]) - (keys[0] < keys[1])


def order(left: Any, right: Any) -> int | None:  # noqa: ANN401 - values of five types
    """Return less than, equal to or more than 0; None if the types cannot be compared.

    Errors: `ValueError` if a property is not of the type that it is compared with.
    """
    left_type, right_type = type(left), type(right)
    if left_type is bool and right_type is str:
        raise ValueError(right)
    if left_type is str and right_type in READ:
        left = READ[right_type](left)
    elif right_type is str and left_type in READ:
        right = READ[left_type](right)
    elif (left_type is bool) is not (right_type is bool):
        return None
    if type(left) is float or type(right) is float:
        return order_doubles(float(left), float(right))
    return int(left > right) - int(left < right)
