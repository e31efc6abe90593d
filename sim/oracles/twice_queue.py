"""What a consumer has of one queue between pull and commit: each message once, by identity.

Source: docs/client.md; RocketMQ ProcessQueue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ledgermq.client.config import ConsumeOptions
    from ledgermq.client.process_queue import ProcessQueue
    from ledgermq.remoting.protocol.message import MessageExt


class QueueModel:
    """One queue that a member has."""

    METHODS = (
        "put", "finish", "reset", "move", "begin", "maybe_commit_offset", "maybe_flow_control",
    )  # fmt: skip

    def __init__(self, one: ProcessQueue) -> None:
        self._one = one
        self._open: dict[int, tuple[MessageExt, int]] = {}
        """By offset, what is not finished, and how long its body was."""
        self._last = 0
        """The last one that came, finished or not."""
        self._next = one.next_offset
        self._era = one.era
        self._is_known = False
        """Whether where it is may be committed; whoever begins it anew may say so, too."""

    def put(self, messages: Iterable[MessageExt], next_offset: int) -> None:
        """What was pulled is there, and the next pull goes on behind it."""
        for message in messages:
            self._open[message.queue_offset] = message, len(message.body)
            self._last = message.queue_offset
        self._next = next_offset
        self._is_known = True

    def finish(self, messages: Iterable[MessageExt]) -> None:
        """Only the very message that is there is done with."""
        for message in messages:
            if self._open.get(message.queue_offset, (None, 0))[0] is message:
                del self._open[message.queue_offset]

    def reset(self, next_offset: int) -> None:
        """Nothing of it is there any more."""
        self._open.clear()
        self._next = next_offset
        self._era += 1

    def move(self, offset: int) -> None:
        """Likewise, and that it begins there is to be committed."""
        self.reset(offset)
        self._is_known = True

    def begin(self) -> None:
        """Where it begins is to be committed."""
        self._is_known = True

    def maybe_commit_offset(self) -> int | None:
        """The smallest that is not finished; where the next pull begins, if there is none."""
        if not self._one.pulled or self._one.lost:
            return None
        return min(self._open, default=self._next)

    def maybe_flow_control(self, options: ConsumeOptions) -> str | None:
        """As many, as much, or as far apart as the options allow may be there."""
        size = sum(size for _, size in self._open.values())
        span = self._last - min(self._open) if self._open else 0
        if len(self._open) > options.max_cached_messages:
            return f"{len(self._open)} messages cached"
        if size > options.max_cached_bytes:
            return f"{size} bytes cached"
        return f"offset span {span}" if span > options.max_offset_span else None

    def differs(self, one: ProcessQueue) -> str | None:
        """Say how."""
        now = (one.next_offset, one.era, one.cached_count, one.cached_bytes, one.position)
        want = (
            self._next, self._era, len(self._open), sum(size for _, size in self._open.values()),
            min(self._open, default=self._next),
        )  # fmt: skip
        if now != want:
            return f"next, era, messages, bytes and position are {now}, and not {want}"
        if self._is_known and not one.pulled:
            return "it does not know that where it is may be committed"
        ends = (min(self._open), self._last) if self._open else (0, 0)
        return None if one.cached_span == ends else f"it has {one.cached_span}, and not {ends}"
