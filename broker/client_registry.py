"""Who is connected: producers and consumers by group, and what the consumers subscribe to.

Pure tables: ``now_ms`` is passed in, and a call that changes a consumer group says so, so that the
caller can notify its members. A connection stands for a client; it is known by its ``id``.
Source: protocol.md 3.6, 7.1; RocketMQ ConsumerManager, ConsumerGroupInfo, ProducerManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from broker.tags import ALL_TAGS, tag_codes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

EXPIRY_MS = 120_000
GROUPS_MAX = 100_000
CHANNELS_PER_GROUP_MAX = 20_000
SUBSCRIPTIONS_PER_GROUP_MAX = 1_000

BROADCASTING = "BROADCASTING"


class ClientConnection(Protocol):
    """What the registry needs of a connection."""

    @property
    def id(self) -> int:
        """Number of the connection, never used again."""


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


class Client(msgspec.Struct):
    """One member of a group."""

    connection: ClientConnection
    client_id: str
    language: int
    version: int
    last_seen_ms: int


class GroupTraits(msgspec.Struct, frozen=True):
    """How a consumer group consumes; the last heartbeat's word counts for the group."""

    consume_type: str
    message_model: str
    consume_from_where: str


class ConsumerGroup:
    """The live members and subscriptions of one consumer group."""

    __slots__ = ("clients", "name", "subscriptions", "traits")

    def __init__(self, name: str, traits: GroupTraits) -> None:
        self.name = name
        self.traits = traits
        self.clients: dict[int, Client] = {}
        self.subscriptions: dict[str, Subscription] = {}

    def update_client(self, client: Client) -> bool:
        """Take a heartbeat of a member; True if the member is new."""
        known = self.clients.get(client.connection.id)
        if known is not None and known.client_id == client.client_id:
            known.last_seen_ms = client.last_seen_ms
            return False
        if known is None and len(self.clients) >= CHANNELS_PER_GROUP_MAX:
            return False
        self.clients[client.connection.id] = client
        return known is None

    def update_subscriptions(self, subscriptions: Sequence[Subscription]) -> bool:
        """Take the subscriptions of a heartbeat; True if a topic came or went.

        A subscription is replaced only by a newer version; topics no longer named are removed.
        """
        changed = False
        named = {item.topic for item in subscriptions}
        for topic in [topic for topic in self.subscriptions if topic not in named]:
            del self.subscriptions[topic]
            changed = True
        for item in subscriptions[:SUBSCRIPTIONS_PER_GROUP_MAX]:
            old = self.subscriptions.get(item.topic)
            if old is None or item.version > old.version:
                self.subscriptions[item.topic] = item
                changed = changed or old is None
        return changed


class ConsumerRegistry:
    """All consumer groups with live members."""

    def __init__(self) -> None:
        self._groups: dict[str, ConsumerGroup] = {}
        self._groups_of: dict[int, set[str]] = {}

    def get(self, group: str) -> ConsumerGroup | None:
        """Return a group with members, or None."""
        return self._groups.get(group)

    def register(
        self, name: str, traits: GroupTraits, client: Client, subscriptions: Sequence[Subscription]
    ) -> bool:
        """Take a heartbeat; True if the group's members or topics changed."""
        group = self._groups.get(name)
        if group is None:
            if len(self._groups) >= GROUPS_MAX:
                return False
            group = self._groups[name] = ConsumerGroup(name, traits)
        group.traits = traits
        added = group.update_client(client)
        changed = group.update_subscriptions(subscriptions)
        self._groups_of.setdefault(client.connection.id, set()).add(name)
        return added or changed

    def unregister(self, name: str, connection_id: int) -> bool:
        """Remove a member; True if it was there."""
        group = self._groups.get(name)
        if group is None or group.clients.pop(connection_id, None) is None:
            return False
        names = self._groups_of.get(connection_id, set())
        names.discard(name)
        if not names:
            self._groups_of.pop(connection_id, None)
        if not group.clients:
            del self._groups[name]
        return True

    def close(self, connection_id: int) -> list[str]:
        """Remove every membership of a closed connection; returns the groups that lost one."""
        names = sorted(self._groups_of.get(connection_id, ()))
        return [name for name in names if self.unregister(name, connection_id)]

    def expire(self, now_ms: int) -> list[str]:
        """Remove members silent for 120 s; returns the groups that lost one."""
        return _expire(
            [
                (name, connection_id)
                for name, group in self._groups.items()
                for connection_id, client in group.clients.items()
                if now_ms - client.last_seen_ms > EXPIRY_MS
            ],
            self,
        )

    def client_ids(self, group: str) -> list[str]:
        """Return the ids of a group's members; empty if it has none."""
        found = self._groups.get(group)
        return [] if found is None else [client.client_id for client in found.clients.values()]

    def connections(self, group: str) -> Iterable[ClientConnection]:
        """Return the connections of a group's members."""
        found = self._groups.get(group)
        return [] if found is None else [client.connection for client in found.clients.values()]


class ProducerRegistry:
    """All producer groups with live members."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[int, Client]] = {}

    def register(self, group: str, client: Client) -> None:
        """Take a heartbeat."""
        clients = self._groups.get(group)
        if clients is None:
            if len(self._groups) >= GROUPS_MAX:
                return
            clients = self._groups[group] = {}
        if client.connection.id in clients or len(clients) < CHANNELS_PER_GROUP_MAX:
            clients[client.connection.id] = client

    def unregister(self, group: str, connection_id: int) -> bool:
        """Remove a member; True if it was there."""
        clients = self._groups.get(group)
        if clients is None or clients.pop(connection_id, None) is None:
            return False
        if not clients:
            del self._groups[group]
        return True

    def close(self, connection_id: int) -> None:
        """Remove every membership of a closed connection."""
        for group in [name for name, clients in self._groups.items() if connection_id in clients]:
            self.unregister(group, connection_id)

    def expire(self, now_ms: int) -> list[str]:
        """Remove members silent for 120 s; returns the groups that lost one."""
        return _expire(
            [
                (name, connection_id)
                for name, clients in self._groups.items()
                for connection_id, client in clients.items()
                if now_ms - client.last_seen_ms > EXPIRY_MS
            ],
            self,
        )

    def clients(self, group: str) -> list[Client]:
        """Return the members of a group."""
        return list(self._groups.get(group, {}).values())


def _expire(
    silent: list[tuple[str, int]], registry: ConsumerRegistry | ProducerRegistry
) -> list[str]:
    """Remove the members that are silent; returns their groups, each once."""
    gone = [name for name, connection_id in silent if registry.unregister(name, connection_id)]
    return list(dict.fromkeys(gone))
