"""What a loss of power meets on a simulated disk, and what was never done when it came."""

from typing import NamedTuple

from sim.names import Names


class PowerLoss(NamedTuple):
    """What a loss of power met."""

    changes: int
    """Unsynced changes of bytes."""
    entries: int
    """Unsynced operations on directories."""


class Standing:
    """The moment from which on a process stands still, since a call of its own hangs.

    Code cannot be held in the middle of a callback, so the rest of it runs at once. On a machine
    it would wait for the call: if the power goes first, nothing of it has been done.
    """

    def __init__(self, names: Names, life: int) -> None:
        self.life = life
        """Of the process that stands still."""
        self._names = names
        self._changes = [(inode, inode.changes_made) for inode in names.inodes()]
        self._operations = names.operations_made

    def take_back(self) -> None:
        """Undo what was done since."""
        known = {id(inode): changes for inode, changes in self._changes}
        for inode in self._names.inodes():
            inode.take_back(known.get(id(inode), 0))
        self._names.take_back(self._operations)
