"""Planted bugs in what a follower makes of the notes of its leader.

Tests find them, see ``BY_TESTS`` in `mutants.patches`.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

HINTS: Final = (
    Mutant(
        name="note-believed-unseen",
        breaks="A follower compares no record with what a note says of it.",
        source="A note names a queue that exists and expects that offset: the message goes there.",
        plant=patch(
            "store.dispatch.dispatcher:Dispatcher._bears_out",
            ("not found or agrees(note, claim, found[0], self.keys)", "True"),
        ),
    ),
)
