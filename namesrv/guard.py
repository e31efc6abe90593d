"""Who may register, and who may change what routes say: asked where a key or a CA is set.

Brokers sign their registrations (103, 104, 322) with the shared key or with the certificate of a
member, which can register no other name than that of its group. Configuration and permissions (100,
102, 205, 216, 327) are changed by signed requests of administrators or members, and, since
RocketMQ's own tools sign nothing, by whoever asks from this machine; a controller has these signed,
too. Without key and CA there is no telling who asks, and nothing is asked for.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from ledgermq.remoting.protocol.certificates import Identity, Role
from ledgermq.remoting.protocol.codes import ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand, make_response
from ledgermq.remoting.protocol.hosts import is_loopback
from ledgermq.remoting.protocol.signing import (
    NAMESRV_AUDIENCE,
    BadSignature,
    Trust,
    WrongAudience,
    verify,
)
from ledgermq.remoting.transport.requests import Permission, Request

_log: Final = logging.getLogger(__name__)

_CHANGE: Final = Permission.ADMINISTRATION
_NAME: Final = "brokerName"

Answer = RemotingCommand | None
Handler = Callable[[Any, RemotingCommand], Answer | Awaitable[Answer]]


class Guard:
    """Lets requests through whose sender may do what they ask for.

    Args:
        trust: returns what is believed now; empty lets everything through.
        wall_ms: the time.
        trusts_machine: whether administration from this machine needs no signature.
        audience: whom a request must name.
    """

    def __init__(
        self,
        trust: Callable[[], Trust],
        wall_ms: Callable[[], int],
        *,
        trusts_machine: bool = True,
        audience: str = NAMESRV_AUDIENCE,
    ) -> None:
        self._trust = trust
        self._wall_ms = wall_ms
        self._trusts_machine = trusts_machine
        self._audience = audience

    def wrap(self, declared: Request, handle: Handler) -> Handler:
        """Return what asks this guard first, if the request is not anybody's."""
        permission = declared.permission
        return self.protect(handle, permission) if permission else handle

    def protect(self, handle: Handler, permission: Permission) -> Handler:
        """Return what asks this guard first."""

        def handle_allowed(
            connection: Any,  # noqa: ANN401 - a connection, or a test's
            request: RemotingCommand,
        ) -> Answer | Awaitable[Answer]:
            problem = self.refusal(connection.remote[0], request, permission)
            if problem is None:
                return handle(connection, request)
            _log.warning(
                "event=request_not_permitted code=%d remote=%s reason=%r",
                request.code, connection.remote[0], problem,
            )  # fmt: skip
            return make_response(request, ResponseCode.NO_PERMISSION, problem)

        return handle_allowed

    def refusal(self, host: str, request: RemotingCommand, permission: Permission) -> str | None:
        """Return why a request from ``host`` is not served, None if it is."""
        trust = self._trust()
        if not trust or (self._trusts_machine and permission is _CHANGE and is_loopback(host)):
            return None
        try:
            now_ms = self._wall_ms()
            identity = verify(request, trust, now_ms=now_ms, audience=self._audience)
        except WrongAudience as error:
            return f"{error}; use that name: controllerAddr as controllerDLegerPeers has it"
        except BadSignature as error:
            if permission is _CHANGE and not self._trusts_machine:
                return f"{error}; sign it: ledgermq admin --key-file FILE, or --cert and --key"
            return (
                f"{error}; set peerSharedKeyFile, or peerTlsCertPath and peerTlsKeyPath, at the"
                " broker that registers, as peerSharedKeyFile or peerTlsCaPath is set here"
            )
        if not _may(identity, request, permission):
            return f"{identity} may not do this for {request.ext_fields.get(_NAME) or 'others'}"
        return None


def _may(identity: Identity, request: RemotingCommand, permission: Permission) -> bool:
    if identity.role is Role.NODE:
        named = request.ext_fields.get(_NAME, "")
        return identity.name.rpartition("/")[0] == named or permission is _CHANGE
    return identity.role is Role.KEY or permission is _CHANGE
