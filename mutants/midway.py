"""Planted bugs of what is refused, cancelled or left in the middle: half of it stands.

Sources: docs/client.md; RocketMQ.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

MIDWAY: Final = (
    Mutant(
        name="refused-commit-is-done",
        breaks="A `commit` that is refused commits what its caller still works at.",
        source="docs/client.md: what a poll gave out is done with at the next poll.",
        plant=patch(
            "ledgermq.client.lite_pull:LitePullConsumer.commit",
            (
                "    for queue, offset in (offsets or {}).items():\n",
                "    self._polled.finish()\n    for queue, offset in (offsets or {}).items():\n",
            ),
        ),
    ),
    Mutant(
        name="refused-poll-is-done",
        breaks="A `poll` that is refused commits what its caller still works at.",
        source="docs/client.md: what a poll gave out is done with at the next poll.",
        plant=patch(
            "ledgermq.client.lite_pull:LitePullConsumer.poll",
            ("    if count < 1:\n", "    self._polled.finish()\n    if count < 1:\n"),
        ),
    ),
)
