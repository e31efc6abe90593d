"""What a leader may have under way besides replication: transfer, reads, members to let rejoin.

Plain state with its legal changes; the rules are in `transfer`, `read_index`, `rejoin`.
"""

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from dledger.core.model import LogIndex, NodeId

if TYPE_CHECKING:
    from dledger.core.ready import ReadConfirmed


class Phase(Enum):
    """How far a transfer is."""

    CATCHING_UP = "CATCHING_UP"
    ASKED = "ASKED"
    DONE = "DONE"
    FAILED = "FAILED"


PHASES: Final[dict[tuple[Phase, Phase], str]] = {
    (Phase.CATCHING_UP, Phase.ASKED): "the target holds the whole log, all of it committed",
    (Phase.CATCHING_UP, Phase.FAILED): "election timeout: the target is behind, or gone",
    (Phase.CATCHING_UP, Phase.DONE): "leadership is lost to a higher term",
    (Phase.ASKED, Phase.ASKED): "heartbeat interval: asks again",
    (Phase.ASKED, Phase.FAILED): "election timeout: the target did not campaign",
    (Phase.ASKED, Phase.DONE): "the target campaigns: its term is higher",
}
"""Every legal change of a transfer, and why it happens."""


class Transfer:
    """One transfer, as its leader sees it."""

    __slots__ = ("deadline_tick", "failure", "phase", "target")

    def __init__(self, target: NodeId, deadline_tick: int) -> None:
        self.target = target
        self.deadline_tick = deadline_tick
        self.phase = Phase.CATCHING_UP
        self.failure = ""
        """Why it failed, for whoever wanted it."""

    def become(self, phase: Phase) -> None:
        """Go on to the next phase."""
        assert (self.phase, phase) in PHASES, (self.phase, phase)
        self.phase = phase


class Rejoin:
    """A member that came with an empty directory, as its leader sees it."""

    __slots__ = ("ask_tick", "barrier", "generation", "retired")

    def __init__(self, generation: int, barrier: LogIndex, retired: tuple[int, ...]) -> None:
        self.generation = generation
        self.barrier = barrier
        """The entry that must be committed without it before it may vote."""
        self.retired = retired
        """Generations that it had before."""
        self.ask_tick = 0
        """The leader tells it that it may vote no earlier than this, and repeats it no earlier."""


class Round(NamedTuple):
    """A round of heartbeats on which a batch of reads waits."""

    batch: int
    number: int
    read_at: LogIndex


class Reads:
    """The batches of one replica; a batch has a number that is never used again."""

    __slots__ = ("confirmed", "next_batch", "round", "wanted")

    def __init__(self) -> None:
        self.next_batch = 1
        self.wanted = False
        """Whether somebody asked for the next batch."""
        self.round: Round | None = None
        self.confirmed: list[ReadConfirmed] = []
        """For the next `Ready`."""

    def drop(self) -> None:
        """Forget reads that are not confirmed: this replica does not lead any more."""
        self.next_batch += 1
        self.wanted = False
        self.round = None
