"""Who may change a group: asked of every request that could harm it (29002, 29003, 29004).

With a shared key or a CA in the settings, such a request must be signed for this very replica: with
the key, with an administrator's certificate, or with that of a member of the group, unless it was
removed. Without both it must come from this machine. Anything else is answered 16 and says what is
missing.
"""

from __future__ import annotations

import logging
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final

from ledgermq.remoting.protocol.certificates import Identity, Role
from ledgermq.remoting.protocol.codes import ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand, make_response
from ledgermq.remoting.protocol.hosts import is_loopback
from ledgermq.remoting.protocol.signing import AUDIENCE, BadSignature, Trust, verify

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from broker.config import BrokerConfig
    from ledgermq.remoting.transport.credentials import CredentialStore

    Handler = Callable[[Any, RemotingCommand], Awaitable[RemotingCommand] | RemotingCommand]

_log: Final = logging.getLogger(__name__)

_HOW: Final = (
    "sign it with the key of peerSharedKeyFile or with a certificate of the CA in peerTlsCaPath;"
    " see: ledgermq admin --help"
)
_UNSET: Final = (
    "neither peerSharedKeyFile nor peerTlsCaPath is set here, so it is taken from this machine only"
)


class Guard:
    """Lets requests through whose sender may do what they ask for.

    Args:
        credentials: whom to believe.
        config: names the group, whose members may change it, and this broker.
        wall_ms: the time.
        is_shut_out: whether a replica was removed from the group.
    """

    def __init__(
        self,
        credentials: CredentialStore,
        config: BrokerConfig,
        wall_ms: Callable[[], int],
        is_shut_out: Callable[[str], bool] = lambda _node_id: False,
    ) -> None:
        self._credentials = credentials
        self._group = config.registered_name
        self._audience = config.owner
        self._wall_ms = wall_ms
        self._is_shut_out = is_shut_out

    def protect(
        self, handle: Handler, refusal: Callable[[str, RemotingCommand], str | None] | None = None
    ) -> Callable[[Any, RemotingCommand], Awaitable[RemotingCommand]]:
        """Return what asks this guard first, `refusal` unless another one is named.

        What refuses before ``handle`` (a replica that may not serve) answers at once, unawaited.
        """
        ask = refusal or self.refusal

        async def handle_allowed(connection: Any, request: RemotingCommand) -> RemotingCommand:  # noqa: ANN401  # a connection, or a test's
            problem = ask(connection.remote[0], request)
            if problem is None:
                answer = handle(connection, request)
                return await answer if isawaitable(answer) else answer
            return refused(connection.remote[0], request, problem)

        return handle_allowed

    def refusal_of_settings(self, host: str, request: RemotingCommand) -> str | None:
        """Return why settings are not changed so, None if they are.

        Without key and CA they are anybody's, as in RocketMQ: its tools cannot sign.
        """
        return self.refusal(host, request) if self._credentials.trust else None

    def refusal(self, host: str, request: RemotingCommand) -> str | None:
        """Return why a request from ``host`` is not served, None if it is."""
        trust = self._credentials.trust
        if not trust:
            return None if is_loopback(host) else _UNSET
        try:
            identity = verify(request, trust, now_ms=self._wall_ms(), audience=self._audience)
        except BadSignature as error:
            return f"{error}; {_HOW}"
        if not self._may_administer(identity):
            return f"{identity} may not change {self._group}; {_HOW}"
        _log.info("event=request_permitted code=%d by=%s host=%s", request.code, identity, host)
        return None

    def member_refusal(self, request: RemotingCommand, *, is_last: bool) -> str | None:
        """Return why a request does not count as one of a member or an administrator.

        Unlike `refusal` it believes nobody where neither key nor CA is set, and takes what is for
        all brokers of this name as well. ``is_last``: nobody asks about this request again, so its
        signature is used up.
        """
        trust = self._credentials.trust
        if not trust:
            return f"it is signed as a member's, and {_UNSET}"
        if not is_last:
            trust = Trust(trust.keys, trust.authorities)
        named = request.ext_fields.get(AUDIENCE, "")
        audience = self._group if named == self._group and is_last else self._audience
        try:
            identity = verify(request, trust, now_ms=self._wall_ms(), audience=audience)
        except BadSignature as error:
            return f"{error}; {_HOW}"
        return None if self._may_administer(identity) else f"{identity} is not of {self._group}"

    def _may_administer(self, identity: Identity) -> bool:
        if identity.role is Role.NODE:
            group, _, node_id = identity.name.rpartition("/")
            return group == self._group and not self._is_shut_out(node_id)
        return True


def refused(host: str, request: RemotingCommand, problem: str) -> RemotingCommand:
    """Return the answer to a request that is not served, and log it."""
    _log.warning(
        "event=request_not_permitted code=%d remote=%s reason=%r", request.code, host, problem
    )
    return make_response(request, ResponseCode.NO_PERMISSION, problem)
