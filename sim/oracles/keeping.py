"""A client keeps its connection to whom it takes for the leader, as long as it runs itself.

What was sent over a connection that is closed may be stored or not: whoever gives it up though its
leader is at the other end sends again what the leader has. A connection is given up when the route
names another leader, never since an answer is late. And whoever waits for a connection gets one to
whom the route names when it is there, not to who led when it was asked for.
Source: docs/client.md; `ledgermq.client.upkeep`, `ledgermq.client.group_member`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from sim.oracles.base import Findings, Violation

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgermq.client.instance import ClientInstance
    from ledgermq.client.links import Link
    from ledgermq.remoting.transport.connection import Connection

NAME: Final = "A46 given up though it leads"
FORMER: Final = "A46 connected to who does not lead"


class Client(Protocol):
    """A producer or consumer."""

    _instance: ClientInstance


class Keeping:
    """Listens to the clients of a run, as ``others`` do."""

    def __init__(self, findings: Findings, *others: Callable[[Any], None]) -> None:
        self._findings = findings
        self._others = others

    def follow(self, client: Client) -> None:
        """Judge what becomes of the connections of a client; before it starts."""
        for follow in self._others:
            follow(client)
        instance = client._instance
        opened = instance.client.on_open

        def listened(connection: Connection) -> None:
            opened(connection)
            self._listen(instance, connection)

        instance.client.on_open = listened  # type: ignore[method-assign]  # to listen to it
        links: Any = getattr(client, "links", None)  # of a producer
        if links is not None:
            self._follow_links(instance, links)

    def _follow_links(self, instance: ClientInstance, links: Any) -> None:  # noqa: ANN401  # as there
        routes, connect = instance.routes, links.connect

        async def connected(broker_name: str, timeout_ms: int) -> Link:
            link: Link = await connect(broker_name, timeout_ms)
            if routes.master(broker_name) not in {None, link.addr}:
                text = f"{instance.client_id}: to {link.addr}, {routes.master(broker_name)} leads"
                self._findings.report(Violation(FORMER, text))
            return link

        links.connect = connected

    def _listen(self, instance: ClientInstance, connection: Connection) -> None:
        transport: Any = connection._transport  # a `SimTransport`
        transport.on_left = lambda: self._check(instance, connection)

    def _check(self, instance: ClientInstance, connection: Connection) -> None:
        """Look at a connection that is about to end: who ends it here has said so before."""
        if not connection._closing or instance.stopping.begun or not instance.running:
            return
        address = "{}:{}".format(*connection.remote)
        for name in instance.routes.brokers:
            if instance.routes.master(name) == address:
                text = f"{instance.client_id} ends its connection to {address}, where {name} leads"
                self._findings.report(Violation(NAME, text))
