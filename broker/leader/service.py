"""What a service of the leader is: it begins with a term and ends with it.

It runs on the one replica that may write, from when that replica has applied everything before its
term until it loses the leadership. State that must outlive the leader lies in replicated tables of
the service, which every replica keeps; `start` makes all other state from them and from the log.
Source: docs/adr/0014.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable
    from typing import Any

    from broker.state.table import ReplicatedTable


class LeaderService:
    """One service; each method may be left out."""

    name: ClassVar[str]
    """For the log."""
    period_ms: ClassVar[int] = 0
    """How often `tick` is called while the service runs; 0: never."""

    def tables(self) -> Iterable[ReplicatedTable]:
        """Return the replicated state of the service, always the same."""
        return ()

    def start(self, term: int) -> Coroutine[Any, Any, None] | None:
        """Begin: this replica leads in ``term``, and its tables hold all that went before.

        What takes longer than a slice of the loop is returned as a coroutine. It runs beside the
        services and is cancelled where the term ends first. What `start` raises is told, the
        others go on, and this one rests until the next term.
        """
        del term
        return None

    def stop(self) -> None:
        """End, before anything of a later term is answered: propose nothing more, forget the rest.

        Called once for each `start`, however that went.
        """

    def tick(self) -> None:
        """Do what is due, a slice of it; not before `start` has ended."""

    def before_hand_over(self) -> None:
        """Propose what is held back: the leadership is about to be handed over."""
