"""Requests that copy a whole message have a turn of the loop each, and addresses take turns."""

import asyncio

from broker.one_a_turn import OneATurn
from mutants.patches import BY_TESTS
from mutants.planting import planted


async def served(addresses: str, given_up: int = -1) -> list[str]:
    """Return the order in which requests of addresses have their turns, with the turn of each."""
    turns, order, now = OneATurn(), [], 0

    async def ask(address: str) -> None:
        await turns.turn(address)
        order.append(f"{address}{now}")

    asked = [asyncio.ensure_future(ask(one)) for one in addresses]
    await asyncio.sleep(0)
    if given_up >= 0:
        asked[given_up].cancel()
    while not all(one.done() for one in asked):
        now += 1
        await asyncio.sleep(0)
    return [one[0] for one in order if order.count(one) == 1]


def test_the_next_address_does_not_wait_for_all_of_one():
    assert asyncio.run(served("aaaaaabc")) == list("aabcaaaa")


def test_one_that_was_given_up_takes_no_turn():
    assert asyncio.run(served("aaab", given_up=2)) == list("aab")


def test_without_that_it_waits_for_all():
    with planted(BY_TESTS["copies-by-arrival"]):
        assert asyncio.run(served("aaaaaabc")) == list("aaaaaabc")
