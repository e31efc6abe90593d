"""What stands between a broker's requests and their handlers: permission, leadership, the log.

Source: spec/wire.md 2.1; docs/adr/0007.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from broker.answers import put_failure
from ledgermq.remoting.transport.requests import Permission, Request, Requests, ServedBy
from ledgermq.runtime.errors import async_invariants_are_fatal
from store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.cluster.guard import Guard
    from ledgermq.remoting.protocol.command import RemotingCommand
    from ledgermq.remoting.transport.dispatch import Handler


def broker_requests(
    guard: Guard, is_writable: Callable[[], bool], is_readable: Callable[[], bool]
) -> Requests:
    """Return a broker's registry, empty yet.

    Args:
        guard: says who may administer.
        is_writable: whether this replica leads and has applied everything before its term.
        is_readable: whether it answers reads.
    """

    def wrap(request: Request, handler: Any) -> Any:  # noqa: ANN401  # plain or async, as declared
        if request.of_the_log:
            handler = async_invariants_are_fatal(handler)
        if request.served_by is ServedBy.LEADER:
            handler = leader_only(handler, is_writable)
        elif request.served_by is ServedBy.READABLE:
            handler = leader_only(handler, is_readable)
        if request.permission is Permission.ADMINISTRATION:
            handler = guard.protect(handler)
        if request.permission is Permission.SETTINGS:
            handler = guard.protect(handler, guard.refusal_of_settings)
        return handler

    return Requests(wrap)


def leader_only(handler: Handler, is_writable: Callable[[], bool]) -> Handler:
    """Return what answers 14 in the place of ``handler`` wherever this replica may not serve.

    What another replica knows may lie before what was acknowledged.
    """

    @wraps(handler)
    def handle_leading(connection: Any, request: RemotingCommand) -> Any:  # noqa: ANN401  # as the handler's
        if not is_writable():
            return put_failure(request, PutStatus.NOT_LEADER)
        return handler(connection, request)

    return handle_leading
