"""The library between a broker and its disk and clock: built, preloaded, commanded, witnessed."""

import asyncio
import errno
import json
import struct
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from chaos.backends.base import ClusterFailed, ClusterSpec
from chaos.backends.local import LocalCluster
from chaos.nemesis import shimmed
from chaos.nemesis.base import Fault, Setting
from chaos.nemesis.journal import lift
from chaos.nemesis.kinds import FAULTS
from chaos.nemesis.shimmed import HOW
from chaos.shim.build import NotBuilt, build, compiler
from chaos.shim.control import COMMANDS, COUNTS, Control
from cli.doctor import c_compiler
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted
from tests.unit.chaos.world import World

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C compiler")


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch):
    monkeypatch.setattr(shimmed, "SEEN_TIMEOUT_S", 0.1)
    monkeypatch.setattr(shimmed, "BACK_TIMEOUT_S", 0.1)
    monkeypatch.setattr(shimmed, "STILL_S", 0.01)


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("shim") / "faults.so"
    build(path)
    return path


def run_with(library: Path, tmp_path: Path, code: str, **commands: int) -> tuple[object, Control]:
    """What a process with the library prints as JSON; ``f`` is a file of ours, ``g`` is not."""
    root = tmp_path / "data"
    root.mkdir()
    control = Control(tmp_path / "control")
    control.command(**commands)
    head = f"""
        import errno, json, os, time
        f = os.open({str(root / "x")!r}, os.O_CREAT | os.O_RDWR)
        g = os.open({str(tmp_path / "data-of-others")!r}, os.O_CREAT | os.O_RDWR)
        def code(call):
            try:
                call()
            except OSError as error:
                return error.errno
            return 0
    """
    environment = {
        "LD_PRELOAD": str(library),
        "LEDGERMQ_SHIM": str(control.path),
        "LEDGERMQ_SHIM_ROOT": str(root),
    }
    text = textwrap.dedent(head) + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-I", "-c", text], env=environment, capture_output=True, check=True
    )
    return json.loads(done.stdout), control


@needs_compiler
def test_without_commands_nothing_changes(library, tmp_path):
    code = """
        calls = [lambda: os.fsync(f), lambda: os.fdatasync(f), lambda: os.write(f, b"a"),
                 lambda: os.pwrite(f, b"b", 1), lambda: os.pwritev(f, [b"c", b"d"], 2)]
        codes = [code(call) for call in calls]
        print(json.dumps([codes, os.pread(f, 9, 0).decode()]))
    """
    said, control = run_with(library, tmp_path, code)
    assert said == [[0, 0, 0, 0, 0], "abcd"]
    assert {control.count(name) for name in COUNTS} == {0}


@needs_compiler
def test_sync_fails_as_often_as_it_was_told_to_and_only_for_our_files(library, tmp_path):
    code = """
        fs = [code(lambda: os.fsync(g))]
        fs += [code(lambda: os.fsync(f)), code(lambda: os.fdatasync(f)), code(lambda: os.fsync(f))]
        print(json.dumps(fs))
    """
    said, control = run_with(library, tmp_path, code, sync_errno=errno.EIO, sync_fails=2)
    assert said == [0, errno.EIO, errno.EIO, 0]
    assert control.count("syncs_failed") == 2


@needs_compiler
def test_every_way_to_write_is_refused(library, tmp_path):
    code = """
        ways = [lambda: os.write(f, b"a"), lambda: os.pwrite(f, b"a", 0),
                lambda: os.pwritev(f, [b"a"], 0), lambda: os.write(g, b"a")]
        print(json.dumps([code(way) for way in ways] + [os.fstat(f).st_size]))
    """
    said, control = run_with(library, tmp_path, code, write_errno=errno.ENOSPC, write_fails=99)
    assert said == [errno.ENOSPC] * 3 + [0, 0]
    assert control.count("writes_failed") == 3


@needs_compiler
def test_calls_wait_and_a_wait_ends_when_it_is_lifted(library, tmp_path):
    code = """
        began = time.monotonic()
        os.fdatasync(f)
        print(json.dumps(time.monotonic() - began))
    """
    said, control = run_with(library, tmp_path, code, delay_us=150_000)
    assert 0.15 <= float(str(said)) < 5
    assert control.count("delayed") == 1


@needs_compiler
def test_wall_clock_is_wrong_and_the_monotonic_one_is_not(library, tmp_path):
    code = """
        print(json.dumps([time.time(), time.monotonic()]))
    """
    said, control = run_with(library, tmp_path, code, skew_ns=-3_600 * 10**9)
    told = subprocess.run(
        [sys.executable, "-c", "import time; print(time.time(), time.monotonic())"],
        capture_output=True, check=True, text=True,
    ).stdout.split()  # fmt: skip
    assert isinstance(said, list)
    assert abs(float(told[0]) - said[0] - 3_600) < 30
    assert 0 <= float(told[1]) - said[1] < 30
    assert control.count("times_told") >= 1


@needs_compiler
@pytest.mark.parametrize(("percent", "least", "most"), [(100, 1.9, 2.1), (-50, 0.45, 0.55)])
def test_all_clocks_go_at_another_speed_and_what_is_gained_stays(
    library, tmp_path, percent, least, most
):
    code = f"""
        import mmap, struct
        control = os.open({str(tmp_path / "control")!r}, os.O_RDWR)
        commands = mmap.mmap(control, 4096)
        def true():
            return time.clock_gettime(time.CLOCK_BOOTTIME)
        def told(clock):
            # The true time of it, from just before and just after; of many the closest.
            looks = [(true(), clock(), true()) for _ in range(100)]
            before, found, after = min(looks, key=lambda look: look[2] - look[0])
            return found, (before + after) / 2
        begun = [told(clock) for clock in (time.time, time.monotonic)]
        real = true()
        while true() - real < 1:
            time.sleep(0.05)
        ended = [told(clock) for clock in (time.time, time.monotonic)]
        speeds = [(b[0] - a[0]) / (b[1] - a[1]) for a, b in zip(begun, ended)]
        commands[56:64] = struct.pack("=q", 0)
        before, wall = time.monotonic(), time.time()
        steps = [time.monotonic() for _ in range(1000)]
        print(json.dumps([speeds, min(steps) >= before and steps == sorted(steps), wall]))
    """
    said, control = run_with(library, tmp_path, code, drift_ppm=percent * 10_000)
    assert isinstance(said, list)
    speeds, is_steady, wall = said
    assert all(least < speed < most for speed in speeds), speeds
    assert is_steady, "the monotonic clock went back when the drift ended"
    now = subprocess.check_output([sys.executable, "-c", "import time; print(time.time())"])
    assert abs(float(now) - wall) < 30
    assert control.count("times_told") > 0


@needs_compiler
@pytest.mark.parametrize("percent", [100, -50])
def test_monotonic_clock_never_goes_back_while_it_drifts(library, tmp_path, percent):
    code = """
        steps = [time.monotonic_ns() for _ in range(50_000)]
        print(json.dumps(sum(a > b for a, b in zip(steps, steps[1:]))))
    """
    said, control = run_with(library, tmp_path, code, drift_ppm=percent * 10_000)
    assert said == 0
    assert control.count("times_told") >= 50_000


@needs_compiler
@pytest.mark.parametrize(("percent", "least", "most"), [(100, 0.04, 0.09), (-50, 0.18, 1)])
def test_waits_go_by_the_clock_that_drifts_and_by_the_true_one_afterwards(
    library, tmp_path, percent, least, most
):
    """An event loop's, a thread's and a sleep's; by absolute deadlines, too."""
    code = f"""
        import mmap, select, struct, threading
        def true():
            return time.clock_gettime(time.CLOCK_BOOTTIME)
        def took(wait):
            begin = true()
            wait()
            return true() - begin
        def shortest():
            waits = [lambda: time.sleep(0.1), lambda: threading.Event().wait(0.1),
                     lambda: select.epoll().poll(0.1), lambda: select.poll().poll(100)]
            return [min(took(wait) for _ in range(4)) for wait in waits]
        time.monotonic()
        time.sleep(0.3)
        drifting = shortest()
        control = os.open({str(tmp_path / "control")!r}, os.O_RDWR)
        mmap.mmap(control, 4096)[56:64] = struct.pack("=q", 0)
        print(json.dumps([drifting, shortest()]))
    """
    said, _ = run_with(library, tmp_path, code, drift_ppm=percent * 10_000)
    assert isinstance(said, list)
    drifting, afterwards = said
    assert all(least < took < most for took in drifting), drifting
    assert all(0.09 < took < 0.3 for took in afterwards), afterwards


@needs_compiler
def test_wall_clock_jumps_to_and_fro(library, tmp_path):
    code = """
        begin, seen = time.monotonic(), []
        while time.monotonic() - begin < 0.5:
            seen.append(time.time() - begin)
        print(json.dumps([min(seen), max(seen), sum(abs(b - a) > 1000 for a, b in zip(seen, seen[1:]))]))
    """  # noqa: E501 - one line of the child
    said, _ = run_with(library, tmp_path, code, skew_ns=-3_600 * 10**9, strobe_ns=50_000_000)
    assert isinstance(said, list)
    low, high, jumps = said
    assert 3_599 < high - low < 3_601
    assert 5 <= jumps <= 11


def test_control_sets_what_is_named_and_lifts_all(tmp_path):
    control = Control(tmp_path / "control")
    control.command(sync_errno=5, skew_ns=-7)
    control.command(sync_fails=2)
    words = struct.unpack_from("=6q", control.path.read_bytes())
    assert words == (5, 2, 0, 0, 0, -7)
    control.lift()
    assert not any(Control(control.path).path.read_bytes())


def test_fields_of_the_library_are_those_of_the_control():
    source = (Path(shimmed.__file__).parents[1] / "shim" / "shim.h").read_text()
    struct = source.split("struct control {")[1].split("};")[0]
    names = [line.split("int64_t ")[1].split(";")[0] for line in struct.splitlines() if ";" in line
             and "int64_t" in line]  # fmt: skip
    assert tuple(names) == (*COMMANDS, *COUNTS)


def counts(control: Control, name: str, more: int) -> None:
    """As the library would."""
    raw = bytearray(control.path.read_bytes())
    at = 8 * (len(COMMANDS) + COUNTS.index(name))
    raw[at : at + 8] = (control.count(name) + more).to_bytes(8, sys.byteorder)
    with control.path.open("r+b") as file:
        file.write(raw)


def make(world: World, kind: str, **parameters: float | str) -> Fault:
    setting = Setting(cluster=world, probe=world, clock=world)  # type: ignore[arg-type]
    return FAULTS[kind].make(setting, "n0", **FAULTS[kind].complete(parameters))


def lives(world: World, kind: str, while_on: int, afterwards: int = 0) -> bool:
    """Apply and lift a fault; the library counts so much meanwhile."""
    fault = make(world, kind)
    control = world.shim("n0")
    column = HOW[kind].count(FAULTS[kind].complete({}))

    async def body() -> None:
        await fault.probe_before()
        await fault.apply()
        assert any(control.path.read_bytes()[: 8 * len(COMMANDS)])
        counts(control, column, while_on)
        await fault.probe_during()
        await fault.undo()
        assert not any(control.path.read_bytes()[: 8 * len(COMMANDS)])
        asyncio.get_running_loop().call_later(0.005, counts, control, column, afterwards)
        await fault.probe_after()

    asyncio.run(body())
    return fault.witness.effective


@pytest.mark.parametrize("kind", sorted(HOW))
def test_fault_counts_only_if_the_library_counted(kind, tmp_path):
    assert lives(World(root=tmp_path / "one"), kind, 3)
    assert not lives(World(root=tmp_path / "other"), kind, 0)


@pytest.mark.parametrize("kind", sorted(HOW))
def test_fault_that_goes_on_after_its_end_does_not_count(kind, tmp_path):
    assert not lives(World(root=tmp_path), kind, 3, afterwards=1)


def test_witness_that_believes_the_library_is_found_out(tmp_path):
    with planted(HARNESS_BUGS["witness-believes-the-library"]):
        assert lives(World(root=tmp_path), "slow", 0)


def test_broker_that_does_not_answer_afterwards_does_not_count(tmp_path):
    world = World(root=tmp_path)
    world.nodes["n0"].state = "gone"
    world.broken = {"restart"}
    assert not lives(world, "full", 3)


def test_end_of_a_broker_whose_sync_failed_is_expected_and_undone(tmp_path):
    world = World(root=tmp_path)
    fault = make(world, "eio")
    asyncio.run(fault.probe_before())
    asyncio.run(fault.apply())
    assert world.expected == {"n0"}
    world.nodes["n0"].state = "gone"
    asyncio.run(lift(world, fault.undo_entry()))  # type: ignore[arg-type]
    assert world.nodes["n0"].state == "running"
    assert not any(world.shim("n0").path.read_bytes()[: 8 * len(COMMANDS)])


@pytest.mark.parametrize(
    ("first", "other"), [("slow", "hang"), ("full", "eio"), ("clock_jump", "clock_strobe")]
)
def test_fault_whose_end_would_end_another_one_is_refused(tmp_path, first, other):
    world = World(root=tmp_path)
    on = make(world, first)
    asyncio.run(on.probe_before())
    asyncio.run(on.apply())
    before = world.shim("n0").path.read_bytes()
    fault = make(world, other, **({"of": "write"} if other == "eio" else {}))
    with pytest.raises(ClusterFailed, match="n0: another fault that is on has "):
        asyncio.run(fault.probe_before())
    assert world.shim("n0").path.read_bytes() == before
    assert world.expected == set()


def test_end_of_a_broker_after_its_fault_is_its_own(tmp_path):
    world = World(root=tmp_path)
    assert not lives(world, "eio", 0)
    assert world.expected == set()
    with planted(HARNESS_BUGS["end-of-its-own-forgiven"]):
        lives(world, "eio", 0)
    assert world.expected == {"n0"}


def test_broker_that_ends_just_as_its_fault_is_lifted_is_started_again(tmp_path):
    world = World(root=tmp_path)
    fault = make(world, "crash_at")

    async def body() -> None:
        await fault.probe_before()
        await fault.apply()
        counts(world.shim("n0"), "crashes", 1)
        await fault.undo()
        world.nodes["n0"].state = "gone"
        await fault.probe_after()

    asyncio.run(body())
    assert world.nodes["n0"].state == "running"
    assert fault.witness.effective


def test_machine_without_a_compiler_skips_by_name(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert compiler() is None
    with pytest.raises(NotBuilt, match="no C compiler"):
        build(tmp_path / "faults.so")
    cluster = LocalCluster(ClusterSpec(run=tmp_path / "run", shimmed=True))
    asyncio.run(cluster._build_shim())
    with pytest.raises(ClusterFailed, match="process of n0: there is no C compiler"):
        cluster.shim("n0")
    found = c_compiler()
    assert "none" in found.found
    assert "slow, hang" in found.consequence


def test_compiler_that_fails_is_told_with_its_words(monkeypatch, tmp_path):
    fake = tmp_path / "cc"
    fake.write_text("#!/bin/sh\necho no such header >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("CC", str(fake))
    with pytest.raises(NotBuilt, match="no such header"):
        build(tmp_path / "faults.so")
