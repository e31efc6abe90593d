"""What a broker without a Raft group answers to requests about its group (29002 to 29005)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from remoting.protocol.codes import ResponseCode
from remoting.protocol.command import make_response

if TYPE_CHECKING:
    from remoting.protocol.command import RemotingCommand

REMARK: Final = (
    "this broker is in no Raft group (enableDLegerCommitLog=false): it has no members, nobody to"
    " hand over to, and no log that is compacted; its own log is cleaned by retention"
)


class NoGroup:
    """Refuses what only a group can do. It is not retriable, so the answer is 1."""

    async def handle(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take CHANGE_MEMBERSHIP or COMPACT."""
        return make_response(request, ResponseCode.SYSTEM_ERROR, REMARK)

    handle_transfer = handle
    handle_read_index = handle
