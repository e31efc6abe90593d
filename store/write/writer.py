"""The writing part of a store: what requests put, while this replica leads and has space.

`CommitLog` makes the records. `Writer` opens it once this replica has applied all that earlier
leaders wrote, closes it when the leadership is lost, and answers DISK_FULL in its place on request.
"""

from typing import TYPE_CHECKING

from dledger.core.model import LEADER
from ledgermq.runtime.errors import invariants_are_fatal
from store.write.answering import refuse, refuse_batch, refuse_each

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dledger.core.model import Role
    from store.life import Life
    from store.ports import LogWriter, StoreListener
    from store.results import BatchCallback, PutBatch, PutCallback, PutMessage, StateCallback
    from store.write.commit_log import CommitLog
    from store.write.stamps import GroupClock


class Writer:
    """Takes messages and replicated state; it owns this replica's leadership."""

    put: "Callable[[PutMessage, PutCallback], None]"
    """Append one message, see `CommitLog.put`."""
    put_batch: "Callable[[PutBatch, BatchCallback], None]"
    """Append messages of one queue side by side, see `CommitLog.put_batch`."""
    put_each: "Callable[[PutBatch, Sequence[PutCallback]], None]"
    """Append messages that say state side by side, see `CommitLog.put_each`."""
    propose_state: "Callable[[str, bytes, StateCallback], None]"
    """Append ``(kind, payload)`` as replicated state, see `CommitLog.propose_state`."""

    def __init__(
        self, commit_log: "CommitLog", log: "LogWriter", listener: "StoreListener", life: "Life"
    ) -> None:
        self._commit_log = commit_log
        self._log = log
        self._listener = listener
        self._life = life
        self._term = 0
        """In which it was opened last."""
        # What requests reach of the log: a broken invariant in there is not theirs to survive.
        self._open = (
            invariants_are_fatal(commit_log.put),
            invariants_are_fatal(commit_log.put_batch),
            invariants_are_fatal(commit_log.put_each),
        )
        self.put, self.put_batch, self.put_each = self._open
        self.propose_state = invariants_are_fatal(commit_log.propose_state)

    @property
    def writable(self) -> bool:
        """Whether this replica leads and has applied everything of earlier terms."""
        return self._commit_log.writable

    @property
    def uncommitted_bytes(self) -> int:
        """What was appended here and waits for the others, in bytes; of this turn, too."""
        return self._commit_log.uncommitted.size_bytes

    def refuse_messages(self, refused: bool) -> None:  # noqa: FBT001 - a switch is what it is
        """Answer every message DISK_FULL, or take them again; state records are taken always."""
        closed = refuse, refuse_batch, refuse_each
        self.put, self.put_batch, self.put_each = closed if refused else self._open

    def compare_clocks(self, group: "GroupClock") -> None:
        """Stamp messages with the time that the group agrees on."""
        self._commit_log.stamps.group = group

    def on_role(self, role: "Role", term: int, applied: int) -> None:
        """Follow a change of role: without leadership nothing that waits can be known."""
        if self._commit_log.writable and (role is not LEADER or term != self._term):
            self.close(term)
        self.maybe_open(applied)

    def on_hand_over(self) -> None:
        """Let the broker propose what it holds back."""
        if self._commit_log.writable:
            self._listener.on_hand_over()

    def maybe_open(self, applied: int) -> None:
        """Take sends if everything that earlier leaders wrote lies before ``applied``."""
        if self._commit_log.writable or self._life.is_over:
            return
        term = self._log.maybe_term(applied)
        if term is not None:
            self._term = term
            self._commit_log.become_writable()
            self._listener.on_writable(True, term)  # noqa: FBT003 - the contract's event

    def close(self, term: int | None = None) -> None:
        """Take nothing more; what waits is answered UNKNOWN. ``term``: the new one, if there is."""
        if self._commit_log.writable:
            self._commit_log.writable = False
            term = self._term if term is None else term
            self._listener.on_writable(False, term)  # noqa: FBT003 - the contract's event
            self._commit_log.abandon()
