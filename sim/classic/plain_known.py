"""What is known of logs that replicate without a Raft group: the line of their master."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ledgermq.client import MessageQueue


class World(Protocol):
    """Where brokers run; `sim.classic.plain_world.PlainWorld`."""

    @property
    def pair(self) -> Any:  # noqa: ANN401  # of master and slaves, or of replicas that are switched
        """What is known of the brokers."""
        ...


class PlainKnown:
    """All brokers have one name; see `sim.oracles.client_ends.Known`."""

    def __init__(self, world: World) -> None:
        self._world = world

    def name_of(self, address: str) -> str:
        """Return one name for all."""
        del address
        return ""

    def is_there(self, queue: MessageQueue, offset: int, tags: str) -> bool:
        """Tell whether a queue has something at an offset; nothing has tags here."""
        del tags
        pair, place = self._world.pair, (queue.topic, queue.queue_id, offset)
        if place in pair.replaced:
            return False
        return any((*row.queue, row.offset) == place for row in pair.book.line.rows.values())

    def end_of(self, address: str, queue: tuple[str, int]) -> int | None:
        """Return None: where queues end is judged where brokers answer."""
        del address, queue
        return None

    def has_lost_ends(self, address: str) -> bool:
        """Return True: they may have."""
        del address
        return True
