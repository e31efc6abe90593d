"""Held pulls are sent away slice by slice, and only for as long as this replica does not lead."""

import asyncio

from broker.pulls.release import HeldPulls
from mutants.patches import BY_TESTS, MUTANTS
from mutants.planting import planted


async def left_held(*, leads_again: bool) -> int:
    """How many of three pulls are still held, each a slice, after a leader was deposed."""
    held = [1, 2, 3]

    def release() -> bool:
        held.pop()
        return bool(held)

    service = HeldPulls(release, lambda: len(held))
    service.start(1)
    service.stop()
    if leads_again:
        service.start(3)
    for _ in range(5):
        await asyncio.sleep(0)
    return len(held)


def test_all_are_sent_away_in_slices():
    assert asyncio.run(left_held(leads_again=False)) == 0
    with planted(MUTANTS["released-in-one-slice"]):
        assert asyncio.run(left_held(leads_again=False)) == 2


def test_who_leads_again_sends_nobody_away():
    assert asyncio.run(left_held(leads_again=True)) == 2
    with planted(BY_TESTS["sent-away-though-it-leads-again"]):
        assert asyncio.run(left_held(leads_again=True)) == 0
