"""What a handler says that cannot take a request now, and how a connection waits then.

A hot handler raises `NoRoom` before it has done anything. The connection keeps the frame and all
behind it, reads no more, and goes on when the room lets it: so what a client has sent is handled in
its order, and the client is slowed down by its own unread bytes. Who is let in next is the room's
business; it knows nothing of frames, and this nothing of what fills a room. A room may refuse
what has waited too long.
"""

from typing import Protocol


class Entering(Protocol):
    """Who waits for room."""

    waiting_since_ms: int | None
    """When what waits began to, by the room's clock, which notes it; None: it is not known."""

    @property
    def remote(self) -> tuple[str, int]:
        """Address of the peer."""
        ...

    def enter(self) -> bool:
        """Take the room that there is now; return whether all that it takes is taken already."""
        ...

    def refuse(self, full: "NoRoom") -> None:
        """Answer that there was no room for too long; nothing of it is done."""
        ...


class Room(Protocol):
    """Something that may be full for a while."""

    def wait(self, one: Entering, size_bytes: int) -> bool:
        """Call ``one.enter`` or ``one.refuse`` later; False if it is to be refused at once.

        So many bytes may not wait as well then, or it has waited for too long already.
        """
        ...


class NoRoom(Exception):  # noqa: N818  # says what is
    """A request has to wait for room; nothing of it was done."""

    def __init__(self, room: Room) -> None:
        super().__init__("there is no room for the request now")
        self.room = room
