"""Faults of brokers, their files and their clients: where they take no effect, the witness says so.

Files and limits here are real; brokers are `World`'s.
"""

import asyncio
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import pytest

from chaos.backends.base import ClusterFailed
from chaos.backends.sparse import copy_extents, used_bytes
from chaos.catalogue.faults import BY_NEMESIS
from chaos.catalogue.kinds import FaultSpec
from chaos.generator import Op, Stream
from chaos.nemesis import disk, limits, process, restarts
from chaos.nemesis.base import Fault, Setting
from chaos.nemesis.disk import CHANGES, log_bytes
from chaos.nemesis.journal import lift
from chaos.nemesis.kinds import FAULTS
from chaos.nemesis.limits import open_files
from chaos.nemesis.runner import Nemesis
from chaos.probe import TIMEOUT_S, NodeStatus
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted
from tests.unit.chaos.world import NODES, World, answer_of, lives

STREAM = Stream(1, "test")


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch):
    monkeypatch.setattr(process, "RESTART_TIMEOUT_S", 0.15)
    monkeypatch.setattr(restarts, "HEALTHY_TIMEOUT_S", 0.15)
    monkeypatch.setattr(disk, "CAUGHT_UP_TIMEOUT_S", 0.2)
    monkeypatch.setattr(limits, "BACK_TIMEOUT_S", 0.2)
    monkeypatch.setattr(limits, "CLOSED_S", 0.01)


def make(world: World, kind: str, *nodes: str, clients=None, **parameters: float | str) -> Fault:
    setting = Setting(cluster=world, probe=world, clock=world, clients=clients)  # type: ignore[arg-type]
    return FAULTS[kind].make(setting, *nodes, **FAULTS[kind].complete(parameters))


@pytest.mark.parametrize("kind", ["stop", "restart_all", "rolling", "crash_loop"])
def test_broker_that_goes_and_comes_counts(kind):
    world = World()
    nodes = NODES if kind in {"restart_all", "rolling"} else NODES[:1]
    short = {"down_ms": 0} if kind == "rolling" else {"up_ms": 0} if kind == "crash_loop" else {}
    fault = make(world, kind, *nodes, **short)
    assert lives(world, fault)
    assert all(world.nodes[node].boot > 1 for node in nodes)
    assert all(node.state == "running" for node in world.nodes.values())


@pytest.mark.parametrize("broken", ["terminate", "restart"])
def test_broker_that_does_not_end_or_does_not_come_again_does_not_count_as_stopped(broken):
    world = World(broken={broken})
    assert not lives(world, make(world, "stop", "n0"))


@pytest.mark.parametrize("kind", ["restart_all", "crash_loop"])
@pytest.mark.parametrize("broken", ["kill", "restart"])
def test_kill_that_kills_nothing_or_leaves_it_down_does_not_count(kind, broken):
    world = World(broken={broken})
    short = {"up_ms": 0} if kind == "crash_loop" else {}
    assert not lives(world, make(world, kind, "n0", **short))


def test_one_of_three_that_was_down_already_is_no_restart_of_all():
    world = World()
    world.nodes["n2"].state = "gone"
    assert not lives(world, make(world, "restart_all", *NODES))


def test_crash_loop_whose_broker_did_not_come_up_in_between_does_not_count():
    class Slow(World):
        async def restart(self, node: str) -> None:
            if self.now:  # only the last start works
                await super().restart(node)

    world = Slow()
    world.now = 0
    fault = make(world, "crash_loop", "n0", up_ms=0)

    async def body() -> None:
        await fault.probe_before()
        await fault.apply()
        await fault.probe_during()
        world.now = 10**10
        await fault.undo()
        await fault.probe_after()

    asyncio.run(body())
    assert world.nodes["n0"].boot == 2
    assert not fault.witness.effective


def test_rolling_restart_of_a_group_that_does_not_come_back_is_told_and_ends_there():
    world = World()
    world.healthy = lambda: False  # type: ignore[method-assign]
    fault = make(world, "rolling", *NODES, down_ms=0)
    with pytest.raises(ClusterFailed, match="after n0 began again"):
        lives(world, fault)
    assert [world.nodes[node].boot for node in NODES] == [2, 1, 1]


def test_journal_starts_all_that_were_down():
    world = World()
    fault = make(world, "restart_all", *NODES)
    asyncio.run(fault.apply())
    assert {node.state for node in world.nodes.values()} == {"gone"}
    asyncio.run(lift(world, fault.undo_entry()))  # type: ignore[arg-type]
    assert {node.state for node in world.nodes.values()} == {"running"}


@pytest.mark.parametrize("kind", ["wipe", "descriptors"])
def test_cluster_whose_processes_are_elsewhere_refuses_by_name(kind):
    class Elsewhere:
        backend = "docker"
        ask = World.ask

    world = World()
    setting = Setting(cluster=Elsewhere(), probe=world, clock=world)  # type: ignore[arg-type]
    fault = FAULTS[kind].make(setting, "n0", **FAULTS[kind].complete({}))
    with pytest.raises(ClusterFailed, match=f"{kind}: processes and files of docker"):
        asyncio.run(applied(fault))


async def applied(fault: Fault) -> None:
    await fault.probe_before()
    await fault.apply()


@dataclass
class Questions(World):
    """A world in which a question takes a while; longer to a broker that is being stopped."""

    slower_ms: int = 0
    cycles: int = 0

    async def pause(self, node: str) -> None:
        self.cycles += 1

    async def resume(self, node: str) -> None:
        pass

    async def ask(self, node: str) -> NodeStatus:
        self.now += 1_000_000 * (1 + (self.slower_ms if self.cycles else 0))
        return answer_of(self, node) or NodeStatus(node=node, t_ns=self.now, ok=False)


@pytest.mark.parametrize(("slower_ms", "counts"), [(0, False), (10, False), (100, True)])
def test_starving_counts_only_if_answers_take_longer(slower_ms, counts):
    world = Questions(slower_ms=slower_ms)

    async def body() -> bool:
        fault = make(world, "starve", "n0", share=0.9, period_ms=100)
        await fault.probe_before()
        await fault.apply()
        await asyncio.sleep(0.01)
        await fault.probe_during()
        await fault.undo()
        await fault.probe_after()
        return fault.witness.effective

    assert asyncio.run(body()) is counts


@dataclass
class Standing(World):
    """Answers at once while it runs, and where it stands still once it goes on."""

    def monotonic_ns(self) -> int:
        return int(asyncio.get_running_loop().time() * 1e9)

    async def ask(self, node: str) -> NodeStatus:
        while self.nodes[node].state == "stopped":
            await asyncio.sleep(0.001)
        return answer_of(self, node) or NodeStatus(node=node, t_ns=0, ok=False)


def test_starving_shows_though_many_questions_fit_into_the_time_in_which_it_runs():
    world = Standing()

    async def body() -> bool:
        fault = make(world, "starve", "n0", share=0.8, period_ms=150)
        await fault.probe_before()
        await fault.apply()
        await fault.probe_during()
        await fault.undo()
        return fault.witness.effective

    assert asyncio.run(body())


def test_starving_of_a_broker_that_died_meanwhile_does_not_count():
    world = Questions(slower_ms=100)

    async def body() -> bool:
        fault = make(world, "starve", "n0", share=0.5, period_ms=20)
        await fault.probe_before()
        await fault.apply()
        await asyncio.sleep(0.03)
        await fault.probe_during()
        assert fault.witness.effective
        world.nodes["n0"].state = "gone"
        await asyncio.sleep(0.05)
        await fault.undo()
        return fault.witness.effective

    assert not asyncio.run(body())


@pytest.fixture
def sleeper() -> Iterator[int]:
    program = "import time; print('up', flush=True); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()  # one that still starts opens files, and ends where it may not
    yield child.pid
    child.kill()
    child.wait()
    child.stdout.close()


class Descriptors(World):
    """A world in which a broker serves nobody new when its process may open nothing more."""

    serves_all_the_same = False

    async def ask(self, node: str) -> NodeStatus:
        soft = resource.prlimit(self.own_pid, resource.RLIMIT_NOFILE)[0]
        if soft < 64 and not self.serves_all_the_same:
            return NodeStatus(node=node, t_ns=self.now, ok=False)
        return await super().ask(node)


@pytest.mark.parametrize("serves", [False, True])
def test_descriptors_count_only_if_nobody_new_was_served(sleeper, serves):
    world = Descriptors(own_pid=sleeper)
    world.serves_all_the_same = serves
    before = resource.prlimit(sleeper, resource.RLIMIT_NOFILE)
    assert lives(world, make(world, "descriptors", "n0")) is not serves
    assert resource.prlimit(sleeper, resource.RLIMIT_NOFILE) == before


class Closing(World):
    """A broker that closes some files once there is a limit, and serves whoever finds one free."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        super().__init__(own_pid=child.pid)
        self.child = child
        self.is_told = False

    async def ask(self, node: str) -> NodeStatus:
        soft = resource.prlimit(self.own_pid, resource.RLIMIT_NOFILE)[0]
        if soft < 64 and not self.is_told:
            self.is_told = True
            assert self.child.stdin is not None
            assert self.child.stdout is not None
            self.child.stdin.write(b"close\n")
            self.child.stdin.flush()
            self.child.stdout.readline()
        if open_files(self.own_pid) >= soft:
            return NodeStatus(node=node, t_ns=self.now, ok=False)
        return await super().ask(node)


def test_limit_on_descriptors_follows_what_is_closed_meanwhile():
    program = (
        "held = [open('/dev/null') for _ in range(5)]\n"
        "print('up', flush=True); input()\n"
        "for one in held: one.close()\n"
        "print('closed', flush=True); input()"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            world = Closing(child)
            assert lives(world, make(world, "descriptors", "n0"))
        finally:
            child.kill()


def test_journal_lifts_a_limit_on_descriptors(sleeper):
    world = Descriptors(own_pid=sleeper)
    fault = make(world, "descriptors", "n0")
    asyncio.run(applied(fault))
    soft, hard = resource.prlimit(sleeper, resource.RLIMIT_NOFILE)
    assert soft < 64
    asyncio.run(lift(world, fault.undo_entry()))  # type: ignore[arg-type]
    assert resource.prlimit(sleeper, resource.RLIMIT_NOFILE) == (hard, hard)


def test_limits_on_descriptors_that_lie_over_each_other_leave_none(sleeper):
    """The second one finds the limit of the first, and is lifted last."""

    async def body() -> None:
        world = Descriptors(own_pid=sleeper)
        first, second = (make(world, "descriptors", "n0") for _ in range(2))
        for fault in (first, second):
            await fault.probe_before()
            await fault.apply()
        for fault in (first, second):
            await fault.undo()

    before = resource.prlimit(sleeper, resource.RLIMIT_NOFILE)
    asyncio.run(body())
    assert resource.prlimit(sleeper, resource.RLIMIT_NOFILE) == before


@pytest.mark.parametrize("period_ms", [200, 1_000, 2_000, 5_000])
@pytest.mark.parametrize("share", [0.1, 0.8, 0.99])
def test_no_starving_asks_for_longer_answers_than_there_are(share, period_ms):
    """A question is given up after 0.4 s: the means of some come near to this, not beyond."""
    fault = make(World(), "starve", "n0", share=share, period_ms=period_ms)
    moments = [at * period_ms / 1e6 for at in range(1_000)]
    waits = [min(max(0.0, share * period_ms / 1e3 - at), TIMEOUT_S) for at in moments]
    assert fault._waits_s == pytest.approx(fmean(waits), rel=0.02)  # type: ignore[attr-defined]


@dataclass
class People:
    """Clients by name; ``broken``: what is not done."""

    broken: set[str] = field(default_factory=set)
    there: list[str] = field(default_factory=lambda: ["consumer-0", "consumer-1"])

    def running(self, role: str) -> list[str]:
        return [name for name in self.there if name.startswith(role)]

    def pick(self, role: str) -> str | None:
        return next(iter(self.running(role)), None)

    async def crash(self, name: str) -> None:
        if "crash" not in self.broken:
            self.there.remove(name)

    async def replace(self, name: str) -> None:
        if "replace" not in self.broken:
            self.there.append(f"{name}-successor")


@pytest.mark.parametrize("kind", ["eio", "crash_at"])
def test_broker_that_is_down_does_not_end_by_its_disk_and_is_not_started_for_it(kind, tmp_path):
    """What had ended it says when it is started."""
    world = World(root=tmp_path)
    world.nodes["n0"].state = "gone"
    with pytest.raises(ClusterFailed, match="n0 is not running"):
        asyncio.run(make(world, kind, "n0").probe_before())
    asyncio.run(make(world, "slow", "n0").probe_before())  # of its start, too


@pytest.mark.parametrize("broken", ["", "crash", "replace"])
def test_client_that_goes_on_or_has_no_successor_does_not_count(broken):
    world, people = World(), People(broken={broken})
    took_effect = lives(world, make(world, "client_kill", clients=people))
    assert took_effect is (broken == "")


def test_client_that_is_not_there_cannot_be_killed():
    with pytest.raises(ClusterFailed, match="no producer runs"):
        make(World(), "client_kill", clients=People(), role="producer")
    with pytest.raises(ClusterFailed, match="has no clients"):
        make(World(), "client_kill")


@pytest.fixture
def data(tmp_path) -> Path:
    """The directory of a broker: a log of two segments, the second preallocated, and a queue."""
    root = tmp_path / "n0"
    segments = root / "dledger-n0" / "data"
    segments.mkdir(parents=True)
    (segments / f"{0:020d}").write_bytes(b"a" * 8_192)
    with (segments / f"{8192:020d}").open("wb") as file:
        file.write(b"b" * 5_000)
        file.truncate(1 << 20)
    queue = root / "consumequeue" / "t" / "0" / f"{0:020d}"
    queue.parent.mkdir(parents=True)
    queue.write_bytes(b"q" * 60)
    return root


def test_wiped_directory_is_gone(data):
    assert CHANGES["wipe"](data, {}, STREAM) == 13_192
    assert not data.exists()


def test_flipped_bits_lie_in_the_written_part_of_the_last_segment(data):
    assert CHANGES["flip"](data, {"bits": 5}, STREAM) == 5
    last = data / "dledger-n0" / "data" / f"{8192:020d}"
    text = last.read_bytes()
    assert sum(byte != ord("b") for byte in text[:5_000]) == 5
    assert text[:2_500] == b"b" * 2_500
    assert not any(text[5_000:])
    first = data / "dledger-n0" / "data" / f"{0:020d}"
    assert first.read_bytes() == b"a" * 8_192


class Unwritten:
    """A recorder and a journal in one; nobody reads what they are told."""

    def write(self, table, row):
        pass

    write_all = write

    def will_apply(self, name, undo):
        pass


def flipped(data: Path, seed: int, name: str) -> bytes:
    """Let a fault of this name flip bits in a run with this seed; return the log, and mend it."""
    last = data / "dledger-n0" / "data" / f"{8192:020d}"
    before = last.read_bytes()
    world = World(root=data.parent)
    setting = Setting(cluster=world, probe=world, clock=world)  # type: ignore[arg-type]
    nothing = Unwritten()
    nemesis = Nemesis(
        setting=setting, recorder=nothing, journal=nothing, stream=Stream(seed, "nemesis"),
        last_ack_ns=int, notice=lambda _: None,
    )  # type: ignore[arg-type]  # fmt: skip
    nemesis.plan([(name, FaultSpec(kind=BY_NEMESIS["flip"], target=("leader",)))])
    nemesis._roles = {"leader": "n0"}
    said = asyncio.run(nemesis.start(Op(f="start", value={"name": name, "targets": ["leader"]})))
    assert said == "active"
    after = last.read_bytes()
    last.write_bytes(before)
    return after


def test_which_bits_flip_follows_from_the_seed_of_the_run_and_the_name_of_the_fault(data):
    found = [flipped(data, *of) for of in ((1, "1-flip"), (2, "1-flip"), (1, "2-flip"))]
    assert len(set(found)) == 3
    assert flipped(data, 1, "1-flip") == found[0]
    with planted(HARNESS_BUGS["bits-flip-by-the-kind-alone"]):
        assert flipped(data, 1, "1-flip") == flipped(data, 2, "1-flip")


def test_truncated_log_ends_earlier(data):
    assert CHANGES["truncate"](data, {"bytes": 1_000}, STREAM) == 1_000
    last = data / "dledger-n0" / "data" / f"{8192:020d}"
    assert last.read_bytes().rstrip(b"\0") == b"b" * 4_000
    assert last.stat().st_size == 1 << 20


def test_spoiled_queues_differ_and_the_log_is_whole(data):
    (data / "consumequeue.checkpoint").write_bytes(b"c" * 10)
    assert CHANGES["spoil"](data, {}, STREAM) == 50
    assert b"c" not in (data / "consumequeue.checkpoint").read_bytes()
    queue = (data / "consumequeue" / "t" / "0" / f"{0:020d}").read_bytes()
    assert queue == b"q" * 20 + bytes([ord("q") ^ 0xFF]) * 40
    assert log_bytes(data) == 13_192


def test_older_copy_comes_back_with_its_holes(data):
    old = data.with_name("n0.old")
    restarts_of_old = data / "dledger-n0" / "data" / f"{8192:020d}"
    old_segments = old / "dledger-n0" / "data"
    old_segments.mkdir(parents=True)
    copy_extents(str(restarts_of_old), str(old_segments / restarts_of_old.name))
    copied = old_segments / restarts_of_old.name
    assert copied.stat().st_size == 1 << 20
    assert copied.read_bytes() == restarts_of_old.read_bytes()
    assert used_bytes(copied) == 5_000
    assert CHANGES["rollback"](data, {}, STREAM) == 8_192
    assert not old.exists()
    assert log_bytes(data) == 5_000
    with pytest.raises(ClusterFailed, match="no older copy"):
        CHANGES["rollback"](data, {}, STREAM)


@pytest.mark.parametrize("kind", ["flip", "truncate"])
def test_log_in_which_nothing_was_written_cannot_be_damaged(kind, tmp_path):
    with pytest.raises(ClusterFailed, match="nothing was written"):
        CHANGES[kind](tmp_path, {"bits": 1, "bytes": 1}, STREAM)


@pytest.mark.parametrize("kind", sorted(CHANGES))
def test_damage_counts_if_the_broker_was_down_and_bytes_differ(kind, data):
    world = World(root=data.parent)
    short = {"age_ms": 0} if kind == "rollback" else {}

    class Grows(World):
        """Its broker writes after each start."""

        async def restart(self, node: str) -> None:
            await super().restart(node)
            path = self.directory(node) / "dledger-n0" / "data" / f"{0:020d}"
            if path.exists():
                path.write_bytes(path.read_bytes() + b"more")

    world = Grows(root=data.parent)
    assert lives(world, make(world, kind, "n0", **short))


@pytest.mark.parametrize("kind", sorted(CHANGES))
def test_damage_to_a_broker_that_was_not_down_does_not_count(kind, data):
    world = World(root=data.parent, broken={"kill"})
    if kind == "rollback":
        with pytest.raises(ClusterFailed, match="did not catch up"):
            lives(world, make(world, kind, "n0", age_ms=0))
    else:
        assert not lives(world, make(world, kind, "n0"))


def test_rollback_to_a_copy_that_is_no_older_does_not_count(data):
    world = World(root=data.parent)
    assert not lives(world, make(world, "rollback", "n0", age_ms=0))


def test_witness_that_believes_its_files_is_found_out(data):
    world = World(root=data.parent)
    with planted(HARNESS_BUGS["witness-believes-the-disk"]):
        assert lives(world, make(world, "rollback", "n0", age_ms=0))
