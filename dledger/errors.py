"""What a caller of the log can meet. Every error here means that nothing was appended.

An outcome that is *unknown* is never an exception: an entry that was appended is either committed
later (`DLedgerListener.on_committed`) or its leader lost leadership (`DLedgerListener.on_role`).
"""

from typing import ClassVar


class DLedgerError(Exception):
    """A request that the log refused; nothing was appended.

    ``retriable``: whether the same request may succeed at this node or another one later.
    """

    retriable: ClassVar[bool] = True


class NotLeader(DLedgerError):  # noqa: N818  # says what is
    """This node does not lead, or leads and has not appended its first entry yet."""

    def __init__(self, leader_id: str | None) -> None:
        super().__init__(f"not the leader; the leader is {leader_id or 'unknown'}")
        self.leader_id = leader_id


class PendingFull(DLedgerError):  # noqa: N818  # says what is
    """Too many appended bytes wait for a majority."""

    def __init__(self, pending_bytes: int, pending_bytes_max: int) -> None:
        super().__init__(f"{pending_bytes} bytes wait for a majority, {pending_bytes_max} may")


class DiskFull(DLedgerError):  # noqa: N818  # says what is
    """The last write found the disk full; asked again as soon as a moment has passed."""

    def __init__(self) -> None:
        super().__init__("the disk is full")


class EntryTooLarge(DLedgerError):  # noqa: N818  # says what is
    """The entry, or the batch that must lie in one segment, fits in no segment or no message."""

    retriable: ClassVar[bool] = False

    def __init__(self, size_bytes: int, bytes_max: int) -> None:
        super().__init__(f"{size_bytes} bytes do not fit in {bytes_max}")


class QuorumTimeout(DLedgerError):  # noqa: N818  # says what is
    """No majority has confirmed in time that this node leads."""

    def __init__(self, timeout_ms: int) -> None:
        super().__init__(f"no majority has answered within {timeout_ms} ms")


class TransferFailed(DLedgerError):  # noqa: N818  # says what is
    """Leadership did not go where it should; the message says why. The log is served as before."""


class CorruptEntry(DLedgerError):  # noqa: N818  # says what is
    """Bytes that should be entries are not; from a peer they end the connection."""

    retriable: ClassVar[bool] = False


class DamagedEntry(DLedgerError):  # noqa: N818  # says what is
    """A stored entry is not what was written. It is not served; a peer may replace it."""

    def __init__(self, index: int, place: str) -> None:
        super().__init__(f"entry {index} is damaged: {place}")
        self.index = index


class MembershipRefused(DLedgerError):  # noqa: N818  # says what is
    """The group was not changed; the message says why.

    ``may_retry``: whether the same change may succeed later.
    """

    def __init__(self, problem: str, *, retriable: bool = False) -> None:
        super().__init__(problem)
        self.may_retry = retriable


class OutcomeUnknown(DLedgerError):  # noqa: N818  # says what is
    """What was asked for is in the log of a leader, and may be committed yet or be lost.

    The one exception to the rule of this module; whoever meets it looks again.
    """

    retriable: ClassVar[bool] = False
