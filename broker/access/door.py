"""The door of access control: asked before a handler sees a request, and only where it is on.

In this order, each step cheaper than what it keeps out: a trusted address; an account that is
known; its signature; what the request needs of topics and groups. A hot handler is found by the
first bytes of a header, so what it is asked for is its own code, even if another one stands behind
that. It then gets the frame written anew from what was looked at, so that no other reading of the
same bytes can mean another topic. Members of this broker's name come with their own signature
(`ledgermq.remoting.protocol.signing`) instead of an account's.

Source: PlainAccessValidator, PlainPermissionManager.validate 4.9.7; they answer 1, and this 16.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from broker.access.needs import ACCOUNT, ANYBODY, PLACES, RETRY_PREFIX, RIGHTS, of_topic
from broker.access.rules import PUB, SUB
from ledgermq.remoting.protocol.access import ACCESS_KEY
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import decode_command, encode_command, make_response
from ledgermq.remoting.protocol.errors import InvalidHeader, LocalProtocolError
from ledgermq.remoting.protocol.frame import PREFIX_BYTES, Frame
from ledgermq.remoting.protocol.signing import SIGNATURE as OF_A_MEMBER
from ledgermq.remoting.transport.requests import Permission

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from broker.access.rules import Account, Right, Rules
    from broker.cluster.guard import Guard
    from ledgermq.remoting.protocol.command import RemotingCommand
    from ledgermq.remoting.transport.connection import HotHandler
    from ledgermq.remoting.transport.dispatch import Handler
    from ledgermq.remoting.transport.requests import Request
    from ledgermq.runtime.clock import Clock

_log: Final = logging.getLogger(__name__)

TOLD_MS: Final = 1_000
"""A line about refusals is written at most so often; the next one says how many there were."""
_NAME_SHOWN_MAX: Final = 64
_WHO: Final = "account"
"""Under which a connection has the account of its last heartbeat: `_NONE` if it named none, as its
address was trusted; None for a member."""
_NONE: Final = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What the door needs of the broker."""

    rules: Callable[[], Rules]
    guard: Guard
    topic_at: Callable[[int], str | None]
    """The topic of the message at a place in the log, None if there is no message."""
    clock: Clock


class AccessDoor:
    """Wraps the handlers of one broker."""

    def __init__(self, around: Around, declarations: Iterable[Request]) -> None:
        self._rules = around.rules
        self._guard = around.guard
        self._topic_at = around.topic_at
        self._clock = around.clock
        self._guarded = frozenset(
            code for one in declarations if one.permission is not Permission.ANYBODY
            for code in one.codes
        )  # fmt: skip
        self._told_ms = -TOLD_MS
        self._untold = 0
        self.refused = 0
        """How many requests were not let in."""

    def hot(self, handlers: Mapping[int, HotHandler]) -> dict[int, HotHandler]:
        """Return what asks first, for handlers that take frames."""
        return {code: self._before_frames(code, handler) for code, handler in handlers.items()}

    def commands(self, handlers: Mapping[int, Handler]) -> dict[int, Handler]:
        """Return what asks first, for handlers that take commands."""
        return {code: self._before_commands(handler) for code, handler in handlers.items()}

    def refusal(self, host: str, request: RemotingCommand) -> str | None:
        """Return why a request from ``host`` is not served, None if it is.

        Errors: `RemoteProtocolError` for a body that cannot be read, from who may sign.
        """
        rules = self._rules()
        if request.code in ANYBODY or rules.is_trusted(host):
            return None
        fields = request.ext_fields
        if ACCESS_KEY not in fields and OF_A_MEMBER in fields:
            return self._guard.member_refusal(request, is_last=request.code not in self._guarded)
        account = rules.account_of(request)
        if account is None:
            named = fields.get(ACCESS_KEY)
            if named is None:
                return "no AccessKey: this broker serves accounts only"
            return f"no account {named[:_NAME_SHOWN_MAX]}"
        if rules.is_trusted_for(account, host):
            return None
        if not account.signed(request):
            return f"the signature is not that of account {account.access_key}"
        return self._lacking(account, request)

    def may_hear(self, connection: Any, topic: str) -> bool:  # noqa: ANN401  # a connection, or a test's
        """Tell whether a producer may be asked about a half of a topic, whose body it gets then.

        Who that is its last heartbeat has said. An address that is trusted no more is nobody's:
        it would be asked until its group has forgotten it.
        """
        rules, host = self._rules(), connection.remote[0]
        named = connection.state.get(_WHO)
        if named is None or rules.is_trusted(host):
            return True
        account = rules.accounts.get(named)
        if account is None:
            return False
        return rules.is_trusted_for(account, host) or account.has(of_topic(topic, PUB))

    def _who(self, host: str, request: RemotingCommand) -> str | None:
        """Return whose a request is that was let in, as `may_hear` asks for it."""
        is_member = OF_A_MEMBER in request.ext_fields and not self._rules().is_trusted(host)
        return request.ext_fields.get(ACCESS_KEY, None if is_member else _NONE)

    def _lacking(self, account: Account, request: RemotingCommand) -> str | None:
        """Return what an account lacks for a request, None if it may."""
        code, who = request.code, account.access_key
        rights = RIGHTS.get(code)
        if rights is None and code not in PLACES and code not in ACCOUNT:
            return (
                None if account.is_admin else f"{who} is no administrator, request {code} is one's"
            )
        if account.is_unbounded:
            return None
        for right in rights(request) if rights is not None else ():
            if not account.has(right):
                return f"{who} lacks {right}"
        if code in PLACES:
            return self._lacking_there(account, request, *PLACES[code])
        return None

    def _lacking_there(
        self, account: Account, request: RemotingCommand, field: str, any_of: int
    ) -> str | None:
        """As `_lacking`, for the message whose place a field names.

        Where there is none yet, one may be by the time that the handler looks.
        """
        if account.may_everywhere(any_of):
            return None
        text = request.ext_fields.get(field, "")
        is_number = text.isascii() and text.isdigit() and len(text) <= 19
        topic = self._topic_at(int(text)) if is_number else None
        if topic is None:
            return f"{account.access_key} names no message by {field}"
        right: Right = of_topic(topic, SUB if topic.startswith(RETRY_PREFIX) else any_of)
        return None if account.has(right) else f"{account.access_key} lacks {right}"

    def _before_frames(self, code: int, handler: HotHandler) -> HotHandler:
        def handle(connection: Any, frame: Frame) -> None:  # noqa: ANN401  # a connection, or a test's
            request = decode_command(frame)
            if request.is_response:
                return
            request.code = code  # what is asked for, whatever else the header calls it further on
            problem = self.refusal(connection.remote[0], request)
            if problem is None:
                if code == RequestCode.HEART_BEAT:
                    connection.state[_WHO] = self._who(connection.remote[0], request)
                handler(connection, _written_anew(request))
                return
            answer = self._refused(connection.remote[0], request, problem)
            if not request.is_oneway:
                connection.send(answer)

        return handle

    def _before_commands(self, handler: Handler) -> Handler:
        def handle(connection: Any, request: RemotingCommand) -> Any:  # noqa: ANN401  # as the handler's
            problem = self.refusal(connection.remote[0], request)
            if problem is None:
                return handler(connection, request)
            return self._refused(connection.remote[0], request, problem)

        return handle

    def _refused(self, host: str, request: RemotingCommand, problem: str) -> RemotingCommand:
        self.refused += 1
        self._untold += 1
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._told_ms >= TOLD_MS:
            _log.warning(
                "event=access_refused code=%d remote=%s reason=%r count=%d",
                request.code, host, problem, self._untold,
            )  # fmt: skip
            self._told_ms, self._untold = now_ms, 0
        return make_response(request, ResponseCode.NO_PERMISSION, f"{problem} (aclEnable)")


def _written_anew(request: RemotingCommand) -> Frame:
    """Return the frame of a request. Errors: `InvalidHeader` for text that cannot be written."""
    try:
        header = encode_command(request)[0][PREFIX_BYTES:]
    except LocalProtocolError as error:
        raise InvalidHeader(str(error)) from error
    return Frame(int(request.serialize_type), header, request.body)
