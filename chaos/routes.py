"""What name servers say of the brokers while all is well, between faults.

Clients keep a route for long, so that one that is wrong for half a minute hurts only who comes
anew. Here each name server is asked whenever the cluster is healthy and no fault is on: in time it
names who leads, and all the others that run. It becomes a row of ``answers``.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from chaos.nemesis.wait import until
from chaos.net.wire import StatusConnection
from chaos.parts import Parts

ROUTE_OF_TOPIC: Final = 105
ANSWER_TIMEOUT_S: Final = 5.0
SETTLED_S: Final = 8.0
"""In so long whoever leads, or is back, has registered; the next regular time may be later."""


class RouteQuestions:
    """Asks the name servers of one run."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def ask(self) -> None:
        """Ask each name server for the route of the first topic until it is right, or late."""
        leader = self._parts.probe.leader()
        if leader is None:
            return
        for addr in self._parts.cluster.name_server_addrs():
            await self._ask(addr, leader)

    async def _ask(self, addr: str, leader: str) -> None:
        parts = self._parts
        expected = self._words(leader)
        host, _, port = addr.rpartition(":")
        server, topic = StatusConnection(host, int(port)), parts.plan.topics[0]
        told: list[str | None] = []

        async def is_right() -> bool:
            if not self._is_still(leader):
                return True  # nobody can tell what is right now
            try:
                fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
                route = await server.ask(ROUTE_OF_TOPIC, ANSWER_TIMEOUT_S, fields)
                told.append(words_of(route.get("brokerDatas") or ()))
            except (OSError, EOFError, TimeoutError, ValueError):
                return False
            return told[-1] == expected

        await until(is_right, SETTLED_S)
        server.close()
        if told and self._is_still(leader):
            row = {"kind": "route", "subject": f"{topic} at {addr}, all being well"}
            row |= {"topic": topic, "expected": expected, "told": told[-1] or ""}
            parts.recorder.write("answers", row | {"t": parts.clock.monotonic_ns()})

    def _is_still(self, leader: str) -> bool:
        return self._parts.probe.leader() == leader and self._parts.probe.healthy()

    def _words(self, leader: str) -> str:
        cluster = self._parts.cluster
        addrs = {node: ":".join(map(str, cluster.client_addr(node))) for node in cluster.nodes}
        return _told(addrs[leader], [addr for node, addr in addrs.items() if node != leader])


def words_of(brokers: Iterable[Mapping[str, Mapping[str, str]]]) -> str:
    """Return whom a route names as leader, and whom besides."""
    told = [one.get("brokerAddrs") or {} for one in brokers]
    ids = {number: addr for one in told for number, addr in one.items()}
    return _told(ids.get("0", "nobody"), [addr for number, addr in ids.items() if number != "0"])


def _told(leader: str, others: list[str]) -> str:
    return f"{leader} leads, with {', '.join(sorted(others)) or 'nobody'}"
