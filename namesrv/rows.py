"""Which queues a topic has on which broker group: a row for each topic and group.

Pure. A group that is gone leaves rows behind, maybe hundreds of thousands; nobody sees them any
more from that moment on, and `TopicRows.sweep` takes them out a slice at a time. A group is known
by a number: one that comes back under the same name has rows of its own. Rows hold nothing but
numbers and texts, so that the garbage collector need not look at hundreds of thousands of them.
It does not know who registers, nor when.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from msgspec.json import encode

from ledgermq.remoting.protocol.bodies import BrokerData, QueueData

NO_TERM: Final = -1
GROUP_BYTES: Final = 64
MEMBER_BYTES: Final = 24
"""What JSON has besides names and addresses: keys, an id, punctuation."""
TOPICS_PER_TURN: Final = 1_000
"""Topics that are taken or swept in one turn of the loop: some milliseconds."""


@dataclass(slots=True, eq=False)
class Group:
    """The brokers of one name."""

    name: str
    cluster: str
    number: int
    """Never used again, also when the name is."""
    addrs: dict[int, str] = field(default_factory=dict)
    master_term: int = NO_TERM
    topics: dict[str, None] = field(default_factory=dict)
    taking: object = None
    """Stands for the registration whose topics are being taken; a later one replaces it."""
    weight: int = 0
    """What it counts for in the answer with all brokers, see `weight_of`."""
    shown: BrokerData | None = None
    """What routes show of it, until it changes."""


class TopicRows:
    """The rows of one name server."""

    def __init__(self) -> None:
        self.topics: dict[str, dict[int, QueueData]] = {}
        """By topic, then by the number of the group."""
        self._living: dict[int, Group] = {}
        self._numbers = count(1)
        self.count = 0
        """Rows of groups that live."""
        self.names_bytes = 0
        """Bytes of the names of all topics, including those that are still to be swept."""
        self._gone: deque[Group] = deque()
        self.on_abandoned: Callable[[], None] = lambda: None
        """Called when rows were left behind."""

    def new_group(self, name: str, cluster: str) -> Group:
        """Return a group without addresses and topics."""
        group = Group(name, cluster, next(self._numbers))
        self._living[group.number] = group
        return group

    def put(self, topic: str, group: Group, data: QueueData) -> None:
        """Add or replace a row of a group that lives."""
        rows = self.topics.get(topic)
        if rows is None:
            rows = self.topics[topic] = {}
            self.names_bytes += len(topic)
        if group.number not in rows:
            self.count += 1
            group.topics[topic] = None
        rows[group.number] = data

    def drop(self, topic: str, group: Group) -> None:
        """Take out the row of a group that lives."""
        self.count -= 1
        del group.topics[topic]
        self._delete(topic, group)

    def abandon(self, group: Group) -> None:
        """Hide all rows of a group that is gone, and leave them to be swept."""
        del self._living[group.number]
        self.count -= len(group.topics)
        if group.topics:
            self._gone.append(group)
            self.on_abandoned()

    def sweep(self) -> bool:
        """Take out a slice of the rows that were left behind; tell whether there are more."""
        left = TOPICS_PER_TURN
        while self._gone and left > 0:
            group = self._gone[0]
            while group.topics and left > 0:
                topic, _ = group.topics.popitem()
                self._delete(topic, group)
                left -= 1
            if not group.topics:
                self._gone.popleft()
        return bool(self._gone)

    def sweep_all(self) -> Iterator[None]:
        """Take out all rows that were left behind, a slice at each step."""
        while self.sweep():
            yield

    def find(self, topic: str) -> list[tuple[Group, QueueData]]:
        """Return the groups that live and serve a topic, by name, and their queues."""
        living, rows = self._living, self.topics.get(topic, {})
        found = [(living[number], data) for number, data in rows.items() if number in living]
        found.sort(key=lambda row: row[0].name)
        return found

    def maybe_row(self, topic: str, group: Group) -> QueueData | None:
        """Return the queues of a topic on a group."""
        return self.topics.get(topic, {}).get(group.number)

    def _delete(self, topic: str, group: Group) -> None:
        rows = self.topics[topic]
        del rows[group.number]
        if not rows:
            del self.topics[topic]
            self.names_bytes -= len(topic)


def weight_of(name: str, cluster: str, addrs: Mapping[int, str]) -> int:
    """Return how many bytes a group takes in the answer with all brokers (106), at most."""
    if not addrs:
        return 0
    names = 3 * len(encode(name)) + 2 * len(encode(cluster)) + GROUP_BYTES
    return names + sum(len(encode(addr)) + MEMBER_BYTES for addr in addrs.values())
