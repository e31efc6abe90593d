"""A whole broker, loaded from a copy of its disk, and driven until its queues are those of its log.

Production's own broker is made over the copy, opens its log, loads tables and queues, and
dispatches all that is in the log: what it does at a start before it has a connection. Its queues
must have the units that the living one has, as far as the copy's log goes.
"""

from __future__ import annotations

import contextlib
import difflib
import logging
import re
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from broker.controller import BrokerController
from ledgermq.runtime.errors import FatalError
from ledgermq.runtime.tasks import Supervisor
from sim.disk_copy import copy_below
from sim.inode import PowerLossMode
from sim.rng import SplitRng

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from broker.state.table import ReplicatedTable
    from sim.disk import SimDisk
    from store.queues.consume_queue import ConsumeQueue

T = TypeVar("T")

UNIT_BYTES: Final = 20
UNITS_COMPARED: Final = 64
"""Of each queue, from its end."""
VERSION: Final = re.compile(rb'"dataVersion":\s*\{[^}]*\}')
"""It counts changes, also those that are applied once more after a start."""
LINES_TOLD: Final = 24
"""Of a difference."""
TURNS_MAX: Final = 100_000
"""A log of a run is dispatched in some dozens."""


class Left(NamedTuple):
    """What a process would leave behind if it ended now."""

    disk: SimDisk
    mode: PowerLossMode | None
    """How the power was lost; None: the process was killed."""

    @property
    def words(self) -> str:
        """Return how it ended, as a person says it."""
        return "a kill" if self.mode is None else f"a loss of power ({self.mode.value})"


def left_behind(disk: SimDisk, directory: str, seed: str) -> Left:
    """Return a copy of what lies below a directory, after an end that ``seed`` chooses."""
    copy, mode = copy_below(disk, directory, seed), SplitRng(seed).choice((None, *PowerLossMode))
    if mode is not None:
        copy.power_loss(mode)
    return Left(copy, mode)


@contextlib.contextmanager
def unheard() -> Iterator[None]:
    """Let nothing be logged: what a tried start says is not said by a process of the run."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


class Refused(Exception):  # noqa: N818 - what production's own code says of a disk
    """A start ended: by a `FatalError`, or by what would be a bug of any process."""


def started(start: Callable[[], T]) -> T:
    """Return what a start returns. Errors: `Refused`."""
    try:
        return start()
    except FatalError as error:
        raise Refused(str(error)) from error
    except Exception as error:
        raise Refused(f"{type(error).__name__}: {error}") from error


def reloaded(living: BrokerController, copy: SimDisk, seed: str) -> BrokerController:
    """Return a broker that has loaded what lies on a disk. Errors: `Refused`."""
    rng = SplitRng(seed)
    made = BrokerController(
        living._config, disk=copy, clock=living.store._clock, rng=rng, tasks=Supervisor()
    )
    started(made._mode.open)
    started(made._mode.load)
    return made


def dispatched(made: BrokerController, end: int) -> None:
    """Dispatch what lies in the log of a loaded broker before ``end``. Errors: `Refused`."""
    dispatch = made.store._turns
    turns: deque[Callable[[], None]] = deque([partial(dispatch.on_committed, end), dispatch.resume])
    dispatch._call_soon = turns.append
    for _ in range(TURNS_MAX):
        if not turns:
            return
        started(turns.popleft())
    raise Refused(f"dispatch did not come to {end} in {TURNS_MAX} turns")


def other_queue(living: BrokerController, made: BrokerController, end: int) -> str:
    """Return what a queue of a broker that was loaded has otherwise before ``end`` of the log."""
    found = made.store._queues.by_name
    for name, queue in living.store._queues.by_name.items():
        offset = _behind(queue, end)
        if offset <= _low(queue):
            continue
        other = found.get(name)
        place = f"{queue.topic}/{queue.queue_id}"
        if other is None:
            return f"{place} is missing, which has units to {offset}"
        if other.max_offset < offset:
            return f"{place} ends at {other.max_offset}, and not at {offset}"
        first = max(_low(queue), _low(other), offset - UNITS_COMPARED)
        if first < offset and _units(queue, first, offset) != _units(other, first, offset):
            return f"{place} has other units between {first} and {offset}"
    return ""


def other_table(living: BrokerController, made: BrokerController) -> str:
    """Return which replicated table is otherwise; both have applied the same of the log."""
    for file, one in living.tables.state.tables.items():
        other = made.tables.state.tables[file]
        if (had := _text(one)) != (found := _text(other)):
            lines = difflib.unified_diff(
                had.decode().splitlines(), found.decode().splitlines(), n=2, lineterm=""
            )
            return f"{file} differs: " + " / ".join(list(lines)[2:LINES_TOLD])
    return ""


def _text(table: ReplicatedTable) -> bytes:
    return VERSION.sub(b"", b"".join(table.snapshot_steps()))


def _behind(queue: ConsumeQueue, end: int) -> int:
    """Return the offset behind the last unit of a queue whose message lies before ``end``."""
    offset = queue.max_offset
    while offset > _low(queue):
        unit = queue.read(offset - 1, 1)
        if int.from_bytes(unit[:8], "big") < end:
            break
        offset -= 1
    return offset


def _low(queue: ConsumeQueue) -> int:
    """Return the first offset that its files may have."""
    return max(queue.min_offset, -(-queue.first_file // UNIT_BYTES))


def _units(queue: ConsumeQueue, first: int, end: int) -> bytes:
    return bytes(queue.read(first, end - first))
