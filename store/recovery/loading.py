"""The start of a store: what its files hold, and where dispatch begins once the log is open.

`load` comes before the log is open, `agree` once behind it. A snapshot that takes the place of the
log meanwhile (`give_up`) leaves nothing to agree on.
"""

import logging
from typing import TYPE_CHECKING

from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError
from ledgermq.runtime.regular import check_replaced
from store.index.marks import INDEX_FILE
from store.queues.names import check_queue_names
from store.recovery.checkpoint import CHECKPOINT_FILE, CLEAN_FILE, ROCKETMQ_FILE
from store.recovery.start import Recovered, agree_with_log, load_queues

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ledgermq.runtime.disk import Disk
    from store.dispatch.dispatcher import Dispatcher
    from store.index import IndexKeeper
    from store.ports import LogMarks, LogReader
    from store.queues.consume_queue import ConsumeQueues
    from store.queues.start import LogStart, QueueStart
    from store.recovery.checkpointer import Checkpointer

_log = logging.getLogger(__name__)


class Loading:
    """Owns what the files were found to hold, until dispatch has begun."""

    def __init__(
        self,
        directory: str,
        disk: "Disk",
        queues: "ConsumeQueues",
        index: "IndexKeeper | None",
        log: "LogReader",
        marks: "LogMarks",
    ) -> None:
        self._directory = directory
        self._disk = disk
        self._queues = queues
        self._index = index
        self._log = log
        self._marks = marks
        self.recovered = Recovered()
        self._starts: Sequence[QueueStart] = ()
        self._is_settled = False

    def load(
        self,
        starts: "Sequence[QueueStart]",
        recover: "Callable[[ConsumeQueues], Recovered] | None",
        index_until: int | None,
    ) -> None:
        """Recover queues and index, see `MessageStore.load`. Errors: `FatalError`."""
        self._starts = starts
        names = (CHECKPOINT_FILE, CLEAN_FILE, ROCKETMQ_FILE, INDEX_FILE)
        check_replaced(self._disk.size, *(f"{self._directory}/{name}" for name in names))
        try:
            check_queue_names(self._queues.directory)
            if recover is not None:
                self.recovered = recover(self._queues)
            else:
                self.recovered = load_queues(self._directory, self._disk, self._queues, starts)
                if self.recovered.rebuild and self.recovered.marks:
                    # The files made anew may be what it names before they are on the disk for sure.
                    self._disk.remove(f"{self._directory}/{CHECKPOINT_FILE}")
        except OSError as error:
            message = f"the queues in {self._directory} cannot be read: {error}"
            raise FatalError(message, EXIT_ENVIRONMENT) from error
        if self._index is not None:
            self._index.load(trusted_until=index_until)

    def give_up(self) -> None:
        """Take that nothing which was loaded counts any more."""
        self._is_settled = True

    def agree(
        self, dispatcher: "Dispatcher", checkpointer: "Checkpointer", log_start: "LogStart"
    ) -> "Iterator[bool] | None":
        """Settle, once the log is open, where dispatch begins. Errors: `FatalError`.

        Returns what is left to be done before it does, see `LogStart.settle`; None if all is done.
        """
        if self._is_settled:
            return None
        self._is_settled = True
        recovered, log = self.recovered, self._log
        first = agree_with_log(recovered, self._queues, log, self._marks)
        checkpointer.begin(recovered.marks)
        if dispatcher.state_end > log.end_position:
            # The log has lost its end. What it gets there instead must not count as applied.
            _log.warning(
                "event=state_ahead_of_the_log applied=%d log_end=%d apply_again_from=%d",
                dispatcher.state_end, log.end_position, log.first_position,
            )  # fmt: skip
            dispatcher.state_end = log.first_position
        begin = max(min(first, dispatcher.state_end), log.first_position)
        newest = recovered.marks[0] if recovered.marks else None
        if self._index is not None:
            begin = min(begin, self._index.agree(log, self._marks, newest))
        covered = checkpointer.covered
        is_behind_mark = newest is not None and begin == covered
        dispatcher.begin(newest.position if newest and is_behind_mark else -1, begin, covered)
        _log.info(
            "event=dispatch_begins position=%d log_end=%d queues=%d rebuild=%s",
            begin, log.end_position, len(self._queues.by_key), recovered.rebuild,
        )  # fmt: skip
        return log_start.settle(self._starts)
