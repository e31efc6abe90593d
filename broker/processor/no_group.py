"""What a broker without a Raft group answers to requests about its group (29002 to 29005)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import make_response
from ledgermq.remoting.transport.requests import Permission, serves

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgermq.remoting.protocol.command import RemotingCommand

REMARK: Final = (
    "this broker is in no Raft group (enableDLegerCommitLog=false): it has no members, nobody to"
    " hand over to, and no log that is compacted; its own log is cleaned by retention"
)


class NoGroup:
    """Refuses what only a group can do. No retry helps, so the answer is 1.

    Args:
        applied_index: last entry applied.
        term: of all entries.
    """

    def __init__(self, applied_index: Callable[[], int], term: int) -> None:
        self._applied_index = applied_index
        self._term = term

    @serves(
        RequestCode.CHANGE_MEMBERSHIP,
        RequestCode.TRANSFER_LEADER,
        RequestCode.COMPACT,
        what="refused",
        permission=Permission.ADMINISTRATION,
        needs_group=True,
        of_the_log=True,
    )
    async def handle(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take CHANGE_MEMBERSHIP, TRANSFER_LEADER or COMPACT."""
        return make_response(request, ResponseCode.SYSTEM_ERROR, REMARK)

    @serves(RequestCode.READ_INDEX, what="answered at once", of_the_log=True)
    async def handle_read_index(
        self, _connection: object, request: RemotingCommand
    ) -> RemotingCommand:
        """Take READ_INDEX: nobody else can have acknowledged anything."""
        index = self._applied_index()
        body = {"index": index, "applied": index, "term": self._term}
        return make_response(request, ResponseCode.SUCCESS, body=msgspec.json.encode(body))
