"""Planted bugs in what tools ask for and change.

Tests find them, see ``BY_TESTS`` in `mutants.patches`.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

ADMIN: Final = (
    Mutant(
        name="traffic-counted-again",
        breaks="What was counted is counted again at the next turn.",
        source="StatsItem: snapshots are differences of one growing value.",
        plant=patch("broker.stats.counts:_fold", ("new.clear()", "pass")),
    ),
    Mutant(
        name="long-answer-in-one-turn",
        breaks="An answer of any number of rows is made in one turn of the loop.",
        source="65,536 queues, a read from the log for each: a second for all other clients.",
        plant=patch("broker.stats.walks:_collect", ("await asyncio.sleep(0)", "pass")),
    ),
)
