"""The latest route counts at a client, and each wish to rebalance."""

import asyncio
from types import SimpleNamespace

import pytest

from sim.oracles.base import Findings
from sim.oracles.heeding import FORGOTTEN, OLDER, Heeding

BEFORE, AFTER = {0: "n0:1"}, {0: "n1:1"}


class Routes:
    """Routes that take the latest answer, or any."""

    def __init__(self, *, takes_any):
        self._addrs, self._ns, self._takes_any = {}, {}, takes_any

    def _store(self, route):
        for name, addrs in route.brokers.items():
            if self._takes_any or route.t_fetched_ns >= self._ns.get(name, 0):
                self._addrs[name], self._ns[name] = addrs, route.t_fetched_ns
        return route


def told(routes, *answers):
    """Tell a client of one broker: what, and when that was asked for."""
    findings = Findings()
    Heeding(findings).follow(SimpleNamespace(routes=routes, client_id="c"))
    for addrs, asked_ns in answers:
        routes._store(SimpleNamespace(brokers={"b": addrs}, t_fetched_ns=asked_ns))
    return None if findings.first is None else findings.first.oracle


@pytest.mark.parametrize(
    ("takes_any", "answers", "oracle"),
    [
        (False, [(AFTER, 2), (BEFORE, 1)], None),
        (True, [(BEFORE, 1), (AFTER, 2)], None),
        (True, [(AFTER, 2), (AFTER, 1)], None),
        (True, [(AFTER, 2), (BEFORE, 2)], None),
        (True, [(AFTER, 2), (BEFORE, 1)], OLDER),
    ],
)
def test_the_answer_counts_that_was_asked_for_last(takes_any, answers, oracle):
    assert told(Routes(takes_any=takes_any), *answers) == oracle


class Member:
    """A consumer that is to rebalance once more while it does so."""

    client_id = "c"

    def __init__(self, *, clears):
        self.routes = Routes(takes_any=False)
        self._wanted, self._clears = asyncio.Event(), clears

    async def _rebalance(self):
        self._wanted.set()
        return True

    async def run(self):
        if self._clears == "before":
            self._wanted.clear()
        await self._rebalance()
        if self._clears == "after":
            self._wanted.clear()
        async with asyncio.timeout(0.01):
            await self._wanted.wait()


@pytest.mark.parametrize(("clears", "oracle"), [("before", None), ("after", FORGOTTEN)])
def test_a_wish_during_a_rebalance_counts(clears, oracle):
    async def run():
        findings, member = Findings(), Member(clears=clears)
        Heeding(findings).follow_member(member)
        try:
            await member.run()
        except TimeoutError:
            assert clears == "after"
        return findings

    found = asyncio.run(run()).first
    assert (None if found is None else found.oracle) == oracle
