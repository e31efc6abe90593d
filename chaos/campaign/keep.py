"""Which histories of a campaign go, so that its disk stays bounded. Pure.

What may go goes in this order: histories of valid runs but the last few, then those of the others
that found nothing new, the oldest first, then the last few. The first run of each cause stays
until nothing else is left to go.
"""

from collections.abc import Mapping, Sequence

from chaos.campaign.outcome import Outcome
from chaos.checker.model import VALID


def histories_to_drop(
    outcomes: Sequence[Outcome], sizes: Mapping[int, int], *, last: int, bytes_max: int
) -> list[int]:
    """Return the numbers of the runs whose histories go.

    ``outcomes``: in the order in which they were run; ``sizes``: bytes of each history that is
    there, by number; ``last``: how many valid ones stay.
    """
    there = [one for one in outcomes if one.job.number in sizes]
    fine = [one.job.number for one in there if one.verdict == VALID]
    gone = fine[: max(0, len(fine) - last)]
    left = sum(sizes.values()) - sum(sizes[number] for number in gone)
    for number in [*_more_of_the_same(there), *fine[len(gone) :], *_first_of_a_cause(there)]:
        if left <= bytes_max:
            break
        gone.append(number)
        left -= sizes[number]
    return gone


def _first_of_a_cause(outcomes: Sequence[Outcome]) -> list[int]:
    seen: set[str] = set()
    first = []
    for one in outcomes:
        causes = {finding.cause for finding in one.findings} or {one.verdict}
        if one.verdict != VALID and not causes <= seen:
            first.append(one.job.number)
        seen |= causes
    return first


def _more_of_the_same(outcomes: Sequence[Outcome]) -> list[int]:
    first = set(_first_of_a_cause(outcomes))
    return [
        one.job.number for one in outcomes if one.verdict != VALID and one.job.number not in first
    ]
