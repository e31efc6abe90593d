"""Planted bugs of what is done too early, or not at all, where nothing is lost by it at once.

Sources: Ongaro's dissertation; docs/raft.md; spec/disk.md; `Uncommitted`.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

NEGLECTED: Final = (
    Mutant(
        name="segments-kept-too-long",
        breaks="A segment is kept an hour longer than messages are to be.",
        source="RocketMQ MappedFileQueue.deleteExpiredFileByTime: as old as the setting says.",
        plant=patch(
            "broker.retention_policy:expired_before",
            ("closed_ms <= oldest_kept_ms)", "closed_ms <= oldest_kept_ms - HOUR_MS)"),
        ),
    ),
    Mutant(
        name="given-up-too-early",
        breaks="Who sends is told after an eighth of the time that no majority has answered.",
        source="RocketMQ GroupCommitRequest: syncFlushTimeout, in its own unit.",
        plant=patch(
            "store.write.uncommitted:Uncommitted.expire",
            ("marks[0][0] <= now_ms - max_wait_ms:", "marks[0][0] <= now_ms - max_wait_ms // 8:"),
        ),
    ),
    Mutant(
        name="promoted-far-behind",
        breaks="A learner becomes a voter as soon as it answers, whatever it has of the log.",
        source="Dissertation 4.2.1: a new server catches up before it counts.",
        plant=patch(
            "dledger.core.membership:is_caught_up",
            (
                "return heard and not progress.probing and"
                " progress.match_index >= state.beat_commit_index",
                "return heard",
            ),
        ),
        needs="add replace",
    ),
    Mutant(
        name="aborted-configuration-kept",
        breaks="The members of an entry that found no space go on to count.",
        source="docs/raft.md: nothing of an aborted write was sent or has any effect.",
        plant=patch(
            "dledger.core.raft:Raft.abort",
            ("membership.roll_back(state, ready.entries[0].first_index)", "pass"),
        ),
        needs="add replace",
    ),
    Mutant(
        name="lateness-of-what-was-refused",
        breaks="What is put where a full disk refused something is late as soon as that would be.",
        source="Of this project, `Uncommitted.forget_from`.",
        plant=patch(
            "store.write.uncommitted:Uncommitted.forget_from",
            (
                "    self._marks = deque((at, min(end, position)) for at, end in self._marks)\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="one-retry-less",
        breaks="A send is tried again once less than its producer is set to.",
        source="RocketMQ DefaultMQProducerImpl: 1 + retryTimesWhenSendFailed attempts.",
        plant=patch(
            "ledgermq.client.delivery:Delivery.after",
            (
                "self._retries > self._sender.config.retry_times",
                "self._retries >= self._sender.config.retry_times",
            ),
        ),
    ),
    Mutant(
        name="immunity-in-milliseconds",
        breaks="The seconds for which nobody is to be asked for a half count as milliseconds.",
        source="RocketMQ TransactionalMessageServiceImpl.getImmunityTime: seconds.",
        plant=patch(
            "broker.transactions.service:Transactions._is_due",
            ("min(half.immunity_s * 1_000,", "min(half.immunity_s,"),
        ),
    ),
    Mutant(
        name="paused-is-dropped",
        breaks="What waits of a queue that is paused is dropped when somebody polls.",
        source="RocketMQ DefaultLitePullConsumerImpl: a paused queue keeps what was pulled.",
        plant=patch(
            "ledgermq.client.polled:Polled.take",
            ("self._waiting.extendleft(reversed(put_back))", "pass"),
        ),
    ),
    Mutant(
        name="paused-is-given-out",
        breaks="A poll gives out what was pulled of a queue before it was paused.",
        source="RocketMQ DefaultLitePullConsumerImpl.poll after pause.",
        plant=patch("ledgermq.client.polled:Polled.take", ("if one.queue in paused:", "if False:")),
    ),
    Mutant(
        name="clean-end-stays-noted",
        breaks="A store that has ended in good order is taken for one after each crash to come.",
        source="RocketMQ `abort`, which is there while a store is open.",
        plant=patch("store.recovery.start:load_queues", ("if last is not None:", "if False:")),
    ),
    Mutant(
        name="filtered-pull-sleeps",
        breaks="A pull whose filter refuses what was looked at waits, although more is there.",
        source="RocketMQ PullMessageProcessor: PULL_RETRY_IMMEDIATELY, with the next offset.",
        plant=patch(
            "broker.processor.pull:PullProcessor._rerun",
            (
                "seen_all = result.next_offset >= result.max_offset",
                "seen_all = result.next_offset <= result.max_offset",
            ),
        ),
    ),
    Mutant(
        name="unlocked-while-at-work",
        breaks="A queue that went to another member is unlocked while its listener still works.",
        source="RocketMQ ConsumeMessageOrderlyService: unlockDelay, and the lock on consumption.",
        plant=patch(
            "ledgermq.client.orderly:OrderlyService.settle",
            ("timeout=timeout_ms / 1000)", "timeout=0)"),
            ("return not running", "return True"),
        ),
    ),
)
