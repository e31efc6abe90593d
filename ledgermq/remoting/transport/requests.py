"""What a server serves: a handler declares its request, a registry collects the declarations.

A declaration stands above its handler, `@serves(...)`, and says all that others have to know of the
request. A server hands its components to `Requests`, which finds what they declare, has each
handler wrapped as the declaration asks for (permission, leadership), and refuses a code that two of
them claim. The tables of docs/protocol.md are made of the same declarations.

It knows neither what a request does nor what a permission is.
"""

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar, Unpack

import msgspec

from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.limits import Limit
from ledgermq.remoting.transport.dispatch import Handler

if TYPE_CHECKING:
    from ledgermq.remoting.transport.connection import HotHandler

_DECLARATION: Final = "__request__"
F = TypeVar("F", bound=Callable[..., Any])


class ServedBy(StrEnum):
    """Which replicas serve a request."""

    ALL = "all"
    LEADER = "leader"
    """The handler never sees it elsewhere: the registry's wrapper answers."""
    READABLE = "leader or slave"
    """As LEADER, but a slave of master/slave mode serves it, too."""
    READABLE_BY_ITSELF = "leader or slave, by the handler"
    LEADER_BY_ITSELF = "leader, by the handler"
    """The handler refuses elsewhere: it is hot, looks at the request first, or names the leader."""
    NOBODY = "nobody"


class Permission(StrEnum):
    """Whose requests are served, where a key or a CA is set."""

    ANYBODY = ""
    ADMINISTRATION = "administration"
    """It changes a group or what routes say."""
    SETTINGS = "administration, where a key or a CA is set"
    """It changes what is set for others; tools that cannot sign do it where nothing is set."""
    SETTINGS_BY_ITSELF = "administration for what takes something away, where a key or a CA is set"
    """As `SETTINGS`, but the handler asks for it, since not all that it does takes it."""
    REGISTRATION = "registration"
    """A broker registers, or leaves."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """The declaration of one request."""

    codes: tuple[RequestCode, ...]
    """More than one: the same in all else."""
    what: str
    """What it asks for, in a few words."""
    header: type[msgspec.Struct] | None = None
    """What the handler decodes the fields into."""
    fields: tuple[str, ...] = ()
    """Optional fields that the handler reads besides."""
    limits: tuple[Limit, ...] = ()
    """Bounds on the header and the body that the handler checks."""
    hot: bool = False
    """Whether the handler takes the frame and answers by itself; never wrapped."""
    served_by: ServedBy = ServedBy.ALL
    permission: Permission = Permission.ANYBODY
    needs_group: bool = False
    """Whether only a member of a Raft group can do it."""
    of_the_log: bool = False
    """Whether it works on the log itself, so that a broken invariant ends the process."""


Wrap = Callable[[Request, Handler], Handler]


class More(TypedDict, total=False):
    """What a declaration may say besides, see `Request`."""

    header: type[msgspec.Struct]
    fields: tuple[str, ...]
    limits: tuple[Limit, ...]
    hot: bool
    served_by: ServedBy
    permission: Permission
    needs_group: bool
    of_the_log: bool


def serves(*codes: RequestCode, what: str, **more: Unpack[More]) -> Callable[[F], F]:
    """Declare that the function below handles these requests; see `Request` for the rest."""
    request = Request(codes=codes, what=what, **more)
    if request.hot and request.permission:
        raise ValueError(f"{what}: a hot handler cannot be guarded")

    def declare(function: F) -> F:
        setattr(function, _DECLARATION, request)
        return function

    return declare


def declared(component: object) -> Iterator[tuple[Request, Callable[..., Any]]]:
    """Return what the handlers of a component declare, with the bound handlers."""
    for name in dict.fromkeys(name for kind in type(component).__mro__ for name in vars(kind)):
        request = getattr(getattr(type(component), name, None), _DECLARATION, None)
        if request is not None:
            yield request, getattr(component, name)


class Requests:
    """All requests that one server serves.

    Args:
        wrap: returns what runs in the place of a handler, by its declaration.
    """

    def __init__(self, wrap: Wrap) -> None:
        self._wrap = wrap
        self.declarations: list[Request] = []
        self.hot: dict[int, HotHandler] = {}
        """Handlers that take frames, by code."""
        self.commands: dict[int, Handler] = {}
        """Handlers that take commands, by code."""

    def add(self, *components: object) -> None:
        """Take what components declare. Errors: `ValueError` for a code that is taken."""
        for component in components:
            for request, handler in declared(component):
                self._add(request, handler)

    def _add(self, request: Request, handler: Callable[..., Any]) -> None:
        self.declarations.append(request)
        taken = {*self.hot, *self.commands}.intersection(request.codes)
        if taken:
            raise ValueError(f"{request.what}: code {min(taken)} has a handler")
        for code in request.codes:
            if request.hot:
                self.hot[int(code)] = handler
            else:
                self.commands[int(code)] = self._wrap(request, handler)
