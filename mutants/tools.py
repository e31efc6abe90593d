"""Planted bugs of what consumers answer to tools, and of consumers that poll.

Sources: MQClientInstance.resetOffset, DefaultLitePullConsumerImpl, AssignedMessageQueue.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

TOOLS: Final = (
    Mutant(
        name="reset-without-fence",
        breaks="A commit that was under way during a reset is tried again behind it.",
        source="RocketMQ MQClientInstance.resetOffset drops the queue and waits ten seconds.",
        plant=patch(
            "ledgermq.client.assignment:Assignment._commit_now",
            ("if one.era != era or one.lost:", "if False:"),
        ),
    ),
    Mutant(
        name="reset-forgets-what-is-being-taken",
        breaks="A reset that comes while a queue's offset is asked for is forgotten.",
        source="RocketMQ MQClientInstance.resetOffset changes the queues that are held, no others.",
        plant=patch(
            "ledgermq.client.assignment:Assignment.move",
            ("if held is not None or queue in self._taking:", "if held is not None:"),
        ),
    ),
    Mutant(
        name="reset-remembered-for-ever",
        breaks="A reset counts for a queue that others have had, and that comes back much later.",
        source="RocketMQ MQClientInstance.resetOffset: a queue that is not held is not moved.",
        plant=patch(
            "ledgermq.client.assignment:Assignment.change",
            ("if one.topic == topic and one not in mine", "if False"),
        ),
    ),
    Mutant(
        name="polled-is-done-at-once",
        breaks="What a poll gives out may be committed before the caller has seen it.",
        source="RocketMQ DefaultLitePullConsumerImpl.poll: the offset moves as messages leave.",
        plant=patch(
            "ledgermq.client.polled:Polled.take",
            ("self._given.append((one, given))", "one.finish(given)"),
        ),
    ),
    Mutant(
        name="revoked-queue-given-out",
        breaks="A poll gives out messages of a queue that went to another member.",
        source="RocketMQ DefaultLitePullConsumerImpl.poll skips requests of dropped queues.",
        plant=patch("ledgermq.client.polled:Polled.take", ("if one.dropped:", "if False:")),
    ),
    Mutant(
        name="failed-block-commits",
        breaks="A consumer whose block ends with an error commits the messages in hand.",
        source="docs/client.md: after an error, what the last poll gave out comes again.",
        plant=patch(
            "ledgermq.client.polled:Polled.keep",
            ("self._given.clear()", "pass"),
        ),
    ),
    Mutant(
        name="listener-in-the-loop",
        breaks="The listener of a blocking consumer runs in the loop, and waits for itself.",
        source="docs/client.md: listeners of ledgermq.sync run in threads and may send.",
        plant=patch(
            "ledgermq.sync:PushConsumer._listen",
            (
                "called: asyncio.Future[Any] = self._threads.submit(call, _nothing)\n",
                "called = asyncio.get_running_loop().create_future()\n"
                "    called.set_result(call())\n",
            ),
        ),
    ),
    Mutant(
        name="beginning-not-committed",
        breaks="A member that commits by itself begins at the end of a queue again.",
        source="RocketMQ DefaultLitePullConsumerImpl begins at the end again, too.",
        plant=patch(
            "ledgermq.client.assignment:Assignment._take",
            ("held.process_queue.begin()", "held.process_queue.pulled = True"),
        ),
    ),
    Mutant(
        name="released-whoever-holds-it",
        breaks="A seek amid a rebalance leaves a pull loop that nobody holds.",
        source="Kafka KAFKA-4740: a seek amid a rebalance went to an assignment that was gone.",
        plant=patch(
            "ledgermq.client.assignment:Assignment._release",
            ("if self._held.get(queue) is not held:", "if False:"),
        ),
    ),
    Mutant(
        name="seek-released-by-a-rebalance",
        breaks="A rebalance amid a seek releases the queue: it is read from the group's offset.",
        source="A member that had sought to 7 at RocketMQ's DLedger group read from 0.",
        plant=patch(
            "ledgermq.client.assignment:Assignment._give_away",
            ("self._held.get(queue) is not seen or ", ""),
        ),
    ),
    Mutant(
        name="stop-commits-what-is-in-hand",
        breaks="A stop commits what another task has polled and works on.",
        source="docs/client.md: what is in hand comes again.",
        plant=patch(
            "ledgermq.client.lite_pull:LitePullConsumer.stop",
            ("poller is None or poller.done()", "True"),
        ),
    ),
    Mutant(
        name="paused-queues-fill-the-cache",
        breaks="Messages of paused queues keep the others from being pulled.",
        source="RocketMQ DefaultLitePullConsumerImpl counts all that is cached.",
        plant=patch(
            "ledgermq.client.lite_pull:LitePullConsumer.maybe_flow_control",
            ("waiting = self._polled.waiting_of(self.pauses)", "waiting = self._polled.waiting"),
        ),
    ),
    Mutant(
        name="interrupted-poll-is-done",
        breaks="Messages that an interrupted poll had found are committed, and nobody had them.",
        source="docs/client.md: they come with the next poll.",
        plant=patch("ledgermq.sync:LitePullConsumer.poll", (", self._client.take_back)", ")")),
    ),
    Mutant(
        name="stop-by-another-thread-commits",
        breaks="A stop commits what another thread has polled and works on.",
        source="docs/client.md: what is in hand comes again.",
        plant=patch(
            "ledgermq.client.lite_pull:LitePullConsumer.keep", ("self._polled.keep()", "pass")
        ),
    ),
    Mutant(
        name="interrupted-stop-leaves-a-member",
        breaks="A stop that Ctrl-C ends leaves a member that nobody can stop.",
        source="docs/client.md: one that was interrupted has to be called again.",
        plant=patch("ledgermq.sync_loop:Blocking.__exit__", ("if call.ended:", "if True:")),
    ),
)
