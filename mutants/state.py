"""Planted bugs of what requests make a group keep: its tables, and the size of log entries.

Tests find them, see ``BY_TESTS`` in `mutants.patches`.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

STATE: Final = (
    Mutant(
        name="unbounded-entry",
        breaks="A leader appends an entry that is larger than a frame between members.",
        source="Seen in this system: one request left a group without a leader for good.",
        plant=patch(
            "dledger.appender:Appender.reserve",
            ("if size_bytes > self._entry_bytes_max:", "if False:"),
        ),
    ),
)
