"""Planted bugs of one condition or one step that is left out, and that long went unnoticed.

What they take is rare: a queue that changes hands with messages waiting, a send grouped with a bad
one, a limit of nothing, a member that moves.
Sources: RocketMQ; docs/client.md, docs/raft.md, docs/protocol.md.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

LAPSES: Final = (
    Mutant(
        name="renewal-of-no-locks",
        breaks="A member whose locks are due for a renewal asks the broker for none of them.",
        source="RocketMQ RebalanceImpl.lockAll: all queues held, each 20 s.",
        plant=patch(
            "ledgermq.client.queue_locks:QueueLocks._renew", ("if not queues:", "if True:")
        ),
    ),
    Mutant(
        name="given-away-and-handed-out",
        breaks="What waits for a listener is handed out though its queue was given away.",
        source="RocketMQ RebalanceImpl.updateProcessQueueTableInRebalance: setDropped(true).",
        plant=patch(
            "ledgermq.client.assignment:Assignment._release",
            ("held.process_queue.dropped = True", "pass"),
        ),
    ),
    Mutant(
        name="untaken-queue-without-locks",
        breaks="A queue whose offset cannot be had ends the rebalance of a member without locks.",
        source="RocketMQ RebalanceImpl: unlock is for ordered queues; the others are tried again.",
        plant=patch(
            "ledgermq.client.assignment:Assignment._take_all",
            ("if locks is not None and not all(taken)", "if not all(taken)"),
        ),
    ),
    Mutant(
        name="no-retries-is-no-limit",
        breaks="A consumer that wants no further delivery gets as many as its group allows.",
        source="RocketMQ DefaultMQPushConsumerImpl.getMaxReconsumeTimes: only -1 is the default.",
        plant=patch(
            "ledgermq.client.send_back:SendBack.__init__",
            ("if reconsume_times_max < 0", "if reconsume_times_max <= 0"),
        ),
    ),
    Mutant(
        name="refused-with-its-group",
        breaks="A message that was sent together with an illegal one fails with it.",
        source="Of this project, `Delivery.after_group`; RocketMQ sends each message by itself.",
        plant=patch(
            "ledgermq.client.delivery:Delivery.after_group",
            (
                "if isinstance(error, ResponseError) and error.code in _OTHERS_FAULT_CODES:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        name="delayed-half-is-no-half",
        breaks="A message of a transaction that has a delay is delivered before it is committed.",
        source="RocketMQ SendMessageProcessor: TRAN_MSG goes to prepareMessage, delay or not.",
        plant=patch(
            "broker.sends.door:Door.put_by",
            ("message.reconsume_times > 0", "message.reconsume_times >= 0"),
        ),
    ),
    Mutant(
        name="once-stalled-always-open",
        breaks="After one slow commit large messages are let in without room, for good.",
        source="Of this project, `LogRoom`: the limit counts again once something is committed.",
        plant=patch("broker.sends.room:LogRoom.on_progress", ("self._is_stalled = False", "pass")),
    ),
    Mutant(
        name="negative-limit-counts",
        breaks="What is given back with a limit of -1 is a dead letter at once.",
        source="RocketMQ SendMessageProcessor.asyncConsumerSendMsgBack takes it literally.",
        plant=patch(
            "broker.sends.send_back:_times_max",
            ("if asked is None or asked < 0 else", "if asked is None else"),
        ),
    ),
    Mutant(
        name="pre-vote-waits-for-the-dead",
        breaks="Who has seen the connection to the leader break refuses pre-votes as before.",
        source="Of this project, docs/raft.md: a broken connection hastens the election.",
        plant=patch(
            "dledger.core.election:on_leader_unreachable", ("state.contact_tick = LONG_AGO", "pass")
        ),
    ),
    Mutant(
        name="former-address-dialled-on",
        breaks="A member that has moved is dialled where it was as well, for good.",
        source="Of this project, `TcpTransport.set_members`: who has moved is dialled there.",
        plant=patch(
            "dledger.peers.rpc:TcpTransport._link",
            ("if link is not None:", "if False:"),
        ),
    ),
    Mutant(
        name="unopened-queue-counts-as-synced",
        breaks="A checkpoint promises queues of which some could not be opened to be synced.",
        source="Of this project, `store.queues.files`: what is not synced is not promised.",
        plant=patch(
            "store.queues.files:QueueFiles.sync",
            (
                "if error.errno in NO_FILES:\n            return False",
                "if error.errno in NO_FILES:\n            return True",
            ),
        ),
    ),
    Mutant(
        name="directory-opened-behind-the-rename",
        breaks="A file is replaced, and its caller is told that it was not: no descriptor is left.",
        source="Of this project, `ledgermq.runtime.disk`: what is refused was not done.",
        plant=patch(
            "ledgermq.runtime.disk:RealDisk.replace",
            ("with _directory(os.path.dirname(path)) as directory:", "if True:"),
            ("os.fsync(directory)", "_sync_directory(os.path.dirname(path))"),
        ),
    ),
    Mutant(
        name="report-a-look-late",
        breaks="A slave without news reports up to two intervals after its last report.",
        source="RocketMQ DefaultHAClient.isTimeToReportOffset; haMaxTimeSlaveNotCatchup.",
        plant=patch(
            "store.ha.slave:MasterLink.wait_ms",
            ("until_report_ms if self.is_verified else heartbeat_ms", "heartbeat_ms"),
        ),
    ),
    Mutant(
        name="dead-connection-kept",
        breaks="A client leaves it to the kernel to give up a way that nothing comes through.",
        source="RocketMQ NettyRemotingClient.invokeSync: closeChannel where an answer is late.",
        plant=patch(
            "ledgermq.remoting.transport.client:RemotingClient._connect",
            ("give_up_after(transport, self._config.dead_after_ms)", "pass"),
        ),
    ),
    Mutant(
        name="one-broker-knows-the-group",
        breaks="Nobody of a group gets queues while the first broker of their topic stands still.",
        source="RocketMQ MQClientInstance.findBrokerAddrByTopic: any broker of the topic.",
        plant=patch(
            "ledgermq.client.group_member:GroupMember._ask_any",
            ("for queue in queues", "for queue in queues[:1]"),
        ),
    ),
    Mutant(
        name="former-brokers-known-on",
        breaks="A client greets brokers for good that were taken out of its cluster.",
        source="RocketMQ MQClientInstance.cleanOfflineBroker.",
        plant=patch("ledgermq.client.route:RouteCache.poll", ("self._forget_unnamed()", "pass")),
    ),
    Mutant(
        name="no-retries-no-end-of-news",
        breaks="A group without retry queues counts as a new one with each heartbeat.",
        source="Of this project, `NewGroups`: what is created is counted, not what there is.",
        plant=patch(
            "broker.sends.creation:Creator.misses",
            ("return group.retry_queue_nums > 0 and", "return"),
        ),
    ),
    Mutant(
        name="all-locks-end-in-one-turn",
        breaks="All locks that have run out are dropped in one turn of the loop.",
        source="50,000 locks of consumers that died together: 3 s, in each replica.",
        plant=patch(
            "broker.state.queue_lock:QueueLockTable.expire",
            ("islice(self._leases.items(), EXPIRED_PER_TURN)", "list(self._leases.items())"),
        ),
    ),
    Mutant(
        name="all-nonces-forgotten-at-once",
        breaks="One signed request forgets all nonces that count no more, however many.",
        source="Work is bounded for each request: 65,536 of them took up to 40 ms of one turn.",
        plant=patch(
            "ledgermq.remoting.protocol.signing:_forget",
            ("islice(until_ms.items(), FORGOTTEN_PER_USE)", "until_ms.items()"),
        ),
    ),
    Mutant(
        name="install-leaves-writes-unsynced",
        breaks="What no sync has covered is waited for after an install took it away.",
        source="SYNC_FLUSH: answers wait for syncs of what is in the log, and of nothing else.",
        plant=patch(
            "dledger.driver:Driver._report_staged",
            ("self._writes_synced = self._writes", "pass"),
        ),
    ),
    Mutant(
        name="sender-of-any-form",
        breaks="A message between members counts whatever its sender calls itself.",
        source="Names go into records, log lines and the file of term and vote.",
        plant=patch(
            "dledger.codec.peer:PeerCodec._add_sender",
            ("if not NODE_ID.match(parts[1]):", "if False:"),
        ),
    ),
    Mutant(
        name="written-snapshot-counts-at-once",
        breaks="A snapshot counts once its file is replaced, before the log begins behind it.",
        source="Raft paper 7: a snapshot stands for what lies before the log.",
        plant=patch(
            "dledger.storage.snapshot_files:SnapshotFiles._replace",
            (
                "self._disk.replace(self._path, data)",
                "self._disk.replace(self._path, data)\n        self.meta = meta",
            ),
        ),
    ),
)
