"""CONFIRM_REGISTRATION (29006, ours): a name server asks which id this broker has by its own word.

It comes over the connection that this broker registered by, when somebody else claims its name or
address, see `namesrv.admission`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand, make_response

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgermq.remoting.transport.dispatch import Handler

BROKER_ID_FIELD: Final = "brokerId"


def confirm_handlers(broker_id: Callable[[], int]) -> dict[int, Handler]:
    """Return the handler for the connections to name servers; ``broker_id`` tells it as of now."""

    def confirm(_: object, command: RemotingCommand) -> RemotingCommand:
        fields = {BROKER_ID_FIELD: str(broker_id())}
        return make_response(command, ResponseCode.SUCCESS, None, fields)

    return {int(RequestCode.CONFIRM_REGISTRATION): confirm}
