"""Planted bugs at edges: of terms and segments, after clean stops, between broker and name server.

Also what retention drops and when, and offsets that a consumer believes to be kept.

Sources: Raft paper 5.3 and 7; RocketMQ's DefaultMessageStore, BrokerOuterAPI, RouteInfoManager and
RemoteBrokerOffsetStore; spec/disk.md 5.7, 5.8.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch, patches

_SNAPSHOTS: Final = "wipe crash isolate"

EDGES: Final = (
    Mutant(
        name="conflict-within-a-span",
        breaks="A follower compares the first entry of a span, and takes the others for equal.",
        source="Raft paper 5.3: any entry that conflicts with a new one, and all that follow it.",
        plant=patch(
            "dledger.core.log:RaftLog.find_conflict",
            (
                "index = last + 1 if run + 1 == len(self._run_indexes)"
                " else self._run_indexes[run + 1]",
                "index = last + 1",
            ),
        ),
    ),
    Mutant(
        name="snapshot-over-any-entry",
        breaks="Who holds some entry where a snapshot ends takes it for the leader's.",
        source="Raft paper 7, Figure 13 step 6: an entry with the same index and term.",
        plant=patch(
            "dledger.core.install:on_install_snapshot",
            (
                "log.term_at(wanted.last_index) == wanted.last_term",
                "wanted.last_index <= log.last_index",
            ),
        ),
        needs=_SNAPSHOTS,
    ),
    Mutant(
        name="trim-takes-the-next-term",
        breaks="A trimmed log believes that what it dropped ended in the term of what it kept.",
        source="Raft paper 7: last included term; the first entry of a term is the first one held.",
        plant=patch("dledger.storage.trim:plan_trim", ("entry(index - 1)[2]", "entry(index)[2]")),
    ),
    Mutant(
        name="term-before-the-log-forgotten",
        breaks="A log that was trimmed does not know the term of the entry before its first one.",
        source="Raft paper 7: last included term, for the consistency check of the first entry.",
        plant=patch(
            "dledger.core.log:RaftLog.term_at", ("return self._view.base_term", "return NO_TERM")
        ),
    ),
    Mutant(
        name="shared-entry-before-the-log",
        breaks="A probe that goes back to where the log begins believes that it matches there.",
        source="Raft paper 5.3, 7: what is of a later term cannot be shared.",
        plant=patch(
            "dledger.core.log:RaftLog.find_at_most",
            ("and self._view.base_term > term:", "and self._view.base_term < 0:"),
        ),
    ),
    Mutant(
        name="silent-for-ever",
        breaks="A follower that was given up is sent heartbeats, and no entry any more.",
        source="etcd raft: a paused follower is probed when it answers a heartbeat.",
        plant=patch(
            "dledger.core.replication:on_heartbeat_reply", ("if progress.silent:", "if False:")
        ),
    ),
    Mutant(
        name="clock-corrected-the-wrong-way",
        breaks="A clock that others overrule is moved away from theirs.",
        source="docs/adr/0013: stamps go by the most moderate of the others.",
        plant=patch(
            "dledger.peers.clocks:Clocks.correction_ms",
            ("return sign * apart[-quorum]", "return -sign * apart[-quorum]"),
        ),
    ),
    Mutant(
        name="queues-begin-as-before-the-trim",
        breaks="At a start queues begin where their checkpoint says, not where the log begins.",
        source="RocketMQ ConsumeQueue.correctMinOffset, called at each recovery.",
        plant=patch(
            "store.queues.start:LogStart._steps",
            (
                "            queue.min_offset = max(queue.min_offset, offset)\n",
                "            pass\n",
            ),
        ),
    ),
    Mutant(
        name="queue-file-dropped-too-early",
        breaks="The file of a queue that holds its first message goes with those before it.",
        source="RocketMQ MappedFileQueue.deleteExpiredFileByOffset: its last unit counts.",
        plant=patch(
            "store.queues.consume_queue:ConsumeQueue.drop_files",
            ("and self.first_file + file_bytes <= limit:", "and self.first_file < limit:"),
        ),
    ),
    Mutant(
        name="age-of-the-first-message",
        breaks="A segment is as old as its first message, not as when it was closed.",
        source="RocketMQ MappedFileQueue.deleteExpiredFileByTime: the last change of the file.",
        plant=patch(
            "broker.retention.retained_log:SegmentAges.segments",
            (
                "        found.append(Segment(position, end, closed_ms))\n",
                "        closed_ms = self._stamp(position) or closed_ms\n"
                "        found.append(Segment(position, end, closed_ms))\n",
            ),
        ),
    ),
    Mutant(
        name="plain-drops-one-segment-more",
        breaks="A plain broker drops the segment behind the last one that is old enough, too.",
        source="RocketMQ CommitLog.deleteExpiredFile.",
        plant=patch(
            "broker.modes.plain:PlainRetainedLog.drop_before",
            (
                "begin = limit - limit % segment_bytes\n",
                "begin = min(limit - limit % segment_bytes + segment_bytes,"
                " self._log.end_position // segment_bytes * segment_bytes)\n",
            ),
        ),
    ),
    Mutant(
        name="plain-queues-keep-what-is-dropped",
        breaks="When a plain broker drops a segment its queues go on beginning there.",
        source="RocketMQ CleanConsumeQueueService: correctMinOffset.",
        plant=patch(
            "broker.modes.plain:PlainRetainedLog.drop_before",
            ("    self._store.log_start.advance_to(begin)\n", ""),
        ),
    ),
    Mutant(
        name="expires-at-any-hour",
        breaks="What is old goes at once, not at the hour that was set, nor when it is asked for.",
        source="RocketMQ CleanCommitLogService.isTimeToDelete: deleteWhen.",
        plant=patch("broker.retention_policy:is_due", ("situation.hour in config.hours", "True")),
    ),
    Mutant(
        name="registration-tried-once",
        breaks="A registration that fails waits for the next regular one, half a minute later.",
        source="spec/wire.md 7.1; RocketMQ's brokers wait for their period, too.",
        plant=patch(
            "broker.cluster.registration:Registrar._serve",
            ("pause = min(pause, RETRY_MS / 1000)", "pass"),
        ),
        needs="namesrv_cut namesrv_turn namesrv_pause namesrv_crash namesrv_delay",
    ),
    Mutant(
        name="name-server-that-forgot-us",
        breaks="A broker whose connection to a name server breaks waits for its regular turn.",
        source="RocketMQ RouteInfoManager.onChannelDestroy forgets such a broker.",
        plant=patch(
            "broker.cluster.registration:Registrar.connection_lost",
            ("if server.addr == addr:", "if False:"),
        ),
        needs="namesrv_reset namesrv_crash namesrv_turn",
    ),
    Mutant(
        name="change-during-a-registration",
        breaks="What changes while a registration is under way is not registered.",
        source="spec/wire.md 7.1: each change is registered.",
        plant=patch(
            "broker.cluster.registration:Registrar._serve",
            (
                "        server.changed.clear()\n        await self._register(server)\n",
                "        await self._register(server)\n        server.changed.clear()\n",
            ),
        ),
    ),
    Mutant(
        name="closed-by-an-older-connection",
        breaks="The end of an old connection takes a broker out that came back over a new one.",
        source="RocketMQ RouteInfoManager.onChannelDestroy: the channel of its last registration.",
        plant=patch(
            "namesrv.route_table:RouteTable._put_live",
            ("    self._forget_connection(addr)\n", ""),
        ),
    ),
    Mutant(
        name="older-term-takes-the-route",
        breaks="A name server takes a broker for the master whatever its term is.",
        source="spec/wire.md 3.2: an older leader does not displace a newer one.",
        plant=patch(
            "namesrv.route_table:_master_refusal",
            ("if term != NO_TERM and its_term >= term:", "if False:"),
        ),
    ),
    Mutant(
        name="acknowledged-offset-not-repeated",
        breaks="An offset that a broker took is not sent again, even if that broker has lost it.",
        source="RocketMQ RemoteBrokerOffsetStore.persistAll sends all offsets each time.",
        plant=patches(
            patch(
                "ledgermq.client.assignment:Assignment.commit_due",
                ("if self._periods % COMMIT_ALL_PERIODS == 0:", "if False:"),
            ),
            patch(
                "ledgermq.client.assignment:Held.is_due",
                (" or leader not in {None, self.taken_by}", ""),
            ),
        ),
    ),
    Mutant(
        name="finished-out-of-order",
        breaks="A consumer that has finished the last message it holds commits past all others.",
        source="RocketMQ ProcessQueue.removeMessage: the smallest one that is left.",
        plant=patch(
            "ledgermq.client.process_queue:ProcessQueue.finish",
            (
                "    while order and order[0] not in cached:\n",
                "    if order and order[-1] not in cached:\n        order.clear()\n"
                "    while order and order[0] not in cached:\n",
            ),
        ),
    ),
    Mutant(
        name="refused-proposal-forgotten",
        breaks="Offsets whose replication was refused are not proposed again.",
        source="docs/adr/0002: an offset that was acknowledged is replicated, or goes with a term.",
        plant=patch(
            "broker.state.consumer_offset:ConsumerOffsetTable.give_back",
            ("self._dirty.setdefault((key, queue_id), offset)", "pass"),
        ),
    ),
)
