"""What a recipe of a fault is: how it is drawn, and what it leaves open. Pure."""

from collections.abc import Callable
from typing import Final, NamedTuple

from sim.faults.plan import FaultKind, Options, Value
from sim.rng import SplitRng

SIDES: Final = ("both", "to", "from")
LOSS_MODES: Final = ("lost", "torn", "reordered")


class Drawn(NamedTuple):
    """What a recipe leaves open."""

    target: str
    for_ms: int
    params: dict[str, Value]


class Recipe(NamedTuple):
    """One kind of fault of a package."""

    kind: FaultKind
    draw: Callable[[SplitRng, Options], Drawn]
    weight: float = 1.0
    is_overkill: bool = False
    """It may exceed the contract however it is applied."""
