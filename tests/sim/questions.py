"""Which planted bugs stand for which question about messages: at least two for each.

A bug whose oracle has the question's id stands for it by that. Others break the question as well,
though something that looks closer finds them first; they are named here.
Source: spec/proof.md 3.3 to 3.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

QUESTIONS: Final = (
    *(f"A{number}" for number in range(10, 30) if number != 15),
    "A53", "A54", "A55", "A56", "A57",
)  # fmt: skip
"""Order, offsets, groups, locks, reads, delays, retries, transactions."""

ALSO: Final[Mapping[str, tuple[str, ...]]] = {
    "A11": ("ack-before-quorum", "no-fsync"),
    "A12": ("offset-of-a-group-of-sends", "waiting-sends-in-reverse"),
    "A13": ("finished-messages-again", "illegal-offset-believed"),
    "A14": ("client-orderly-retry-skips", "filter-passes-over", "next-offset-skips-one"),
    "A16": ("queue-index-rebuilt-short", "recovered-queue-one-short", "replay-duplicates"),
    "A19": ("dispatch-before-commit", "offsets-of-nothing"),
    "A27": ("failed-messages-dropped", "listener-that-raises-is-done"),
    "A55": ("answer-to-a-question-dropped", "half-unknown-to-followers"),
    "A57": ("dead-letters-dropped",),
}


def bugs_of_questions(oracles: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the bugs of each question, in order; ``oracles``: by bug, which one finds it."""
    found = {question: set(ALSO.get(question, ())) for question in QUESTIONS}
    for bug, oracle in oracles.items():
        question = oracle.partition(" ")[0]
        if question in found:
            found[question].add(bug)
    return {question: sorted(bugs) for question, bugs in found.items()}
