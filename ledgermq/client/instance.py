"""What producers and consumers share: name servers, routes, heartbeats, connections, shutdown.

Source: MQClientInstance.
"""

import asyncio
import functools
import ipaddress
import logging
from collections.abc import Callable, Iterable, Mapping

from ledgermq.client.background import Background
from ledgermq.client.broker_api import BrokerApi
from ledgermq.client.config import ClientConfig
from ledgermq.client.errors import NoRoute, NotRunning
from ledgermq.client.ids import make_client_id
from ledgermq.client.leader import LeaderCalls
from ledgermq.client.name_servers import NameServers
from ledgermq.client.route import MASTER_ID, RouteCache
from ledgermq.client.stopping import Stopping
from ledgermq.remoting.protocol.bodies import HeartbeatData
from ledgermq.remoting.protocol.errors import RemotingError
from ledgermq.remoting.protocol.unique_id import UniqueIdGenerator
from ledgermq.remoting.transport.client import RemotingClient
from ledgermq.remoting.transport.config import TransportConfig
from ledgermq.remoting.transport.connection import Connection
from ledgermq.remoting.transport.dispatch import Handler
from ledgermq.runtime.cancel import timeout
from ledgermq.runtime.clock import Clock
from ledgermq.runtime.machine import address_towards
from ledgermq.runtime.rng import Rng

_log = logging.getLogger(__name__)

RouteListener = Callable[[frozenset[str]], None]
STOP_POLL_MS = 10
UNREGISTER_TIMEOUT_MS = 1_000
"""A broker that does not answer finds out from the closed connection."""
GREETED = "greeted"
"""Whether a connection carried a heartbeat, in its ``state``."""
ENDING_TURNS_MAX = 16
"""Turns of the loop in which callers whose connections were closed may learn it."""


class ClientInstance:
    """One client as name servers and brokers see it; ``consumer`` ones also greet replicas."""

    def __init__(
        self,
        config: ClientConfig,
        clock: Clock,
        rng: Rng,
        *,
        default_topic: str = "",
        handlers: Mapping[int, Handler] | None = None,
        greet_replicas: bool = False,
    ) -> None:
        self.config = config
        self.running = False
        self.stopping = Stopping()
        self._stop_lock = asyncio.Lock()
        self._has_left = self._has_closed = False
        self._clock = clock
        address = config.source_address or find_local_address(config.namesrv_addrs)
        self.client_id = make_client_id(address, config.instance_name, config.process_id, clock)
        self.client = RemotingClient(
            config=TransportConfig(connect_timeout_ms=config.connect_timeout_ms),
            handlers=handlers or {},
            source_address=config.source_address,
            sign=None if config.account is None else config.account.sign,
            tls=config.tls_context(),
        )
        packed = ipaddress.ip_address(address).packed
        self.unique_ids = UniqueIdGenerator(packed, config.process_id, rng.randint(0, 2**32 - 1))
        self.api = BrokerApi(self.client, config.group, config.request_timeout_ms)
        self.background = Background()
        name_servers = NameServers(config.namesrv_addrs, self.client, config.request_timeout_ms)
        self.routes = RouteCache(
            name_servers,
            clock,
            default_topic=default_topic,
            default_topic_queues=config.default_topic_queues,
            on_change=self._on_route_change,
        )
        self._greet_replicas = greet_replicas
        self._route_listeners: list[RouteListener] = []
        self._make_heartbeat: Callable[[], HeartbeatData] | None = None
        self._greet = asyncio.Event()
        self._greetings: dict[str, asyncio.Task[None]] = {}
        self._news_for: set[str] = set()
        """Brokers that are to be greeted again behind the greeting under way."""

    def add_route_listener(self, listener: RouteListener) -> None:
        """Call ``listener`` with the names of brokers whose addresses changed."""
        self._route_listeners.append(listener)

    def leader_calls(self) -> LeaderCalls:
        """Return what calls the leaders of this client's queues."""
        return LeaderCalls(
            self.routes, self.config, self._clock, self.stopping, self.api.min_offset
        )

    def start(self, make_heartbeat: Callable[[], HeartbeatData]) -> None:
        """Begin heartbeats and route polling. Errors: ``RuntimeError`` if started before."""
        self.check_new()
        self._make_heartbeat = make_heartbeat
        self.running = True
        self.background.spawn(self._heartbeat_loop, "heartbeat")
        self.background.every(self.config.route_poll_ms, self.routes.poll, "routes")

    def check_new(self) -> None:
        """Raise ``RuntimeError`` if it was started or stopped before."""
        if self._make_heartbeat is not None or self._has_closed:
            raise RuntimeError("a client starts only once; make a new one")

    async def stop(self, *, consumer: bool, drained: Callable[[], bool]) -> None:
        """End what waits, let requests finish, leave the group, end all tasks, close connections.

        ``drained`` says whether the requests have finished; that is waited for at most
        ``stop_timeout_ms``, and an answer to the farewell at most ``UNREGISTER_TIMEOUT_MS``. Who
        calls again meanwhile waits too; afterwards nothing happens.
        """
        async with self._stop_lock:
            if self.running or self.stopping.begun:
                await self._take_leave(consumer=consumer, drained=drained)
            self._has_closed = True
            await self.client.close()
            for _ in range(ENDING_TURNS_MAX):
                if drained():
                    break
                await asyncio.sleep(0)

    def check_running(self, kind: str) -> None:
        """Raise ``NotRunning`` before the start and from the stop on; ``kind`` names the client."""
        if self.stopping.begun:
            raise NotRunning(f"the {kind} was stopped")
        if not self.running:
            raise NotRunning(f"the {kind} is not running: await start() first")

    def heartbeat_addrs(self) -> list[str]:
        """Return the brokers that must know this client, sorted."""
        return sorted(
            addr
            for addrs in self.routes.brokers.values()
            for broker_id, addr in addrs.items()
            if broker_id == MASTER_ID or self._greet_replicas
        )

    async def heartbeat(self, addr: str) -> None:
        """Announce this client to one broker now; a failure is logged."""
        assert self._make_heartbeat is not None
        try:
            await self.api.heartbeat(addr, self._make_heartbeat())
        except RemotingError as error:
            _log.info("broker=%s event=heartbeat_failed error=%s", addr, error)
        else:
            connection = self.client.maybe_connection(addr)
            if connection is not None:
                connection.state[GREETED] = True

    def greet_over(self, addr: str, connection: Connection) -> None:
        """Announce this client to a broker that does not know it by this connection yet.

        Brokers know clients by connections, and one that was made anew carries no heartbeat before
        the next is due. Source: MQClientInstance.onChannelActive 5.3.
        """
        if self.running and GREETED not in connection.state and not self._is_greeting(addr):
            self._begin_greeting(addr)

    def greet_soon(self) -> None:
        """Send the next heartbeat at once."""
        self._greet.set()

    async def refresh_broker(self, broker_name: str, suspect: str) -> None:
        """Read the route of a topic of ``broker_name`` anew; failures are logged."""
        now_ns = self._clock.monotonic_ns()
        for topic in self.routes.topics:
            route = self.routes.peek(topic)
            if route is not None and broker_name in route.broker_names:
                try:
                    await self.routes.refresh(
                        topic, failed_at_ns=now_ns, suspects=frozenset({suspect})
                    )
                except RemotingError as error:
                    _log.info("broker=%s event=refresh_failed error=%s", broker_name, error)
                return

    async def create_topic(self, topic: str, queues: int) -> None:
        """Create ``topic`` on every master of the default topic's route (and of known ones)."""
        default = self.config.default_topic
        try:
            await self.routes.refresh(topic)
        except NoRoute:
            await self.routes.refresh(default)
        masters = [addrs.get(MASTER_ID) for addrs in self.routes.brokers.values()]
        known = sorted(addr for addr in masters if addr is not None)
        if not known:
            raise NoRoute("no broker has a leader at the moment")
        for addr in known:
            await self.api.create_topic(addr, topic, queues, default)

    def _on_route_change(self, broker_names: frozenset[str]) -> None:
        self._greet.set()
        for listener in self._route_listeners:
            listener(broker_names)

    async def _heartbeat_loop(self) -> None:
        """Greet all brokers; one that does not answer does not hold up the others."""
        while True:
            self._greet.clear()
            for addr in self.heartbeat_addrs():
                if self._is_greeting(addr):
                    self._news_for.add(addr)
                else:
                    self._begin_greeting(addr)
            try:
                async with timeout(self.config.heartbeat_ms / 1000):
                    await self._greet.wait()
            except TimeoutError:
                self._greetings.clear()

    def _is_greeting(self, addr: str) -> bool:
        task = self._greetings.get(addr)
        return task is not None and not task.done()

    def _begin_greeting(self, addr: str) -> None:
        work = functools.partial(self._greet_one, addr)
        self._greetings[addr] = self.background.spawn(work, f"heartbeat-{addr}")

    async def _greet_one(self, addr: str) -> None:
        """Greet a broker, and again if there was news while it was being told."""
        self._news_for.add(addr)
        while addr in self._news_for:
            self._news_for.discard(addr)
            await self.heartbeat(addr)

    async def _take_leave(self, *, consumer: bool, drained: Callable[[], bool]) -> None:
        if self._has_left:
            return
        self.running = False
        self.stopping.begin()
        await self._wait_for(drained)
        await self.background.stop()
        await self.routes.close()
        addrs = self.heartbeat_addrs()
        leaving = [self._unregister(addr, consumer=consumer) for addr in addrs]
        await asyncio.gather(*leaving)
        self._has_left = True

    async def _unregister(self, addr: str, *, consumer: bool) -> None:
        try:
            async with timeout(UNREGISTER_TIMEOUT_MS / 1000):
                await self.api.unregister(addr, self.client_id, consumer=consumer)
        except (RemotingError, TimeoutError) as error:
            _log.info("broker=%s event=unregister_failed error=%s", addr, error)

    async def _wait_for(self, drained: Callable[[], bool]) -> None:
        limit_ms = self._clock.monotonic_ms() + self.config.stop_timeout_ms
        for _ in range(self.config.stop_timeout_ms // STOP_POLL_MS):
            if drained() or self._clock.monotonic_ms() >= limit_ms:
                return
            await asyncio.sleep(STOP_POLL_MS / 1000)


def find_local_address(namesrv_addrs: Iterable[str]) -> str:
    """Return the local address that faces a name server; sends nothing.

    Falls back to 127.0.0.1 when no name server's address can be routed to.
    """
    for addr in namesrv_addrs:
        host, _, port = addr.rpartition(":")
        try:
            return address_towards(host.strip("[]"), int(port))
        except OSError:
            continue
    return "127.0.0.1"
