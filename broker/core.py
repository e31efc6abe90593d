"""What every part of a broker is built over; made once by the controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.tables import Tables
    from ledgermq.runtime.clock import Clock
    from ledgermq.runtime.rng import Rng
    from ledgermq.runtime.tasks import Supervisor
    from store.message_store import MessageStore


class Core(NamedTuple):
    """Settings, tables, store, and the machine, which may be the simulator's."""

    config: BrokerConfig
    tables: Tables
    store: MessageStore
    clock: Clock
    rng: Rng
    tasks: Supervisor
    """Supervises everything that runs beside the loop's callbacks."""
