"""Signs what an admin client wants removed, for the one server that is to do it.

A signature names its audience: a name server, or a broker, which tells who it is (29001). What a
signature is says `ledgermq.remoting.protocol.signing`.
"""

from collections.abc import Callable
from typing import Final, Protocol

from ledgermq.client.commands import make_command
from ledgermq.client.name_servers import Caller
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.errors import RemoteProtocolError, for_code
from ledgermq.remoting.protocol.signing import NAMESRV_AUDIENCE, Credentials, sign
from ledgermq.remoting.protocol.tolerant_json import ANSWER, loads
from ledgermq.runtime.clock import Clock


class Seals(Protocol):
    """What has the last word on a request that a server may want signed."""

    async def for_broker(self, addr: str, command: RemotingCommand) -> RemotingCommand:
        """Return the request as it is sent to a broker. Errors: `RemotingError`."""
        ...

    def for_name_server(self, command: RemotingCommand) -> RemotingCommand:
        """Return the request as it is sent to a name server."""
        ...


class Unsigned:
    """Signs nothing."""

    async def for_broker(self, _addr: str, command: RemotingCommand) -> RemotingCommand:
        """Return the request."""
        return command

    def for_name_server(self, command: RemotingCommand) -> RemotingCommand:
        """Return the request."""
        return command


class Signer:
    """Signs with one key or certificate.

    Args:
        next_id: makes a text that nobody else uses, of the wall time in ms.
    """

    def __init__(
        self,
        caller: Caller,
        credentials: Credentials,
        clock: Clock,
        next_id: Callable[[int], str],
        timeout_ms: int,
    ) -> None:
        self._caller = caller
        self._credentials = credentials
        self._clock = clock
        self._next_id = next_id
        self._timeout_ms = timeout_ms

    async def for_broker(self, addr: str, command: RemotingCommand) -> RemotingCommand:
        """Return the request, signed for the broker at an address. Errors: `RemotingError`."""
        asked = make_command(RequestCode.RAFT_STATUS, {})
        answer = await self._caller.request(addr, asked, self._timeout_ms)
        if answer.code != ResponseCode.SUCCESS:
            raise for_code(answer.code, answer.remark)
        status = loads(bytes(answer.body), ANSWER)
        if not isinstance(status, dict) or "node" not in status:
            raise RemoteProtocolError(f"{addr} does not say who it is, to sign a request for it")
        node = status["node"]  # a broker in no group has but its own name
        return self._sign(command, f"{status.get('group', node)}/{node}")

    def for_name_server(self, command: RemotingCommand) -> RemotingCommand:
        """Return the request, signed for name servers."""
        return self._sign(command, NAMESRV_AUDIENCE)

    def _sign(self, command: RemotingCommand, audience: str) -> RemotingCommand:
        now_ms = self._clock.wall_ms()
        nonce = self._next_id(now_ms)
        return sign(command, self._credentials, now_ms=now_ms, nonce=nonce, audience=audience)


UNSIGNED: Final[Seals] = Unsigned()
