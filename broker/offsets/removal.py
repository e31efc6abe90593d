"""Removes all offsets of a group, through the log, when an administrator removes the group.

Source: RocketMQ ConsumerOffsetManager.removeOffset.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from broker.limits import STATE_ENTRY_BYTES_MAX
from broker.state.consumer_offset import ForgottenOffsets
from broker.state.kinds import StateKind
from store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker.state.consumer_offset import ConsumerOffsetTable
    from broker.state.replicated_state import Proposer

SLICE: Final = 1_000
"""Keys looked at in one turn of the loop."""
_QUEUE_ID_BYTES: Final = 22
_AROUND_BYTES: Final = 64


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
        for part in _parts(found):
            payload = msgspec.json.encode(ForgottenOffsets(part))
            status = await self._proposer.propose(StateKind.FORGET_OFFSETS, payload)
            if status is not PutStatus.OK:
                return status
        return PutStatus.OK


def _parts(found: dict[str, list[int]]) -> Iterator[dict[str, list[int]]]:
    """Return removals that each fit into an entry."""
    part: dict[str, list[int]] = {}
    room = STATE_ENTRY_BYTES_MAX - _AROUND_BYTES
    ids_max = (room - _AROUND_BYTES) // _QUEUE_ID_BYTES // 2
    for key, queue_ids in found.items():
        for first in range(0, len(queue_ids), ids_max):
            ids = queue_ids[first : first + ids_max]
            more = len(msgspec.json.encode(key)) + _QUEUE_ID_BYTES * (len(ids) + 1)
            if part and (more > room or key in part):
                yield part
                part, room = {}, STATE_ENTRY_BYTES_MAX - _AROUND_BYTES
            part[key] = ids
            room -= more
    if part:
        yield part
