"""Planted bugs of what surrounds the system: processes of a run, its figures, its ports, its words.

Tests find them, see ``HARNESS_BUGS`` in `mutants.patches`.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch, patches

HARNESS: Final = (
    Mutant(
        name="modules-of-the-user",
        breaks="Processes of a run import from the current directory before they import ours.",
        source="python -m: the current directory comes first on the path.",
        plant=patches(
            patch("chaos.backends.process:python", ('"-P", ', "")),
            patch("chaos.backends.process:environment", (', PYTHONSAFEPATH="1"', "")),
        ),
    ),
    Mutant(
        name="silent-consumer",
        breaks="A consumer that no name server answers waits for ever and says nothing.",
        source="Seen in this system: ledgermq consume ended with code 1 and no word.",
        plant=patch(
            "ledgermq.client.push:PushConsumer._hindered",
            ("self._problems[topic] = error", "self._joined.set()"),
            ("logging.INFO if str(before) == str(error) else logging.WARNING", "logging.DEBUG"),
        ),
    ),
)
