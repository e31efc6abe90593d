"""What sockets need of the machine they are on, and the options that can be set on them."""

import socket
from typing import TYPE_CHECKING, Any, Final, Protocol

from sim.handle import SimHandle

if TYPE_CHECKING:
    from sim.trace import Trace

USER_TIMEOUT_MS: Final = 924_600
"""How long the kernel repeats what nobody acknowledges, if not told otherwise."""
_USER_TIMEOUT: Final = (socket.IPPROTO_TCP, getattr(socket, "TCP_USER_TIMEOUT", 18))


class Kernel(Protocol):
    """What a socket needs of the loop and the network."""

    now_ns: int
    trace: "Trace"

    def post(self, when_ns: int, handle: SimHandle) -> None:
        """Have a handle run at a virtual time."""
        ...

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Report what a protocol raised."""
        ...

    def is_reachable(self, address: str) -> bool:
        """Tell whether the machine at an address has power."""
        ...


class Tap(Protocol):
    """Hears what passes one end of a connection; `sim.oracles.wire.Tap`."""

    def pass_on(self, data: bytes, *, leaves: bool) -> None:
        """Take bytes that are written or read."""
        ...

    def again(self, count: int) -> None:
        """So many bytes that were read are put back, and read once more."""
        ...


class SimSocket:
    """What ``get_extra_info("socket")`` returns: options can be set, few have an effect."""

    __slots__ = ("_name", "options")

    family: Final = socket.AF_INET
    type: Final = socket.SOCK_STREAM
    proto: Final = socket.IPPROTO_TCP

    def __init__(self, name: tuple[str, int]) -> None:
        self._name = name
        self.options: dict[tuple[int, int], int] = {}

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """Set an option."""
        self.options[level, option] = value

    def getsockopt(self, level: int, option: int) -> int:
        """Return an option, 0 if it was not set."""
        return self.options.get((level, option), 0)

    def getsockname(self) -> tuple[str, int]:
        """Return the own address."""
        return self._name

    def fileno(self) -> int:
        """There is no descriptor."""
        return -1

    @property
    def user_timeout_ms(self) -> int:
        """TCP_USER_TIMEOUT, or what the kernel does without."""
        return self.options.get(_USER_TIMEOUT, 0) or USER_TIMEOUT_MS
