"""Tables of replicas are compared with what the bytes of the log make of them."""

import json
from types import SimpleNamespace

import msgspec
import pytest

from broker.delays.progress import DelayProgress
from broker.state.consumer_offset import ConsumerOffsetTable
from broker.state.queue_lock import QueueLockTable
from broker.state.replicated_state import ReplicatedState
from broker.state.subscription import GroupChange, SubscriptionGroupConfig, SubscriptionGroupTable
from broker.state.topic_config import TopicChange, TopicTable
from broker.transactions.table import HalfTable
from dledger.core.model import Role
from ledgermq.remoting.protocol.bodies import TopicConfig
from ledgermq.remoting.protocol.message import MessageExt, encode_record
from sim.oracles.applied import begins
from sim.oracles.base import Violation
from sim.oracles.model import Model, read_statement
from sim.oracles.replica import Change
from sim.oracles.tables import LEASE_MS, LEASE_NS_MIN, Tables
from sim.oracles.truth import Truth
from store.layout import STATE_TOPIC, state_properties


def to_json(value):
    return json.dumps(value).encode()


def lock(client, queue_id=0):
    queue = {"brokerName": "b", "queueId": queue_id, "topic": "orders"}
    return to_json({"group": "g", "clientId": client, "queues": [queue]})


TOPIC = to_json(
    {"config": {"topicName": "orders", "perm": 6, "readQueueNums": 4, "writeQueueNums": 4},
     "timestamp": 70}
)  # fmt: skip
GROUP = to_json({"config": {"groupName": "g", "retryMaxTimes": 3}, "timestamp": 71})
LOG = [
    ("topic", TOPIC),
    ("group", GROUP),
    ("offset", to_json({"orders@g": {"0": 7, "1": 9, "2": 4}, "orders@none": {"0": 1}})),
    ("forget-offsets", to_json({"offsets": {"orders@g": [2], "orders@none": [0], "gone@g": [3]}})),
    ("lock", lock("c1")),
    ("lock", lock("c2", 1)),
    ("unlock", lock("c1")),
    ("unlock", lock("c1", 1)),
    ("delivered", b"[3,6]"),
]


def statement(index, kind, payload):
    record = MessageExt(
        STATE_TOPIC, 0, 0, 0, 0, 48, 0, bytes(8), 5, bytes(8), 0, 0, payload, state_properties(kind)
    )
    return read_statement(index, 0, bytes(48) + encode_record(record))


class Clock:
    def __init__(self):
        self.now = 1_000

    def monotonic_ms(self):
        return self.now


class One:
    """A replica that has applied all of `LOG` by the production's own tables."""

    def __init__(self):
        self.clock = Clock()
        self.state = SimpleNamespace(
            topics=TopicTable([], 1),
            groups=SubscriptionGroupTable(1),
            offsets=ConsumerOffsetTable(),
            locks=QueueLockTable(self.clock.monotonic_ms),
        )
        self.state.progress = DelayProgress()
        self.state.halves = HalfTable()
        state = ReplicatedState(*vars(self.state).values())
        self.truth = Truth(("n0",))
        for index, (kind, payload) in enumerate(LOG):
            assert state.apply(index, kind, payload)
            self.truth.statements.append(statement(index, kind, payload))
            self.truth.state_indexes.append(index)
        controller = SimpleNamespace(
            tables=self.state,
            _processors=SimpleNamespace(transactions=SimpleNamespace(table=self.state.halves)),
            _services=SimpleNamespace(delays=SimpleNamespace(progress=self.state.progress)),
            node=SimpleNamespace(reader=SimpleNamespace(snapshot_meta=None)),
            state_index=-1,
        )
        self.replica = SimpleNamespace(
            name="n0", is_wiped=False, controller=controller, now_ms=self.clock.monotonic_ms
        )

    def validator(self):
        oracle = self.validator_only()
        oracle.on_boot(self.replica)
        self.change(oracle, applied=len(LOG) - 1)

    def validator_only(self):
        return Tables(self.truth)

    def change(self, oracle, *, applied):
        key = (Role.FOLLOWER, 1, 0, 0, 1, applied, 0)
        oracle.on_change(self.replica, Change(key, key, 0, 0))


def test_tables_that_the_production_makes_are_what_the_log_says():
    One().validator()


def spoil_version(state):
    state.topics.data_version.counter = 0


def spoil_owner(state):
    state.locks.apply_lock(lock("c3", 1), 1_000)


def spoil_topic(state):
    config = TopicConfig(topic_name="orders", perm=6, read_queue_nums=4, write_queue_nums=3)
    state.topics._put(config)


SPOILT = {
    "offset before it is replicated": lambda s: s.offsets._applied["orders@g"].update({2: 1}),
    "offset that is gone": lambda s: s.offsets._applied["orders@g"].pop(0),
    "lock that nobody gave": lambda s: s.locks.apply_lock(lock("c3", 3), 1_000),
    "lock of another": spoil_owner,
    "lock that is gone": lambda s: s.locks._leases.clear(),
    "topic with other queues": spoil_topic,
    "topic that is in no log": lambda s: s.topics._put(TopicConfig(topic_name="other")),
    "group that is gone": lambda s: s.groups._groups.pop("g"),
    "version that was not counted": spoil_version,
    "half that is open": lambda s: s.halves.open(b"[3,7,8,-1,0,0]"),
    "level that is not delivered": lambda s: s.progress._offsets.clear(),
    "level that is delivered further": lambda s: s.progress.apply(b"[3,7]"),
}


@pytest.mark.parametrize("what", sorted(SPOILT))
def test_tables_that_are_something_else_are_a_violation(what):
    one = One()
    SPOILT[what](one.state)
    with pytest.raises(Violation, match="A39 tables"):
        one.validator()


@pytest.mark.parametrize("more_ms", [LEASE_MS, -LEASE_MS // 10])
def test_a_lease_lasts_a_minute_from_when_it_was_last_asked_for(more_ms):
    one = One()
    one.state.locks._leases["g", "orders", 1].until_ms += more_ms
    with pytest.raises(Violation, match="A21 lease"):
        one.validator()


def test_a_lock_that_has_run_out_may_be_gone():
    one = One()
    one.truth.now_ns = lambda: LEASE_NS_MIN
    one.state.locks._leases.clear()
    one.validator()


def test_what_the_model_does_not_know_it_does_not_judge():
    model = Model()
    model.apply(statement(0, "something new", b"{}"))
    assert not model.knows
    model = Model()
    model.apply(statement(0, "lock", b"no json"))
    assert not model.knows


def test_the_model_reads_what_the_production_writes():
    config = SubscriptionGroupConfig(group_name="g", retry_max_times=3)
    model = Model()
    model.apply(statement(0, "group", msgspec.json.encode(GroupChange(config, 5))))
    topic = TopicConfig(topic_name="orders")
    model.apply(statement(1, "topic", msgspec.json.encode(TopicChange(topic, 6))))
    assert (model.knows, model.group_version, model.topic_version) == (True, (5, 1), (6, 1))


def test_queues_begin_where_the_log_does():
    truth = Truth(("n0",))
    truth.queues["orders", 0] = [SimpleNamespace(entry_index=index) for index in (2, 5, 9)]
    assert [begins(truth, first)["orders", 0] for first in (0, 2, 3, 6, 10)] == [0, 0, 1, 2, 3]
