"""Logging to stderr: one line an event, ``key=value`` in the text, the node's name in front."""

import logging
import re
import sys
import time
from typing import Final

_FORMAT: Final = "%(asctime)s.%(msecs)03dZ %(levelname)s%(node)s %(name)s %(message)s"
_NODE: Final = re.compile(r"(^| )node=")
_TIME: Final = "%Y-%m-%dT%H:%M:%S"


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


def configure_logging(node: str = "", level: str = "INFO") -> None:
    """Send all records from ``level`` up to stderr; a second call replaces the first."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(KeyValueFormatter(node))
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
