"""Planted bugs of what is counted, kept or told of longer than it is there, and of what never ends.

A systematic hunt found them: small random changes of lines that plans run through, which no plan
noticed. Nothing is lost at once by most of them. A room is used up, a claim holds a queue back, a
checkpoint is never noted, a member never counts again; it shows much later, to somebody else.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

COUNTED: Final = (
    Mutant(
        name="install-noted-as-begun",
        breaks="A start removes the log behind a snapshot whose install was over long before.",
        source="docs/raft.md (snapshots): the marker goes when the snapshot stands alone.",
        plant=patch(
            "dledger.storage.snapshot_files:SnapshotFiles.end_install",
            ("self._disk.remove(self._marker_path)", "pass"),
        ),
    ),
    Mutant(
        name="rejoining-for-ever",
        breaks="A member that lost its directory never votes and never counts again.",
        source="docs/raft.md (a member that lost its disk).",
        plant=patch("dledger.core.replication:tick_leader", ("if state.rejoining:", "if False:")),
    ),
    Mutant(
        name="round-never-heard",
        breaks="A leader hears no answer to its heartbeats, and confirms no read.",
        source="Raft dissertation 6.4: a round of heartbeats confirms a read index.",
        plant=patch(
            "dledger.core.replication:on_heartbeat_reply",
            ("max(progress.round_heard, reply.round)", "progress.round_heard"),
        ),
    ),
    Mutant(
        name="pre-vote-against-oneself",
        breaks="A leader gives a pre-vote to a follower that hears it no more.",
        source="Raft dissertation 9.6: who hears a leader gives none.",
        plant=patch(
            "dledger.core.state:RaftState.hears_leader",
            ("if self.role is Role.LEADER:", "if False:"),
        ),
    ),
    Mutant(
        name="follower-refused-as-a-master",
        breaks="A name server takes no follower of a group whose master it knows.",
        source="RocketMQ RouteInfoManager.registerBroker.",
        plant=patch(
            "namesrv.route_table:_master_refusal",
            ("if registration.broker_id != MASTER_ID or master", "if master"),
        ),
    ),
    Mutant(
        name="offset-counted-twice",
        breaks="An offset takes room when it is accepted, and again when it is applied.",
        source="docs/security.md (limits): room of the offsets, shared by groups.",
        plant=patch(
            "broker.state.consumer_offset:ConsumerOffsetTable.apply",
            ("not in applied and queue_id not in pending:", "not in applied:"),
        ),
    ),
    Mutant(
        name="second-queue-uncounted",
        breaks="Only the first queue that waits for a group takes room.",
        source="docs/security.md (limits): room of the offsets, shared by groups.",
        plant=patch(
            "broker.state.consumer_offset:ConsumerOffsetTable.commit",
            ("if queues is None or queue_id not in queues:", "if queues is None:"),
        ),
    ),
    Mutant(
        name="wrong-room-given-back",
        breaks="Who leads no more gives back the room of offsets that are there still.",
        source="docs/security.md (limits): room of the offsets, shared by groups.",
        plant=patch(
            "broker.state.consumer_offset:ConsumerOffsetTable.drop_pending",
            ("if queue_id not in applied:", "if queue_id in applied:"),
        ),
    ),
    Mutant(
        name="restored-locks-uncounted",
        breaks="Locks that come with a snapshot take no room, and give it back when they end.",
        source="docs/security.md (limits): locks of a group.",
        plant=patch(
            "broker.state.queue_lock:QueueLockTable.restore_steps",
            ("room.take(row.group, 1)", "pass"),
        ),
    ),
    Mutant(
        name="nothing-counted-by-holder",
        breaks="One group or one address may take a whole table.",
        source="docs/security.md (limits): fair shares.",
        plant=patch("broker.fair_share:FairShare.take", ("self._used_by[holder] = left", "pass")),
    ),
    Mutant(
        name="ended-claim-stays-counted",
        breaks="Claims of queues use up their room though they end.",
        source="docs/consumption.md (claims); docs/security.md (limits).",
        plant=patch(
            "broker.groups.claims:Claims.end", ("self._room.take(client.holder, -1)", "pass")
        ),
    ),
    Mutant(
        name="claims-of-the-departed",
        breaks="A queue that a member had claimed is held back from others once it has left.",
        source="docs/consumption.md (claims).",
        plant=patch("broker.groups.claims:Claims.end_all", ("self.end(queue, client)", "pass")),
    ),
    Mutant(
        name="ended-connection-kept",
        breaks="A member believes another one to be there whose connection has ended.",
        source="docs/raft.md: who is unreachable is asked for no vote and waited for by nobody.",
        plant=patch(
            "dledger.peers.inbound:Inbound.connection_lost",
            ("self._owner.on_closed(self)", "pass"),
        ),
    ),
    Mutant(
        name="departed-group-kept",
        breaks="A name server keeps the number of each group that ever was, and its rows.",
        source="RocketMQ RouteInfoManager.unregisterBroker.",
        plant=patch("namesrv.rows:TopicRows.abandon", ("del self._living[group.number]", "pass")),
    ),
    Mutant(
        name="dropped-row-kept",
        breaks="A topic that a group has dropped stays on the route of a name server.",
        source="RocketMQ RouteInfoManager.cleanTopicByUnRegisterRequests.",
        plant=patch("namesrv.rows:TopicRows._delete", ("del rows[group.number]", "pass")),
    ),
    Mutant(
        name="checkpoint-never-noted",
        breaks="A start after a kill walks over the whole log since the last orderly end.",
        source="docs/raft.md (recovery): checkpointInterval, a second by default.",
        plant=patch(
            "dledger.disk.flusher:Flusher._save_checkpoint",
            ("if now - self._last_checkpoint_ms >= self._checkpoint_interval_ms:", "if False:"),
        ),
    ),
    Mutant(
        name="each-call-remembered",
        breaks="A consumer remembers each call of a listener, and looks at all of them.",
        source="docs/client.md (listeners that are stuck).",
        plant=patch(
            "ledgermq.client.listening:WatchedListener._follow",
            ("del self._begun[context]", "pass"),
        ),
    ),
    Mutant(
        name="pulls-of-closed-connections-held",
        breaks="Clients that come and go fill the table of held pulls.",
        source="RocketMQ PullRequestHoldService; docs/security.md (limits).",
        plant=patch("broker.pulls.long_polling:HoldTable.close", ("self._remove(pull)", "pass")),
    ),
    Mutant(
        name="problem-that-is-over",
        breaks="A consumer tells of a problem of a queue at once, that was over long before.",
        source="docs/client.md (problems of a consumer).",
        plant=patch(
            "ledgermq.client.hindrances:Hindrances.on_pulled",
            ("self._since_ms.pop(queue, None)", "pass"),
        ),
    ),
)
