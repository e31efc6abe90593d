"""What stands still: which of several things have been where they are for so long.

A group that reads on slowly is busy; one that gives nothing for longer than any lock or heartbeat
lasts will not give the rest. Pure.
"""

from collections.abc import Mapping


class Stillness:
    """Notes where things are, and tells which have not moved for ``after_ns``."""

    def __init__(self, after_ns: int) -> None:
        self._after_ns = after_ns
        self._since: dict[str, tuple[int, int]] = {}
        """Where each is, and when it was there first."""

    def __bool__(self) -> bool:
        """Tell whether anything is noted."""
        return bool(self._since)

    def note(self, now_ns: int, where: Mapping[str, int]) -> None:
        """Note where things are; what is not named is over and forgotten."""
        self._since = {
            name: known
            if (known := self._since.get(name)) is not None and known[0] == at
            else (at, now_ns)
            for name, at in where.items()
        }

    def forget(self) -> None:
        """Begin anew: something kept them from moving."""
        self._since.clear()

    def still(self, now_ns: int) -> dict[str, int]:
        """Return where those are that stand still."""
        return {
            name: at
            for name, (at, since_ns) in self._since.items()
            if now_ns - since_ns >= self._after_ns
        }

    def is_over(self, now_ns: int) -> bool:
        """Return whether there is anything, and all of it stands still."""
        return bool(self._since) and len(self.still(now_ns)) == len(self._since)
