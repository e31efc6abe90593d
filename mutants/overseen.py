"""Planted bugs of what somebody promised once, and no oracle compared with what came of it.

Sources: Ongaro's dissertation; RocketMQ; docs/raft.md, docs/client.md; spec/disk.md, spec/wire.md.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

OVERSEEN: Final = (
    Mutant(
        name="round-tells-the-commit-index",
        breaks="A heartbeat for a read tells followers a commit index beyond what they match.",
        source="Paper 5.3; etcd raft, bcastHeartbeatWithCtx: min(match, committed).",
        plant=patch(
            "dledger.core.read_index:advance",
            (
                "min(log.commit_index, progress.match_index), state.heartbeat_round",
                "log.commit_index, state.heartbeat_round",
            ),
        ),
    ),
    Mutant(
        name="window-never-given-up",
        breaks="A full window of which nothing arrived is waited for, and nothing is sent again.",
        source="etcd raft, tracker/inflights.go; dledger.core.progress: repeated after some ticks.",
        plant=patch(
            "dledger.core.progress:Progress.is_stalled",
            ("self.sent_tick is not None", "self.probing and self.sent_tick is not None"),
        ),
        needs="drop one_way isolate halves corrupt flap",
    ),
    Mutant(
        name="checkpoint-before-its-queues",
        breaks="The checkpoint of the queues gets its name before their files are synced.",
        source="spec/disk.md 5.5; RocketMQ FlushConsumeQueueService: flush, then the checkpoint.",
        plant=patch(
            "store.recovery.checkpointer:Checkpointer._sync",
            (
                "    if not self._queues.files.sync(work.unsynced):\n        return False\n",
                "",
            ),
            (
                "    return self._replace(files)",
                "    done = self._replace(files)\n"
                "    self._queues.files.sync(work.unsynced)\n"
                "    return done",
            ),
        ),
    ),
    Mutant(
        name="span-of-keys-ignored",
        breaks="Who asks for messages of a key since some time gets those from before it, too.",
        source="RocketMQ IndexFile.selectPhyOffset: timeRead >= begin && timeRead <= end.",
        plant=patch(
            "store.read.key_query:KeyQuery.find", ("Span(begin, end), steps", "Span(0, end), steps")
        ),
    ),
    Mutant(
        name="illegal-offset-believed",
        breaks="A consumer jumps as soon as a leader that still catches up calls its offset none.",
        source="docs/client.md: twice, half a second apart; RocketMQ waits for ten seconds.",
        plant=patch(
            "ledgermq.client.puller:Puller._on_illegal_offset",
            ("if not self._illegal_offset_seen:", "if False:"),
        ),
    ),
    Mutant(
        name="local-offsets-at-the-end",
        breaks="What a broadcasting member has come to is written when it stops, or much later.",
        source="RocketMQ MQClientInstance.persistAllConsumerOffset: each 5 s, to a file.",
        plant=patch(
            "ledgermq.client.assignment:Assignment.commit_due",
            (
                "    await asyncio.gather(*[self._commit(held) for held in due])\n"
                "    await self._flush()",
                "    await asyncio.gather(*[self._commit(held) for held in due])",
            ),
        ),
    ),
    Mutant(
        name="adopted-queues-unsynced",
        breaks="Files of queues that a killed process has left count as synced.",
        source="spec/disk.md 5.5; ALICE (OSDI 2014): a new file's name needs a sync of its own.",
        plant=patch(
            "store.queues.consume_queue:ConsumeQueue.adopt",
            ("    self._files.mark_unsynced(self.paths(), has_new=True)\n", ""),
        ),
    ),
    Mutant(
        name="checkpoint-outlives-its-queues",
        breaks="A queue is made anew, and the checkpoint that names its damaged file stays.",
        source="store.recovery.start; a crash meanwhile, and the next start believes it.",
        plant=patch(
            "store.recovery.loading:Loading.load",
            ("self.recovered.rebuild and self.recovered.marks", "False"),
        ),
    ),
    Mutant(
        name="committed-after-the-release",
        breaks="A commit that waited is sent though its queue has gone to another member.",
        source="docs/client.md: queues are committed before they are given away, not behind that.",
        plant=patch(
            "ledgermq.client.assignment:Assignment._commit_now",
            ("if self._held.get(queue) is not held:", "if False:"),
        ),
    ),
    Mutant(
        name="pull-not-held",
        breaks="A pull that may wait for seconds is answered after as many milliseconds.",
        source="RocketMQ PullRequestHoldService: suspendTimeoutMillis; seconds for milliseconds.",
        plant=patch(
            "broker.processor.pull:PullProcessor.handle",
            ("min(suspend_ms, SUSPEND_MS_MAX) if", "min(suspend_ms, SUSPEND_MS_MAX) // 1000 if"),
        ),
    ),
    Mutant(
        name="more-than-asked",
        breaks="A read hands out as many messages as a broker may, whatever was asked for.",
        source="RocketMQ PullMessageProcessor: maxMsgNums.",
        plant=patch(
            "broker.processor.pull:PullProcessor.handle",
            ("min(max(header.max_msg_nums, 1), self._max_count)", "self._max_count"),
        ),
    ),
    Mutant(
        name="timeout-of-each-attempt",
        breaks="Each attempt of a send is given the time that is for all of them together.",
        source="RocketMQ DefaultMQProducerImpl.sendDefaultImpl: timeout - costTime.",
        plant=patch(
            "ledgermq.client.producer:Producer.attempt",
            ("(t_limit_ns - t_start_ns) // NS_PER_MS", "self.config.send_timeout_ms"),
        ),
    ),
)
