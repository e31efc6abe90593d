"""What is known of the logs of a world's brokers: of the group by what it has committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sim.oracles.answers import wanted_tags
from sim.validators import ALONE_NAME, GROUP_NAME

if TYPE_CHECKING:
    from ledgermq.client import MessageQueue
    from sim.alone_log import AloneLog
    from sim.context import Host
    from sim.faults.plan import Plan
    from sim.layout import Layout
    from sim.oracles.clients import Clients
    from sim.oracles.watch import Watch
    from sim.validators import Validators

ALL_TAGS = "*"


class World(Protocol):
    """Where brokers run; `sim.world.World`."""

    plan: Plan
    layout: Layout
    hosts: dict[str, Host]
    watch: Watch
    clients_oracle: Clients
    validators: Validators
    alone_log: AloneLog | None


class GroupKnown:
    """Of a group, and of a broker outside it; see `sim.oracles.client_ends.Known`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._alone = {world.hosts[name].address for name in world.layout.alone}

    def name_of(self, address: str) -> str:
        """Return the name of the brokers at an address."""
        return ALONE_NAME if address in self._alone else GROUP_NAME

    def is_there(self, queue: MessageQueue, offset: int, tags: str) -> bool:
        """Tell whether a queue has something at an offset, of the tags of a subscription."""
        world, place = self._world, (queue.topic, queue.queue_id)
        if queue.broker_name != GROUP_NAME:
            alone = world.validators.alone
            return alone is not None and alone.is_there(place, offset, tags)
        row = world.watch.truth.row(*place, offset)
        if row is None or offset < world.clients_oracle.dropped.get(place, 0):
            return False
        held = world.watch.truth.tags.get((row.entry_index, row.term), "")
        return tags == ALL_TAGS or held in wanted_tags(tags)

    def end_of(self, address: str, queue: tuple[str, int]) -> int | None:
        """Return where a queue ends at the brokers at an address, None where nobody knows."""
        if address in self._alone:
            log = self._world.alone_log
            return None if log is None else log.end_of(queue)
        return len(self._world.watch.truth.queues.get(queue, ()))

    def has_lost_ends(self, address: str) -> bool:
        """Tell whether those brokers have ever lost the end of their log, as they may."""
        log = self._world.alone_log
        is_synced = self._world.plan.options.alone_flush == "SYNC_FLUSH"
        return address in self._alone and log is not None and not is_synced and log.ends_lost > 0
