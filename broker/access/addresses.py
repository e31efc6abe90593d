"""Addresses that an access file names: one, several, or a range in each part. Pure.

| text | whom it means |
|---|---|
| empty | nobody |
| ``*``, ``*.*.*.*``, ``*:*:*:*:*:*:*:*`` | everybody |
| ``10.0.0.7``, ``fd00::7`` | one address |
| ``10.0.0.7,10.0.0.9`` | these |
| ``10.0.0.{7,9}``, ``fd00::{7,9}`` | these |
| ``10.0.1-4.*``, ``10.0.*``, ``fd00::1-4:*`` | in each part one number, a range, or any; a last ``*`` stands for all parts that follow |

Source: RemoteAddressStrategyFactory 4.9.7.
"""  # noqa: E501  # a table

from __future__ import annotations

import ipaddress
import re
from typing import Final

_EVERYBODY: Final = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})
_BRACES: Final = re.compile(r"(?P<before>[^{}]*)\{(?P<last>[^{}]*)\}\Z")
Part = tuple[int, int]


class Addresses:
    """Whom one entry means. Errors of the constructor: `ValueError` says what is wrong."""

    __slots__ = ("_everybody", "_patterns")

    def __init__(self, text: str) -> None:
        text = text.strip()
        self._everybody = text in _EVERYBODY
        self._patterns: list[tuple[Part, ...]] = []
        if text and not self._everybody:
            self._patterns = [_parse(one) for one in _several(text)]

    def match(self, parts: tuple[int, ...]) -> bool:
        """Tell whether it means an address, see `parts_of`."""
        return self._everybody or any(
            len(pattern) == len(parts)
            and all(low <= part <= high for part, (low, high) in zip(parts, pattern, strict=True))
            for pattern in self._patterns
        )


def parts_of(host: str) -> tuple[int, ...]:
    """Return the four or eight numbers of an address; none if it is no address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return ()
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        if mapped is None:
            packed = address.packed
            return tuple(packed[at] << 8 | packed[at + 1] for at in range(0, 16, 2))
        address = mapped
    return tuple(address.packed)


def _several(text: str) -> list[str]:
    found = _BRACES.match(text)
    if found is not None:
        return [found["before"] + last.strip() for last in found["last"].split(",")]
    return [one.strip() for one in text.split(",")]


def _parse(text: str) -> tuple[Part, ...]:
    is_v6 = ":" in text
    count, most, base = (8, 0xFFFF, 16) if is_v6 else (4, 255, 10)
    words = text.split(":" if is_v6 else ".")
    if is_v6 and "::" in text:
        words = _expanded(text)
    if len(words) < count and words[-1] == "*":
        words += ["*"] * (count - len(words))
    if len(words) != count:
        raise ValueError(f"{text!r} is neither an address nor a range of addresses")
    return tuple(_part(text, word, most, base) for word in words)


def _expanded(text: str) -> list[str]:
    before, _, after = text.partition("::")
    left, right = before.split(":") if before else [], after.split(":") if after else []
    if "::" in after or len(left) + len(right) > 7:
        raise ValueError(f"{text!r} is neither an address nor a range of addresses")
    return [*left, *["0"] * (8 - len(left) - len(right)), *right]


def _part(text: str, word: str, most: int, base: int) -> Part:
    if word == "*":
        return 0, most
    low, dash, high = word.partition("-")
    try:
        part = _number(low, base), _number(high if dash else low, base)
    except ValueError:
        raise ValueError(f"{text!r}: {word!r} is not a number, range, or *") from None
    if not part[0] <= part[1] <= most:
        raise ValueError(f"{text!r}: {word!r} is not a range within 0 to {most:x}")
    return part


def _number(word: str, base: int) -> int:
    if not word.isalnum() or len(word) > 4:
        raise ValueError(word)
    return int(word, base)
