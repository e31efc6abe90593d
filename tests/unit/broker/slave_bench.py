"""A master that answers from dictionaries, and a slave with real tables that follows it."""

import asyncio
from types import SimpleNamespace

import msgspec

from broker.config import BrokerConfig
from broker.delays.progress import DelayProgress
from broker.slave_sync.changes import SlaveTables
from broker.slave_sync.service import SlaveSync
from broker.slave_sync.told import read_steps
from broker.state.own_offsets import OwnOffsets
from broker.state.steps import at_once
from broker.state.subscription import SubscriptionGroupConfig
from broker.tables import Tables
from ledgermq.remoting.protocol.bodies import TopicConfig
from ledgermq.remoting.protocol.command import RemotingCommand, decode_command
from ledgermq.remoting.protocol.errors import ConnectFailed
from ledgermq.remoting.protocol.frame import FrameDecoder
from ledgermq.runtime.clock import SystemClock
from tests.fixtures import wire

MASTER = "127.0.0.1:10911"
KEY = "orders@g"


def read_tables(bodies):
    return at_once(read_steps({code: [body] for code, body in bodies.items()}))


def recorded():
    """What a real master answered to a real slave, by the code of the question."""
    bodies = {}
    for one in wire("master_slave_ha"):
        if one.kind == "response" and one.answers in {21, 43, 45, 201}:
            (frame,) = FrameDecoder().feed(one.raw)
            bodies.setdefault(str(one.answers), bytes(decode_command(frame).body))
    return bodies


class Master:
    """Answers a slave from dictionaries, and counts what it is given."""

    def __init__(self, log_end=1_000):
        self.topics = {"orders": TopicConfig(topic_name="orders", perm=6)}
        self.groups = {"g": SubscriptionGroupConfig(group_name="g")}
        self.offsets = {KEY: {0: 5}}
        self.delays = {3: 7}
        self.log_end = log_end
        self.code = 0
        self.bodies = {}
        self.paged = {}
        """Real handlers, by code."""
        self.commits = []
        self.is_away = False
        self.not_found = None
        """What it says of an offset that it does not have."""

    async def request(self, addr, command, timeout_ms):
        assert addr == MASTER
        if self.is_away:
            raise ConnectFailed("nobody is there")
        if command.code == 15:
            fields = command.ext_fields
            key = f"{fields['topic']}@{fields['consumerGroup']}"
            self.commits.append((key, int(fields["queueId"]), int(fields["commitOffset"])))
            self.offsets.setdefault(key, {})[int(fields["queueId"])] = int(fields["commitOffset"])
            return RemotingCommand(code=0)
        if command.code == 14:
            return self.offset(**command.ext_fields)
        text = {
            21: {"topicConfigTable": self.topics},
            201: {"subscriptionGroupTable": self.groups},
            43: {"offsetTable": self.offsets},
            45: {"offsetTable": self.delays},
            28: {"table": {"commitLogMaxOffset": str(self.log_end)}},
        }[command.code]
        if command.code in self.paged:
            return await self.paged[command.code](None, command)
        body = self.bodies.get(command.code, msgspec.json.encode(text))
        return RemotingCommand(code=self.code, body=body)

    def offset(self, consumerGroup, topic, queueId, setZeroIfNotFound):  # noqa: N803 - of the wire
        assert setZeroIfNotFound == "false"
        found = self.offsets.get(f"{topic}@{consumerGroup}", {}).get(int(queueId), self.not_found)
        fields = {} if found is None else {"offset": str(found)}
        return RemotingCommand(code=22 if found is None else 0, ext_fields=fields)


class Slave:
    """The tables of a slave, and what follows its master."""

    def __init__(self, master, log_end=1_000, **settings):
        self.tables = Tables(BrokerConfig(**settings), SystemClock())
        self.delays = self.tables.add(DelayProgress())
        self.own = OwnOffsets(self.tables.offsets)
        self.tables.state.add(self.own)
        self.log = SimpleNamespace(end=log_end, applied=log_end)
        self.followed = MASTER
        self.sync = SlaveSync(
            master,
            SystemClock(),
            self.log,
            SlaveTables(self.tables.topics, self.tables.groups, self.tables.offsets, self.delays),
            self.own,
            master=lambda: self.followed,
            apply=lambda change: self.tables.state.apply(-1, *change),
        )

    def follow(self, times=1):
        for _ in range(times):
            asyncio.run(self.sync.follow())

    def offset(self, key=KEY, queue_id=0):
        topic, _, group = key.rpartition("@")
        return self.tables.offsets.query(group, topic, queue_id)

    def state(self):
        return {name: table.snapshot() for name, table in self.tables.state.tables.items()}
