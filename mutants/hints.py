"""Planted bugs in how a follower dispatches: by the notes of its leader, many entries at once.

Tests find them, see ``BY_TESTS`` in `mutants.patches`.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

HINTS: Final = (
    Mutant(
        name="hint-believed-unseen",
        breaks="A follower compares no record with what a hint says of it.",
        source="A hint names a queue that exists and expects that offset: the message goes there.",
        plant=patch(
            "store.dispatch.dispatcher:Dispatcher._bears_out",
            ("not found or agrees(hint, claim, found[0], self.keys)", "True"),
        ),
    ),
    Mutant(
        name="follower-waits-for-the-tick",
        breaks="A follower lets any number of entries come together until the next tick.",
        source="What lies far behind is read back from the disk, and a new leader has it to do.",
        plant=patch(
            "store.dispatch.dispatcher:Dispatcher.may_wait",
            ("self._together_max", "1 << 60"),
        ),
    ),
)
