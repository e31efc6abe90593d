"""Which broker groups live at which addresses, and which queues each topic has on them.

Pure: time comes in as ``now_ms``, what changed goes out as results. It knows no connections, only
the numbers they are given by the caller.

Invariant: a topic's queues are those of groups that have at least one living address.

Rules that are not obvious: one address has one broker id at a time; only id 0 (master or leader)
changes topics; an address is removed by what it is, never by its id, since a new leader may hold
the id by then; a leader of an older Raft term cannot take the group from one that is registered,
and no term has two (a term is forgotten with its leader: a claim of a high one must not shut out
the group when it is gone). Who would be displaced by a registration is told by
`RouteTable.holders`: whether they live is found out by the caller.

Source: RouteInfoManager 4.9.7 (spec/wire.md 3.2).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from ledgermq.remoting.protocol.bodies import (
    BrokerData,
    ClusterInfo,
    DataVersion,
    QueueData,
    TopicConfig,
    TopicConfigWrapper,
    TopicList,
    TopicRouteData,
)
from namesrv.limits import (
    BROKER_NAMES_BYTES_MAX,
    BROKERS_MAX,
    BROKERS_PER_CONNECTION_MAX,
    MEMBERS_MAX,
    TOPIC_NAMES_BYTES_MAX,
    TOPIC_ROWS_MAX,
)
from namesrv.rows import NO_TERM, TOPICS_PER_TURN, Group, TopicRows, weight_of

MASTER_ID: Final = 0
NO_CONNECTION: Final = 0
EXPIRY_MS: Final = 120_000
"""A broker that has not registered for this long is removed."""
PERM_WRITE: Final = 2
PERM_READ_WRITE: Final = 6
EXPIRED_PER_TURN: Final = 500
"""Silent brokers that are removed in one turn of the loop."""


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
    arrival: int = 0
    """Rises with the registrations of a connection as they come in."""


@dataclass(frozen=True, slots=True)
class Registered:
    """Outcome of a registration; the addresses are the master's, for a slave that has one."""

    master_addr: str | None = None
    ha_addr: str | None = None
    is_new: bool = False
    refusal: str = ""
    """If not empty, nothing was registered, for this reason."""
    rest: Iterator[None] | None = None
    """Topics that are still to be taken, `TOPICS_PER_TURN` at each step; None if there are none."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A registered broker that a registration would displace."""

    addr: str
    broker_id: int
    connection: int


@dataclass(slots=True)
class _Live:
    broker_name: str
    ha_addr: str
    version: DataVersion
    last_update_ms: int
    connection: int
    arrival: int


class RouteTable:
    """The routes of one name server; ``version`` grows with every change of an answer."""

    def __init__(self, expiry_ms: int = EXPIRY_MS) -> None:
        self._expiry_ms = expiry_ms
        self._groups: dict[str, Group] = {}
        self._live: dict[str, _Live] = {}
        self._by_connection: dict[int, dict[str, None]] = {}
        self.rows = TopicRows()
        self._names_bytes = 0
        self.version = 0

    @property
    def used(self) -> dict[str, tuple[int, int]]:
        """How much of its limits is used, by name."""
        return {
            BROKERS_MAX.name: (len(self._live), BROKERS_MAX),
            BROKER_NAMES_BYTES_MAX.name: (self._names_bytes, BROKER_NAMES_BYTES_MAX),
            TOPIC_ROWS_MAX.name: (self.rows.count, TOPIC_ROWS_MAX),
            TOPIC_NAMES_BYTES_MAX.name: (self.rows.names_bytes, TOPIC_NAMES_BYTES_MAX),
        }

    # Changes

    def register(self, registration: Registration, now_ms: int) -> Registered:
        """Take the registration of a broker (103), unless its connection has said more since."""
        name, addr, broker_id = (
            registration.broker_name,
            registration.addr,
            registration.broker_id,
        )
        self.rows.sweep()
        group = self._groups.get(name)
        if self._is_overtaken(group, registration):
            return self._registered(group, broker_id)
        refusal = self._refusal(group, registration)
        if refusal:
            return Registered(refusal=refusal)
        if group is None:
            group = self._groups[name] = self.rows.new_group(name, registration.cluster)
        is_new = group.addrs.get(broker_id) != addr or group.cluster != registration.cluster
        group.cluster = registration.cluster
        self._forget_place(addr, name)
        group.addrs[broker_id] = addr
        if is_new:
            self._weigh(group)
        known = self._live.get(addr)
        version = registration.topics.data_version
        live = _Live(
            name, registration.ha_addr, version, now_ms,
            registration.connection, registration.arrival,
        )  # fmt: skip
        rest = None
        if broker_id == MASTER_ID:
            group.master_term = registration.raft_term
            if is_new or known is None or known.version != version:
                rest = self._take_topics(live, group, registration.topics)
        if is_new:
            self.version += 1
        self._put_live(addr, live)
        return replace(self._registered(group, broker_id), is_new=is_new, rest=rest)

    def holders(self, registration: Registration) -> list[Holder]:
        """Return who would be displaced: who is known by that address, or by that name and id.

        Only those known by other connections: what a connection said of itself it may change.
        """
        group = self._groups.get(registration.broker_name)
        addrs = [registration.addr]
        if group is not None and registration.broker_id in group.addrs:
            addrs.append(group.addrs[registration.broker_id])
        found: list[Holder] = []
        for addr in dict.fromkeys(addrs):
            live = self._live.get(addr)
            if live is None or live.connection == registration.connection:
                continue
            held_by = self._groups.get(live.broker_name)
            its = {} if held_by is None else held_by.addrs
            broker_id = next((one for one, held in its.items() if held == addr), MASTER_ID)
            found.append(Holder(addr, broker_id, live.connection))
        return found

    def is_registered_by(self, addr: str, connection: int) -> bool:
        """Tell whether a broker is known here by this connection."""
        live = self._live.get(addr)
        return live is not None and live.connection == connection

    def unregister(self, broker_name: str, addr: str) -> bool:
        """Remove a broker that leaves (104); tell whether it was there."""
        live = self._live.get(addr)
        if live is None or live.broker_name != broker_name:
            return False
        self._remove(addr)
        self.rows.sweep()
        return True

    def on_connection_closed(self, connection: int) -> list[str]:
        """Remove the brokers that registered over a connection; return their addresses."""
        gone = list(self._by_connection.get(connection, ()))
        for addr in gone:
            self._remove(addr)
        self.rows.sweep()
        return gone

    def expire(self, now_ms: int) -> list[tuple[str, int]]:
        """Remove brokers that were silent too long; return their addresses and connections.

        If these are `EXPIRED_PER_TURN`, there may be more.
        """
        limit = now_ms - self._expiry_ms
        silent = (
            (addr, live.connection)
            for addr, live in self._live.items()
            if live.last_update_ms < limit
        )
        gone = list(islice(silent, EXPIRED_PER_TURN))
        for addr, _ in gone:
            self._remove(addr)
        self.rows.sweep()
        return gone

    def excuse(self, still_ms: int, now_ms: int) -> None:
        """Leave a time in which nobody was heard here out of everybody's silence.

        Whoever lives has registered meanwhile, and is heard in the next turns.
        """
        for live in self._live.values():
            live.last_update_ms = min(live.last_update_ms + still_ms, now_ms)

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
        for group, _ in self.rows.find(topic):
            if cluster is None or group.cluster == cluster:
                self.rows.drop(topic, group)
                self.version += 1

    def set_write_perm(self, broker_name: str, *, allowed: bool) -> tuple[int, Iterator[None]]:
        """Allow or stop writing to all queues of a group (327, 205).

        Returns of how many topics, and what does it, `TOPICS_PER_TURN` at each step.
        """
        group = self._groups.get(broker_name)
        if group is None:
            return 0, iter(())
        return len(group.topics), self._write_perms(group, list(group.topics), allowed=allowed)

    def _write_perms(self, group: Group, topics: list[str], *, allowed: bool) -> Iterator[None]:
        for number, topic in enumerate(topics, 1):
            data = self.rows.maybe_row(topic, group)
            if data is not None:
                data.perm = PERM_READ_WRITE if allowed else data.perm & ~PERM_WRITE
            if number % TOPICS_PER_TURN == 0 or number == len(topics):
                self.version += 1
                yield

    # Answers

    def route(self, topic: str) -> TopicRouteData | None:
        """Return the route of a topic (105); None if no living broker serves it."""
        rows = self.rows.find(topic)
        if not rows:
            return None
        return TopicRouteData(
            broker_datas=[_broker_data(group) for group, _ in rows],
            queue_datas=[data for _, data in rows],
        )

    def cluster_info(self) -> ClusterInfo:
        """Return all groups and clusters (106)."""
        clusters: dict[str, list[str]] = {}
        for name in sorted(self._groups):
            clusters.setdefault(self._groups[name].cluster, []).append(name)
        return ClusterInfo(
            broker_addr_table={
                name: _broker_data(self._groups[name]) for name in sorted(self._groups)
            },
            cluster_addr_table=clusters,
        )

    def groups(self, cluster: str | None = None) -> list[Group]:
        """Return the groups of one cluster, or all."""
        return [one for one in self._groups.values() if cluster in {None, one.cluster}]

    def system_topics(self) -> TopicList:
        """Return the topics named after clusters and groups, and one address to ask on (304)."""
        clusters = dict.fromkeys(group.cluster for group in self._groups.values())
        addr = next((a for g in self._groups.values() for a in g.addrs.values()), None)
        return TopicList(topic_list=[*clusters, *self._groups], broker_addr=addr)

    def broker_addrs(self) -> Iterable[str]:
        """Return the addresses of all living brokers."""
        return list(self._live)

    # Private

    def _is_overtaken(self, group: Group | None, registration: Registration) -> bool:
        """Tell whether a later one of the same connection was taken, at the address or the place.

        A large one waits for its turn, a small one does not.
        """
        place = "" if group is None else group.addrs.get(registration.broker_id, "")
        return any(
            live is not None
            and live.connection == registration.connection
            and live.arrival > registration.arrival
            for live in (self._live.get(registration.addr), self._live.get(place))
        )

    def _registered(self, group: Group | None, broker_id: int) -> Registered:
        """Return what who is registered with an id is told: a slave where its master is."""
        master = None if group is None else group.addrs.get(MASTER_ID)
        if broker_id == MASTER_ID or master is None:
            return Registered()
        its = self._live.get(master)
        return Registered(master, None if its is None else its.ha_addr)

    def _refusal(self, group: Group | None, registration: Registration) -> str:
        """Return why a registration cannot be taken, empty if it can."""
        addr, connection = registration.addr, registration.connection
        known = self._live.get(addr)
        if known is None and len(self._live) >= BROKERS_MAX:
            return f"{BROKERS_MAX} brokers are registered here"
        its = self._by_connection.get(connection, {})
        if addr not in its and len(its) >= BROKERS_PER_CONNECTION_MAX:
            return f"a connection may register {BROKERS_PER_CONNECTION_MAX} brokers"
        if registration.broker_id == MASTER_ID:
            refusal = self._topics_refusal(group, registration.topics.topic_config_table)
            if refusal:
                return refusal
        if self._is_too_heavy(group, registration):
            return f"names and addresses of all brokers: more than {BROKER_NAMES_BYTES_MAX} bytes"
        if group is None:
            return ""
        if registration.broker_id not in group.addrs and len(group.addrs) >= MEMBERS_MAX:
            return f"{MEMBERS_MAX} brokers of this name are registered"
        return _master_refusal(group, registration) or _slave_refusal(group, registration)

    def _topics_refusal(self, group: Group | None, topics: Mapping[str, TopicConfig]) -> str:
        """Return why the topics of a registration cannot be taken, empty if they can."""
        new_rows = len(topics)
        if group is not None and self.rows.count + new_rows > TOPIC_ROWS_MAX:
            new_rows = sum(topic not in group.topics for topic in topics)
        if self.rows.count + new_rows > TOPIC_ROWS_MAX:
            return f"more than {TOPIC_ROWS_MAX} topics would be registered here"
        new_bytes = sum(map(len, topics))
        if self.rows.names_bytes + new_bytes > TOPIC_NAMES_BYTES_MAX:
            new_bytes = sum(len(topic) for topic in topics if topic not in self.rows.topics)
        if self.rows.names_bytes + new_bytes > TOPIC_NAMES_BYTES_MAX:
            return f"the names of all topics would have more than {TOPIC_NAMES_BYTES_MAX} bytes"
        return ""

    def _is_too_heavy(self, group: Group | None, registration: Registration) -> bool:
        """Tell whether all brokers would not fit into one answer; what is there may stay."""
        its = {} if group is None else group.addrs
        after = {one: addr for one, addr in its.items() if addr != registration.addr}
        after[registration.broker_id] = registration.addr
        weight = weight_of(registration.broker_name, registration.cluster, after)
        more = weight - (0 if group is None else group.weight)
        return more > 0 and self._names_bytes + more > BROKER_NAMES_BYTES_MAX

    def _take_topics(
        self, live: _Live, group: Group, wrapper: TopicConfigWrapper
    ) -> Iterator[None] | None:
        """Add or replace the queues of a group; topics it no longer names stay (216 deletes).

        Returns what takes the rest, if there are more than `TOPICS_PER_TURN`; it ends early when a
        later registration of the group has come. Until then the version is not taken over.
        """
        version, live.version = live.version, DataVersion(counter=-1, timestamp=-1)
        group.taking = token = object()

        def take() -> Iterator[None]:
            for number, (topic, config) in enumerate(wrapper.topic_config_table.items(), 1):
                self.rows.put(
                    topic,
                    group,
                    QueueData(
                        broker_name=live.broker_name,
                        perm=config.perm,
                        read_queue_nums=config.read_queue_nums,
                        topic_sys_flag=config.topic_sys_flag,
                        write_queue_nums=config.write_queue_nums,
                    ),
                )
                if number % TOPICS_PER_TURN == 0:
                    self.version += 1
                    yield
                    if group.taking is not token:
                        return
            self.version += 1
            live.version = version

        steps = take()
        return steps if next(steps, steps) is None else None

    def _put_live(self, addr: str, live: _Live) -> None:
        self._forget_connection(addr)
        self._live[addr] = live
        self._by_connection.setdefault(live.connection, {})[addr] = None

    def _forget_connection(self, addr: str) -> None:
        live = self._live.get(addr)
        if live is not None:
            its = self._by_connection[live.connection]
            del its[addr]
            if not its:
                del self._by_connection[live.connection]

    def _forget_place(self, addr: str, new_name: str) -> None:
        """Take an address from the name and id that it had; one that has moved leaves its name."""
        live = self._live.get(addr)
        if live is None:
            return
        if live.broker_name != new_name:
            self._remove(addr)
            return
        its = self._groups[new_name].addrs
        for broker_id in [one for one, held in its.items() if held == addr]:
            del its[broker_id]

    def _weigh(self, group: Group) -> None:
        group.shown = None
        self._names_bytes -= group.weight
        group.weight = weight_of(group.name, group.cluster, group.addrs)
        self._names_bytes += group.weight

    def _remove(self, addr: str) -> None:
        self._forget_connection(addr)
        live = self._live.pop(addr)
        self.version += 1
        group = self._groups.get(live.broker_name)
        if group is None:
            return
        for broker_id in [one for one, its in group.addrs.items() if its == addr]:
            del group.addrs[broker_id]
        self._weigh(group)
        if group.addrs:
            return
        del self._groups[live.broker_name]
        group.taking = None
        self.rows.abandon(group)


def _master_refusal(group: Group, registration: Registration) -> str:
    """Return why a broker cannot be the master of a group that has one, empty if it can."""
    master = group.addrs.get(MASTER_ID)
    if registration.broker_id != MASTER_ID or master is None or master == registration.addr:
        return ""
    term, its_term = registration.raft_term, group.master_term
    if its_term != NO_TERM and term == NO_TERM:
        return f"the group elects its master by terms, this is {its_term}"
    if term != NO_TERM and its_term >= term:
        return f"term {term} is older than the master's {its_term}, or has a master"
    return ""


def _slave_refusal(group: Group, registration: Registration) -> str:
    """Return why a broker cannot be a slave of a master that it would follow, empty if it can.

    Groups that elect their master know their members by themselves.
    """
    master, is_elected = group.addrs.get(MASTER_ID), group.master_term != NO_TERM
    if registration.broker_id == MASTER_ID or master in {None, registration.addr} or is_elected:
        return ""
    if registration.cluster == group.cluster:
        return ""
    return (
        f"the master {master} of this name is of brokerClusterName={group.cluster}; give this slave"
        " the same, or another brokerName"
    )


def _broker_data(group: Group) -> BrokerData:
    if group.shown is None:
        addrs = {broker_id: group.addrs[broker_id] for broker_id in sorted(group.addrs)}
        group.shown = BrokerData(broker_addrs=addrs, broker_name=group.name, cluster=group.cluster)
    return group.shown
