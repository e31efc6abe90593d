"""Where tasks wait is seen, and something happens to a process that waits where it seldom does."""

import asyncio
import itertools
from functools import partial

import pytest

from ledgermq.client.background import join
from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.runtime.cancel import timeout
from ledgermq.runtime.tasks import attempt
from sim.campaign import Case, plan_of
from sim.context import CURRENT
from sim.disk import SimDisk
from sim.faults.ambush_draw import OF_GROUP
from sim.faults.plan import FaultKind, Package
from sim.lookout import DISK, FRAMES, Lookout
from sim.loop import SimLoop
from sim.rng import SplitRng
from tests.unit.sim.fault_world import event
from tests.unit.sim.test_frames import frame

FILE = "dledger/leadership.py"
MODES = ("raft", "alone", "sync-master", "controller")


@pytest.fixture
def loop():
    loop = SimLoop(1)
    loop.lookout = Lookout()
    yield loop
    loop.close()


def see(world, name, point=(FILE, "Leadership.read_index", 43), times=1):
    for _ in range(times):
        world.lookout._note(name, point)


def is_sprung(world, kind):
    return [one.names for one in world.nemesis.applied if one.event.kind is FaultKind(kind)]


# What is seen


def points_of(loop, program):
    seen = []
    loop.lookout.traps.append(lambda host, point, count: seen.append((host, *point[:2], count)))
    host = loop.add_host("n0", "10.0.0.1")
    loop.spawn(loop.boot(host), program())
    loop.run_until(10_000_000)
    return seen


def test_a_task_is_seen_where_the_innermost_code_of_the_product_waits(loop):
    async def program():
        await join(asyncio.ensure_future(asyncio.sleep(0.001)))

    assert ("n0", "ledgermq/client/background.py", "join", 1) in points_of(loop, program)


def test_what_is_called_later_or_given_to_a_thread_is_seen_by_its_name(loop):
    async def program():
        asyncio.get_running_loop().call_later(0.001, attempt, "it", lambda: None)
        await asyncio.get_running_loop().run_in_executor(None, attempt, "it", lambda: None)

    seen = points_of(loop, program)
    assert [one for one in seen if one[2] == "attempt"] == [
        ("n0", "ledgermq/runtime/tasks.py", "attempt", 1),
        ("n0", "ledgermq/runtime/tasks.py", "attempt", 2),
    ]


def test_what_is_not_of_the_product_is_not_seen(loop):
    async def program():
        async with timeout(5):  # of the product, and not waiting
            await asyncio.sleep(0.001)
        asyncio.get_running_loop().call_soon(CURRENT.get)

    assert points_of(loop, program) == []


def test_a_message_is_seen_as_it_arrives_by_its_code(loop):
    async def serve():
        await asyncio.get_running_loop().create_server(asyncio.Protocol, "10.0.0.2", 10_911)

    async def ask():
        connect = asyncio.get_running_loop().create_connection
        transport, _ = await connect(asyncio.Protocol, "10.0.0.2", 10_911)
        transport.write(frame(RequestCode.GET_MAX_OFFSET))
        transport.write(b"no frame")

    seen = []
    loop.lookout.listens = True
    loop.lookout.traps.append(lambda host, point, count: seen.append((host, point, count)))
    for name, address, program in (("n1", "10.0.0.2", serve), ("p0", "10.0.0.1", ask)):
        loop.spawn(loop.boot(loop.add_host(name, address)), program())
        loop.run_until(loop.now_ns + 10_000_000)
    assert [one for one in seen if one[1][0] == FRAMES] == [
        ("n1", (FRAMES, "request 30 at 10911", 0), 1),
        ("n1", (FRAMES, "4 bits of length at 10911", 0), 1),
    ]


def test_a_step_of_a_disk_is_seen_by_the_kind_of_its_file():
    seen, disk, lookout = [], SimDisk(SplitRng(1)), Lookout()
    lookout.traps.append(lambda host, point, count: seen.append((point[1], count)))
    disk.make_directories("/data")
    disk.on_step = partial(lookout.feel, "n1")
    for number in (1, 2):
        disk.open(f"/data/{number:020}", size=10).fdatasync()
        disk.replace("/currterm", b"1")
    kinds = [("create /data/#", 1), ("sync_directory /data", 1), ("truncate /data/#", 1)]
    assert seen[:5] == [*kinds, ("sync /data/#", 1), ("sync /data/#", 2)]
    assert ("rename /currterm.tmp", 2) in seen


# What happens there


@pytest.mark.parametrize(
    ("points", "closes"), [("", "code"), (FRAMES, FRAMES), (DISK, DISK)]
)  # fmt: skip
def test_it_waits_for_what_it_is_to_wait_for(make, points, closes):
    world = make(event("ambush", for_ms=900, does="crash", seen_max=2, points=points))
    world.run(1_100)
    for name, point in (
        ("n0", (FILE, "Leadership.read_index", 43)),
        ("n1", (FRAMES, "request 31005 at 40911", 0)),
        ("n2", (DISK, "sync /data/#", 0)),
    ):
        see(world, name, point)
    world.run(1_200)
    by_kind = {"code": "n0", FRAMES: "n1", DISK: "n2"}
    assert is_sprung(world, "crash") == [(by_kind[closes],)]


@pytest.mark.parametrize("does", ["full", "log full"])
def test_a_disk_may_be_full_there(make, does):
    world = make(event("ambush", for_ms=900, does=does, seen_max=2, points=DISK, hold_ms=200))
    world.run(1_100)
    see(world, "n1", (DISK, "sync /data/#", 0))
    world.run(1_200)
    assert is_sprung(world, "disk_full") == [("n1",)]


def test_a_point_that_is_rare_has_its_process_killed_and_started_again(make):
    world = make(event("ambush", for_ms=900, does="crash", seen_max=2, hold_ms=300))
    world.run(1_100)
    see(world, "n1")
    world.run(1_200)
    assert (world.hosts["n1"].alive, is_sprung(world, "crash")) == (False, [("n1",)])
    world.run(1_500)
    assert world.hosts["n1"].alive
    assert world.nemesis.effective() == {"ambush": 1, "crash": 1}


def test_a_point_that_was_seen_often_before_is_passed_over(make):
    world = make(event("ambush", for_ms=900, does="crash", seen_max=2))
    see(world, "n1", times=2)  # nothing is laid yet
    world.run(1_100)
    see(world, "n1")
    world.run(1_300)
    assert not is_sprung(world, "crash")
    assert world.nemesis.skipped() == {"ambush": 1}


def test_in_the_second_half_of_its_time_it_takes_what_was_seen_more_often(make):
    world = make(event("ambush", for_ms=900, does="crash", seen_max=2))
    see(world, "n1", times=2)
    world.run(1_500)
    see(world, "n1")
    world.run(1_600)
    assert is_sprung(world, "crash") == [("n1",)]


def test_it_closes_once_and_no_two_close_at_one_point(make):
    laid = (event("ambush", for_ms=900, does="crash", seen_max=9, hold_ms=50),) * 2
    world = make(*laid)
    world.run(1_100)
    see(world, "n1")
    world.run(1_300)
    assert is_sprung(world, "crash") == [("n1",)], "the other one waits for another point"
    see(world, "n2")
    world.run(1_350)
    assert is_sprung(world, "crash") == [("n1",)]
    see(world, "n2", (FILE, "Leadership.release", 0), times=2)
    world.run(1_500)
    assert is_sprung(world, "crash") == [("n1",), ("n2",)]


def test_it_is_taken_away_at_its_end(make):
    world = make(event("ambush", for_ms=300, does="crash", seen_max=9))
    world.run(1_400)
    assert world.lookout.traps == []
    see(world, "n1")
    world.run(1_500)
    assert not is_sprung(world, "crash")


@pytest.mark.parametrize(
    ("does", "kind"),
    [("cut", "isolate"), ("deaf", "one_way"), ("pause", "pause"), ("lead", "transfer")],
)
def test_other_things_may_happen_there(make, does, kind):
    world = make(event("ambush", for_ms=900, does=does, seen_max=2, hold_ms=100))
    world.run(1_100)
    see(world, "n1")
    world.run(1_400)
    assert is_sprung(world, kind) == [("n1",)]


def test_the_log_of_the_leader_may_be_trimmed_there(make):
    world = make(event("ambush", for_ms=900, does="trim", seen_max=2))
    world.run(1_100)
    see(world, "n1")
    world.run(1_200)
    assert "compact n0" in world.log


def test_what_is_seen_of_a_client_may_happen_to_the_leader(make):
    world = make(
        event("ambush", for_ms=900, does="crash", among="clients", victim="leader", seen_max=2)
    )
    world.run(1_100)
    see(world, "n1")
    world.run(1_150)
    assert not is_sprung(world, "crash"), "it looks at clients alone"
    see(world, "c0", (FILE, "Leadership.release", 0))
    world.run(1_200)
    assert is_sprung(world, "crash") == [("n0",)]


@pytest.mark.parametrize(("name", "kind"), [("c0", "client_leave"), ("p0", "client_crash")])
def test_consumers_leave_in_good_order_and_producers_crash(make, name, kind):
    world = make(event("ambush", for_ms=900, does="leave", among="clients", seen_max=2))
    world.run(1_100)
    see(world, name)
    world.run(1_200)
    assert is_sprung(world, kind) == [(name,)]


def test_what_the_budget_forbids_does_not_happen(make):
    world = make(event("ambush", for_ms=900, does="power", seen_max=2))
    world.disk("n1").unsynced = lambda: (3, 1)
    for name in ("n0", "n2"):
        world.replicas[name].terms = [1]
    world.run(1_100)
    see(world, "n1")
    world.run(1_200)
    assert world.hosts["n1"].alive
    assert world.nemesis.skipped() == {"power_loss": 1}


def test_nothing_happens_once_all_is_healed(make):
    world = make(event("ambush", for_ms=900, does="crash", seen_max=2, after_ms=100))
    world.run(1_100)
    see(world, "n1")
    world.nemesis.heal_all()
    world.run(1_500)
    assert world.hosts["n1"].alive
    assert not is_sprung(world, "crash")


def test_an_ambush_by_itself_is_no_fault(make):
    world = make(event("ambush", for_ms=900, does="crash", seen_max=0))
    one = world.nemesis.applied[0].event
    assert one.package is Package.AMBUSH
    world.run(1_500)
    assert world.nemesis.disturbed_ms(1_500) == 0
    assert world.nemesis.any_ms(1_500) == 0


# What is drawn


@pytest.mark.parametrize("mode", MODES)
def test_a_part_of_the_plans_of_each_mode_has_some_behind_each_other(mode):
    plans = [plan_of(Case(seed, mode), overkill=False) for seed in range(1, 101)]
    laid = [[one for one in plan.events if one.kind is FaultKind.AMBUSH] for plan in plans]
    assert 8 <= sum(map(bool, laid)) <= 35
    for events in laid:
        for is_beside in (False, True):
            alike = [one for one in events if bool(one.text("points")) is is_beside]
            for one, following in itertools.pairwise(alike):
                assert one.end_ms <= following.at_ms
    kinds = {one.params["does"] for events in laid for one in events}
    assert {"crash", "power", "pause"} <= kinds
    assert ("lead" in kinds) == (mode == "raft")


def test_logs_are_trimmed_there_only_where_they_are_dropped_anyway():
    for seed in range(1, 301):
        plan = plan_of(Case(seed, "raft"), overkill=False)
        if plan.workload.compact_p == 0:
            assert all(one.params.get("does") != "trim" for one in plan.events)
    assert "trim" in OF_GROUP["brokers"][1]
