"""Who is connected: producers and consumers by group, and what the consumers subscribe to.

Pure tables: ``now_ms`` is passed in, and a call that changes a consumer group says so, so that the
caller can notify its members. A connection stands for a client; it is known by its ``id``.
Source: spec/wire.md 3.6, 7.1; RocketMQ ConsumerManager, ConsumerGroupInfo, ProducerManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from broker.fair_share import FairShare
from broker.groups.claims import ClaimedQueue, Claims
from broker.pulls.filters import TAG_TYPES
from broker.pulls.tags import ALL_TAGS, tag_codes
from broker.serving_limits import (
    CHANNELS_PER_GROUP_MAX,
    CLIENTS_BYTES_MAX,
    CONNECTION_GROUPS_MAX,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ledgermq.remoting.protocol.command import RemotingCommand

EXPIRY_MS = 120_000
GROUPS_MAX = 100_000
SWEEP_MAX = 20_000
"""Memberships looked at in one call of `expire`; the next call goes on behind them."""
MEMBER_BYTES = 300
"""What a membership takes besides names; a subscription takes about as much."""

BROADCASTING = "BROADCASTING"


class ClientConnection(Protocol):
    """What the registry needs of a connection."""

    @property
    def id(self) -> int:
        """Number of the connection, never used again."""

    @property
    def remote(self) -> tuple[str, int]:
        """Where the client is."""

    @property
    def slow(self) -> bool:
        """Whether more waits for the client than it takes."""

    def send(self, command: RemotingCommand) -> None:
        """Send a command."""

    async def request(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        """Send a request and return its answer. Errors: `RemotingError`."""


class Subscription(msgspec.Struct, frozen=True):
    """What a group wants of one topic."""

    topic: str
    expression: str = ALL_TAGS
    expression_type: str = "TAG"
    version: int = 0
    #: Hash codes of the tags, None for all messages.
    codes: frozenset[int] | None = None

    @classmethod
    def parse(cls, topic: str, expression: str | None, version: int = 0) -> Subscription:
        """Build a TAG subscription from ``A || B``; None, empty and ``*`` take everything."""
        return cls(topic, expression or ALL_TAGS, "TAG", version, tag_codes(expression))

    def wants_as(self, other: Subscription) -> bool:
        """Tell whether both take the same messages of a topic."""
        if self.expression_type in TAG_TYPES and other.expression_type in TAG_TYPES:
            return self.codes == other.codes
        return (self.expression_type, self.expression) == (other.expression_type, other.expression)


class Client(msgspec.Struct):
    """One member of a group; registries keep one for each group that it is in."""

    connection: ClientConnection
    client_id: str
    language: int
    version: int
    last_seen_ms: int
    #: The address whose share it takes.
    holder: str = ""


class GroupTraits(msgspec.Struct, frozen=True):
    """How a consumer group consumes; the last heartbeat's word counts for the group."""

    consume_type: str
    message_model: str
    consume_from_where: str


class ConsumerGroup:
    """The live members and subscriptions of one consumer group."""

    __slots__ = ("clients", "holder", "name", "subscriptions", "traits", "weight")

    def __init__(self, name: str, traits: GroupTraits) -> None:
        self.name = name
        self.traits = traits
        self.clients: dict[int, Client] = {}
        self.subscriptions: dict[str, Subscription] = {}
        #: Bytes of the subscriptions, and the address whose share they take.
        self.weight = 0
        self.holder = ""

    def update_client(self, client: Client) -> bool:
        """Take a heartbeat of a member; True if it is new, or has another client id now."""
        known = self.clients.get(client.connection.id)
        if known is not None and known.client_id == client.client_id:
            known.last_seen_ms = client.last_seen_ms
            return False
        if known is None and len(self.clients) >= CHANNELS_PER_GROUP_MAX:
            return False
        self.clients[client.connection.id] = client
        return True

    def kept(self, subscriptions: Iterable[Subscription]) -> Iterator[Subscription]:
        """Return what `update_subscriptions` leaves here, as far as these topics go."""
        for item in subscriptions:
            old = self.subscriptions.get(item.topic)
            yield item if old is None or item.version > old.version else old

    def update_subscriptions(self, subscriptions: Sequence[Subscription]) -> bool:
        """Take the subscriptions of a heartbeat; True if a topic came or went.

        A subscription is replaced only by a newer version; topics no longer named are removed.
        """
        changed = False
        named = {item.topic for item in subscriptions}
        for topic in [topic for topic in self.subscriptions if topic not in named]:
            del self.subscriptions[topic]
            changed = True
        for item in subscriptions:
            old = self.subscriptions.get(item.topic)
            if old is None or item.version > old.version:
                self.subscriptions[item.topic] = item
                changed = changed or old is None
        return changed


def weight_of(subscriptions: Iterable[Subscription]) -> int:
    """Return about how many bytes subscriptions take."""
    return sum(
        MEMBER_BYTES
        + len(one.topic)
        + len(one.expression)
        + len(one.expression_type)
        + 64 * len(one.codes or ())
        for one in subscriptions
    )


class _Memberships:
    """Who is in which group: by connection, and what all that takes up.

    Args:
        room: shared by all registries of a broker.
    """

    def __init__(self, room: FairShare | None) -> None:
        self.room = FairShare(CLIENTS_BYTES_MAX) if room is None else room
        self.expiry_ms = EXPIRY_MS
        self._of: dict[int, dict[str, Client]] = {}
        self._unswept: list[int] = []

    def may_add(self, name: str, client: Client) -> bool:
        """Tell whether a connection may be in one more group."""
        if len(self._of.get(client.connection.id, ())) >= CONNECTION_GROUPS_MAX:
            return False
        return self.room.fits(client.holder, MEMBER_BYTES + len(name))

    def add(self, name: str, client: Client) -> None:
        """Note a new membership."""
        self._of.setdefault(client.connection.id, {})[name] = client
        self.room.take(client.holder, MEMBER_BYTES + len(name))

    def remove(self, name: str, client: Client) -> None:
        """Forget one."""
        names = self._of[client.connection.id]
        del names[name]
        self.room.take(client.holder, -MEMBER_BYTES - len(name))
        if not names:
            del self._of[client.connection.id]

    def groups_of(self, connection_id: int) -> list[str]:
        """Return the groups of a connection."""
        return list(self._of.get(connection_id, ()))

    def silent(self, now_ms: int) -> list[tuple[str, int]]:
        """Return the silent among the next members, see `SWEEP_MAX`: group and connection."""
        found: list[tuple[str, int]] = []
        if not self._unswept:
            self._unswept = list(self._of)
        left = SWEEP_MAX
        while self._unswept and left > 0:
            connection_id = self._unswept.pop()
            clients = self._of.get(connection_id, {})
            left -= 1 + len(clients)
            for name, client in clients.items():
                if now_ms - client.last_seen_ms > self.expiry_ms:
                    found.append((name, connection_id))
        return found


class ConsumerRegistry:
    """All consumer groups with live members."""

    def __init__(self, room: FairShare | None = None) -> None:
        self._groups: dict[str, ConsumerGroup] = {}
        self._members = _Memberships(room)
        self.claims = Claims()

    def get(self, group: str) -> ConsumerGroup | None:
        """Return a group with members, or None."""
        return self._groups.get(group)

    def subscription(self, group: str, topic: str) -> Subscription | None:
        """Return what the members of a group want of a topic, None for nothing or no members."""
        live = self._groups.get(group)
        return None if live is None else live.subscriptions.get(topic)

    def claim(self, queue: ClaimedQueue, connection_id: int, *, anyway: bool) -> str:
        """Have a member claim a queue; returns the client id of who holds it, "" if it may go on.

        A connection that is no member claims nothing, and is told of nobody.
        """
        client = self._member(queue.group, connection_id)
        if client is None:
            return ""
        other = self.claims.take(queue, client, anyway=anyway)
        return "" if other is None else other.client_id

    def end_claim(self, queue: ClaimedQueue, connection_id: int) -> None:
        """End what a member claims of a queue."""
        client = self._member(queue.group, connection_id)
        if client is not None:
            self.claims.end(queue, client)

    def register(
        self, name: str, traits: GroupTraits, client: Client, subscriptions: Sequence[Subscription]
    ) -> bool:
        """Take a heartbeat; True if the group's members or topics changed.

        Whoever has no room left in its share is not made a member, nor are subscriptions taken.
        """
        group = self._groups.get(name)
        known = None if group is None else group.clients.get(client.connection.id)
        if known is None and not self._members.may_add(name, client):
            return False
        if known is None or known.client_id != client.client_id:
            client = msgspec.structs.replace(client)  # each membership is heard of by itself
        if group is None:
            if len(self._groups) >= GROUPS_MAX:
                return False
            group = ConsumerGroup(name, traits)
        weight = weight_of(group.kept(subscriptions)) + sum(
            map(len, msgspec.structs.astuple(traits))
        )
        if not self._weigh(group, client, weight):
            if known is not None:
                known.last_seen_ms = client.last_seen_ms  # it is one, and was heard of
            return False
        self._groups[name] = group
        group.traits = traits
        added = group.update_client(client)
        if client.connection.id not in group.clients:
            return False
        if known is None:
            self._members.add(name, client)
        elif known is not group.clients[client.connection.id]:
            self.claims.end_all(name, known)
            self._members.remove(name, known)
            self._members.add(name, client)
        return group.update_subscriptions(subscriptions) or added

    def unregister(self, name: str, connection_id: int) -> bool:
        """Remove a member; True if it was there."""
        group = self._groups.get(name)
        client = None if group is None else group.clients.pop(connection_id, None)
        if group is None or client is None:
            return False
        self.claims.end_all(name, client)
        self._members.remove(name, client)
        if not group.clients:
            self._members.room.take(group.holder, -group.weight)
            del self._groups[name]
        return True

    def close(self, connection_id: int) -> list[str]:
        """Remove every membership of a closed connection; returns the groups that lost one."""
        names = sorted(self._members.groups_of(connection_id))
        return [name for name in names if self.unregister(name, connection_id)]

    def expire(self, now_ms: int) -> list[str]:
        """Remove members silent for 120 s; returns the groups that lost one."""
        return _expire(self._members.silent(now_ms), self)

    def groups(self) -> list[ConsumerGroup]:
        """Return all groups that have members now."""
        return list(self._groups.values())

    def client_ids(self, group: str) -> list[str]:
        """Return the ids of a group's members; empty if it has none."""
        found = self._groups.get(group)
        return [] if found is None else [client.client_id for client in found.clients.values()]

    def connections(self, group: str) -> Iterable[ClientConnection]:
        """Return the connections of a group's members."""
        found = self._groups.get(group)
        return [] if found is None else [client.connection for client in found.clients.values()]

    def _member(self, group: str, connection_id: int) -> Client | None:
        live = self._groups.get(group)
        return None if live is None else live.clients.get(connection_id)

    def _weigh(self, group: ConsumerGroup, client: Client, weight: int) -> bool:
        """Charge a group's subscriptions to the share of the client that sent them."""
        room = self._members.room
        if (weight, client.holder) == (group.weight, group.holder):
            return True
        room.take(group.holder, -group.weight)
        if not room.fits(client.holder, weight):
            room.take(group.holder, group.weight)
            return False
        room.take(client.holder, weight)
        group.weight, group.holder = weight, client.holder
        return True


class ProducerRegistry:
    """All producer groups with live members."""

    def __init__(self, room: FairShare | None = None) -> None:
        self._groups: dict[str, dict[int, Client]] = {}
        self._members = _Memberships(room)
        self._by_id: dict[str, dict[tuple[str, int], Client]] = {}
        """Memberships by client id, the last one that came last."""

    def find(self, client_id: str) -> Client | None:
        """Return who has sent heartbeats under a client id, on the connection that came last."""
        members = self._by_id.get(client_id)
        return next(reversed(members.values())) if members else None

    def register(self, group: str, client: Client) -> None:
        """Take a heartbeat."""
        clients = self._groups.get(group)
        known = None if clients is None else clients.get(client.connection.id)
        if known is not None:
            known.last_seen_ms = client.last_seen_ms
            return
        if not self._members.may_add(group, client):
            return
        if clients is None:
            if len(self._groups) >= GROUPS_MAX:
                return
            clients = self._groups[group] = {}
        if len(clients) < CHANNELS_PER_GROUP_MAX:
            client = msgspec.structs.replace(client)  # each membership is heard of by itself
            clients[client.connection.id] = client
            self._members.add(group, client)
            self._by_id.setdefault(client.client_id, {})[group, client.connection.id] = client

    def unregister(self, group: str, connection_id: int) -> bool:
        """Remove a member; True if it was there."""
        clients = self._groups.get(group)
        client = None if clients is None else clients.pop(connection_id, None)
        if clients is None or client is None:
            return False
        self._members.remove(group, client)
        same = self._by_id[client.client_id]
        del same[group, connection_id]
        if not same:
            del self._by_id[client.client_id]
        if not clients:
            del self._groups[group]
        return True

    def close(self, connection_id: int) -> None:
        """Remove every membership of a closed connection."""
        for group in self._members.groups_of(connection_id):
            self.unregister(group, connection_id)

    def expire(self, now_ms: int) -> list[str]:
        """Remove members silent for 120 s; returns the groups that lost one."""
        return _expire(self._members.silent(now_ms), self)

    def groups(self) -> list[str]:
        """Return all groups that have members now."""
        return list(self._groups)

    def clients(self, group: str) -> list[Client]:
        """Return the members of a group."""
        return list(self._groups.get(group, {}).values())


def _expire(
    silent: list[tuple[str, int]], registry: ConsumerRegistry | ProducerRegistry
) -> list[str]:
    """Remove the members that are silent; returns their groups, each once."""
    gone = [name for name, connection_id in silent if registry.unregister(name, connection_id)]
    return list(dict.fromkeys(gone))
