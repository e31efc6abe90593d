"""Planted bugs in bounds on what clients take up: buffers, answers, heartbeats, subscriptions.

Tests find them, see ``BY_TESTS`` in `mutants.patches`.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch, patches

BOUNDS: Final = (
    Mutant(
        name="receive-buffers-unbounded",
        breaks="Half frames of all connections may take any amount of memory.",
        source="Netty bounds a frame, not the frames of all connections.",
        plant=patch(
            "ledgermq.remoting.transport.server:RemotingServer.on_receive_bytes",
            ("self.receive_bytes > self._config.receive_bytes_max and more > 0", "False"),
        ),
    ),
    Mutant(
        name="large-buffer-filled-with-small-frames",
        breaks="Behind a large frame as many small ones are read as its buffer has room for.",
        source="700,000 frames of 8 bytes behind one of 9 MB: a turn of 0.27 s.",
        plant=patch(
            "ledgermq.remoting.protocol.frame:FrameDecoder.writable",
            ("if self.buffer_bytes <= RECEIVE_BYTES_USUAL:", "if True:"),
        ),
    ),
    Mutant(
        name="unsent-answers-unbounded",
        breaks="What waits for all peers that do not read may take any amount of memory.",
        source="Netty's high-water mark is one of a channel.",
        plant=patch(
            "ledgermq.remoting.transport.server:RemotingServer._count_unread",
            ("if sum(self._unsent.values()) <= self._config.unsent_bytes_max:", "if True:"),
        ),
    ),
    Mutant(
        name="answers-on-their-way-unbounded",
        breaks="What waits for peers that leave little unread each may take any amount of memory.",
        source="4,096 connections with 4 MiB each, below which they are read on.",
        plant=patch(
            "ledgermq.remoting.transport.server:RemotingServer.on_unsent",
            ("if self._sending_bytes > self._config.sending_bytes_max:", "if False:"),
        ),
    ),
    Mutant(
        name="left-behind-not-counted",
        breaks="Requests whose connections are gone do not count: who hangs up begins any number.",
        source="20 connections that begin 256 requests each and close had 5,120 under way.",
        plant=patch(
            "ledgermq.remoting.transport.dispatch:RequestDispatcher._under_way",
            ("return len(connection.tasks) + left", "return len(connection.tasks)"),
        ),
    ),
    Mutant(
        name="left-behind-outlives-the-stop",
        breaks="A server that stops cancels no request whose connection is gone.",
        source="A broker changes its role in its process: such a request met a closed log.",
        plant=patch(
            "ledgermq.remoting.transport.server:RemotingServer._cancel_requests",
            ("*self._left, ", ""),
        ),
    ),
    Mutant(
        name="deaf-peer-kept",
        breaks="A peer that reads nothing is kept, however much waits for it.",
        source="RocketMQ checks isWritable for transaction messages only.",
        plant=patch(
            "ledgermq.remoting.transport.connection:Connection._check_backlog",
            ("if waiting > self._config.write_close_bytes:", "if False:"),
        ),
    ),
    Mutant(
        name="deaf-peer-read-on",
        breaks="Requests of a peer that does not read its answers are read and answered on.",
        source="Netty's autoRead stays on.",
        plant=patch(
            "ledgermq.remoting.transport.connection:Connection.pause_writing",
            ("self._pause_reading()", "pass"),
        ),
    ),
    Mutant(
        name="deaf-peer-gets-data",
        breaks="A peer that does not read its answers gets messages all the same.",
        source="RocketMQ PullMessageProcessor writes whatever the channel's state.",
        plant=patch(
            "broker.processor.pull:PullProcessor._answer",
            ("if buffers and pull.connection.slow:", "if False:"),
        ),
    ),
    Mutant(
        name="heartbeats-unchecked",
        breaks="A heartbeat may name any number of groups, topics and tags, of any length.",
        source="RocketMQ ClientManageProcessor.heartBeat checks nothing.",
        plant=patch(
            "broker.processor.client:ClientProcessor.handle_heartbeat",
            ("_check(heartbeat)", "pass"),
        ),
    ),
    Mutant(
        name="subscriptions-without-share",
        breaks="The subscriptions that one address tells may take all room there is.",
        source="Fair shares: what one takes is not all there is.",
        plant=patch(
            "broker.groups.client_registry:ConsumerRegistry._weigh",
            ("if not room.fits(client.holder, weight):", "if False:"),
        ),
    ),
    Mutant(
        name="kept-subscriptions-unweighed",
        breaks="A group is weighed by what a heartbeat says, not by what is kept of it.",
        source="An older version of a subscription is not taken; its weight was.",
        plant=patch(
            "broker.groups.client_registry:ConsumerRegistry.register",
            ("weight_of(group.kept(subscriptions))", "weight_of(subscriptions)"),
        ),
    ),
    Mutant(
        name="negative-ordinal-taken",
        breaks="A negative number stands for the last member of an enumeration.",
        source="Enumerations may be numbers; fastjson refuses those that are none.",
        plant=patch(
            "ledgermq.remoting.protocol.bodies:_member",
            ("not 0 <= value < len(names)", "value >= len(names)"),
        ),
    ),
    Mutant(
        name="large-message-answered-one",
        breaks="A message whose header is too large is answered 1, as if it might be stored.",
        source="RocketMQ answers 13 for properties that are too long.",
        plant=patch(
            "ledgermq.remoting.transport.dispatch:RequestDispatcher._refuse_large",
            ("head.code in _MESSAGES", "False"),
        ),
    ),
    Mutant(
        name="restored-topics-added",
        breaks="Topics and groups that a snapshot does not hold stay when it is restored.",
        source="Seen in this system: tables kept topics of entries that were gone.",
        plant=patches(
            patch(
                "broker.state.topic_config:TopicTable._replace",
                ("self.entries.clear()", "pass"),
            ),
            patch(
                "broker.state.subscription:SubscriptionGroupTable._replace",
                (
                    "former, self._groups = self._groups, groups",
                    "former, self._groups = {}, self._groups | groups",
                ),
            ),
        ),
    ),
    Mutant(
        name="tables-encoded-at-once",
        breaks="A table of replicated state is encoded in one turn of the loop.",
        source="200,000 locks took 2 s, each time that the tables were written.",
        plant=patch(
            "broker.table_text:text_in_steps", ("if weight >= ROWS_PER_STEP:", "if False:")
        ),
    ),
)
