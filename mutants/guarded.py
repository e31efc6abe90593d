"""Bugs of access control that show where brokers serve accounts (`sim.guarded`).

Source: docs/access.md.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

GUARDED: Final = (
    Mutant(
        name="denied-topic-by-default",
        breaks="Who is denied a topic by name may do there what is the default for others.",
        source="docs/access.md, the file: the default is for topics that are not listed.",
        plant=patch(
            "broker.access.rules:Account.has",
            (
                "self.topics.get(right.name, self._default_of(right.name))",
                "self.topics.get(right.name) or self._default_of(right.name)",
            ),
        ),
    ),
)
