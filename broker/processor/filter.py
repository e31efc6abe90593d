"""CHECK_CLIENT_CONFIG (46): whether the expression of a subscription is served.

Java's consumers ask before they join with anything but tags, and fail with what they are told.
Source: spec/wire.md 7.3; RocketMQ ClientManageProcessor.checkClientConfig.
"""

from __future__ import annotations

import msgspec

from broker.pulls.filters import SQL92, TAG_TYPES, no_filter
from broker.pulls.sql92 import compile_sql92, prepare
from broker.serving_limits import SQL_DEPTH_MAX, SQL_LENGTH_MAX, SQL_TOKENS_MAX
from ledgermq.remoting.protocol.bodies import SubscriptionData, decode_body
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand, make_response
from ledgermq.remoting.transport.requests import serves


class _Check(msgspec.Struct, rename="camel"):
    """Body of 46, what is read of it."""

    subscription_data: SubscriptionData | None = None


class FilterProcessor:
    """Answers what consumers ask about filters.

    ``enabled``: whether this broker filters by SQL92 (``enablePropertyFilter``).
    """

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        if enabled:
            prepare()

    @serves(
        RequestCode.CHECK_CLIENT_CONFIG,
        what="check of an SQL92 expression",
        limits=(SQL_LENGTH_MAX, SQL_TOKENS_MAX, SQL_DEPTH_MAX),
    )
    def handle_check(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take CHECK_CLIENT_CONFIG."""
        code, remark = self._check(request)
        return make_response(request, code, remark, {})

    def _check(self, request: RemotingCommand) -> tuple[int, str | None]:
        wanted = decode_body(request.body, _Check).subscription_data
        if wanted is None or wanted.expression_type in TAG_TYPES:
            return ResponseCode.SUCCESS, None
        if wanted.expression_type != SQL92 or not self._enabled:
            return no_filter(wanted.expression_type)
        try:
            compile_sql92(wanted.sub_string)
        except ValueError as error:
            return ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"SQL92 expression: {error}"
        return ResponseCode.SUCCESS, None
