"""Planted bugs of consumption in order, of ordered sends and of offsets kept locally.

Sources: ConsumeMessageOrderlyService, RebalanceImpl.lockAll, LocalFileOffsetStore.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

CONSUMPTION: Final = (
    Mutant(
        name="commit-without-a-heartbeat",
        breaks="A commit that a broker refuses, since it has no heartbeat of the group yet, fails.",
        source="RocketMQ 5 ConsumerManageProcessor.updateConsumerOffset: 26 without the group.",
        plant=patch(
            "ledgermq.client.pull:PullConsumer._commit",
            ("if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:", "if error.code:"),
        ),
    ),
    Mutant(
        name="client-orderly-retry-skips",
        breaks="An orderly listener that fails is given the next messages, not the same ones.",
        source="RocketMQ ConsumeMessageOrderlyService: a failure suspends the queue.",
        plant=patch(
            "ledgermq.client.orderly:OrderlyService._hand_out",
            (
                "asked_ms = context.suspend_ms\n",
                "asked_ms = context.suspend_ms\n    line.waiting.popleft()\n",
            ),
        ),
    ),
    Mutant(
        name="orderly-without-lock",
        breaks="A message is given to an orderly listener after the lock of its queue ran out.",
        source="RocketMQ ConsumeMessageOrderlyService: isLocked and isLockExpired before each.",
        plant=patch(
            "ledgermq.client.orderly:OrderlyService._goes_on",
            ("return self._may_begin(one.queue)", "return True"),
        ),
    ),
    Mutant(
        name="selected-anew-for-each-try",
        breaks="An ordered send that is tried again goes to any queue, not to that of its key.",
        source="RocketMQ DefaultMQProducerImpl.sendSelectImpl: the queue is chosen once.",
        plant=patch(
            "ledgermq.client.producer:Producer.deliver",
            (
                "delivery = Delivery(self, outgoing, queue,",
                "delivery = Delivery(self, outgoing, None,",
            ),
        ),
    ),
    Mutant(
        name="strategy-believed",
        breaks="A queue that a strategy gives out twice, or that is none, is taken.",
        source="RebalanceImpl.rebalanceByTopic takes what a strategy returns as it is.",
        plant=patch(
            "ledgermq.client.strategies:share_of",
            ("if not isinstance(queue, MessageQueue) or queue not in known:", "if False:"),
            ("if len(set(share)) < len(share):", "if False:"),
        ),
    ),
    Mutant(
        name="client-broadcast-is-shared",
        breaks="The members of a broadcasting group share the queues.",
        source="RocketMQ RebalanceImpl.rebalanceByTopic: BROADCASTING takes the whole set.",
        plant=patch(
            "ledgermq.client.group_member:GroupMember._share",
            ("return list(queues)", "return list(queues)[::2]"),
        ),
    ),
    Mutant(
        name="local-offsets-not-written",
        breaks="The offsets of a broadcasting member stay in memory.",
        source="RocketMQ LocalFileOffsetStore.persistAll.",
        plant=patch(
            "ledgermq.client.local_offsets:LocalOffsets.flush",
            ("if not self._has_changed", "if self._has_changed"),
        ),
    ),
    Mutant(
        name="orderly-lock-never-renewed",
        breaks="The locks of an orderly consumer are not renewed.",
        source="RocketMQ ConsumeMessageOrderlyService.start: lockMQPeriodically every 20 s.",
        plant=patch(
            "ledgermq.client.queue_locks:QueueLocks._renew_due",
            (">= self.renew_ms", ">= self.renew_ms << 10"),
        ),
    ),
    Mutant(
        name="renewals-wait-for-the-slowest",
        breaks="A broker that hangs keeps the locks of all others from being renewed.",
        source="`request_timeout_ms` above nine seconds: a lock counts for 30 s, renewed each 20.",
        plant=patch(
            "ledgermq.client.queue_locks:QueueLocks._renew_due",
            ("timeout=LOOK_MS / 1000", "timeout=None"),
        ),
    ),
    Mutant(
        name="renewed-though-lost",
        breaks="A lock that was told as lost is held again once its late renewal is granted, and"
        " renewed for good though nobody here consumes its queue.",
        source="docs/consumption.md (in order): a lock that nobody needs starves others.",
        plant=patch(
            "ledgermq.client.queue_locks:QueueLocks._renew",
            ("if until_ms[queue] <= now_ms:", "if False:"),
        ),
    ),
    Mutant(
        name="unlocked-before-it-ended",
        breaks="A revoked queue is unlocked while the listener still has a message of it.",
        source="RocketMQ RebalancePushImpl.unlockDelay: what is consumed ends first.",
        plant=patch(
            "ledgermq.client.push:PushConsumer.settled",
            ("return await self.service.settle(process_queue, SETTLE_MS)", "return True"),
        ),
    ),
    Mutant(
        name="cancelled-listener-ends-its-worker",
        breaks="A listener whose own task was cancelled ends its worker, and nobody hears of it.",
        source="asyncio: CancelledError is no Exception.",
        plant=patch(
            "ledgermq.client.listening:_call",
            ("except (Exception, asyncio.CancelledError) as error:", "except Exception as error:"),
        ),
    ),
    Mutant(
        name="held-queue-begun-at-once",
        breaks="A member begins in a queue before the one that has it has committed the last.",
        source="docs/client.md: a queue that changes hands is committed first.",
        plant=patch(
            "ledgermq.client.assignment:Assignment._beginning",
            ("if is_late or not stored.held_by:", "if True:"),
        ),
    ),
    Mutant(
        name="stuck-member-waited-for-again",
        breaks="A member that keeps its queues is waited for anew in each topic.",
        source="docs/client.md: who does not let go is not waited for again.",
        plant=patch(
            "ledgermq.client.assignment:Assignment._is_given_up",
            ("return holder in self._stuck", "return False"),
        ),
    ),
    Mutant(
        name="holder-of-a-queue-not-named",
        breaks="Who claims a queue is told that nobody holds it.",
        source="docs/client.md: a queue that changes hands is committed first.",
        plant=patch(
            "broker.groups.claims:Claims.take",
            ("if not anyway and holder.client_id != client.client_id:", "if False:"),
        ),
    ),
    Mutant(
        name="claim-of-one-gone-kept",
        breaks="A claim outlives its member, and whoever takes the queue waits for nobody.",
        source="spec/wire.md 3.6: what a member has ends with its connection.",
        plant=patch(
            "broker.groups.client_registry:ConsumerRegistry.unregister",
            ("self.claims.end_all(name, client)", "pass"),
        ),
    ),
    Mutant(
        name="finished-by-offset-alone",
        breaks="What a log lost, finished late, counts for what lies at the same offset now.",
        source="RocketMQ DefaultMQPushConsumerImpl, OFFSET_ILLEGAL: the process queue is dropped.",
        plant=patch(
            "ledgermq.client.process_queue:ProcessQueue.finish",
            ("if known is message:", "if known is not None:"),
        ),
    ),
    Mutant(
        name="oneway-to-a-broken-link",
        breaks="One-way messages go to a former leader that was started again, which drops them.",
        source="docs/client.md: behind a connection that broke the route is read anew.",
        plant=patch(
            "ledgermq.client.links:Links.connect_anew",
            ("if link is not None and link.connection.closed:", "if False:"),
        ),
    ),
    Mutant(
        name="link-to-who-led-when-it-was-made",
        breaks="A leader that moves while a producer connects to it goes on being sent to.",
        source="RocketMQ MQClientInstance: the address of each send comes from the route.",
        plant=patch(
            "ledgermq.client.links:Links._reach",
            (
                "else:\n            if self._routes.master(broker_name) in {None, addr}:",
                "else:\n            if True:",
            ),
        ),
    ),
    Mutant(
        name="refused-by-a-former-leader",
        breaks="A leader that refuses a connection ends a send, though the next one is known.",
        source="RocketMQ MQClientInstance: the address of each send comes from the route.",
        plant=patch(
            "ledgermq.client.links:Links._reach",
            (
                "except ConnectFailed:\n"
                "            if self._routes.master(broker_name) in {None, addr}:",
                "except ConnectFailed:\n            if True:",
            ),
        ),
    ),
    Mutant(
        name="replaced-link-unwatched",
        breaks="A link that another one replaces is watched no more: what it owes may stall.",
        source="docs/client.md: sends on a link that stalls are tried elsewhere.",
        plant=patch(
            "ledgermq.client.links:Links.connect",
            ("self._retired.append(existing)", "pass"),
        ),
    ),
    Mutant(
        name="older-route-believed",
        breaks="An answer that was long on its way brings the former leader back for all topics.",
        source="RocketMQ MQClientInstance.updateTopicRouteInfoFromNameServer: one at a time.",
        plant=patch(
            "ledgermq.client.route:RouteCache._store",
            ("if route.t_fetched_ns >= self._told_ns.get(name, 0)", "if True"),
        ),
    ),
    Mutant(
        name="news-during-a-heartbeat-lost",
        breaks="A subscription that changes during a heartbeat is told with the next regular one.",
        source="RocketMQ DefaultMQPushConsumerImpl.subscribe: a heartbeat to all brokers at once.",
        plant=patch(
            "ledgermq.client.instance:ClientInstance._heartbeat_loop",
            ("self._news_for.add(addr)", "pass"),
        ),
    ),
    Mutant(
        name="renewal-counts-for-the-next-leader",
        breaks="Locks that a leader has just renewed are not asked for at the next one.",
        source="RocketMQ RebalanceLockManager: locks live in the memory of one broker.",
        plant=patch(
            "ledgermq.client.queue_locks:QueueLocks._renew",
            (
                "for queue in refused:",
                "self._asked_ms[name] = self._host.clock.monotonic_ms()\n"
                "        for queue in refused:",
            ),
        ),
    ),
    Mutant(
        name="oneway-without-an-end",
        breaks="What is sent one-way to a broker that reads nothing fills the memory.",
        source="docs/client.md: max_pending_bytes; RocketMQ bounds them by a semaphore.",
        plant=patch(
            "ledgermq.client.oneway:Oneway.write",
            ("if waiting and waiting + size > self._bytes_max:", "if False:"),
        ),
    ),
    Mutant(
        name="steps-unwatched",
        breaks="A coroutine that blocks the loop stops heartbeats and renewals without a word.",
        source="docs/client.md: a call that blocks the loop for more than a second is a warning.",
        plant=patch(
            "ledgermq.client.listening:WatchedListener._follow",
            ("await _Steps(outcome, self._clock, context)", "await outcome"),
        ),
    ),
    Mutant(
        name="leaving-frees-what-is-in-hand",
        breaks="A consumer of ours or in Go that leaves frees what its listener still works at.",
        source="docs/adr/0004; rocketmq-client-go 2.1.0 pushConsumer.Shutdown.",
        plant=patch(
            "broker.processor.client:ClientProcessor._leave",
            ("member.language in _RELEASE_FIRST and", "True and"),
        ),
    ),
    Mutant(
        name="late-leaving-frees-what-is-held-again",
        breaks="The word of a former connection frees what its client has locked by a newer one.",
        source="docs/adr/0004: a lease holds until its owner lets go.",
        plant=patch(
            "broker.processor.client:ClientProcessor._is_back",
            ("one.client_id == member.client_id", "False"),
        ),
    ),
    Mutant(
        name="left-though-it-is-back",
        breaks="A replica that heard late that a client left lets others have what it holds since.",
        source="docs/adr/0004: a lease holds until its owner lets go.",
        plant=patch(
            "broker.state.queue_lock:QueueLockTable.come_back",
            ("self._left.pop((group, client_id), None)", "pass"),
        ),
    ),
    Mutant(
        name="once-left-for-ever",
        breaks="Queues are anybody's that a client locks which has left its group before.",
        source="docs/adr/0004: a lease holds until its owner lets go.",
        plant=patch(
            "broker.state.queue_lock:QueueLockTable._owner",
            ("lease.until_ms - self._lease_ms >= left_ms", "left_ms < 0"),
        ),
    ),
)
