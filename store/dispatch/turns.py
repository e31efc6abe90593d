"""When dispatch runs: once something is committed, and on in later turns while there is more.

It stands still while the state of a snapshot is being restored, some of it in each turn.
"""

import asyncio
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from store.dispatch.dispatcher import Dispatcher
    from store.life import Life
    from store.write.writer import Writer


class DispatchTurns:
    """Runs the dispatcher of one store; it owns how far the log is known to be committed.

    Args:
        begin: settles where dispatch begins; called before each turn.
        call_soon: the loop's.
        watchers: are told when less waits to be committed than before; they may change.
    """

    def __init__(
        self,
        dispatcher: "Dispatcher",
        writer: "Writer",
        life: "Life",
        begin: "Callable[[], None]",
        call_soon: "Callable[[Callable[[], None]], object] | None",
        watchers: "Sequence[Callable[[], None]]",
    ) -> None:
        self._dispatcher = dispatcher
        self._writer = writer
        self._life = life
        self._begin = begin
        self._call_soon = call_soon
        self._watchers = watchers
        self._committed = 0
        self._scheduled = False
        self._restoring: Iterator[object] | None = None
        """What is left of a restore under way."""
        self._waits = False
        """Whether that waits for space on the disk."""

    @property
    def applied(self) -> int:
        """How far in the log all is dispatched: state is applied, messages are readable."""
        return self._dispatcher.applied_end

    def on_committed(self, position: int) -> None:
        """Dispatch what was committed, and answer those who wait for it."""
        self._committed = max(position, self._committed)
        if self._life.is_over:
            return
        if self._scheduled:
            self._dispatcher.acknowledge(position)
        elif not self._dispatcher.may_wait():
            self._run()
        for on_progress in self._watchers:
            on_progress()

    def on_state_included(self, position: int) -> None:
        """Take that the state of a snapshot includes the records before ``position``."""
        self._dispatcher.state_end = max(position, self._dispatcher.state_end)

    def resume(self) -> None:
        """Go on with what was left: a disk was full, an entry damaged, or it was too little."""
        if self._waits and self._restoring is not None:
            self._waits = False
            self._restore(self._restoring)
        elif not self._scheduled and self._dispatcher.applied_end < self._committed:
            self._run()

    def restart(self, position: int, restoring: "Iterator[object]") -> None:
        """Go on at ``position``: a snapshot stands for all that was dispatched before.

        ``restoring``: the steps that restore its state, see `hold`.
        """
        self._dispatcher.restart(position)
        self._committed = position
        self.hold(restoring)
        if not self._is_held():
            self.resume()

    def hold(self, steps: "Iterator[object]") -> None:
        """Dispatch nothing before these steps are done, each in a turn; the first is done now.

        One that is True waits for space: the next one is done once something could be written.
        """
        self._restoring, self._waits = steps, False
        self._step(steps)

    def _step(self, steps: "Iterator[object]") -> None:
        for waits in steps:
            if waits is True:
                self._waits = True
            else:
                self._soon(partial(self._life.guard, partial(self._restore, steps)))
            return
        self._restoring = None

    def _restore(self, steps: "Iterator[object]") -> None:
        """Do the next step, unless another snapshot has come since."""
        if steps is self._restoring:
            self._step(steps)
            if not self._is_held():
                self.resume()

    def _is_held(self) -> bool:
        return self._restoring is not None

    def _run(self) -> None:
        if self._is_held():
            return
        self._begin()
        if self._is_held():
            return
        more = self._dispatcher.run(self._committed)
        self._writer.maybe_open(self._dispatcher.applied_end)
        if more:
            self._scheduled = True
            self._soon(self._continue)

    def _continue(self) -> None:
        self._scheduled = False
        self._life.guard(self._run)

    def _soon(self, work: "Callable[[], None]") -> None:
        (self._call_soon or asyncio.get_running_loop().call_soon)(work)
