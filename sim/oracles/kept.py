"""Which classes of production are kept twice while a run lasts (`sim.oracles.twice`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.state.consumer_offset import ConsumerOffsetTable
from broker.state.queue_lock import QueueLockTable
from dledger.core.log import RaftLog
from ledgermq.client.process_queue import ProcessQueue
from sim.oracles.twice import kept_twice
from sim.oracles.twice_log import LogModel
from sim.oracles.twice_queue import QueueModel
from sim.oracles.twice_sets import GateModel, InSyncModel
from sim.oracles.twice_tables import LocksModel, OffsetsModel
from store.ha.gate import Gate
from store.ha.switch.in_sync import InSync

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import Any

    from sim.oracles.twice import Twice

MODELS: Final[dict[type, tuple[Callable[[Any], Any], tuple[str, ...]]]] = {
    ConsumerOffsetTable: (OffsetsModel, OffsetsModel.METHODS),
    QueueLockTable: (LocksModel, LocksModel.METHODS),
    RaftLog: (LogModel, LogModel.METHODS),
    ProcessQueue: (QueueModel, QueueModel.METHODS),
    Gate: (GateModel, GateModel.METHODS),
    InSync: (InSyncModel, InSyncModel.METHODS),
}


def all_kept_twice() -> AbstractContextManager[Twice]:
    """Have each object of these classes judged that comes to be meanwhile."""
    return kept_twice(MODELS)
