"""Limits and times drawn small, and moments of before: a sound group stands them."""

import asyncio
import errno
from types import SimpleNamespace

import pytest

from broker.answers import DAMAGED
from broker.groups.client_registry import EXPIRY_MS
from ledgermq.client import MessageQueue
from sim.edging import lease_ms
from sim.faults.draw import draw
from sim.faults.edges import EDGES_P, Edges, draw_edges
from sim.faults.moments import KINDS, with_moments
from sim.faults.plan import FaultKind, Options, Plan, Role, Workload
from sim.faults.traffic import Orderly
from sim.oracles.base import Findings, Violation
from sim.oracles.beginning import KNOWN_NS, Beginning
from sim.oracles.early import Early
from sim.oracles.failing import check_failure
from sim.oracles.model import Statement
from sim.oracles.order import LEASE_MS
from sim.oracles.wire import Said
from sim.rng import SplitRng
from sim.run import VALID, run_plan
from sim.world import World
from store.results import PutStatus
from store.write.uncommitted import OwnState, Uncommitted
from tests.unit.sim.fault_world import FaultWorld, event

SEEDS = 600
SMALL = Edges(
    lease_ms=6_000, silent_ms=6_000, queues_flushed=1, unwritten=4, dispatch=1, read_bytes=600,
    key_slots=8, refused_p=0.1, slow_files_ms=60, tools_ms=40,
)  # fmt: skip


def test_each_part_is_drawn_in_some_plans_and_none_in_most():
    drawn = [draw_edges(SplitRng(seed)) for seed in range(SEEDS)]
    found = [one for one in drawn if one is not None]
    assert len(found) == pytest.approx(EDGES_P * SEEDS, rel=0.3)
    for field in Edges.__struct_fields__:
        values = {getattr(one, field) for one in found}
        assert len(values) > 1, field
        assert getattr(Edges(), field) in values, field


def test_plans_without_edges_have_none_of_it():
    plans = [draw(seed) for seed in range(1, 60)]
    usual = [plan for plan in plans if plan.workload.edges is None]
    assert usual
    for plan in usual:
        world = World(plan)
        assert world.layout.tools == ()
        skilled = plan.workload.skilled
        if plan.workload.seldom is None and not (skilled and skilled.lease_ms):
            assert world.watch.tables.lease_ms == LEASE_MS == lease_ms(plan)


def moments(name):
    return [KINDS[name][1](SplitRng(seed), Options()) for seed in range(50)]


def test_who_led_is_cut_off_and_leads_again():
    for events in moments("leads again"):
        kinds = [one.kind for one in events]
        cuts = [one for one in events if one.kind is FaultKind.ISOLATE]
        orders = [one for one in events if one.kind is FaultKind.TRANSFER]
        assert len(cuts) == len(orders) >= 1, kinds
        for cut, order in zip(cuts, orders, strict=True):
            assert (cut.target, order.target) == (Role.LEADER, Role.EX_LEADER)
            assert cut.for_ms > Options().election_ms
            assert order.at_ms > cut.end_ms


def test_a_hand_over_to_who_stands_still_is_followed_by_another():
    for held, first, later in moments("lost transfer"):
        assert held.target == first.target == Role.FOLLOWER_0
        assert held.at_ms < first.end_ms <= held.end_ms <= later.at_ms


def test_processes_end_while_their_disks_are_full():
    for full, ends in moments("full and killed"):
        assert full.kind is FaultKind.DISK_FULL
        assert full.at_ms < ends.at_ms < full.end_ms
        assert full.target == ends.target


def test_each_moment_comes_in_some_plans_and_all_within_the_run():
    options = Options(safety_ms=8_000)
    plans = [with_moments(SplitRng(seed), [], options) for seed in range(300)]
    for kind in ("TRANSFER", "DISK_FULL", "CLOCK_JUMP", "NAMESRV_RESET", "NAMESRV_DELAY"):
        share = sum(any(one.kind is FaultKind[kind] for one in plan) for plan in plans) / 300
        assert 0.05 < share < 0.95, kind
    for plan in plans:
        assert all(one.end_ms <= options.safety_ms for one in plan)
        assert [one.at_ms for one in plan] == sorted(one.at_ms for one in plan)


def test_times_and_limits_reach_programs_and_oracles():
    plan = Plan(seed=3, options=Options(), workload=Workload(edges=SMALL))
    world = World(plan)
    assert world.watch.tables.lease_ms == SMALL.lease_ms
    assert world.watch.brokers.silent_ns < SMALL.silent_ms * 1e6
    assert world.layout.client_config("p0").heartbeat_ms < SMALL.silent_ms / 3
    config = world.layout.broker_config("n0")
    assert config.get_bytes_max == SMALL.read_bytes
    store = config.store_config()
    assert (store.flush_queues_max, store.dispatch_batch, store.unflushed_units_max) == (1, 1, 4)
    assert SMALL.silent_ms < EXPIRY_MS


@pytest.mark.parametrize("seed", [5, 6])
def test_a_sound_group_stands_it(seed):
    workload = Workload(rate_per_s=8.0, query_p=0.1, edges=SMALL, orderly=Orderly(share=0.3))
    plan = Plan(seed=seed, options=Options(safety_ms=8_000), workload=workload, events=(
        event("crash", at_ms=2_500, for_ms=300),
        event("namesrv_reset", at_ms=4_000, for_ms=0, late_ms=900, which="all"),
    ))  # fmt: skip
    result = run_plan(plan)
    assert result.verdict == VALID, (result.oracle, result.text)
    for what in ("locks_contended", "times_asked", "stats_asked", "pulls_held_and_closed"):
        assert result.counters[what], what


# Oracles


def stated(offset, at_ns):
    return Statement(1, at_ns, "offset", {"orders@g": {"0": offset}})


@pytest.mark.parametrize(
    ("told", "later_ns", "is_sound"),
    [(7, KNOWN_NS, True), (-1, KNOWN_NS - 1, True), (-1, KNOWN_NS, False)],
)
def test_a_group_that_has_committed_does_not_begin_anew(told, later_ns, is_sound):
    findings, now = Findings(), [0]
    truth = SimpleNamespace(on_statement=[], now_ns=lambda: now[0])
    oracle = Beginning(truth, findings, lambda _queue: True)

    async def ask(_queue, _claim):
        return SimpleNamespace(offset=told)

    push = SimpleNamespace(
        assignment=SimpleNamespace(_stored_offset=ask), config=SimpleNamespace(group="g")
    )
    oracle.follow(push)
    queue = MessageQueue("orders", "b", 0)
    asyncio.run(push.assignment._stored_offset(queue, None))
    assert not findings.all, "nothing was committed"
    truth.on_statement[0](stated(7, 0))
    now[0] = later_ns
    asyncio.run(push.assignment._stored_offset(queue, None))
    assert bool(findings.all) != is_sound
    assert all(one.oracle == "A24 a group begins anew" for one in findings.all)


def broker(leases=(), topics=()):
    tables = SimpleNamespace(
        locks=SimpleNamespace(_leases=dict(leases)), topics=SimpleNamespace(get=dict(topics).get)
    )
    return SimpleNamespace(name="n0", controller=SimpleNamespace(tables=tables))


def test_what_was_told_to_be_made_is_there():
    request = Said(17, {"topic": "new"}, b"", 0, b"")
    Early().on_topic(broker(topics={"new": 1}), request)
    with pytest.raises(Violation, match="A39 told before it is applied"):
        Early().on_topic(broker(), request)


def test_a_lock_that_was_granted_is_in_the_table():
    key = ("g", "orders", 1)
    Early().on_lock(broker({key: SimpleNamespace(client_id="c")}), "c", {key})
    for leases in ({}, {key: SimpleNamespace(client_id="d")}):
        with pytest.raises(Violation, match="A39 told before it is applied"):
            Early().on_lock(broker(leases), "c", {key})


@pytest.mark.parametrize(
    ("status", "applied_end", "is_sound"),
    [
        (PutStatus.OK, 700, True),
        (PutStatus.OK, 600, False),
        (PutStatus.NOT_LEADER, 600, True),
    ],
)
def test_who_proposed_a_record_is_told_of_it_when_it_is_applied(status, applied_end, is_sound):
    uncommitted, told = Uncommitted(48), []
    writer = SimpleNamespace(_commit_log=SimpleNamespace(uncommitted=uncommitted))
    replica = SimpleNamespace(
        name="n0", deferred=[], dispatcher=SimpleNamespace(applied_end=applied_end),
        controller=SimpleNamespace(store=SimpleNamespace(writer=writer)),
    )  # fmt: skip
    Early().on_boot(replica)
    uncommitted.add_state(own := OwnState(600, 50, "group", b"{}", told.append))
    own.answer(status)
    assert told == [status]
    if is_sound:
        assert all(look() is None for look in replica.deferred)
    else:
        with pytest.raises(Violation, match="A39 told before it is applied: n0 says that group"):
            replica.deferred[0]()


def test_a_disk_may_be_full_for_some_files_alone():
    world = FaultWorld(event("disk_full", target="n0", glob="*/consumequeue/*"))
    disk = world.hosts["n0"].disk
    disk.make_directories("/s/consumequeue")
    disk.make_directories("/s/data")
    queue, log = (disk.open(f"/s/{name}/0", size=4096) for name in ("consumequeue", "data"))
    world.nemesis.start()
    world.run(1_500)
    log.pwrite(0, [b"entry"])
    with pytest.raises(OSError, match="simulated disk") as raised:
        queue.pwrite(0, [b"unit"])
    assert raised.value.errno == errno.ENOSPC
    world.run(2_500)
    queue.pwrite(0, [b"unit"])
    assert world.nemesis.applied[0].effective
    world.loop.close()


@pytest.mark.parametrize(
    ("code", "told", "remark", "is_watched", "is_sound"),
    [
        (29, 1, "no such entry", False, False),
        (29, 1, "no such entry", True, True),
        (29, 1, "7@orders is not exist!", False, True),
        (17, 1, "no such entry", False, True),
        (29, 14, DAMAGED[1], False, False),
        (36, 14, DAMAGED[1], False, False),
        (36, 14, DAMAGED[1], True, True),
        (36, 14, "the broker is ending", False, True),
    ],
)
def test_who_only_looks_gets_an_answer(code, told, remark, is_watched, is_sound):
    replica = SimpleNamespace(
        name="n0", is_corrupt=False, disk=SimpleNamespace(is_watched=is_watched)
    )
    request, answer = Said(code, {}, b"", 0, b""), Said(told, {}, b"", 0, b"", remark)
    if is_sound:
        check_failure(replica, request, answer)
    else:
        with pytest.raises(Violation, match="A44 a question that fails"):
            check_failure(replica, request, answer)
