"""What the log says to its user, and how a process ends when the log cannot go on."""

import logging
import os
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from dledger.core.model import LogIndex, NodeId, Role, Term
from dledger.core.ready import Event, EventKind, describe_event
from dledger.core.snapshot import SnapshotMeta
from ledgermq.runtime.errors import FatalError

_log: Final = logging.getLogger(__name__)


class DLedgerListener:
    """Who uses the log. All calls come from the loop thread, and must not block.

    `noop_body` is the user's own; everything else has a default, which each method names.
    """

    def noop_body(self, physical_offset: int) -> bytes:
        """Return the body of a leader's first entry; it will lie at ``physical_offset``."""
        raise NotImplementedError

    def configuration_body(self, physical_offset: int, payload: bytes) -> bytes:
        """Return the body of an entry with a configuration of the group; it will lie there.

        By default the payload alone. A user whose log holds records of its own wraps it.
        """
        del physical_offset
        return payload

    def on_committed(self, commit_index: LogIndex) -> None:
        """Take that all entries up to ``commit_index`` are committed. At most once a turn."""

    def on_role(self, role: Role, term: Term, leader_id: NodeId | None) -> None:
        """Take a change of role, term or leader.

        On loss of leadership, what was appended and was not told as committed has an unknown
        outcome: another leader may still commit it. Some of it may be committed already, and is
        told later: what came in the same turn as the loss waits until the new term is on disk.
        """

    def on_rolled_back(self, first_index: LogIndex) -> bool:
        """Take that entries from ``first_index`` on found no space: they were not appended.

        True says that whoever waits for them has been told. By default nobody was: the leader
        gives up leadership, which makes them *unknown*.
        """
        del first_index
        return False

    def on_snapshot(self, meta: SnapshotMeta, state: bytes) -> None:
        """Replace everything by ``state``; the log goes on behind entry ``meta.id.last_index``.

        Entries up to ``meta.state_index`` are in the state already; they will be told again.
        By default the user has no state.
        """

    def on_trimmed(self, position: int) -> None:
        """Take that the log is about to begin at ``position``: nothing before can be read then."""

    def on_hand_over(self) -> None:
        """Append what is held back: this leader is about to hand over, whoever asked for that.

        What is appended before this returns is committed before the other one is asked to lead.
        By default nothing is held back.
        """

    def is_sound_body(self, body: memoryview) -> bool:
        """Tell whether a body is what was written, of an entry that has no CRC.

        DLedger 0.3 computes none; a RocketMQ record has one of its own. By default it is trusted.
        """
        del body
        return True

    def write_hint(self, start: int, end: int) -> bytes:
        """Return the hint of the entries just appended in ``[start, end)``, empty for none.

        It spares the user's like on the other replicas a look into the entries, and travels beside
        the span, see `Span.hint`. It counts for nothing that the entries do not say themselves:
        spans that are sent again have none. By default there is none.
        """
        del start, end
        return b""

    def is_sound_hint(self, hint: bytes, entries: int) -> bool:
        """Tell whether a hint that a peer sent is one, of so many entries. By default none is."""
        del hint, entries
        return False


_LEVELS: Final = {EventKind.RIVAL: logging.ERROR, EventKind.LOST_QUORUM: logging.WARNING,
           EventKind.REFUSED: logging.WARNING}  # fmt: skip
_SILENT: Final = frozenset({EventKind.ABORT})
"""A full disk has a log line of its own, not one for each attempt."""


def log_events(node_id: NodeId, events: Sequence[Event]) -> None:
    """Write what the core reports to the log of the process."""
    for event in events:
        if event.kind not in _SILENT:
            level = _LEVELS.get(event.kind, logging.INFO)
            _log.log(level, "node=%s %s", node_id, describe_event(event))


def exit_process(error: FatalError) -> NoReturn:
    """End the process: one log line, the error's exit code. Nothing is flushed or retried."""
    _log.critical("event=fatal exit_code=%d error=%r", error.exit_code, error.message)
    logging.shutdown()
    sys.stderr.flush()
    os._exit(error.exit_code)
