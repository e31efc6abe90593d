"""Logging to stderr: one line an event, ``key=value`` in the text, the node's name in front.

Who sends requests decides part of what is logged, so lines are bounded: in length, in what they can
hold (no line ends but the last), and in number, each kind of line by itself.
"""

import logging
import re
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, Final

_FORMAT: Final = "%(asctime)s.%(msecs)03dZ %(levelname)s%(node)s %(name)s %(message)s"
_NODE: Final = re.compile(r"(^| )node=")
_TIME: Final = "%Y-%m-%dT%H:%M:%S"
_TRACE: Final = " \n"
"""How frames of a traceback, and what stands between two of them, begin."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")

LINE_CHARACTERS_MAX: Final = 4_096
"""Longest text of a line; what is longer is cut."""
TRACE_CHARACTERS_MAX: Final = 65_536
"""Longest traceback; what is longer is cut."""
LINES_PER_KIND: Final = 20
"""Lines of one kind (one text before its values are filled in) in `PERIOD_S`."""
PERIOD_S: Final = 10.0
KINDS_MAX: Final = 2_000
"""Kinds of lines that are counted; there are fewer in the whole product."""


class KeyValueFormatter(logging.Formatter):
    """Formats records in UTC with the name of the node."""

    converter = staticmethod(time.gmtime)

    def __init__(self, node: str = "") -> None:
        super().__init__(_FORMAT, _TIME)
        self._node = f" node={node}" if node else ""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record; a traceback follows on lines of its own."""
        # Several nodes may share a process, so some texts name theirs; no line names two.
        record.node = "" if _NODE.search(record.getMessage()) else self._node
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the line without its traceback: cut, and with no control character in it."""
        record.message = _one_line(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802, ANN401 - logging's name and type
        """Return a traceback; the text of an error, which may quote a request, is one line of it.

        Else whoever has a request fail could write any lines, of any length.
        """
        parts = traceback.format_exception(*ei)
        lines = [
            part.removesuffix("\n") if part[:1] in _TRACE else _one_line(part.removesuffix("\n"))
            for part in parts
        ]
        return "\n".join(lines)[:TRACE_CHARACTERS_MAX]


def _one_line(text: str) -> str:
    if len(text) > LINE_CHARACTERS_MAX:
        text = f"{text[:LINE_CHARACTERS_MAX]}... ({len(text)} characters)"
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


class Throttle(logging.Filter):
    """Lets `LINES_PER_KIND` lines of a kind through in each period, and says how many it held back.

    CRITICAL lines always pass: a process ends by them.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now_s = now_s
        self._kinds: dict[str, list[float]] = {}
        """By kind: when its period began, lines in it, lines held back."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a record is to be written."""
        if record.levelno >= logging.CRITICAL:
            return True
        now = self._now_s()
        kind = str(record.msg)
        state = self._kinds.get(kind)
        if state is None:
            if len(self._kinds) >= KINDS_MAX:
                self._kinds.clear()
            state = self._kinds[kind] = [now, 0, 0]
        if now - state[0] >= PERIOD_S:
            if state[2]:
                record.msg = f"{record.msg} held_back={int(state[2])}"
            state[:] = [now, 0, 0]
        state[1] += 1
        if state[1] > LINES_PER_KIND:
            state[2] += 1
            return False
        return True


def configure_logging(node: str = "", level: str = "INFO") -> None:
    """Send all records from ``level`` up to stderr; a second call replaces the first."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(KeyValueFormatter(node))
    handler.addFilter(Throttle())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
