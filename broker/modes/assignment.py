"""What controllers have made a broker: the master of an epoch, or a slave of its master."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.ha.switch.in_sync import InSync


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One role, for as long as it lasts."""

    own_id: int
    """Id of this replica, as the controllers gave it."""
    epoch: int
    """Of the master."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AsMaster(Assignment):
    """This broker is the master."""

    in_sync: InSync
    """Says what counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AsSlave(Assignment):
    """This broker follows."""

    master_address: str
    """``host:port`` where the master takes requests."""
    ha_address: str
    """``host:port`` of its HA service."""
    cut_from: int | None
    """Position from which on the own log is another master's, and goes; None: not known to be."""
    on_surplus: Callable[[int], None]
    """Called with such a position, once it is found."""
