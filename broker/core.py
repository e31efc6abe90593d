"""What every part of a broker is built over; made once by the controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.config import BrokerConfig
    from broker.files import Files
    from broker.sends.room import LogRoom
    from broker.tables import Tables
    from ledgermq.runtime.clock import Clock
    from ledgermq.runtime.disk import Disk
    from ledgermq.runtime.errors import FatalError
    from ledgermq.runtime.rng import Rng
    from ledgermq.runtime.tasks import Supervisor
    from store.message_store import MessageStore


class Machine(NamedTuple):
    """The machine, or the simulator's, and what to do when it fails."""

    disk: Disk
    clock: Clock
    rng: Rng
    on_fatal: Callable[[FatalError], None]


class Core(NamedTuple):
    """Settings, tables, store and machine."""

    config: BrokerConfig
    tables: Tables
    store: MessageStore
    machine: Machine
    room: LogRoom
    """Room in the log for large messages."""
    tasks: Supervisor
    """Supervises everything that runs beside the loop's callbacks."""
    files: Files

    @property
    def clock(self) -> Clock:
        """The machine's clock."""
        return self.machine.clock

    @property
    def rng(self) -> Rng:
        """The machine's chance."""
        return self.machine.rng
