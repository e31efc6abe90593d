"""Builds the services of the leader. Adding one is a line in `build_services`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.delays.service import DelayedDelivery
from broker.leader.services import LeaderServices
from broker.offsets.bounds import OffsetsWithinQueues
from broker.offsets.cleaning import OffsetCleaner
from broker.offsets.promotion import OwnOffsetsTakeover
from broker.offsets.replication import OffsetReplicator
from broker.pulls.release import HeldPulls

if TYPE_CHECKING:
    from broker.core import Core
    from broker.processors import Processors
    from broker.transactions.service import Transactions

_log = logging.getLogger(__name__)

OFFSET_DRAIN_MS: Final = 1_000


class Services(NamedTuple):
    """All of them, and those that have something to hand over at a stop."""

    leader: LeaderServices
    offsets: OffsetReplicator
    held: HeldPulls
    delays: DelayedDelivery
    transactions: Transactions

    async def let_go(self) -> None:
        """Hand over what clients entrusted to this broker."""
        if not await self.offsets.drain(OFFSET_DRAIN_MS):
            _log.warning("event=offsets_not_replicated_at_stop timeout_ms=%d", OFFSET_DRAIN_MS)
        await self.held.drain()


def build_services(core: Core, processors: Processors) -> Services:
    """Return the services of a broker; their replicated tables are registered."""
    tables, store = core.tables, core.store
    offsets = OffsetReplicator(tables.offsets, store.writer, core.tasks.alarm)
    held = HeldPulls(processors.pull.release, tables.held.__len__)
    delays = DelayedDelivery(
        store,
        core.tasks.alarm,
        is_repaired=core.config.enable_dledger,
        puts=tables.counts.puts,
    )
    transactions = processors.transactions
    own = tables.own_offsets
    promotion = () if own is None else (OwnOffsetsTakeover(own, store.reader.max_offset),)
    is_plain = not core.config.enable_dledger
    reader = store.reader
    within = OffsetsWithinQueues(tables.offsets, reader.max_offset)

    def holds(topic: str, queue_id: int) -> bool:
        return reader.max_offset(topic, queue_id) > reader.min_offset(topic, queue_id)

    cleaner = OffsetCleaner(tables, store.writer, leaves_first=is_plain, holds=holds)
    services = (
        *promotion,
        *((within,) if is_plain else ()),
        offsets,
        cleaner,
        processors.moved,
        held,
        delays,
        transactions,
    )
    leader = LeaderServices(services, tables.add, core.tasks)
    return Services(leader, offsets, held, delays, transactions)
