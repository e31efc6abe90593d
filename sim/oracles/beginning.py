"""A member that takes a queue learns where its group is: none begins anew that has committed.

What a consumer makes of an answer is judged, not the answer: a broker that cannot say, or a
connection that ends, is no broker that says that there is nothing. Known from the committed log.
Source: docs/client.md; RocketMQ RemoteBrokerOffsetStore.readOffset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.oracles.base import Findings, Violation

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgermq.client import MessageQueue, PushConsumer
    from ledgermq.client.stored_offset import StoredOffset
    from ledgermq.remoting.protocol.headers import Claim
    from sim.oracles.model import Statement
    from sim.oracles.truth import Truth

NAME: Final = "A24 a group begins anew"
KNOWN_NS: Final = 5_000_000_000
"""So long after it was committed each replica that is asked has it, or does not answer."""

Place = tuple[str, str, int]


class Beginning:
    """Listens to the consumers of a run.

    Args:
        is_known: whether a queue lies at the group of brokers whose log is read.
    """

    def __init__(
        self, truth: Truth, findings: Findings, is_known: Callable[[MessageQueue], bool]
    ) -> None:
        self._truth = truth
        self._findings = findings
        self._is_known = is_known
        self._since_ns: dict[Place, int] = {}
        """By group, topic and queue: when its first offset was committed."""
        truth.on_statement.append(self._on_statement)

    def follow(self, push: PushConsumer) -> None:
        """Judge where a consumer begins; before it starts."""
        assignment, group = push.assignment, push.config.group
        ask = assignment._stored_offset

        async def asked(queue: MessageQueue, claim: Claim) -> StoredOffset:
            began_ns = self._truth.now_ns()
            stored = await ask(queue, claim)
            self._check(group, queue, stored.offset, began_ns)
            return stored

        assignment._stored_offset = asked  # type: ignore[method-assign]  # to listen to it

    def _check(self, group: str, queue: MessageQueue, offset: int, began_ns: int) -> None:
        since_ns = self._since_ns.get((group, queue.topic, queue.queue_id))
        if offset >= 0 or since_ns is None or not self._is_known(queue):
            return
        if began_ns - since_ns >= KNOWN_NS:
            text = f"{group} takes {queue.topic}/{queue.queue_id} as if it had committed nothing"
            self._findings.report(Violation(NAME, text))

    def _on_statement(self, statement: Statement) -> None:
        if statement.kind != "offset" or not isinstance(statement.content, dict):
            return
        for key, queues in statement.content.items():
            topic, _, group = key.partition("@")
            for queue_id in queues:
                place = (group, topic, int(queue_id))
                self._since_ns.setdefault(place, statement.committed_ns)
