"""What a client is told it heeds: the latest route, and each wish to look at its queues again.

Of two answers about a broker's addresses the one that was asked for last counts, whichever comes
first: by the other one a client goes back to a leader that is gone. And who is to rebalance while a
rebalance is under way rebalances once more: what it looks at may be from before. Looked at in the
client itself; outside, it shows as a pause until the next poll or period.
Source: docs/client.md (routes; rebalance); RocketMQ RebalanceService.wakeup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.oracles.base import Findings, Violation

if TYPE_CHECKING:
    import asyncio

    from ledgermq.client import Producer, PushConsumer
    from ledgermq.client.group_member import GroupMember
    from ledgermq.client.route import RouteCache, TopicRoute

OLDER: Final = "A46 an older route counts"
FORGOTTEN: Final = "A41 a wish to rebalance is forgotten"


class Heeding:
    """Listens to the clients of a run."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings

    def follow(self, client: Producer | PushConsumer) -> None:
        """Judge a client from now on; before it starts."""
        Routed(client.routes, client.client_id, self._findings)

    def follow_member(self, push: PushConsumer) -> None:
        """Judge a consumer, likewise."""
        self.follow(push)
        Wishing(push, push._wanted, self._findings)


class Routed:
    """What one life of a client knows of brokers."""

    def __init__(self, routes: RouteCache, who: str, findings: Findings) -> None:
        self._routes, self._who, self._findings = routes, who, findings
        self._asked_ns: dict[str, int] = {}
        """By broker: when the latest of the answers about it was asked for."""
        self._store = routes._store
        routes._store = self._stored  # type: ignore[method-assign]  # to listen to it

    def _stored(self, route: TopicRoute) -> TopicRoute:
        before = dict(self._routes._addrs)
        result = self._store(route)
        for name in route.brokers:
            latest_ns, after = self._asked_ns.get(name, -1), self._routes._addrs.get(name)
            if route.t_fetched_ns < latest_ns and after != before.get(name):
                text = f"{self._who} was told {before.get(name)} of {name}, and believes {after}"
                text = f"{text}, asked for {latest_ns - route.t_fetched_ns} ns before"
                self._findings.report(Violation(OLDER, text))
            self._asked_ns[name] = max(latest_ns, route.t_fetched_ns)
        return result


class Wishing:
    """What one life of a member wants."""

    def __init__(self, member: GroupMember, wanted: asyncio.Event, findings: Findings) -> None:
        self._member, self._wanted, self._findings = member, wanted, findings
        self._is_owed = False
        """Whether somebody wants a rebalance since the last one began."""
        self._rebalance, self._set, self._wait = member._rebalance, wanted.set, wanted.wait
        member._rebalance = self._begun  # type: ignore[method-assign]  # to listen to it
        wanted.set = self._wished  # type: ignore[method-assign]  # likewise
        wanted.wait = self._waits  # type: ignore[method-assign, assignment]  # likewise

    def _wished(self) -> None:
        self._is_owed = True
        self._set()

    async def _begun(self) -> bool:
        self._is_owed = False
        return await self._rebalance()

    async def _waits(self) -> bool:
        if self._is_owed and not self._wanted.is_set():
            text = f"{self._member.client_id} waits, and was to rebalance once more"
            self._findings.report(Violation(FORGOTTEN, text))
        return await self._wait()
