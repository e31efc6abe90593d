"""What a log asks of its store, and what it tells: each goes to the part that it concerns."""

from typing import TYPE_CHECKING, Final

from store.ha.gate import Lack
from store.layout import record_is_sound
from store.results import PutStatus
from store.write.hints import is_sound_hint

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.core.model import Role
    from store.dispatch.turns import DispatchTurns
    from store.queues.start import LogStart
    from store.write.commit_log import CommitLog
    from store.write.writer import Writer

_LACKING: Final = {Lack.NO_SLAVE: PutStatus.NO_SLAVE, Lack.TIMEOUT: PutStatus.SLAVE_TIMEOUT}


class StoreLogUser:
    """The `dledger.replicated_log.LogUser` of one store.

    Args:
        on_snapshot: replaces all that the store has, see `LogUser.on_snapshot`.
        on_begun: lets the store begin where an empty log does from now on.
    """

    def __init__(
        self,
        commit_log: "CommitLog",
        writer: "Writer",
        turns: "DispatchTurns",
        log_start: "LogStart",
        on_snapshot: "Callable[[int, bytes], None]",
        on_begun: "Callable[[int], None]",
    ) -> None:
        self._writer = writer
        self._uncommitted = commit_log.uncommitted
        self._turns = turns
        self._log_start = log_start
        self.noop_body = commit_log.noop_body
        self.configuration_body = commit_log.configuration_body
        self.write_hint = commit_log.write_hint
        self.on_rolled_back = commit_log.uncommitted.forget_from
        """The log could not write these entries for want of space: their puts are refused."""
        self.on_hand_over = writer.on_hand_over
        self.on_committed = turns.on_committed
        self.on_state_included = turns.on_state_included
        self.on_snapshot = on_snapshot
        self.on_begun = on_begun

    def is_sound_body(self, body: memoryview) -> bool:
        """Tell whether a record has the CRC it states."""
        return record_is_sound(body)

    def is_sound_hint(self, hint: bytes, entries: int) -> bool:
        """Tell whether a hint is one, of so many entries."""
        return is_sound_hint(hint, entries)

    def on_role(self, role: "Role", term: int, leader_id: str | None) -> None:
        """Follow a change of role."""
        del leader_id
        self._writer.on_role(role, term, self._turns.applied)

    def on_unreplicated(self, position: int, lack: Lack) -> None:
        """Tell who waits for entries before ``position`` that no slave has them."""
        self._uncommitted.answer_before(position, _LACKING[lack])

    def on_trimmed(self, position: int) -> None:
        """Let the queues begin where the log does from now on."""
        self._log_start.advance_to(position)
