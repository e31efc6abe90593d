"""Members of groups of one life: made, polled where nobody listens, and stopped within their time.

A stop takes at most what its client says: `stop_timeout_ms` twice, `request_timeout_ms` for the
commits and for the locks, and a second for the farewell. Source: docs/client.md;
`ledgermq.client.push.PushConsumer.stop`.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any, Final

from ledgermq.client import (
    ConsumeContext,
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    LitePullConsumer,
    LitePullOptions,
    MessageExt,
    NotRunning,
    PushConsumer,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sim.everyday.life import Life

HANGS: Final = "A27 a member that does not stop"
STOPS_MS: Final = 40_000
"""Longer than any stop may take."""
LOOK_S: Final = 0.5
KINDS: Final = ("push", "orderly", "lite", "manual")
COMMIT_MS: Final = 300


class Member:
    """One member, which hands all that comes to ``take``.

    Args:
        kind: one of `KINDS`; ``lite`` is polled, and so is ``manual``, which never commits.
        names: of the group, and of the instance.
        begins: where its group does.
    """

    def __init__(
        self, life: Life, kind: str, names: tuple[str, str],
        take: Callable[[Sequence[MessageExt]], None],
        begins: ConsumeFrom = ConsumeFrom.LAST_OFFSET,
    ) -> None:  # fmt: skip
        group, instance = names
        self._life = life
        self._take = take
        self._poller: asyncio.Task[None] | None = None
        config = dataclasses.replace(life.named(instance), group=f"{life.name}-{group}")
        more: Any = {"clock": life.machine.clock, "rng": life.rng.split(instance)}
        self.consumer: PushConsumer | LitePullConsumer
        if kind in {"lite", "manual"}:
            lite = LitePullOptions(
                auto_commit=kind == "lite",
                auto_commit_interval_ms=COMMIT_MS,
                consume_from=begins,
            )
            self.consumer = LitePullConsumer(config, lite, **more)
        else:
            options = ConsumeOptions(consume_from=begins, orderly=kind == "orderly")
            self.consumer = PushConsumer(config, self._listen, options, **more)

    @property
    def group(self) -> str:
        """The name of its group."""
        return self.consumer.config.group

    async def start(self, topic: str, expression: str = "*") -> None:
        """Subscribe, and begin."""
        self.consumer.subscribe(topic, expression)
        await self.consumer.start()
        if isinstance(self.consumer, LitePullConsumer):
            work = self._poll(self.consumer)
            self._poller = asyncio.get_running_loop().create_task(work)

    async def stop(self) -> None:
        """End in good order."""
        if self._poller is not None:
            self._poller.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._poller
        await stop_in_time(self._life, self.consumer)

    async def _poll(self, consumer: LitePullConsumer) -> None:
        with contextlib.suppress(NotRunning):
            while True:
                self._take(await consumer.poll(LOOK_S))

    async def _listen(self, messages: list[MessageExt], _context: ConsumeContext) -> ConsumeStatus:
        self._take(messages)
        return ConsumeStatus.CONSUME_SUCCESS


async def stop_in_time(life: Life, consumer: PushConsumer | LitePullConsumer) -> None:
    """Stop a member, and judge how long that takes."""
    work = asyncio.ensure_future(consumer.stop())
    _, late = await asyncio.wait({work}, timeout=STOPS_MS / 1_000)
    if late:
        name = consumer.config.instance_name
        life.report(HANGS, f"{name} has not stopped {STOPS_MS} ms after it was told to")
    await work
    life.count("members_stopped")
