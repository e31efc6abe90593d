"""Asking name servers for routes: one after the other, or all at once after a failure.

Knows nothing of caching. Source: NettyRemotingClient (name server choice), MQClientAPIImpl
(GET_ROUTEINFO_BY_TOPIC); asking all at once is ours, so that one stale server does not hold up
a failover.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Protocol

from ledgermq.client.errors import NameServersUnreachable
from ledgermq.remoting.protocol.bodies import TopicRouteData, decode_topic_route
from ledgermq.remoting.protocol.codes import LanguageCode, RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.errors import RemotingError, for_code

_log = logging.getLogger(__name__)


class Caller(Protocol):
    """The part of the remoting client that requests need."""

    async def request(
        self, addr: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        """Send ``command`` to ``addr`` and return the response; raises ``RemotingError``."""
        ...


class NameServers:
    """The name servers of one client; remembers which one answered last."""

    def __init__(self, addrs: Sequence[str], caller: Caller, timeout_ms: int) -> None:
        self._addrs = tuple(addrs)
        self._caller = caller
        self._timeout_ms = timeout_ms
        self._good = 0

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._addrs)

    async def fetch_route(self, topic: str) -> TopicRouteData | None:
        """Return the route of ``topic``, None if the servers do not know it.

        Servers are tried in turn, beginning with the one that answered last. Errors:
        ``NameServersUnreachable`` when none answered.
        """
        last_error: RemotingError | None = None
        for step in range(len(self._addrs)):
            index = (self._good + step) % len(self._addrs)
            try:
                route = await self._ask(self._addrs[index], topic)
            except RemotingError as error:
                _log.info("namesrv=%s topic=%s error=%s", self._addrs[index], topic, error)
                last_error = error
                continue
            self._good = index
            return route
        raise self._unreachable(last_error) from last_error

    async def fetch_route_everywhere(
        self, topic: str, suspects: frozenset[str]
    ) -> TopicRouteData | None:
        """Ask all name servers at once and return the most promising route, None if unknown.

        ``suspects`` are master addresses that just failed: a route whose masters are others is
        better than one that repeats them. The first such route ends the wait.
        """
        asked = [asyncio.ensure_future(self._ask(addr, topic)) for addr in self._addrs]
        routes: list[TopicRouteData] = []
        answers, last_error = 0, None
        try:
            for next_done in asyncio.as_completed(asked):
                try:
                    route = await next_done
                except RemotingError as error:
                    last_error = error
                    continue
                answers += 1
                if route is not None:
                    routes.append(route)
                    if healthy_masters(route, suspects) == len(route.broker_datas) > 0:
                        return route
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        if not answers:
            raise self._unreachable(last_error) from last_error
        return choose_route(routes, suspects)

    def _unreachable(self, last_error: RemotingError | None) -> NameServersUnreachable:
        return NameServersUnreachable(f"no answer from {self._names()}: {last_error}")

    async def _ask(self, addr: str, topic: str) -> TopicRouteData | None:
        command = RemotingCommand(
            code=RequestCode.GET_ROUTEINFO_BY_TOPIC,
            language=LanguageCode.PYTHON,
            ext_fields={"topic": topic},
        )
        response = await self._caller.request(addr, command, self._timeout_ms)
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if response.code != ResponseCode.SUCCESS:
            raise for_code(response.code, response.remark)
        return decode_topic_route(response.body)

    def _names(self) -> str:
        return ", ".join(self._addrs)


def healthy_masters(route: TopicRouteData, suspects: frozenset[str]) -> int:
    """Return how many brokers of ``route`` have a master that is not a suspect."""
    masters = (broker.broker_addrs.get(0) for broker in route.broker_datas)
    return sum(master is not None and master not in suspects for master in masters)


def choose_route(
    routes: Iterable[TopicRouteData], suspects: frozenset[str]
) -> TopicRouteData | None:
    """Return the route with most healthy masters, the first of equals; None if there is none."""
    return max(routes, key=lambda route: healthy_masters(route, suspects), default=None)
