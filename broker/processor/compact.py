"""COMPACT (29004, ours): drop the beginning of the asked replica's log.

The field ``upto`` names the last entry that may go; without it, all that may. The answer is JSON:
what was dropped, and what forbids more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from broker.retention.compaction import NO_LIMIT
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand, make_response
from ledgermq.remoting.transport.requests import Permission, serves

if TYPE_CHECKING:
    from broker.retention.compaction import Compactor


class CompactProcessor:
    """Answers COMPACT; any replica does, for itself."""

    def __init__(self, compactor: Compactor) -> None:
        self._compactor = compactor

    @serves(
        RequestCode.COMPACT,
        what="ours: drop the beginning of this replica's log, up to the entry `upto`",
        fields=("upto",),
        permission=Permission.ADMINISTRATION,
        needs_group=True,
        of_the_log=True,
    )
    async def handle(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take COMPACT."""
        try:
            upto = int(request.ext_fields.get("upto", NO_LIMIT))
        except ValueError:
            return make_response(request, ResponseCode.SYSTEM_ERROR, "upto is not a number")
        body = msgspec.json.encode(await self._compactor.compact(upto))
        return make_response(request, ResponseCode.SUCCESS, body=body)
