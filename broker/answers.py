"""Answers shared by the processors: how a put that failed is told, and errors of hot handlers.

Every remark of an answer whose outcome nobody knows contains ``outcome unknown``.
Source: spec/wire.md 1.7, 3.3; spec/disk.md 6.2; RocketMQ
SendMessageProcessor.handlePutMessageResult 4.9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from ledgermq.remoting.protocol.codes import VERSION, ResponseCode
from ledgermq.remoting.protocol.command import (
    FLAG_RESPONSE,
    RemotingCommand,
    encode_command,
    make_response,
)
from store.results import PutStatus

if TYPE_CHECKING:
    from ledgermq.remoting.protocol.frame import Frame

NOT_AVAILABLE: Final = (
    "service not available now. It may be caused by one of the following reasons: the broker's "
    "disk is full, messages are put to the slave, message store has been shut down, etc."
)
SLAVE_REMARK: Final = (
    "Can't modify topic or subscription group from slave broker, "
    "please execute it from master broker."
)
BUSY: Final = "[PC_SYNCHRONIZED]broker busy, start flow control for a while"


def illegal(body_bytes_max: int) -> str:
    """Return what RocketMQ 4.9 says of a message that is too long, or has no body."""
    return (
        "the message is illegal, maybe msg body or properties length not matched. "
        f"msg body length limit {body_bytes_max}B, msg properties length limit 32KB."
    )


#: With the limit that is the default.
ILLEGAL: Final = illegal(4 * 1024**2)

#: What each status means on the wire.
PUT_ANSWERS: Final[dict[PutStatus, tuple[int, str]]] = {
    PutStatus.NOT_LEADER: (ResponseCode.SERVICE_NOT_AVAILABLE, NOT_AVAILABLE),
    PutStatus.DISK_FULL: (ResponseCode.SERVICE_NOT_AVAILABLE, NOT_AVAILABLE),
    PutStatus.FULL: (ResponseCode.SYSTEM_BUSY, BUSY),
    PutStatus.QUORUM_TIMEOUT: (
        ResponseCode.SYSTEM_BUSY,
        "[PC_SYNCHRONIZED]broker busy, no majority within the wait limit, outcome unknown",
    ),
    PutStatus.UNKNOWN: (
        ResponseCode.SYSTEM_ERROR,
        "leadership was lost before a majority confirmed the message, outcome unknown",
    ),
    PutStatus.MESSAGE_ILLEGAL: (ResponseCode.MESSAGE_ILLEGAL, ILLEGAL),
    PutStatus.PROPERTIES_SIZE_EXCEEDED: (ResponseCode.MESSAGE_ILLEGAL, ILLEGAL),
    PutStatus.FLUSH_TIMEOUT: (ResponseCode.FLUSH_DISK_TIMEOUT, "flush disk timeout"),
    PutStatus.SLAVE_TIMEOUT: (ResponseCode.FLUSH_SLAVE_TIMEOUT, "flush slave timeout"),
    PutStatus.NO_SLAVE: (ResponseCode.SLAVE_NOT_AVAILABLE, "slave not available"),
}

DAMAGED: Final = (
    ResponseCode.SERVICE_NOT_AVAILABLE,
    "the message is damaged on the disk of this broker; a member of a group fetches it from "
    "another one: try again",
)
"""For whatever needs an entry that is not what was written: never the bytes."""
LOST: Final = (
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    "the message is damaged on the disk of this broker, and nothing repairs it: it is passed over",
)
"""For a pull of it from a master, or a broker on its own."""


REASON_CHARACTERS_MAX: Final = 1_000


def failed(error: Exception) -> tuple[int, str]:
    """Return the answer to a request whose serving raised; it may have had an effect or none."""
    reason = f"{type(error).__name__}, {str(error)[:REASON_CHARACTERS_MAX]}"
    return ResponseCode.SYSTEM_ERROR, f"{reason}, outcome unknown"


NAME_SHOWN_MAX: Final = 300
"""A remark does not give more of a name back; no valid one is as long."""


def shown(name: str) -> str:
    """Return what a remark says for a name that a client has sent."""
    return name if len(name) <= NAME_SHOWN_MAX else f"{name[:NAME_SHOWN_MAX]}..."


class WritableConnection(Protocol):
    """What hot handlers need of a connection."""

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more."""

    def write(self, *buffers: bytes | memoryview) -> None:
        """Queue buffers; all of one turn leave together."""


def write_answer(
    connection: WritableConnection,
    frame: Frame,
    opaque: int,
    answer: tuple[int, str | None],
    ext_fields: dict[str, str] | None = None,
) -> None:
    """Send an answer without a body from a hot handler."""
    write_command(connection, frame.serialize_type, opaque, answer, ext_fields)


def write_command(
    connection: WritableConnection,
    serialize_type: int,
    opaque: int,
    answer: tuple[int, str | None],
    ext_fields: dict[str, str] | None = None,
) -> None:
    """Send an answer without a body; ``ext_fields`` None leaves them out, empty writes them."""
    command = RemotingCommand(
        answer[0],
        FLAG_RESPONSE,
        opaque,
        VERSION,
        remark=answer[1],
        ext_fields=ext_fields or {},
        serialize_type=serialize_type,
        empty_ext_fields=ext_fields is not None and not ext_fields,
    )
    connection.write(*encode_command(command))


def put_failure(request: RemotingCommand, status: PutStatus) -> RemotingCommand:
    """Return the answer of an ordinary request whose state change did not go through."""
    code, remark = PUT_ANSWERS[status]
    return make_response(request, code, remark)
