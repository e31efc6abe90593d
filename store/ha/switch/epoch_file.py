"""The epochs of one log on disk: written, and synced, before anything of a new epoch is."""

from typing import Final

from ledgermq.runtime.disk import Disk
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError
from ledgermq.runtime.regular import check_replaced
from store.ha.switch.epochs import (
    EPOCH_FILE,
    BadEpochs,
    Epochs,
    begin_epoch,
    decode_epochs,
    encode_epochs,
)


class EpochFile:
    """Owns the file in ``directory``; the directory's lock is its owner's business."""

    def __init__(self, directory: str, disk: Disk) -> None:
        self.path: Final = f"{directory}/{EPOCH_FILE}"
        self._disk = disk
        self.epochs: Epochs = ()
        """As the file has them."""

    def load(self) -> None:
        """Read the file, if there is one. Errors: `FatalError`."""
        check_replaced(self._disk.size, self.path)
        try:
            data = self._disk.read(self.path)
            self.epochs = () if data is None else decode_epochs(data)
        except OSError as error:
            raise FatalError(f"{self.path} cannot be read: {error}") from error
        except BadEpochs as error:
            raise FatalError(
                f"{self.path} is damaged: {error}. Without it nobody knows which part of the log is"
                " that of which master; restore it, or move the whole directory away, and let this"
                " broker begin anew as a slave"
            ) from error

    def begin(self, epoch: int, end: int) -> None:
        """Write down that a log goes on at ``end`` in a new epoch. Errors: `FatalError`."""
        try:
            epochs = begin_epoch(self.epochs, epoch, end)
        except BadEpochs as error:
            raise FatalError(f"{self.path}: {error}; are these other controllers?") from error
        self.save(epochs)

    def save(self, epochs: Epochs) -> None:
        """Write other epochs; they are durable when this returns. Errors: `FatalError`."""
        if epochs == self.epochs:
            return
        try:
            self._disk.replace(self.path, encode_epochs(epochs))
        except OSError as error:
            message = f"{self.path} cannot be written: {error}"
            raise FatalError(message, EXIT_ENVIRONMENT) from error
        self.epochs = epochs
