"""The two servers side by side: the same configuration, connections to each, what each stored."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bench import java
from bench.cluster import Cluster
from tests.interop.differential.wire import Link

if TYPE_CHECKING:
    from pathlib import Path

    from bench.processes import ServerProcesses

CLUSTER, BROKER = "DifferCluster", "BenchGroup"
FOREVER_MS = 3_600_000
SETTINGS = (
    f"brokerClusterName={CLUSTER}",
    f"brokerName={BROKER}",
    "defaultTopicQueueNums=4",
    "enablePropertyFilter=true",
    f"transactionTimeOut={FOREVER_MS}",
    f"transactionCheckInterval={FOREVER_MS}",
    # No message that waits comes while the tester looks.
    "messageDelayLevel=1h 2h 3h 4h",
    # A machine that stands still is no answer.
    "waitTimeMillsInSendQueue=20000",
    "waitTimeMillsInPullQueue=20000",
    "waitTimeMillsInTransactionQueue=20000",
    "osPageCacheBusyTimeOutMills=20000",
)


@dataclass(slots=True)
class Place:
    """Where a side stored a message, and by which ids it knows it."""

    message_id: str
    queue_id: int
    queue_offset: int

    @property
    def physical_offset(self) -> int:
        """Where it lies in the log."""
        return int(self.message_id[16:32], 16)


@dataclass(slots=True)
class Side:
    """A broker and its name server; ``places`` are those of the messages sent, in order."""

    name: str
    namesrv: str
    broker: str
    places: list[Place | None] = field(default_factory=list)
    links: dict[tuple[str, int], Link] = field(default_factory=dict)

    def link(self, target: str, number: int = 0) -> Link:
        """Return a connection to the broker or the name server."""
        address = self.namesrv if target == "namesrv" else self.broker
        if (target, number) not in self.links:
            self.links[target, number] = Link(address)
        return self.links[target, number]

    def value(self, drawn: Any) -> Any:
        """Return what a drawn value is at this side."""
        return drawn.at(self) if isinstance(drawn, Ref) else drawn

    async def close(self) -> None:
        """End all connections."""
        for link in self.links.values():
            await link.close()
        self.links.clear()


@dataclass(frozen=True, slots=True)
class Ref:
    """Something of the nth message that was sent, which differs from side to side."""

    number: int
    part: str
    """``physical``, ``id`` or ``offset``."""
    plus: int = 0

    def at(self, side: Side) -> str | int:
        """Return what it is at a side."""
        place = side.places[self.number]
        if place is None:
            return 0
        if self.part == "id":
            return place.message_id
        if self.part == "offset":
            return place.queue_offset + self.plus
        return place.physical_offset + self.plus


def start_theirs(home: Path) -> ServerProcesses:
    """Return RocketMQ. Errors: `JavaUnavailableError`."""
    return java.RealRocketMQ(
        java.prepare(), home, replicas=1, sync_flush=False, settings=SETTINGS, heap_mb=512
    )


def start_ours(home: Path, replicas: int = 1) -> Cluster:
    """Return ours: a broker alone, or a group."""
    return Cluster(home, replicas=replicas, sync_flush=False, settings=SETTINGS)
