"""How far the log of this broker is: what controllers compare before an election."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.modes.lost_end import may_lack_end
from broker.modes.switched import SwitchedMaster, SwitchedSlave
from broker.ports import check_log
from ledgermq.runtime.errors import FatalError
from store.ha.switch.epoch_file import EpochFile
from store.ha.switch.epochs import clip
from store.plain.files import open_segments
from store.plain.recovery import sound_end
from store.recovery.directory import StoreDirectory
from store.recovery.foreign_queues import SAFETY_MS
from store.recovery.known import known_synced

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.controller import BrokerController
    from ledgermq.runtime.disk import Disk


class LogProgress:
    """Knows where the log ends, also while nobody has it open."""

    def __init__(self, config: BrokerConfig, disk: Disk) -> None:
        self._config = config
        self._disk = disk
        self._last = (0, 0)
        self.may_lack_end = False
        """Whether the log may have lost its end since a master counted on it."""
        self.last_epoch = 0
        """The last epoch that the directory knows of, written in or not."""

    def load(self) -> None:
        """Look at the files, of which nobody else may have the directory. Errors: `FatalError`."""
        config, disk = self._config, self._disk
        directory = StoreDirectory(config.store_path, disk)
        directory.enter()
        try:
            check_log(disk, config)
            epochs = EpochFile(config.store_path, disk)
            epochs.load()
            self.may_lack_end = may_lack_end(directory, disk)
            end = self._find_end(directory)
        except OSError as error:
            message = f"the commit log in {config.commit_log_directory} cannot be read: {error}"
            raise FatalError(message) from error
        finally:
            directory.leave(clean=False)
        known = clip(epochs.epochs, end)
        self._last = (known[-1].epoch if known else 0, end)
        self.last_epoch = epochs.epochs[-1].epoch if epochs.epochs else 0

    def _find_end(self, directory: StoreDirectory) -> int:
        """Return where the log ends, as far as it is sound. Errors: `OSError`."""
        log = self._config.plain_log_config()
        segments = open_segments(self._disk, log)
        try:
            if directory.was_clean:
                return segments.nonzero_end(segments.start)
            safe_ms = max(0, directory.times.physic - SAFETY_MS)
            synced = known_synced(directory, self._disk)
            return sound_end(segments, log, safe_timestamp_ms=safe_ms, synced=synced)
        finally:
            segments.close()

    def keep(self, broker: BrokerController) -> None:
        """Remember how far a broker is that is about to stop."""
        self._last = self.of(broker)

    def of(self, broker: BrokerController | None) -> tuple[int, int]:
        """Return the epoch of the last entry, and the end of the log."""
        mode = None if broker is None else broker.mode
        if isinstance(mode, SwitchedMaster | SwitchedSlave):
            found = mode.progress()
            if found is not None:
                return found
        return self._last
