"""Removes all offsets of a group, through the log, when an administrator removes the group.

Source: RocketMQ ConsumerOffsetManager.removeOffset.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Final

from broker.state.consumer_offset import split_removal
from broker.state.kinds import StateKind
from store.results import PutStatus

if TYPE_CHECKING:
    from broker.state.consumer_offset import ConsumerOffsetTable
    from broker.state.replicated_state import Proposer

SLICE: Final = 1_000
"""Keys looked at in one turn of the loop."""
AT_ONCE: Final = 16
"""Entries that wait for their commit together."""


class OffsetRemoval:
    """For one broker."""

    def __init__(self, offsets: ConsumerOffsetTable, proposer: Proposer) -> None:
        self._offsets = offsets
        self._proposer = proposer

    async def of_group(self, group: str) -> PutStatus:
        """Remove what is kept for a group; return what failed, or OK."""
        found = self._offsets.withdraw(group)
        for number, (key, queue_ids) in enumerate(self._offsets.applied(), 1):
            if key.rpartition("@")[2] == group:
                found[key] = list({*queue_ids, *found.get(key, ())})
            if number % SLICE == 0:
                await asyncio.sleep(0)
        payloads = split_removal(found)
        while window := list(islice(payloads, AT_ONCE)):
            statuses = await asyncio.gather(
                *[self._proposer.propose(StateKind.FORGET_OFFSETS, one) for one in window]
            )
            for status in statuses:
                if status is not PutStatus.OK:
                    return status
        return PutStatus.OK
