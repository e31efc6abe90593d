"""Administration of the replicated log: TRANSFER_LEADER (29003) and READ_INDEX (29005), both ours.

Asked of a member that does not lead, both are answered 14 and name the leader. A transfer that
failed is answered 1 and says why; the leader serves on.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from dledger.errors import DLedgerError, NotLeader
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand, make_response
from ledgermq.remoting.transport.requests import Permission, ServedBy, serves
from ledgermq.runtime.cancel import timeout

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dledger.operations import Operations

APPLY_WAIT_S: Final = 2.5
_APPLY_POLL_S: Final = 0.002


class Leader(Protocol):
    """What is asked of the replicated log; see `dledger.node.DLedgerNode`."""

    @property
    def term(self) -> int:
        """Its term."""
        ...

    @property
    def operations(self) -> Operations:
        """What may be asked of it while it is open."""
        ...


class RaftProcessor:
    """Answers what concerns the leadership of one broker.

    Args:
        node: the replicated log.
        applied_index: last entry applied here.
    """

    def __init__(self, node: Leader, applied_index: Callable[[], int]) -> None:
        self._node = node
        self._applied_index = applied_index

    @serves(
        RequestCode.TRANSFER_LEADER,
        what="ours: hand leadership to the member `target`",
        fields=("target",),
        served_by=ServedBy.LEADER_BY_ITSELF,
        permission=Permission.ADMINISTRATION,
        needs_group=True,
        of_the_log=True,
    )
    async def handle_transfer(
        self, _connection: object, request: RemotingCommand
    ) -> RemotingCommand:
        """Take TRANSFER_LEADER."""
        target = request.ext_fields.get("target", "")
        if not target:
            return make_response(request, ResponseCode.SYSTEM_ERROR, "the field target is missing")
        return await self._answer(request, self._transfer(target))

    @serves(
        RequestCode.READ_INDEX,
        what="ours: an index that covers all that was acknowledged before",
        served_by=ServedBy.LEADER_BY_ITSELF,
        of_the_log=True,
    )
    async def handle_read_index(
        self, _connection: object, request: RemotingCommand
    ) -> RemotingCommand:
        """Take READ_INDEX."""
        return await self._answer(request, self._read_index())

    async def _answer(
        self, request: RemotingCommand, work: Awaitable[dict[str, object]]
    ) -> RemotingCommand:
        try:
            body = await work
        except NotLeader as error:
            return make_response(request, ResponseCode.SERVICE_NOT_AVAILABLE, str(error))
        except (DLedgerError, TimeoutError) as error:
            return make_response(request, ResponseCode.SYSTEM_ERROR, str(error))
        return make_response(request, ResponseCode.SUCCESS, body=msgspec.json.encode(body))

    async def _transfer(self, target: str) -> dict[str, object]:
        await self._node.operations.transfer_leadership(target)
        return {"leader": target, "term": self._node.term}

    async def _read_index(self) -> dict[str, object]:
        index = await self._node.operations.read_index()
        try:
            async with timeout(APPLY_WAIT_S):
                while self._applied_index() < index:  # noqa: ASYNC110  # the store has no event
                    await asyncio.sleep(_APPLY_POLL_S)
        except TimeoutError:
            applied = self._applied_index()
            raise TimeoutError(f"applied {applied}, the read wants {index}") from None
        return {"index": index, "applied": self._applied_index(), "term": self._node.term}
