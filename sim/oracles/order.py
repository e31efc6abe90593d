"""Order: the messages of a key lie in one queue, and one listener at a time takes it, in order.

Where a message must lie follows from its key, which its record has; who may have a queue, from the
records of locks in the log; what was finished before, from the listeners of the run.
Source: spec/proof.md 3.3 (A17 A20 A21); RocketMQ SelectMessageQueueByHash,
ConsumeMessageOrderlyService, RebalanceLockManager.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final

from sim.oracles.base import Findings, Violation, guarded
from sim.oracles.records import tags_code

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from chaos.history.segment import EntryRow
    from sim.oracles.model import Statement
    from sim.oracles.records import Parts
    from sim.oracles.truth import Truth

MOVED: Final = "A20 a key in two queues"
TWO: Final = "A17 a queue consumed by two"
SKIPPED: Final = "A17 handed out before what lies before it"
PAST: Final = "A17 committed past what is not finished"
GIVEN: Final = "A21 a lock given twice"
LEFT: Final = "A21 a lock given back before its offset"
WORKED: Final = "A21 a lock given back while its queue is worked on"
FALSE: Final = "A28 dead letter without a cause"
LEASE_NS: Final = 25_000_000_000
"""A lease is a minute by a clock that may run at double speed; less the time of a commit."""
LEASE_MS: Final = 60_000

Queue = tuple[str, int]


def changes_lock(
    one: Statement, client: str, key: tuple[str, str, int], kind: str = "lock"
) -> bool:
    """Tell whether a record locks a queue for a client, or unlocks it; ``client``: empty for any.

    ``key``: of the group, the topic and the queue.
    """
    content: Any = one.content
    if one.kind != kind or content["group"] != key[0] or client not in {"", content["clientId"]}:
        return False
    return any((queue["topic"], queue["queueId"]) == key[1:] for queue in content["queues"])


class Locks:
    """Judges all locks of a group of brokers, by the log alone."""

    def __init__(self, truth: Truth, lease_ms: int = LEASE_MS) -> None:
        self._lease_ns = LEASE_NS * lease_ms // LEASE_MS
        self._held: dict[tuple[str, str, int], tuple[str, int]] = {}
        truth.on_statement.append(self._on_statement)

    def _on_statement(self, statement: Statement) -> None:
        """Take a record of a lock. Errors: `Violation`."""
        content: Any = statement.content
        if statement.kind not in {"lock", "unlock"} or not isinstance(content, dict):
            return
        owner, now_ns = content["clientId"], statement.committed_ns
        for one in content["queues"]:
            key = (content["group"], one["topic"], one["queueId"])
            other, since_ns = self._held.get(key, (owner, now_ns))
            if statement.kind == "unlock":
                if other == owner:
                    self._held.pop(key, None)
                continue
            if other != owner and now_ns - since_ns < self._lease_ns:
                text = f"entry {statement.entry} gives {key} to {owner}, {other} has had it for "
                raise Violation(GIVEN, f"{text}{(now_ns - since_ns) / 1e9:.3f} s")
            self._held[key] = (owner, now_ns)


class Order:
    """Judges one group that takes one topic in order.

    Args:
        names: of the group and the topic.
        queues: how many the topic has.
        times_max: tries after the first one; below 0, none is given up.
        dropped: below which offset some broker has ever dropped the messages of a queue.
    """

    def __init__(
        self, truth: Truth, findings: Findings, names: tuple[str, str], queues: int,
        times_max: int, dropped: Mapping[Queue, int],
    ) -> None:  # fmt: skip
        self._truth = truth
        self.findings = findings
        self._group, self._topic = names
        self._dead_topic = f"%DLQ%{names[0]}"
        self._queues = queues
        self._times_max = times_max
        self._dropped = dropped
        self._active: dict[Queue, tuple[str, Callable[[], bool]]] = {}
        self._done: dict[Queue, set[int]] = defaultdict(set)
        self._first: dict[Queue, int] = defaultdict(int)
        """By queue, before which offset all is done."""
        self._failures: Counter[int] = Counter()
        self._dead: set[int] = set()
        truth.on_message.append(self._on_message)
        truth.on_statement.append(self._on_statement)

    @guarded
    def on_begun(
        self, member: str, queue: Queue, offsets: Sequence[int], lives: Callable[[], bool]
    ) -> None:
        """A listener is handed messages; ``lives``: whether its process does."""
        other, other_lives = self._active.get(queue, (member, lives))
        if other_lives() and other != member:
            self._report(TWO, f"{queue}@{offsets} is handed to {member}, {other} is at work")
        self._active[queue] = (member, lives)
        left = [at for at in range(self._begin(queue), max(offsets)) if at not in offsets]
        left = [at for at in left if not self._is_done(queue, at)]
        if left or list(offsets) != sorted(offsets):
            self._report(SKIPPED, f"{member} is handed {queue}@{offsets} before {left[:5]}")

    @guarded
    def on_ended(self, member: str, queue: Queue, offsets: Sequence[int], *, is_done: bool) -> None:
        """It has ended."""
        if self._active.get(queue, ("",))[0] == member:
            del self._active[queue]
        if is_done:
            self._done[queue].update(offsets)
            return
        for offset in offsets:
            row = self._truth.row(*queue, offset)
            if row is not None and row.msg_key is not None:
                self._failures[row.msg_key] += 1

    @guarded
    def on_unlocked(self, member: str, queue: Queue) -> None:
        """A member gives the lock of a queue back: none of its listeners is at work there."""
        worker, lives = self._active.get(queue, ("", bool))
        if worker == member and lives():
            self._report(WORKED, f"{member} unlocks {queue}, and its listener has not ended")

    @guarded
    def on_left(self, member: str, queue: Queue, done: int, asked: int | None) -> None:
        """A member gives a lock back; whoever has it next begins at the offset that it asked for.

        ``done``: behind what its listener has finished last.
        """
        if asked is None or asked < done:
            text = f"{member} unlocks {queue}, has finished all before {done}, and has committed"
            self._report(LEFT, f"{text} {asked}")

    def on_cancelled(self, member: str, queue: Queue) -> None:
        """A listener was ended from outside: nothing is at work there."""
        if self._active.get(queue, ("",))[0] == member:
            del self._active[queue]

    def open(self) -> list[tuple[Queue, int]]:
        """Return the messages that nobody has finished."""
        return [
            (queue, at)
            for queue, rows in self._truth.queues.items()
            if queue[0] == self._topic
            for at in range(self._begin(queue), len(rows))
            if not self._is_done(queue, at)
        ]

    def _begin(self, queue: Queue) -> int:
        """Return an offset before which there is nothing left to do."""
        first = max(self._first[queue], self._dropped.get(queue, 0))
        done = self._done[queue]
        while first in done:
            first += 1
        self._first[queue] = first
        return first

    def _is_done(self, queue: Queue, offset: int) -> bool:
        row = self._truth.row(*queue, offset)
        is_given_up = row is not None and row.msg_key in self._dead
        return offset in self._done[queue] or is_given_up

    def _on_message(self, row: EntryRow, parts: Parts) -> None:
        """Take a committed message. Errors: `Violation`."""
        if row.msg_key is None:
            return
        if row.topic == self._topic:
            key = parts.told("__SHARDINGKEY")
            expected = abs(tags_code(key)) % self._queues
            if row.queue_id != expected:
                text = f"entry {row.entry_index} of key {key!r} lies in queue {row.queue_id}"
                raise Violation(MOVED, f"{text}, the key's is {expected} of {self._queues}")
        elif row.topic == self._dead_topic:
            failed = self._failures[row.msg_key]
            if not 0 <= self._times_max < failed:
                text = f"message {row.msg_key} was given up after {failed} failures"
                raise Violation(FALSE, f"{text}, of {self._times_max} and one")
            self._dead.add(row.msg_key)

    def _on_statement(self, statement: Statement) -> None:
        """Take what the group commits. Errors: `Violation`."""
        if statement.kind != "offset" or not isinstance(statement.content, dict):
            return
        told = statement.content.get(f"{self._topic}@{self._group}", {})
        for queue_id, offset in told.items():
            queue = (self._topic, int(queue_id))
            for at in range(self._begin(queue), offset):
                if not self._is_done(queue, at):
                    raise Violation(PAST, f"{self._group} commits {offset} in {queue}, not {at}")

    def _report(self, oracle: str, text: str) -> None:
        self.findings.report(Violation(oracle, text))
