"""Who awaits the answer of a request of ours."""

from typing import Protocol

from ledgermq.remoting.protocol.errors import RemotingError
from ledgermq.remoting.protocol.frame import Frame


class Receiver(Protocol):
    """Who awaits the answer of a request; a future of a frame is one."""

    def done(self) -> bool:
        """Return whether nobody waits any more."""
        ...

    def set_result(self, frame: Frame, /) -> None:
        """Take the response frame."""
        ...

    def set_exception(self, error: RemotingError, /) -> None:
        """Take `RequestTimeout` or `ConnectionLost`; there will be no response."""
        ...
