"""Which broker groups live at which addresses, and which queues each topic has on them.

Pure: time comes in as ``now_ms``, what changed goes out as results. It knows no connections, only
the numbers they are given by the caller.

Invariant: a topic's queues are those of groups that have at least one living address.

Rules that are not obvious: one address has one broker id at a time; only id 0 (master or leader)
changes topics; an address is removed by what it is, never by its id, since a new leader may hold
the id by then; a leader of an older Raft term cannot take the group back.

Source: RouteInfoManager 4.9.7 (protocol.md 3.2).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from remoting.protocol.bodies import (
    BrokerData,
    ClusterInfo,
    DataVersion,
    QueueData,
    TopicConfigWrapper,
    TopicList,
    TopicRouteData,
)

MASTER_ID: Final = 0
NO_TERM: Final = -1
NO_CONNECTION: Final = 0
EXPIRY_MS: Final = 120_000
"""A broker that has not registered for this long is removed."""
PERM_WRITE: Final = 2
PERM_READ_WRITE: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What a broker says of itself; ``connection`` is the caller's number of its connection."""

    cluster: str
    broker_name: str
    broker_id: int
    addr: str
    ha_addr: str = ""
    raft_term: int = NO_TERM
    topics: TopicConfigWrapper = field(default_factory=TopicConfigWrapper)
    connection: int = NO_CONNECTION


@dataclass(frozen=True, slots=True)
class Registered:
    """Outcome of a registration; the addresses are the master's, for a slave that has one."""

    master_addr: str | None
    ha_addr: str | None
    is_new: bool
    refused_by_term: int = NO_TERM
    """If not -1, nothing was registered: the group has a master of this later term."""


@dataclass(slots=True)
class _Group:
    cluster: str
    addrs: dict[int, str]
    master_term: int = NO_TERM


@dataclass(slots=True)
class _Live:
    broker_name: str
    ha_addr: str
    version: DataVersion
    last_update_ms: int
    connection: int


class RouteTable:
    """The routes of one name server; ``version`` grows with every change of an answer."""

    def __init__(self, expiry_ms: int = EXPIRY_MS) -> None:
        self._expiry_ms = expiry_ms
        self._groups: dict[str, _Group] = {}
        self._live: dict[str, _Live] = {}
        self._topics: dict[str, dict[str, QueueData]] = {}
        self.version = 0

    # Changes

    def register(self, registration: Registration, now_ms: int) -> Registered:
        """Take the registration of a broker (103)."""
        name, addr, broker_id = (
            registration.broker_name,
            registration.addr,
            registration.broker_id,
        )
        group = self._groups.get(name)
        later = self._later_master(group, registration)
        if later != NO_TERM:
            return Registered(None, None, is_new=False, refused_by_term=later)
        if group is None:
            group = self._groups[name] = _Group(registration.cluster, {})
        group.cluster = registration.cluster
        is_new = group.addrs.get(broker_id) != addr
        for other_id in [one for one, its in group.addrs.items() if its == addr]:
            del group.addrs[other_id]
        group.addrs[broker_id] = addr
        known = self._live.get(addr)
        version = registration.topics.data_version
        if broker_id == MASTER_ID:
            group.master_term = registration.raft_term
            if is_new or known is None or known.version != version:
                self._take_topics(name, registration.topics)
        if is_new:
            self.version += 1
        self._live[addr] = _Live(
            name, registration.ha_addr, version, now_ms, registration.connection
        )
        master = group.addrs.get(MASTER_ID)
        if broker_id == MASTER_ID or master is None:
            return Registered(None, None, is_new)
        live = self._live.get(master)
        return Registered(master, None if live is None else live.ha_addr, is_new)

    def unregister(self, broker_name: str, addr: str) -> bool:
        """Remove a broker that leaves (104); tell whether it was there."""
        live = self._live.get(addr)
        if live is None or live.broker_name != broker_name:
            return False
        self._remove(addr)
        return True

    def on_connection_closed(self, connection: int) -> list[str]:
        """Remove the brokers that registered over a connection; return their addresses."""
        gone = [addr for addr, live in self._live.items() if live.connection == connection]
        for addr in gone:
            self._remove(addr)
        return gone

    def expire(self, now_ms: int) -> list[tuple[str, int]]:
        """Remove brokers that were silent too long; return their addresses and connections."""
        limit = now_ms - self._expiry_ms
        gone = [
            (addr, live.connection)
            for addr, live in self._live.items()
            if live.last_update_ms < limit
        ]
        for addr, _ in gone:
            self._remove(addr)
        return gone

    def touch(
        self, addr: str, version: DataVersion, now_ms: int
    ) -> tuple[bool, DataVersion | None]:
        """Compare a broker's table version (322): whether it differs, and what is known here.

        An equal version proves that the broker lives.
        """
        live = self._live.get(addr)
        if live is None:
            return True, None
        changed = live.version != version
        if not changed:
            live.last_update_ms = now_ms
        return changed, live.version

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic (216), on the brokers of one cluster or on all."""
        queues = self._topics.get(topic)
        if queues is None:
            return
        for name in list(queues):
            if cluster is None or self._groups[name].cluster == cluster:
                del queues[name]
        if not queues:
            del self._topics[topic]
        self.version += 1

    def set_write_perm(self, broker_name: str, *, allowed: bool) -> int:
        """Allow or stop writing to all queues of a group (327, 205); return how many topics."""
        count = 0
        for queues in self._topics.values():
            data = queues.get(broker_name)
            if data is not None:
                data.perm = PERM_READ_WRITE if allowed else data.perm & ~PERM_WRITE
                count += 1
        self.version += bool(count)
        return count

    # Answers

    def route(self, topic: str) -> TopicRouteData | None:
        """Return the route of a topic (105); None if no living broker serves it."""
        queues = self._topics.get(topic)
        if not queues:
            return None
        names = sorted(queues)
        return TopicRouteData(
            broker_datas=[self._broker_data(name) for name in names],
            queue_datas=[queues[name] for name in names],
        )

    def cluster_info(self) -> ClusterInfo:
        """Return all groups and clusters (106)."""
        clusters: dict[str, list[str]] = {}
        for name in sorted(self._groups):
            clusters.setdefault(self._groups[name].cluster, []).append(name)
        return ClusterInfo(
            broker_addr_table={name: self._broker_data(name) for name in sorted(self._groups)},
            cluster_addr_table=clusters,
        )

    def topics(self) -> TopicList:
        """Return the names of all topics (206)."""
        return TopicList(topic_list=list(self._topics))

    def topics_of_cluster(self, cluster: str) -> TopicList:
        """Return the names of the topics that a cluster serves (224)."""
        return TopicList(
            topic_list=[
                topic
                for topic, queues in self._topics.items()
                if any(self._groups[name].cluster == cluster for name in queues)
            ]
        )

    def system_topics(self) -> TopicList:
        """Return the topics named after clusters and groups, and one address to ask on (304)."""
        clusters = dict.fromkeys(group.cluster for group in self._groups.values())
        addr = next((a for g in self._groups.values() for a in g.addrs.values()), None)
        return TopicList(topic_list=[*clusters, *self._groups], broker_addr=addr)

    def broker_addrs(self) -> Iterable[str]:
        """Return the addresses of all living brokers."""
        return list(self._live)

    # Private

    def _later_master(self, group: _Group | None, registration: Registration) -> int:
        """Return the term of the present master if it is later than the new one's, else -1."""
        if group is None or registration.broker_id != MASTER_ID:
            return NO_TERM
        master = group.addrs.get(MASTER_ID)
        if master is None or master == registration.addr or registration.raft_term == NO_TERM:
            return NO_TERM
        return group.master_term if group.master_term > registration.raft_term else NO_TERM

    def _take_topics(self, broker_name: str, wrapper: TopicConfigWrapper) -> None:
        """Add or replace the queues of a group; topics it no longer names stay (216 deletes)."""
        for topic, config in wrapper.topic_config_table.items():
            self._topics.setdefault(topic, {})[broker_name] = QueueData(
                broker_name=broker_name,
                perm=config.perm,
                read_queue_nums=config.read_queue_nums,
                topic_sys_flag=config.topic_sys_flag,
                write_queue_nums=config.write_queue_nums,
            )
        self.version += 1

    def _remove(self, addr: str) -> None:
        live = self._live.pop(addr)
        self.version += 1
        group = self._groups.get(live.broker_name)
        if group is None:
            return
        for broker_id in [one for one, its in group.addrs.items() if its == addr]:
            del group.addrs[broker_id]
        if group.addrs:
            return
        del self._groups[live.broker_name]
        for topic in [one for one, queues in self._topics.items() if live.broker_name in queues]:
            del self._topics[topic][live.broker_name]
            if not self._topics[topic]:
                del self._topics[topic]

    def _broker_data(self, name: str) -> BrokerData:
        group = self._groups[name]
        addrs = {broker_id: group.addrs[broker_id] for broker_id in sorted(group.addrs)}
        return BrokerData(broker_addrs=addrs, broker_name=name, cluster=group.cluster)
