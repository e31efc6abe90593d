"""What a consumer tells whoever records it: assignments, commits and offsets told."""

from collections.abc import Sequence
from typing import Protocol

from ledgermq.client.message import MessageQueue


class ConsumerObserver(Protocol):
    """Called in the loop thread; must return quickly and not raise."""

    def on_assignment(self, topic: str, queues: Sequence[MessageQueue]) -> None:
        """Say which queues of ``topic`` this consumer holds now, sorted."""

    def on_commit(
        self,
        queue: MessageQueue,
        offset: int,
        ok: bool,  # noqa: FBT001 - a protocol that others already implement by position
        t_start_ns: int,
        t_end_ns: int,
    ) -> None:
        """Say that a commit of ``offset`` was answered (``ok``) or failed or is unknown."""

    def on_fetch(self, queue: MessageQueue, offset: int, t_start_ns: int, t_end_ns: int) -> None:
        """Say which offset the group was told to have come to; -1 if it has none."""
