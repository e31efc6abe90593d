"""Routes: which queues a topic has, and where the brokers are.

`TopicRoute` is a pure view of what name servers say. `RouteCache` keeps the views, refreshes them
when somebody reports a failure (concurrent refreshes of a topic are one), and keeps one table of
broker addresses for all topics, because a leader change concerns them all.
Source: TopicRouteData, MQClientInstance.topicRouteData2TopicPublishInfo, brokerAddrTable.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ledgermq.client.background import join
from ledgermq.client.errors import NoRoute
from ledgermq.client.limits import BROKERS_KNOWN_MAX, ROUTE_BROKERS_MAX, ROUTE_QUEUES_MAX
from ledgermq.client.message import MessageQueue
from ledgermq.client.name_servers import NameServers
from ledgermq.remoting.protocol.bodies import TopicRouteData
from ledgermq.remoting.protocol.errors import RemoteProtocolError, RemotingError
from ledgermq.runtime.clock import Clock

PERM_READ = 4
PERM_WRITE = 2
MASTER_ID = 0
ASK_AGAIN_MS = 20
"""A failure asks for a route at once, but so long after the last failure that did."""
LOOKED_FOR_AT_ONCE_MAX = 100
"""Topics for which all name servers are asked side by side."""
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000

_COUNT = re.compile(r"[0-9]{1,9}\Z")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRoute:
    """The route of one topic, as producers and consumers see it."""

    topic: str
    publish_queues: tuple[MessageQueue, ...]
    """Writable queues in the order of the route, whether or not their broker has a leader."""
    subscribe_queues: tuple[MessageQueue, ...]
    brokers: Mapping[str, Mapping[int, str]]
    """Broker name to broker id to address; id 0 is the master (leader)."""
    provisional: bool = False
    """Made from the route of the default topic: the topic does not exist yet."""
    t_fetched_ns: int = 0
    """Monotonic time at which the fetch began."""

    @property
    def broker_names(self) -> frozenset[str]:
        """The brokers that hold queues of the topic."""
        return frozenset(queue.broker_name for queue in self.publish_queues + self.subscribe_queues)


def make_route(topic: str, data: TopicRouteData, t_fetched_ns: int = 0) -> TopicRoute:
    """Return the view of ``data``; an ordered topic keeps only the queues of its order config.

    Errors: ``RemoteProtocolError`` for a route that would fill the memory.
    """
    if len(data.broker_datas) > ROUTE_BROKERS_MAX:
        raise RemoteProtocolError(f"topic {topic!r}: a route with {len(data.broker_datas)} brokers")
    brokers = {broker.broker_name: dict(broker.broker_addrs) for broker in data.broker_datas}
    ordered = _parse_order(data.order_topic_conf)
    publish: list[MessageQueue] = []
    subscribe: list[MessageQueue] = []
    for queues in data.queue_datas:
        name = queues.broker_name
        if name not in brokers:
            continue
        if queues.perm & PERM_WRITE:
            count = ordered.get(name, 0) if ordered else queues.write_queue_nums
            _add_queues(publish, topic, name, count)
        if queues.perm & PERM_READ:
            _add_queues(subscribe, topic, name, queues.read_queue_nums)
    return TopicRoute(
        topic=topic,
        publish_queues=tuple(publish),
        subscribe_queues=tuple(dict.fromkeys(subscribe)),  # told twice it would get two readers
        brokers=brokers,
        t_fetched_ns=t_fetched_ns,
    )


def _add_queues(queues: list[MessageQueue], topic: str, name: str, count: int) -> None:
    if len(queues) + count > ROUTE_QUEUES_MAX:
        raise RemoteProtocolError(f"topic {topic!r}: a route with {len(queues) + count} queues")
    queues += [MessageQueue(topic, name, number) for number in range(count)]


def make_provisional_route(
    topic: str, default: TopicRouteData, queues_max: int, t_fetched_ns: int = 0
) -> TopicRoute:
    """Return the route that ``topic`` will have once a send has created it.

    ``default`` is the route of the default topic; each broker gives at most ``queues_max`` queues.
    """
    view = make_route(topic, default, t_fetched_ns)
    counts = {queues.broker_name: queues.read_queue_nums for queues in default.queue_datas}
    limits = {name: min(queues_max, count) for name, count in counts.items()}
    publish = tuple(
        queue for queue in view.publish_queues if queue.queue_id < limits[queue.broker_name]
    )
    return TopicRoute(
        topic=topic,
        publish_queues=publish,
        subscribe_queues=(),
        brokers=view.brokers,
        provisional=True,
        t_fetched_ns=t_fetched_ns,
    )


class RouteCache:
    """Routes of the topics that a client uses.

    ``on_change`` is called in the loop thread with the names of brokers whose addresses changed.
    ``default_topic`` is empty for consumers, which never create topics.
    """

    def __init__(
        self,
        name_servers: NameServers,
        clock: Clock,
        *,
        default_topic: str = "",
        default_topic_queues: int = 4,
        on_change: Callable[[frozenset[str]], None] = lambda _names: None,
    ) -> None:
        self._name_servers = name_servers
        self._clock = clock
        self._default_topic = default_topic
        self._default_topic_queues = default_topic_queues
        self._on_change = on_change
        self._routes: dict[str, TopicRoute] = {}
        self._addrs: dict[str, Mapping[int, str]] = {}
        self._told_ns: dict[str, int] = {}
        """When the fetch began that told the addresses of a broker name."""
        self._fetches: dict[str, asyncio.Task[TopicRoute]] = {}
        self._asked_ns: dict[str, int] = {}
        """When name servers were last asked because of a failure, by topic."""

    @property
    def topics(self) -> list[str]:
        """The topics known so far, sorted."""
        return sorted(self._routes)

    @property
    def brokers(self) -> Mapping[str, Mapping[int, str]]:
        """Broker name to broker id to address, over all topics."""
        return self._addrs

    def peek(self, topic: str) -> TopicRoute | None:
        """Return the cached route without asking anybody."""
        return self._routes.get(topic)

    def master(self, broker_name: str) -> str | None:
        """Return the address of the leader of ``broker_name``, None while none is known."""
        addrs = self._addrs.get(broker_name)
        return addrs.get(MASTER_ID) if addrs else None

    def address(self, broker_name: str, broker_id: int) -> str | None:
        """Return the address of one member of ``broker_name``."""
        return self._addrs.get(broker_name, {}).get(broker_id)

    async def get(self, topic: str) -> TopicRoute:
        """Return the route, fetching it if it is unknown; raises ``NoRoute`` or as `refresh`."""
        return self._routes.get(topic) or await self.refresh(topic)

    async def maybe_known(self, topics: Sequence[str]) -> list[str]:
        """Ask all name servers for topics that one does not know: it may have just begun.

        Side by side, since one that hangs takes its time for each. Returns those that another one
        knows, or of which none could be asked; the rest are nowhere.
        """
        found: list[str] = []
        for start in range(0, len(topics), LOOKED_FOR_AT_ONCE_MAX):
            some = topics[start : start + LOOKED_FOR_AT_ONCE_MAX]
            nowhere = await asyncio.gather(*[self._is_nowhere(topic) for topic in some])
            found += [topic for topic, is_so in zip(some, nowhere, strict=True) if not is_so]
        return found

    async def refresh(
        self, topic: str, *, failed_at_ns: int | None = None, suspects: frozenset[str] = frozenset()
    ) -> TopicRoute:
        """Fetch the route again, joining a fetch under way.

        With ``failed_at_ns`` (monotonic time of the failure seen) all name servers are asked, at
        most every `ASK_AGAIN_MS`, however many sends fail; a route fetched later than that is
        returned as it is; ``suspects`` are the addresses that failed. Errors: ``NoRoute`` when
        nobody knows the topic and it was never known, ``NameServersUnreachable``.
        """
        route = self._routes.get(topic)
        if route is not None and failed_at_ns is not None and route.t_fetched_ns > failed_at_ns:
            return route
        task = self._fetches.get(topic)
        if task is None:
            everywhere = failed_at_ns is not None
            task = asyncio.ensure_future(self._fetch(topic, suspects, everywhere=everywhere))
            self._fetches[topic] = task
            task.add_done_callback(lambda done: self._forget_fetch(topic, done))
        return await join(task)

    async def poll(self) -> None:
        """Refresh all known routes, one after the other; failures are logged.

        Brokers that no route names any more are forgotten then: somebody else may have their
        addresses by now. Source: MQClientInstance.cleanOfflineBroker.
        """
        for topic in self.topics:
            try:
                await self.refresh(topic)
            except RemotingError as error:
                _log.info("topic=%s event=route_poll_failed error=%s", topic, error)
        self._forget_unnamed()

    def representative_topics(self) -> list[str]:
        """Return a smallest-first choice of topics that together name every broker."""
        chosen: list[str] = []
        seen: set[str] = set()
        for topic in self.topics:
            names = self._routes[topic].broker_names
            if not names <= seen:
                chosen.append(topic)
                seen |= names
        return chosen

    async def close(self) -> None:
        """Cancel the fetches under way."""
        tasks = list(self._fetches.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _is_nowhere(self, topic: str) -> bool:
        """Tell whether no name server knows a topic that one of them does not know."""
        if self._name_servers.count == 1:
            return True
        task = self._fetches.get(topic)
        if task is not None:  # It may ask only one of them.
            await asyncio.wait({task})
        if topic in self._routes:
            return False
        try:
            await self.refresh(topic, failed_at_ns=self._clock.monotonic_ns())
        except RemotingError as error:
            return isinstance(error, NoRoute)
        return False

    def _forget_fetch(self, topic: str, task: asyncio.Task[TopicRoute]) -> None:
        self._fetches.pop(topic, None)
        if not task.cancelled():
            task.exception()  # Marks it as seen: every waiter may have been cancelled.

    async def _fetch(self, topic: str, suspects: frozenset[str], *, everywhere: bool) -> TopicRoute:
        started_ns = self._clock.monotonic_ns()
        if everywhere:
            wait_ns = self._asked_ns.get(topic, -NS_PER_S) + ASK_AGAIN_MS * NS_PER_MS - started_ns
            if wait_ns > 0:
                await asyncio.sleep(wait_ns / NS_PER_S)
                started_ns = self._clock.monotonic_ns()
            self._asked_ns[topic] = started_ns
        data = await self._ask(topic, suspects, everywhere=everywhere)
        if data is not None:
            return self._store(make_route(topic, data, started_ns))
        known = self._routes.get(topic)
        if known is not None and not known.provisional:
            # 1. The leader dies, and with its registration the topic goes away. 2. We ask.
            # 3. The next leader registers it. So a topic that we knew is kept.
            return known
        if self._default_topic:
            data = await self._ask(self._default_topic, suspects, everywhere=everywhere)
            if data is not None:
                queues = self._default_topic_queues
                return self._store(make_provisional_route(topic, data, queues, started_ns))
        raise NoRoute(f"topic {topic!r}: no name server knows it")

    async def _ask(
        self, topic: str, suspects: frozenset[str], *, everywhere: bool
    ) -> TopicRouteData | None:
        if everywhere:
            return await self._name_servers.fetch_route_everywhere(topic, suspects)
        return await self._name_servers.fetch_route(topic)

    def _store(self, route: TopicRoute) -> TopicRoute:
        # Fetches of other topics run beside this one, and the one that began last knows best.
        told = {
            name: addrs
            for name, addrs in route.brokers.items()
            if route.t_fetched_ns >= self._told_ns.get(name, 0)
        }
        changed = {name for name, addrs in told.items() if self._addrs.get(name) != addrs}
        self._routes[route.topic] = route
        self._addrs.update(told)
        self._told_ns.update(dict.fromkeys(told, route.t_fetched_ns))
        if len(self._addrs) > BROKERS_KNOWN_MAX:
            self._forget_unnamed()
        if changed:
            _log.info("topic=%s event=route_changed brokers=%s", route.topic, told)
            self._on_change(frozenset(changed))
        return route

    def _forget_unnamed(self) -> None:
        """Forget the addresses of brokers that no route names."""
        named = {name for one in self._routes.values() for name in one.brokers}
        self._addrs = {name: its for name, its in self._addrs.items() if name in named}
        self._told_ns = {name: ns for name, ns in self._told_ns.items() if name in named}


def _parse_order(text: str | None) -> dict[str, int]:
    """Read ``brokerA:4;brokerB:4``; what does not parse is left out."""
    pairs = (item.rpartition(":") for item in (text or "").split(";"))
    return {name: int(count) for name, _, count in pairs if name and _COUNT.match(count)}
