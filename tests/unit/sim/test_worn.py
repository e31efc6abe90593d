"""Plans whose brokers are worn: what they have, and that others are as they were."""

from types import SimpleNamespace

import pytest

from broker.state import saver
from sim import transport
from sim.faults.budget import problems
from sim.faults.draw import draw
from sim.faults.plan import FaultKind, Options, Package, Plan, Workload
from sim.faults.wearing import SCHEDULED, TOP_BIT, with_wearing
from sim.faults.worn import BODIES_MIN, Worn, draw_worn
from sim.operator import Operator
from sim.oracles.base import Findings
from sim.oracles.clients import Clients
from sim.oracles.truth import Truth
from sim.rng import SplitRng
from sim.smallness import with_small
from tests.unit.sim.fault_world import FaultWorld, event
from tests.unit.sim.test_oracles_tables import LOG, One

SEEDS = range(300)


def test_a_plan_that_is_special_otherwise_has_none():
    worn = [plan for plan in map(draw, SEEDS) if plan.workload.worn is not None]
    assert 30 <= len(worn) <= 60
    for plan in worn:
        workload = plan.workload
        assert (workload.strain, workload.edges, workload.unwilling) == (None, None, None)
        assert not problems(plan.events, plan.options)


def test_a_message_of_the_largest_kind_finds_room():
    drawn = [draw_worn(SplitRng(n), body_max=65_536, is_behind=True) for n in range(200)]
    limits = {one.pending_bytes for one in drawn if one is not None}
    assert limits == {0, BODIES_MIN * 65_536}


def test_each_kind_of_wear_comes():
    workload = Workload(worn=Worn(), delayed=draw_delayed())
    options = Options(spares=1, safety_ms=14_000)
    away = [event(FaultKind.CRASH, at_ms=3_000, for_ms=2_000, target="follower")]
    away = [one.__class__(**{**fields(one), "package": Package.BEHIND}) for one in away]
    seen = set()
    for seed in range(60):
        for one in with_wearing(SplitRng(seed), away, options, workload):
            seen.add((one.kind, one.params.get("glob"), bool(one.params.get("bytes_per_ms"))))
            assert one.end_ms <= options.safety_ms
    for wanted in (
        (FaultKind.HUNG_DISK, "*/data/*", False),
        (FaultKind.SPOIL, "*/config/*.json", False),
        (FaultKind.SPOIL, SCHEDULED, False),
        (FaultKind.DISK_FULL, "*/snapshot*", False),
        (FaultKind.DELAY, None, True),
        (FaultKind.ADD, None, False),
        (FaultKind.HALVES, None, False),
        (FaultKind.BIT_ROT, "*/data/*", False),
    ):
        assert wanted in seen
    assert with_wearing(SplitRng(1), away, options, Workload()) == away


def draw_delayed():
    return next(filter(None, (draw(seed).workload.delayed for seed in SEEDS)))


def fields(one):
    return {name: getattr(one, name) for name in one.__struct_fields__}


def test_each_disk_hangs_once():
    workload, options = Workload(worn=Worn()), Options(safety_ms=14_000)
    for seed in range(60):
        events = with_wearing(SplitRng(seed), [], options, workload)
        hung = [one.target for one in events if one.kind is FaultKind.HUNG_DISK]
        assert hung in ([], ["n0", "n1", "n2"])


def test_what_is_drawn_small_is_put_back():
    usual = saver.PERIOD_MS, transport.WINDOW_BYTES, transport.KERNEL_BYTES
    worn = Worn(saved_ms=400, socket_bytes=16_384)
    with with_small(Plan(seed=1, workload=Workload(worn=worn))):
        assert (saver.PERIOD_MS, transport.WINDOW_BYTES) == (400, 16_384)
        assert transport.KERNEL_BYTES < 16_384
    assert usual == (saver.PERIOD_MS, transport.WINDOW_BYTES, transport.KERNEL_BYTES)


def test_damage_that_any_reader_of_a_text_sees():
    params = {"glob": "*/config/*.json", "bytes": 1, "mask": TOP_BIT}
    world = FaultWorld(event(FaultKind.SPOIL, target="n1", **params))
    path = "/store/config/topics.json"
    world.disk("n1").make_directories("/store/config")
    world.disk("n1").replace(path, b'{"topics": {}}')
    world.nemesis.start()
    world.run(1_500)
    spoilt = world.disk("n1").read(path)
    with pytest.raises(UnicodeDecodeError):
        spoilt.decode()


def test_a_link_that_is_narrow_passes_little():
    world = FaultWorld(event(FaultKind.DELAY, target="n0", base_ms=1, bytes_per_ms=60))
    link = world.network.link(world.host("n0").address, world.host("n1").address)
    world.nemesis.start()
    world.run(1_500)
    assert link.bytes_per_ms == 60
    world.run(2_500)
    assert link.bytes_per_ms == 0


@pytest.mark.parametrize(("index", "is_found"), [(0, False), (1, True)])
def test_what_is_shown_by_its_id_is_committed(index, is_found):
    findings, truth = Findings(), Truth(("n0",))
    truth.committed.append("an entry")
    Clients(truth, findings).on_shown("n0", index)
    assert (findings.first is not None) is is_found


def test_each_broker_is_asked_for_its_last_message_by_its_id():
    shown, due = [], []
    reader = SimpleNamespace(message_at=lambda physical: physical)
    store = SimpleNamespace(reader=reader)
    last = SimpleNamespace(position=100)
    replica = SimpleNamespace(last_index=7, mark=lambda index: last if index == 7 else None)
    world = SimpleNamespace(
        plan=Plan(seed=1, workload=Workload(worn=Worn(by_id_ms=20))),
        operations=(),
        brokers=lambda: ("n0",),
        node=lambda _name: object(),
        run_on=lambda _name, coro: due.append(coro),
        loop=SimpleNamespace(now_ns=0),
        at=lambda when_ns, action: due.append(when_ns),
        watch=SimpleNamespace(replicas={"n0": replica}),
        controllers={"n0": SimpleNamespace(store=store)},
        clients_oracle=SimpleNamespace(on_shown=lambda *row: shown.append(row)),
        record=SimpleNamespace(count=lambda _name: None),
    )
    Operator(world).start()
    coro, when_ns = due
    assert when_ns == 20_000_000
    with pytest.raises(StopIteration):
        coro.send(None)
    assert shown == [("n0", 7)]


def test_tables_of_a_snapshot_may_be_ahead_as_those_of_its_maker_were():
    """It was made while the log was applied anew, from tables that had been saved later."""
    maker, other = One(), One()
    oracle = maker.validator_only()
    maker.replica.controller.state_index = len(LOG)
    oracle.on_boot(maker.replica)
    meta = SimpleNamespace(id="a snapshot", state_index=3)
    maker.replica.controller.node.reader.snapshot_meta = meta
    maker.change(oracle, applied=3)
    other.replica.name = "n1"
    oracle.on_boot(other.replica)
    other.replica.controller.node.reader.snapshot_meta = meta
    assert oracle.compared_from(other.replica) == len(LOG)
    other.replica.controller.node.reader.snapshot_meta = SimpleNamespace(id="own", state_index=3)
    assert oracle.compared_from(other.replica) == 3
