"""How a world is: whether routes are right, what is disturbed, and whom a fault blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from sim.layout import GROUP
from sim.oracles.base import Violation
from sim.oracles.route_answers import RouteAnswers
from sim.oracles.routes import check_gone, check_kept, missing

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from dledger.node import DLedgerNode
    from namesrv.server import NameServer
    from sim.context import Host
    from sim.disk import SimDisk
    from sim.faults.plan import Plan
    from sim.layout import Layout
    from sim.loop import SimLoop
    from sim.network import SimNetwork
    from sim.oracles.watch import Watch

NS_PER_MS: Final = 1_000_000
NS_PER_S: Final = 1_000_000_000
CALM_NS: Final = 4 * NS_PER_S
"""Name servers and brokers are connected again so long after the last fault."""
TOLD_NS: Final = 6 * NS_PER_S
"""Longer than the timeout of a request whose answer was lost, and the pause behind it."""
SETTLED_NS: Final = 2 * NS_PER_S
"""Connections are made anew, and what was lost is repeated, so long after the last fault."""
ELECTED_NS: Final = NS_PER_S // 4
"""Who has been elected has told name servers so."""
ROUTED_NS: Final = 8 * NS_PER_S
"""A registration that fails is repeated within seconds; the next regular one comes much later."""


Lack = tuple[str, int, "NameServer", str]
"""Who leads, in which term, which life of the name server, and what that does not tell."""


class World(Protocol):
    """What is looked at; `sim.world.World`."""

    plan: Plan
    loop: SimLoop
    network: SimNetwork
    layout: Layout
    hosts: dict[str, Host]
    watch: Watch
    voters: tuple[str, ...]
    explains: Callable[[str], bool]

    def runs_since_ns(self, name: str) -> int | None:
        """Return when a process began, or last went on after a pause; None: it stands still."""
        ...

    def leader(self) -> str | None:
        """Return who leads."""
        ...

    def disk(self, name: str) -> SimDisk:
        """Return the disk of a machine."""
        ...

    def node(self, name: str) -> DLedgerNode | None:
        """Return the replica that runs on a machine, None while none does."""
        ...


class Health:
    """Looks at a world for those who judge it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.servers: dict[str, NameServer] = {}
        """Of name servers, by host."""
        self.answers: dict[str, RouteAnswers] = {}
        """Listeners at their end, by host."""
        self.faults_ms: Callable[[int], int] = lambda now_ms: now_ms
        """When any fault was on, began or ended."""
        self.touched_ms: Callable[[Collection[str], int], int] = lambda _names, now_ms: now_ms
        """Likewise, a fault of one of some hosts."""
        self._wrong: tuple[str, int] = ("", 0)
        """Who led when the routes were first seen to be wrong, and since when they are."""
        self._lacks: dict[str, tuple[Lack, int]] = {}
        """By name server: what it lacked at the last look, and since when."""
        self.gone: dict[str, int] = {}
        """Hosts whose process has ended and whose kernel has told so, and since when."""

    def check_routes(self) -> None:
        """Look at what the name servers tell. Errors: `Violation`."""
        replicas = self._world.watch.replicas
        for name, server in self.servers.items():
            host = self._world.hosts[name]
            if host.alive and not host.paused:
                gone = {
                    self._world.layout.broker_address(one): since_ns
                    for one, since_ns in self.gone.items()
                    if one in replicas and self._is_clear(one, host.address, since_ns)
                }
                check_gone(name, server.table, gone, self._world.loop.now_ns)
                check_kept(name, server.table)
                self.listener(name).check_present()

    def check_registered(self) -> None:
        """Look whether the leader is in all routes, some time after all is well.

        It registers when it is elected, when a topic has changed, and when a name server that it
        could not reach can be reached again. A name server that began anew while the leader could
        not hear it is told with the next regular registration, within half a minute, as RocketMQ's
        brokers do it; until then it is not judged here. Errors: `Violation`.
        """
        world = self._world
        now_ns, leader = world.loop.now_ns, world.leader()
        calm_ns = now_ns - self.faults_ms(now_ns // NS_PER_MS) * NS_PER_MS
        if leader is None or calm_ns < ROUTED_NS or world.plan.options.preferred:
            self._wrong = ("", now_ns)
            return
        wrong = self.wrong_route(also_unheard=False)
        if not wrong or self._wrong[0] != leader:
            self._wrong = (leader, now_ns)
        elif now_ns - self._wrong[1] > ROUTED_NS:
            text = f"{leader} leads for {ROUTED_NS // NS_PER_S} s without a fault, and: {wrong}"
            raise Violation("A45 not routed in time", text, node=leader)

    def check_changes(self) -> None:
        """Look whether what a leader has changed came to each name server that it can reach.

        Whatever else is wrong: only the two machines and the links between them count.
        Errors: `Violation`.
        """
        world, leader = self._world, self._world.leader()
        now_ns = world.loop.now_ns
        for name, server in self.servers.items():
            lack = None if leader is None else self._lack(leader, name, server)
            known, since_ns = self._lacks.get(name, (None, now_ns))
            if lack is None or leader is None:
                self._lacks.pop(name, None)
            elif lack != known or not self._is_clear(leader, world.hosts[name].address, since_ns):
                self._lacks[name] = (lack, now_ns)
            elif now_ns - since_ns > TOLD_NS:
                text = f"{name} can be reached by {leader}, for {TOLD_NS // NS_PER_S} s: {lack[-1]}"
                raise Violation("A45 not routed in time", text, node=leader)

    def _lack(self, leader: str, name: str, server: NameServer) -> Lack | None:
        """Say what a name server does not know of a leader that nothing hinders, None if all."""
        world = self._world
        replica, hosts = world.watch.replicas[leader], (world.hosts[leader], world.hosts[name])
        works = all(host.alive and not host.paused for host in hosts) and replica.is_up
        if not works or replica.hangs() or world.network.has_rules or self.is_blocked(leader):
            return None
        if not replica.controller.store.writer.writable or world.plan.options.preferred:
            return None
        model = world.watch.tables.model_of(replica)
        topics = {} if model is None else model.topics
        wrong = missing(server.table, GROUP, world.layout.broker_address(leader), topics)
        return (leader, replica.state.term, server, wrong) if wrong else None

    def check_made(self, broker: str, topic: str) -> None:
        """Look whether name servers know a topic that somebody was told of. Errors: `Violation`.

        Whoever is told goes and asks for its route. A name server that cannot be reached is not
        waited for.
        """
        world = self._world
        now_ns = world.loop.now_ns
        touched_ns = self.touched_ns((broker, *self.servers))
        if touched_ns and now_ns - touched_ns < CALM_NS:
            return
        for name, server in self.servers.items():
            host = world.hosts[name]
            is_reached = host.alive and not host.paused
            if is_reached and self._is_clear(broker, host.address, now_ns):
                rows = server.table.rows.find(topic)
                if not any(group.name == GROUP for group, _ in rows):
                    text = f"{broker} says that {topic} is there, and {name} does not know it"
                    raise Violation("A45 topic told before it is routed", text, node=broker)

    def _is_unheard(self, broker: str, server: str) -> bool:
        """Whether a broker holds a connection to a name server that knows nothing of it."""
        hosts = self._world.hosts
        return self._world.network.has_half_open(hosts[broker].address, hosts[server].address)

    def listener(self, name: str) -> RouteAnswers:
        """Return who listens at the end of a name server."""
        return self.answers.setdefault(name, RouteAnswers(name, self.servers))

    def wrong_route(self, *, also_unheard: bool = True) -> str:
        """Say what the name servers do not tell yet, with everything healed; empty for nothing.

        ``also_unheard``: those as well whose end the leader has not heard of.
        """
        leader = self._world.leader()
        if leader is None:
            return "nobody leads"
        model = self._world.watch.tables.model_of(self._world.watch.replicas[leader])
        topics = {} if model is None else model.topics
        address = self._world.layout.broker_address(leader)
        found = (
            missing(server.table, GROUP, address, topics)
            for name, server in self.servers.items()
            if self._world.hosts[name].alive
            and (also_unheard or not self._is_unheard(leader, name))
        )
        return next(filter(None, found), "")

    def lacks_follower(self) -> str:
        """Say which running member a name server does not tell of in the end; empty for none."""
        world, leader = self._world, self._world.leader()
        if leader is None:
            return "nobody leads"
        members = world.watch.truth.voters_of(world.watch.replicas[leader])
        addresses = {world.layout.broker_address(one) for one in members if world.node(one)}
        for name, server in self.servers.items():
            known = server.table.cluster_info().broker_addr_table.get(GROUP)
            told = set() if known is None else set(known.broker_addrs.values())
            if world.hosts[name].alive and addresses - told:
                return f"{name} tells nothing of {sorted(addresses - told)}"
        return ""

    def _is_clear(self, name: str, address: str, since_ns: int) -> bool:
        """Whether the links between a broker and a machine have worked as usual since a time."""
        own = self._world.hosts[name].address
        network, begin_ns = self._world.network, since_ns - NS_PER_S
        return not any(
            one.cut
            or one.delay is not network.delay_default
            or max(one.cut_since_ns, one.changed_ns) >= begin_ns
            for one in (network.link(own, address), network.link(address, own))
        )

    def disturbed_ns(self, faults_ms: Callable[[int], int]) -> int:
        """Return when something last happened that may end a leadership, by faults and by us."""
        now_ns = self._world.loop.now_ns
        replicas = [self._world.watch.replicas[name] for name in self._world.voters]
        if self._world.plan.options.preferred or not all(one.is_up for one in replicas):
            return now_ns
        booted_ns = max(one.boot_ns for one in replicas)
        return max(booted_ns, faults_ms(now_ns // NS_PER_MS) * NS_PER_MS)

    def touched_ns(self, names: Collection[str]) -> int:
        """Return when a fault of one of some hosts was on or ended, 0 for never."""
        return self.touched_ms(names, self._world.loop.now_ns // NS_PER_MS) * NS_PER_MS

    def settled_ns(self, name: str) -> int:
        """Return since when no fault has touched a machine, with some time to settle.

        A name server that stands still, or cannot be heard, holds up who tells it of a new topic.
        """
        world, now_ns = self._world, self._world.loop.now_ns
        since_ns = [self.touched_ns((name, *self.servers))]
        for server in self.servers:
            runs_ns = world.runs_since_ns(server)
            if runs_ns is None or not self._is_clear(name, world.hosts[server].address, now_ns):
                return now_ns + SETTLED_NS
            since_ns.append(runs_ns)
        return max(since_ns) + SETTLED_NS

    def calm_since_ns(self, name: str, *, clients: bool = False) -> int | None:
        """Return since when a leader has led and nothing has happened, None if it does not lead.

        ``clients``: whether nothing has happened to them, either.
        """
        since_ns = self._world.watch.healthy.led_since_ns(name)
        if since_ns is None or self._world.plan.options.preferred:
            return None
        names = self._world.hosts if clients else (*self._world.watch.replicas, *self.servers)
        touched_ns = self.touched_ns(tuple(names))
        calm_ns = touched_ns + SETTLED_NS if touched_ns else 0
        return max(since_ns + ELECTED_NS, calm_ns)

    def is_blocked(self, name: str) -> bool:
        """Whether a fault of its disk explains that a program on a host logs errors."""
        disk, replica = self._world.disk(name), self._world.watch.replicas.get(name)
        is_corrupt = replica is not None and replica.is_corrupt
        return is_corrupt or disk.is_watched or bool(disk.failures) or self._world.explains(name)
