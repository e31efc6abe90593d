"""The settings of a simulated broker that its configuration file does not have.

Source: `broker.config`.
"""

from dataclasses import replace
from typing import Final

from broker.config import BrokerConfig
from dledger.config import DLedgerConfig
from store.config import StoreConfig

INDEX_SEGMENT_BYTES: Final = 16 * 1024
"""512 entries: a run of some minutes fills several."""


class SimBrokerConfig(BrokerConfig):
    """The broker's settings, with index segments as small as the data segments are here."""

    __slots__ = ()

    def dledger_config(self) -> DLedgerConfig:
        """Return the settings of the replicated log."""
        config = BrokerConfig.dledger_config(self)
        return replace(config, index_segment_bytes=INDEX_SEGMENT_BYTES)

    def store_config(self) -> StoreConfig:
        """Return the settings of the store: how long a message waits for a majority is drawn."""
        config = BrokerConfig.store_config(self)
        return replace(config, max_wait_ack_ms=self.sync_flush_timeout_ms)
