"""The settings of a simulated broker that its configuration file does not have.

Source: `broker.config`.
"""

from dataclasses import dataclass, replace
from typing import Final

from broker.config import BrokerConfig
from broker.retention_policy import RetentionConfig
from dledger.config import DLedgerConfig
from store.config import StoreConfig

INDEX_SEGMENT_BYTES: Final = 16 * 1024
"""512 entries: a run of some minutes fills several."""


ALL_HOURS: Final = tuple(range(24))
RETENTION_INTERVAL_MS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class SimBrokerConfig(BrokerConfig):
    """The broker's settings, with index segments as small as the data segments are here."""

    sim_checkpoint_ms: int = 5_000
    """How often queues write a checkpoint."""
    sim_retention_ms: int = 0
    """How old a segment becomes; 0: ``clean_interval_ms`` is 0, and none goes."""

    sim_retention_hours: tuple[int, ...] = ALL_HOURS
    """Hours in which what is old goes unasked."""
    sim_span_bytes: int = 1024 * 1024
    """Bytes of entries in one message to a peer."""
    sim_inflight_spans: int = 128
    """Messages with entries under way to one follower."""
    sim_tell_clock_ms: int = 0
    """How often members tell each other their clocks."""

    sim_pending_bytes: int = 0
    """Bytes that may wait for a majority; 0: as usual."""

    sim_units_max: int = 0
    """Messages that are looked at for one read; 0: as usual."""

    sim_queues_flushed: int = 0
    """Queues that are written in one tick, likewise."""

    sim_unwritten: int = 0
    """Units of queues that wait to be written, likewise."""

    sim_dispatch: int = 0
    """Entries that are read back from the log in one turn, likewise."""

    def dledger_config(self) -> DLedgerConfig:
        """Return the settings of the replicated log."""
        config = BrokerConfig.dledger_config(self)
        return replace(
            config,
            index_segment_bytes=INDEX_SEGMENT_BYTES,
            tell_clock_ms=self.sim_tell_clock_ms,
            span_bytes_max=self.sim_span_bytes,
            inflight_spans_max=self.sim_inflight_spans,
            pending_bytes_max=self.sim_pending_bytes or config.pending_bytes_max,
        )

    def store_config(self) -> StoreConfig:
        """Return the settings of the store: how long a message waits for a majority is drawn."""
        config = BrokerConfig.store_config(self)
        return replace(
            config,
            max_wait_ack_ms=self.sync_flush_timeout_ms,
            checkpoint_ms=self.sim_checkpoint_ms,
            get_units_max=self.sim_units_max or config.get_units_max,
            flush_queues_max=self.sim_queues_flushed or config.flush_queues_max,
            unflushed_units_max=self.sim_unwritten or config.unflushed_units_max,
            dispatch_batch=self.sim_dispatch or config.dispatch_batch,
            follower_batch=self.sim_dispatch or config.follower_batch,
        )

    def retention_config(self) -> RetentionConfig:
        """Return how long messages are kept: milliseconds, and at any hour, or at none."""
        config = BrokerConfig.retention_config(self)
        if not self.sim_retention_ms:
            return config
        return replace(
            config,
            reserved_ms=self.sim_retention_ms,
            interval_ms=RETENTION_INTERVAL_MS,
            hours=self.sim_retention_hours,
        )
