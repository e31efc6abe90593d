"""Where a position lies: which file of a row, and where in it. Pure.

A file is named by the position of its first byte, in 20 digits, as RocketMQ and DLedger do.
"""

from collections.abc import Iterator
from typing import Final

NAME_DIGITS: Final = 20

Piece = tuple[int, int, int]
"""``(base, offset, size)``: so many bytes at ``offset`` of the file that begins at ``base``."""


def segment_name(base: int) -> str:
    """Return the name of the file that begins at ``base``."""
    return f"{base:0{NAME_DIGITS}}"


def is_segment_name(name: str) -> bool:
    """Tell whether this is the name of such a file."""
    return len(name) == NAME_DIGITS and name.isascii() and name.isdigit()


def pieces(position: int, size: int, segment_bytes: int) -> Iterator[Piece]:
    """Cut a range of bytes where files end."""
    while size > 0:
        offset = position % segment_bytes
        count = min(size, segment_bytes - offset)
        yield position - offset, offset, count
        position += count
        size -= count
