"""How values of others stand in what is told: short, whatever they are. Pure."""

from typing import Final

VALUE_CHARS_MAX: Final = 80
LINE_CHARS_MAX: Final = 400


def quoted(value: object) -> str:
    """Return a value as Python writes it; of a long one the first characters, `VALUE_CHARS_MAX`."""
    return cut(repr(value))


def cut(text: str, most: int = VALUE_CHARS_MAX) -> str:
    """Return the first ``most`` characters of a text, with dots where it is cut."""
    return text if len(text) <= most else f"{text[: most - 3]}..."
