"""What answers at a broker's port while it has no role: that it waits, and for what.

Nothing is served there: whoever asks gets 14, which sends clients to another broker, and tells a
person what to do. It is there only once the wait has lasted a moment: a change of role is over
before anybody would ask.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import make_response
from ledgermq.remoting.transport.server import RemotingServer
from ledgermq.runtime.errors import FatalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgermq.remoting.protocol.command import RemotingCommand
    from ledgermq.remoting.transport.config import TransportConfig
    from ledgermq.remoting.transport.tls import ServerTls
    from ledgermq.runtime.clock import Clock

PATIENCE_MS: Final = 1_000
"""A wait that is shorter is not told."""

_log: Final = logging.getLogger(__name__)


class WaitingPort:
    """A port that is open while there is no role.

    Args:
        address: host and port, those of the broker.
        reason: returns what is waited for, empty while there is a role.
    """

    def __init__(
        self,
        address: tuple[str, int],
        clock: Clock,
        reason: Callable[[], str],
        transport: TransportConfig | None,
        tls: ServerTls | None = None,
    ) -> None:
        self._address = address
        self._clock = clock
        self._reason = reason
        self._transport = transport
        self._tls = tls
        self._since_ms: int | None = None
        self._server: RemotingServer | None = None

    async def look(self) -> None:
        """Open it if it is time; to be called again and again while there is no role."""
        if self._server is not None or not self._reason():
            return
        now_ms = self._clock.monotonic_ms()
        if self._since_ms is None:
            self._since_ms = now_ms
        elif now_ms - self._since_ms >= PATIENCE_MS:
            server = RemotingServer(
                name="broker without a role",
                handlers={int(code): self._answer for code in RequestCode},
                config=self._transport,
                clock=self._clock,
            )
            server.use_tls(self._tls)
            self._since_ms = now_ms  # should it fail
            try:
                await server.start(*self._address)
            except FatalError as error:  # one that gets a role finds that, too, and ends
                _log.warning("event=nothing_answers reason=%s", error)
                return
            self._server = server

    async def close(self) -> None:
        """Leave the port to the broker of a role."""
        self._since_ms = None
        server, self._server = self._server, None
        if server is not None:
            await server.stop()

    def _answer(self, _: object, request: RemotingCommand) -> RemotingCommand:
        remark = f"this broker has no role: {self._reason()}"
        return make_response(request, ResponseCode.SERVICE_NOT_AVAILABLE, remark)
