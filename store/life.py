"""Whether a store runs, and how it ends: by a stop, or because it cannot go on."""

import asyncio
import logging
from typing import TYPE_CHECKING

from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger(__name__)


class Life:
    """The life of one store; it owns the timer of its ticks.

    Args:
        on_fatal: called in the loop thread when the environment failed; nothing is done any more
            then.
    """

    def __init__(self, on_fatal: "Callable[[FatalError], None]") -> None:
        self._on_fatal = on_fatal
        self._timer: asyncio.TimerHandle | None = None
        self.is_over = False

    def tick_every(self, period_ms: int, tick: "Callable[[], None]") -> None:
        """Call ``tick`` now and once a period, as long as the store runs."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(period_ms / 1000, self.tick_every, period_ms, tick)
        self.guard(tick)

    def guard(self, work: "Callable[[], None]") -> None:
        """Run ``work`` from the loop, which would only log what goes wrong."""
        if self.is_over:
            return
        try:
            work()
        except FatalError as error:
            self.fail(error)
        except Exception:  # noqa: BLE001 - a bug must end the process, not vanish in the loop
            _log.exception("event=bug in=store")
            self.fail(FatalError("a bug in the store or its listener", EXIT_ENVIRONMENT))

    def fail(self, error: FatalError) -> None:
        """End the store: it cannot go on."""
        self.end()
        self._on_fatal(error)

    def end(self) -> None:
        """Do nothing more of its own accord."""
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()
