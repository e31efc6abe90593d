"""Tables that slaves ask their master for: consumer offsets (43), progress of delays (45).

Topics (21) and groups (201) tools ask for, too: `broker.processor.topics`,
`broker.processor.groups`. Keys that are numbers are in quotes: RocketMQ writes them without, and
reads both.
Source: spec/disk.md 7; RocketMQ AdminBrokerProcessor.getAllConsumerOffset, getAllDelayOffset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from broker.delays.progress import DelayProgress
from broker.limits import ANSWER_BYTES_MAX, WALKS_WAITING_MAX
from broker.stats.pages import Page, PageHeader
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand, make_response
from ledgermq.remoting.protocol.headers import decode_header
from ledgermq.remoting.transport.requests import ServedBy, serves

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker.state.consumer_offset import ConsumerOffsetTable
    from broker.state.replicated_state import ReplicatedState
    from broker.stats.pages import Part
    from broker.stats.walks import Walks

_VERSION: Final = b'{"counter":0,"timestamp":0}'
"""A slave of RocketMQ 5 cannot do without one, though it compares it with nothing; one of 4.9.7
ignores it."""
KEYS_PER_STEP: Final = 64
OFFSETS_PER_STEP: Final = 2_048
"""And the key with which there are more: half a millisecond, and for one key 65,536 at most."""


class SlaveTablesProcessor:
    """Answers what slaves of one broker ask."""

    def __init__(self, state: ReplicatedState, offsets: ConsumerOffsetTable, walks: Walks) -> None:
        self._state = state
        self._offsets = offsets
        self._walks = walks

    @serves(
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        what="all consumer offsets, for slaves; `fromRow` and its answer `nextRow` are ours",
        header=PageHeader,
        limits=(ANSWER_BYTES_MAX, WALKS_WAITING_MAX),
        served_by=ServedBy.LEADER,
    )
    async def handle_offsets(
        self, _connection: object, request: RemotingCommand
    ) -> RemotingCommand:
        """Take GET_ALL_CONSUMER_OFFSET (43)."""

        def body(parts: list[bytes]) -> bytes:
            return b'{"dataVersion":%b,"offsetTable":{%b}}' % (_VERSION, b",".join(parts))

        page = Page(decode_header(request, PageHeader))
        parts = page.texts(self._parts(page.first))
        return page.answered(await self._walks.answer(request, parts, body, of_leader=True))

    @serves(
        RequestCode.GET_ALL_DELAY_OFFSET,
        what="up to where delayed messages are delivered, for slaves",
        served_by=ServedBy.LEADER,
    )
    def handle_delays(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take GET_ALL_DELAY_OFFSET (45)."""
        body = self._state.tables[DelayProgress.file].snapshot()
        return make_response(request, ResponseCode.SUCCESS, body=body)

    def _parts(self, first: int) -> Iterator[Part]:
        """Return members of the table, some at each step."""
        some: dict[str, dict[int, int]] = {}
        count = 0
        for key, offsets in self._offsets.rows(first):
            some[key] = offsets
            count += len(offsets)
            if len(some) >= KEYS_PER_STEP or count >= OFFSETS_PER_STEP:
                yield len(some), msgspec.json.encode(some)[1:-1]
                some, count = {}, 0
        if some:
            yield len(some), msgspec.json.encode(some)[1:-1]
