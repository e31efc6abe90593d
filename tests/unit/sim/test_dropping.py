"""What brokers drop: old enough when it was decided, unless the disk was too full for that."""

import asyncio
from types import SimpleNamespace

import pytest

from ledgermq.runtime.disk import Space
from sim.dropping import Dropping
from sim.faults.plan import Options, Plan, Workload
from sim.oracles.alone import Alone
from sim.oracles.base import Findings

WALL_MS = 1_700_000_000_000
MS = 1_000_000
AGE_MS = 1_500
QUEUE = ("orders", 0)


class Broker:
    """A broker whose retention drops what it is told to, some time after it has decided."""

    def __init__(self, world, name, takes_ms=0):
        self.world, self.takes_ms = world, takes_ms
        queue = SimpleNamespace(topic="orders", queue_id=0, min_offset=4)
        self.store = SimpleNamespace(
            log_start=SimpleNamespace(advance_to=lambda _position: None),
            _queues=SimpleNamespace(by_key={QUEUE: queue}),
        )
        retained = SimpleNamespace(drop_before=self.drop)
        self.asked = 0
        self._retention = SimpleNamespace(_retained=retained, ask=self.ask)
        world.controllers[name] = self
        Dropping.listen(world.dropping, name, self)

    def ask(self):
        self.asked += 1

    async def drop(self, position):
        self.world.pass_ms(self.takes_ms)
        self.store.log_start.advance_to(position)

    def round(self):
        asyncio.run(self._retention._retained.drop_before(4_096))


class World:
    def __init__(self, used=0.1, by="hour", **options):
        self.now_ms = 60_000
        self.plan = Plan(
            seed=1,
            options=Options(retention_ms=AGE_MS, retention_by=by, alone="plain", **options),
            workload=Workload(compact_p=0.0),
        )
        self.findings = Findings()
        self.expired = []
        self.sent_ns = {}
        self.used = used
        clock = SimpleNamespace(wall_ms=lambda: WALL_MS + self.now_ms, lag_ns=0)
        self.hosts = {name: SimpleNamespace(clock=clock, alive=True) for name in ("n0", "b0")}
        self.loop = SimpleNamespace(now_ns=self.now_ms * MS)
        self.layout = SimpleNamespace(alone=("b0",))
        self.controllers = {}
        self.record = SimpleNamespace(count=lambda *_: None)
        self.clients_oracle = SimpleNamespace(dropped={})
        alone = Alone(
            self.findings, is_sync=True, tag_of=lambda _key: "", now_ns=lambda: self.loop.now_ns,
            sent_ns=lambda key: self.sent_ns[key],
        )  # fmt: skip
        answers = SimpleNamespace(on_expired=lambda *told: self.expired.append(told))
        self.validators = SimpleNamespace(alone=alone, group_answers=answers)
        self.dropping = Dropping(self)

    def disk(self, _name):
        return SimpleNamespace(space=lambda _path: Space(round(1000 * (1.0 - self.used)), 1000))

    def pass_ms(self, ms):
        self.now_ms += ms
        self.loop.now_ns = self.now_ms * MS

    @property
    def found(self):
        return None if self.findings.first is None else self.findings.first.oracle


def test_age_counts_by_the_clock_of_who_decides():
    world = World()
    Broker(world, "n0", takes_ms=300).round()
    assert world.expired == [("n0", 4_096, WALL_MS + 60_000 - AGE_MS)]
    assert world.clients_oracle.dropped == {QUEUE: 4}


def test_above_the_level_that_forces_it_age_does_not_count():
    world = World(used=0.86)
    broker = Broker(world, "n0")
    broker.round()
    assert (world.expired, world.dropping.has_forced) == ([], True)
    broker.store.log_start.advance_to(4_096)  # a snapshot of whoever was forced
    assert world.expired == []
    world.used = 0.1
    broker.round()
    assert len(world.expired) == 1


def test_a_snapshot_stands_for_what_is_old_at_whoever_made_it():
    world = World()
    Broker(world, "n0").store.log_start.advance_to(4_096)
    assert world.expired == [("n0", 4_096, WALL_MS + 60_000 - AGE_MS)]


def test_compaction_says_nothing_of_age():
    world = World()
    world.plan = Plan(seed=1, options=world.plan.options, workload=Workload(term_compact_p=0.3))
    Broker(world, "n0").round()
    assert world.expired == []


@pytest.mark.parametrize(
    ("by", "asked", "used", "found"),
    [
        ("hour", False, 0.1, None),
        ("request", False, 0.1, "A22 dropped without a request"),
        ("request", False, 0.8, None),
        ("request", True, 0.1, None),
    ],
)
def test_where_somebody_has_to_ask_nothing_goes_before(by, asked, used, found):
    world = World(by=by, used=used)
    broker = Broker(world, "n0")
    if asked:
        world.dropping.ask("n0")
        assert broker.asked == 1
        world.pass_ms(5_000)
    broker.round()
    assert world.found == found


@pytest.mark.parametrize(
    ("sent_ms_ago", "used", "found"),
    [
        (AGE_MS + 100, 0.1, None),
        (AGE_MS - 100, 0.1, "A22 dropped before its time"),
        (AGE_MS - 100, 0.9, None),
    ],
)
def test_a_broker_alone_drops_no_message_that_was_sent_too_late(sent_ms_ago, used, found):
    world = World(alone_retention_ms=AGE_MS, used=used)
    broker = Broker(world, "b0")
    alone = world.validators.alone
    world.sent_ns[7] = world.loop.now_ns - sent_ms_ago * MS
    alone.on_acknowledged(QUEUE, 3, [7])
    broker.round()
    assert world.found == found
    if found is None:
        alone.on_audited(QUEUE, {4: 8}, 4, 5)
        assert world.found is None, "what was dropped is not missed"
        alone.on_audited(QUEUE, {6: 8}, 6, 7)
        assert world.found == "A22 begins too late"


def test_ages_by_a_clock_that_will_be_set_right_are_not_checked():
    world = World(alone_retention_ms=AGE_MS, clock_spread_ms=300)
    broker = Broker(world, "b0")
    world.sent_ns[7] = world.loop.now_ns
    world.validators.alone.on_acknowledged(QUEUE, 3, [7])
    broker.round()
    assert world.found is None


def test_what_is_dropped_while_it_is_read_is_no_gap():
    findings = Findings()
    alone = Alone(findings, is_sync=True, tag_of=lambda _key: "", now_ns=lambda: 0)
    alone.on_dropped({QUEUE: 6}, None)
    alone.on_audited(QUEUE, {4: 7, 6: 8}, 4, 7)
    assert findings.first is None
    alone.on_audited(QUEUE, {4: 7, 6: 8}, 4, 8)
    assert findings.first.oracle == "A22 gap in a queue"


@pytest.mark.parametrize(
    ("is_sync", "begun_ns", "found"),
    [(False, 5, False), (False, 15, True), (True, 5, True)],
    ids=("begun before the power went", "begun since", "synced before it was acknowledged"),
)
def test_what_is_acknowledged_of_before_a_loss_of_power_may_be_gone(is_sync, begun_ns, found):
    findings = Findings()
    alone = Alone(
        findings, is_sync=is_sync, tag_of=lambda _key: "", now_ns=lambda: 10,
        sent_ns=lambda key: begun_ns if key == 7 else 20,
    )  # fmt: skip
    alone.on_power_loss()
    alone.on_acknowledged(QUEUE, 3, [7])  # the answer was on its way
    alone.on_acknowledged(QUEUE, 3, [8])
    assert (findings.first is not None) is found
