"""What the parts of a broker that keep something on disk are given."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgermq.runtime.clock import Clock
    from ledgermq.runtime.disk import Disk
    from ledgermq.runtime.errors import FatalError
    from ledgermq.runtime.rng import Rng


class Machine(NamedTuple):
    """The machine, or the simulator's, and what to do when it fails."""

    disk: Disk
    clock: Clock
    rng: Rng
    on_fatal: Callable[[FatalError], None]
