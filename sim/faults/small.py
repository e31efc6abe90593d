"""Limits of production that few runs come near, drawn small; turns and threads that take long.

Production does long work in slices: after so many rows, bytes or messages it gives other tasks a
turn. In a run of seconds each piece of work is one slice, and no task runs in between, unless
slices are small and the turn lasts. Likewise, what a loop has given to a thread is done before the
loop goes on, unless the thread begins late; and what is done every ten seconds is done once.
Most plans have none of this. It is drawn from a stream of its own, behind everything else, so that
plans without it are as they were. Pure: values and their JSON.
Source: TigerBeetle VOPR, whose constants are small in tests; spec/proof.md 4.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import msgspec

if TYPE_CHECKING:
    from sim.rng import SplitRng

STREAM: Final = "small limits"
"""The stream that it is drawn from."""
SMALL_P: Final = 0.25
EACH_P: Final = 0.5
"""How probable it is of each limit that it is small, where some are."""

SMALL: Final = {
    # Rows, bytes and names in one slice.
    "broker.offsets.bounds:ROWS_PER_TURN": 2,
    "broker.offsets.removal:SLICE": 2,
    "broker.processor.groups:GROUPS_PER_STEP": 2,
    "broker.processor.lock:SLICE": 2,
    "broker.processor.pull:SLICE": 1,
    "broker.processor.reset:TURN_BYTES": 1,
    "broker.processor.slave_tables:KEYS_PER_STEP": 2,
    "broker.processor.slave_tables:OFFSETS_PER_STEP": 2,
    "broker.retention.compaction:COPIED_PER_STEP": 256,
    "broker.sends.waiting:SLICE_SENDS": 1,
    "broker.slave_sync.service:ROWS_PER_TURN": 2,
    "broker.slave_sync.told:ROWS_PER_STEP": 2,
    "broker.state.steps:DROPPED_PER_STEP": 2,
    "broker.table_text:READ_PER_STEP": 256,
    "broker.table_text:ROWS_PER_STEP": 2,
    "broker.transactions.service:ROWS_MAX": 2,
    "broker.transactions.takeover:ROWS_MAX": 2,
    "broker.transactions.takeover:SLICE": 2,
    "dledger.codec.snapshot:SLICE_BYTES": 256,
    "ledgermq.client.consume:CALLS_PER_TURN_MAX": 1,
    "ledgermq.client.lite_pull:POLLS_PER_TURN_MAX": 1,
    "ledgermq.client.orderly:CALLS_PER_TURN_MAX": 1,
    "namesrv.admission:TOPICS_PER_TURN": 2,
    "namesrv.listing:NAMES_PER_TURN": 2,
    "namesrv.route_table:TOPICS_PER_TURN": 2,
    "namesrv.rows:TOPICS_PER_TURN": 2,
    "namesrv.route_table:EXPIRED_PER_TURN": 1,
    "store.queues.start:SLICE_QUEUES": 2,
    # What one turn of a loop may do, and what may be under way at once.
    "broker.delays.service:IN_FLIGHT_MAX": 2,
    "broker.delays.service:TURN_MAX": 1,
    "broker.groups.notifier:SLICE": 1,
    "broker.offsets.cleaning:ENTRIES_PER_WALK": 1,
    "broker.offsets.cleaning:OFFSETS_PER_TICK": 3,
    "broker.offsets.removal:AT_ONCE": 1,
    "broker.pulls.wake_up:WORK_MAX": 1,
    "broker.sends.room:TURN_MAX": 1,
    "broker.slave_sync.giving_back:GIVEN_BACK_MAX": 2,
    "broker.transactions.endings:OPS_TOGETHER_MAX": 2,
    "broker.transactions.service:PARKING_BYTES_MAX": 1,
    "broker.transactions.service:RETRIED_MAX": 1,
    "broker.transactions.service:TRANSACTIONS_ASKED_MAX": 2,
    "broker.transactions.service:TURN_MAX": 1,
    "dledger.core.replication:SPANS_PER_TURN": 1,
    "dledger.node:READIES_PER_TURN_MAX": 1,
    "dledger.repair:SNAPSHOT_CHUNK_BYTES": 300,
    "dledger.replica:SNAPSHOT_CHUNK_BYTES": 300,
    "dledger.repair:RUN_MAX": 2,
    "ledgermq.client.oneway:TURN_BYTES": 1,
    "ledgermq.remoting.transport.turns:BEGUN_MAX": 2,
    "ledgermq.remoting.transport.turns:FEW_FRAMES": 2,
    "store.ha.master:PUSH_BYTES_MAX": 2_000,
    "store.ha.slave_log:FULL_READ_BYTES": 2_000,
    "store.recovery.repair:STEP_ENTRIES": 4,
    # What is kept in memory, beyond which files are read, or names are computed anew.
    "broker.transactions.halves:CHUNK_ROWS_MAX": 4,
    "dledger.appender:HINTED_ENTRIES_MIN": 1,
    "dledger.storage.log_store:ENDS_MAX": 2,
    "dledger.storage.recent:BYTES_MAX": 3_000,
    "dledger.storage.recent:HINTED_BYTES_MAX": 600,
    "dledger.storage.walk:CHUNK_BYTES": 512,
    "dledger.storage.walk:COPIED_ENTRIES_MIN": 2,
    "store.dispatch.dispatcher:FEW_ENTRIES": 2,
    "store.dispatch.dispatcher:TOGETHER_BYTES_MAX": 2_000,
    "store.ha.recent:RECENT_BYTES_MAX": 2_000,
    "store.index.handles:OPEN_MAX": 2,
    "store.index.key_index:ROWS_TOGETHER": 2,
    "store.index.keys:REMEMBERED_MAX": 4,
    "store.index.keys:TOPICS_MAX": 2,
    "store.queues.files:BLOCK_BYTES": 200,
    "store.queues.files:SYNC_EACH_MAX": 1,
    "store.queues.start:PIECE_UNITS": 4,
    "store.read.reader:AHEAD_BYTES": 2_000,
    "store.read.reader:PIECES_MAX": 2,
    "store.read.reader:PIECE_UNITS": 4,
    "store.recovery.checkpointer:PICTURE_QUEUES": 2,
    "store.recovery.start:CHECKED_BYTES": 4_000,
    "store.recovery.start:SEARCHED_QUEUES_MAX": 2,
    # Periods (ms) of work that a run of seconds would see once, or not at all.
    "broker.controller:CLIENT_SWEEP_MS": 500,
    "broker.offsets.moved:PERIOD_MS": 500,
    "broker.slave_sync.service:PERIOD_MS": 500,
    "broker.state.saver:PERIOD_MS": 200,
    "store.ha.master:CHECK_MS": 300,
    # How long something is waited for (ms) that may take longer.
    "broker.switch.in_sync_keeper:DECISION_MS": 500,
    "ledgermq.client.push:SETTLE_MS": 5,
}  # fmt: skip
"""By ``module:name``: how small a limit becomes."""


class Small(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which limits are small in a run."""

    turn_ms: Annotated[float, msgspec.Meta(ge=0, le=1_000)] = 0.0
    """How long the turn between two slices lasts, as a mean; 0: not at all."""
    limits: tuple[str, ...] = ()
    """Members of `SMALL`, each once."""
    threads_ms: Annotated[float, msgspec.Meta(ge=0, le=1_000)] = 0.0
    """How late a thread begins with what it is given, as a mean; 0: as usual, 40 us."""

    def __post_init__(self) -> None:
        """Refuse limits that production does not have. Errors: `ValueError`."""
        unknown = sorted(set(self.limits) - SMALL.keys())
        if unknown:
            raise ValueError(f"there is no limit {unknown[0]!r}, see sim/faults/small.py")
        if len(set(self.limits)) < len(self.limits):
            raise ValueError("a limit is named twice")


def draw_small(rng: SplitRng) -> Small | None:
    """Return what a plan has of it."""
    if not rng.split("on").chance(SMALL_P):
        return None
    return Small(
        turn_ms=rng.split("turns").choice((0.0, 0.5, 5.0, 20.0)),
        limits=tuple(name for name in SMALL if rng.split(name).chance(EACH_P)),
        threads_ms=rng.split("threads").choice((0.0, 0.0, 2.0, 10.0)),
    )
