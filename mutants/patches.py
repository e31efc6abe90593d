"""All planted bugs by name. Each says what it breaks and who had it (``python -m mutants --list``).

What detects each of them, and after how many seeds, is measured: docs/simulation.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mutants.blind import BLIND
from mutants.clients import CLIENTS
from mutants.dimensions import DIMENSIONS
from mutants.door import DOOR
from mutants.durability import DURABILITY
from mutants.elections import ELECTIONS
from mutants.groups import GROUPS
from mutants.namesrv import NAMESRV
from mutants.peers import PEERS
from mutants.product import PRODUCT_BUGS
from mutants.records import RECORDS
from mutants.replication import REPLICATION
from mutants.serving import SERVING
from mutants.state import STATE
from mutants.wire import WIRE

if TYPE_CHECKING:
    from mutants.planting import Mutant

MUTANTS: Final[dict[str, Mutant]] = {
    mutant.name: mutant
    for mutant in (
        *ELECTIONS,
        *REPLICATION,
        *GROUPS,
        *DURABILITY,
        *PRODUCT_BUGS,
        *SERVING,
        *BLIND,
        *DIMENSIONS,
    )
}
"""What the simulator finds."""

BY_TESTS: Final[dict[str, Mutant]] = {
    mutant.name: mutant
    for mutant in (
        *CLIENTS,
        *DOOR,
        *NAMESRV,
        *PEERS,
        *RECORDS,
        *STATE,
        *WIRE,
    )
}
"""What a test finds that plants it; the simulator cannot show it."""

ALL: Final[dict[str, Mutant]] = {**MUTANTS, **BY_TESTS}
