"""Text from outside as it may be printed: a terminal takes control characters for orders.

Whoever sends a message, names a topic or answers a question decides what is printed of it. As it
came, it could clear or rewrite what a person sees, set the title of the window, or pass for lines
of another message. CWE-150; https://invisible-island.net/xterm/ctlseqs/ctlseqs.html has the orders.
"""

import json
import re
from typing import Any, Final

_UNSEEN: Final = re.compile(r"[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What JSON may hold as it is: DEL and C1, marks that turn or break lines, lone surrogates."""
_ORDERS: Final = re.compile(f"[\x00-\x08\x0b-\x1f]|{_UNSEEN.pattern}")
_ORDERS_AND_ENDS: Final = re.compile(f"\n|{_ORDERS.pattern}")


def shown(text: str) -> str:
    """Return a text as one line that can be printed, whatever bytes it is made of."""
    plain = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in plain)


def visible(text: str) -> str:
    """Return lines with their ends and tabs, and all other characters that give orders spelt."""
    return _spelt(text, _ORDERS)


def one_line(text: str) -> str:
    """Return a text like `visible`, with its line ends spelt as well."""
    return _spelt(text, _ORDERS_AND_ENDS)


def json_line(row: Any) -> str:  # noqa: ANN401 - what JSON takes
    """Return a value as one line of JSON: readable, and with nothing that a terminal obeys."""
    text = json.dumps(row, ensure_ascii=False)
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _spelt(text: str, orders: re.Pattern[str]) -> str:
    return orders.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
