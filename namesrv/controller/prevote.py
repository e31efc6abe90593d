"""Whether a majority would vote, asked before an election is begun. Pure.

PySyncObj has no pre-vote: whoever hears no leader raises its term again and again, and ends the
leader that all others hear once it is heard itself. So the others say first whether they would
vote; who is cut off gets no answers, and keeps its term.
Source: Raft dissertation 9.6.
"""

from typing import Final

SILENT_S: Final = 0.5
"""Who has heard the leader within so long votes for nobody else: ten of its periods, and less than
the least time after which anybody asks."""


class Poll:
    """The questions of one controller, one after the other.

    Args:
        voters: how many controllers there are.
    """

    def __init__(self, voters: int) -> None:
        self._voters = voters
        self._number = 0
        self._for_it: set[str] = set()
        self._heard_s = float("-inf")

    def begin(self) -> int:
        """Return the number of another question; answers to those before count no more."""
        self._number += 1
        self._for_it.clear()
        return self._number

    def take(self, peer: str, number: int) -> bool:
        """Take that a peer would vote; tell whether a majority would now, the asker included.

        It is told once: the answers behind that would begin another election amid the first.
        """
        if number != self._number:
            return False
        self._for_it.add(peer)
        is_won = self.is_won
        if is_won:
            self.begin()
        return is_won

    @property
    def is_won(self) -> bool:
        """Whether a majority would vote, the asker included."""
        return 2 * (len(self._for_it) + 1) > self._voters

    def on_leader(self, now_s: float) -> None:
        """Take that a leader was heard."""
        self._heard_s = now_s

    def hears_a_leader(self, now_s: float) -> bool:
        """Tell whether one was heard lately."""
        return now_s - self._heard_s < SILENT_S
