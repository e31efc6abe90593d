"""Planted bugs above the log: store, broker and client.

Sources: RocketMQ's contracts (DefaultMessageStore, ConsumerOffsetManager, ProcessQueue) and the
issues that are named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mutants.planting import Mutant, patch, replace
from store.results import PutStatus
from store.write.commit_log import CommitLog

if TYPE_CHECKING:
    from store.results import BatchCallback, PutBatch, PutCallback, PutMessage


def ack_before_quorum() -> None:
    """Acknowledge a message as soon as the leader has appended it."""
    put, put_batch = CommitLog.put, CommitLog.put_batch

    def acknowledge(log: CommitLog, before: int) -> None:
        for own in list(log.uncommitted)[before:]:
            own.answer(PutStatus.OK)

    def eager_put(self: CommitLog, message: PutMessage, done: PutCallback) -> None:
        before = len(self.uncommitted)
        put(self, message, done)
        acknowledge(self, before)

    def eager_put_batch(self: CommitLog, batch: PutBatch, done: BatchCallback) -> None:
        before = len(self.uncommitted)
        put_batch(self, batch, done)
        acknowledge(self, before)

    replace(CommitLog, "put", eager_put)
    replace(CommitLog, "put_batch", eager_put_batch)


PRODUCT_BUGS: Final = (
    Mutant(
        name="ack-before-quorum",
        breaks="A message is acknowledged as soon as the leader has appended it.",
        source="Raft 5.3; RocketMQ issue 7689 (loss at a change of master).",
        plant=ack_before_quorum,
    ),
    Mutant(
        name="stale-leader-acknowledgement",
        breaks="A leader that is deposed answers its pending sends with success.",
        source="Raft 5.3, 8: whoever was deposed does not know what became of them.",
        plant=patch(
            "store.write.uncommitted:Uncommitted.abandon",
            ("own.answer(PutStatus.UNKNOWN)", "own.answer(PutStatus.OK)"),
        ),
    ),
    Mutant(
        name="dispatch-before-commit",
        breaks="A follower makes messages readable when they are written, not when committed.",
        source="Raft 5.3; RocketMQ issue 4771 (offsets beyond a log that was truncated).",
        plant=patch(
            "store.dispatch.turns:DispatchTurns.on_committed",
            (
                "max(position, self._committed)",
                "max(position, self._committed,"
                " 0 if self._writer.writable else self._dispatcher._log.end_position)",
            ),
        ),
    ),
    Mutant(
        name="writable-before-its-noop",
        breaks="A new leader takes sends before it has applied what earlier terms committed.",
        source="Raft 8; RocketMQ issue 3747 (a master serves before dispatch has caught up).",
        plant=patch(
            "store.write.writer:Writer.maybe_open",
            ("maybe_term(applied)", "maybe_term(self._log.end_position)"),
        ),
    ),
    Mutant(
        name="provisional-offsets-kept",
        breaks="Queue offsets that were given to uncommitted messages stay given after a term.",
        source="RocketMQ topicQueueTable, rebuilt at a change of role (RocketMQ issue 2178).",
        needs="isolate leader_minority halves one_way flap bridge",
        plant=patch(
            "store.write.commit_log:CommitLog.become_writable",
            (
                "queue.next_offset = queue.max_offset",
                "queue.next_offset = max(queue.next_offset, queue.max_offset)",
            ),
        ),
    ),
    Mutant(
        name="queue-index-rebuilt-short",
        breaks="After a restart the dispatch begins one entry too far.",
        source="RocketMQ recoverTopicQueueTable; an off-by-one of the reput offset.",
        needs="crash crash_loop crash_at restart_all power_loss",
        plant=patch(
            "store.recovery.loading:Loading.agree",
            (
                "max(min(first, dispatcher.state_end), log.first_position)",
                "max(min(first, dispatcher.state_end), log.first_position) + 1",
            ),
        ),
    ),
    Mutant(
        name="hint-without-tags",
        breaks="Followers dispatch the messages of a batch as if they had no tags.",
        source="RocketMQ's consume queue unit, whose third field filters reads.",
        plant=patch(
            "store.dispatch.dispatcher:Dispatcher._dispatch_alike",
            ("code = run.code", "code = 0"),
        ),
    ),
    Mutant(
        name="hint-with-others-keys",
        breaks="Followers index the keys of a batch at the places of its other messages.",
        source="RocketMQ IndexService.buildIndex (a key leads to its message).",
        plant=patch(
            "store.write.hints:rows_of",
            ("zip(run.hashes,", "zip(reversed(run.hashes),"),
        ),
    ),
    Mutant(
        name="replay-duplicates",
        breaks="Dispatching an entry again adds it to its queue again.",
        source="RocketMQ ConsumeQueue.putMessagePositionInfo (it skips what it has).",
        needs="crash crash_loop crash_at restart_all power_loss",
        plant=patch(
            "store.dispatch.dispatcher:Dispatcher._dispatch_records",
            (
                "is_known = offset < queue.max_offset\n",
                "is_known, offset = False, max(offset, queue.max_offset)\n",
            ),
        ),
    ),
    Mutant(
        name="offsets-not-replicated",
        breaks="A replica applies only the group offsets that it accepted itself.",
        source="RocketMQ issue 7790 (mass re-consumption after a switch).",
        plant=patch(
            "broker.state.consumer_offset:ConsumerOffsetTable.apply",
            (
                "applied = self._own(key)",
                "applied = self._own(key) if key in self._pending else {}",
            ),
        ),
    ),
    Mutant(
        name="offset-before-processing",
        breaks="A consumer commits what it has pulled, not what its listener has finished.",
        source="RocketMQ ProcessQueue.removeMessage: the smallest offset unfinished.",
        needs="client_crash client_leave",
        plant=patch(
            "ledgermq.client.process_queue:ProcessQueue.maybe_commit_offset",
            (
                "return self._order[0] if self._order else self.next_offset",
                "return self.next_offset",
            ),
        ),
    ),
)
