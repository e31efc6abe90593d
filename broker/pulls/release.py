"""Sends clients whose pulls are held to the new leader, a slice in each turn of the loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from broker.leader.service import LeaderService
from ledgermq.runtime.tasks import attempt

if TYPE_CHECKING:
    from collections.abc import Callable


class HeldPulls(LeaderService):
    """Pulls are held by the leader alone.

    Args:
        release: answers some of them; returns whether any are left.
    """

    name: ClassVar = "held pulls"

    def __init__(self, release: Callable[[], bool], held: Callable[[], int]) -> None:
        self._release = release
        self._held = held
        self._leads = False

    def start(self, term: int) -> None:
        """Let those that still wait do so: this replica answers them again."""
        del term
        self._leads = True

    def stop(self) -> None:
        """Answer those that wait, so that nobody does in vain."""
        self._leads = False
        self._go_on()

    def _go_on(self) -> None:
        """Answer the next slice."""
        if not self._leads and attempt(self.name, self._release) and self._held():
            asyncio.get_running_loop().call_soon(self._go_on)

    async def drain(self) -> None:
        """Answer all of them: the broker stops."""
        while self._release():  # noqa: ASYNC110  # no event: it is the work
            await asyncio.sleep(0)
