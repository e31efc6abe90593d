"""Builds the services of the leader. Adding one is a line in `build_services`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.delays.service import DelayedDelivery
from broker.leader.services import LeaderServices
from broker.offsets.cleaning import OffsetCleaner
from broker.offsets.replication import OffsetReplicator
from broker.pulls.release import HeldPulls

if TYPE_CHECKING:
    from broker.core import Core
    from broker.processors import Processors

_log = logging.getLogger(__name__)

OFFSET_DRAIN_MS: Final = 1_000


class Services(NamedTuple):
    """All of them, and those that have something to hand over at a stop."""

    leader: LeaderServices
    offsets: OffsetReplicator
    held: HeldPulls
    delays: DelayedDelivery

    async def let_go(self) -> None:
        """Hand over what clients entrusted to this broker."""
        if not await self.offsets.drain(OFFSET_DRAIN_MS):
            _log.warning("event=offsets_not_replicated_at_stop timeout_ms=%d", OFFSET_DRAIN_MS)
        await self.held.drain()


def build_services(core: Core, processors: Processors) -> Services:
    """Return the services of a broker; their replicated tables are registered."""
    tables, store = core.tables, core.store
    offsets = OffsetReplicator(tables.offsets, store, core.tasks.alarm)
    held = HeldPulls(processors.pull.release, tables.held.__len__)
    delays = DelayedDelivery(store, core.tasks.alarm, is_repaired=core.config.enable_dledger)
    services = (offsets, OffsetCleaner(tables, store), processors.moved, held, delays)
    return Services(LeaderServices(services, tables.add, core.tasks), offsets, held, delays)
