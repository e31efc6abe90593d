"""What faults of a Raft group ask of a world, where there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping


class Unwatched:
    """There is no replica; see `sim.faults.target.Knowledge`."""

    @property
    def replicas(self) -> Mapping[str, Any]:
        """Return none."""
        return {}

    @property
    def truth(self) -> NoReturn:
        """Refuse: there is no committed log of a group."""
        raise LookupError("there is no group")

    def excuse_corruption(self, name: str) -> NoReturn:
        """Refuse: nobody reads entries."""
        raise LookupError(name)


class NoGroup:
    """A world without a group; see `sim.faults.target.Target`."""

    watch = Unwatched()

    def members(self) -> tuple[str, ...]:
        """Return no host: there are no further groups."""
        return ()

    def alone(self) -> tuple[str, ...]:
        """Return no broker outside the group."""
        return ()

    def controller(self) -> str | None:
        """Return None: brokers have their roles from an operator."""
        return None

    def node(self, name: str) -> None:
        """Return None: no replica runs there."""

    def is_recovering(self, name: str) -> bool:
        """Return False."""
        del name
        return False

    def synced_index(self, name: str) -> int:
        """Return that none is known."""
        del name
        return -1

    def compact(self, name: str) -> None:
        """Nothing is dropped."""

    def peer_address(self, name: str) -> NoReturn:
        """Refuse: nobody votes."""
        raise LookupError(name)
