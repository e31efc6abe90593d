"""A loss of power as a fault: killed, what no sync had reached taken away, and witnessed."""

import asyncio
import struct
from pathlib import Path

import pytest

from chaos.backends.base import ClusterFailed
from chaos.nemesis.base import Setting
from chaos.nemesis.journal import lift
from chaos.nemesis.kinds import FAULTS
from chaos.nemesis.power import PowerLoss
from chaos.nemesis.shimmed import shimmed
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted
from tests.unit.chaos.world import World

SEGMENT = "dledger-n0/data/00000000000000000000"


@pytest.fixture
def world(tmp_path) -> World:
    world = World(root=tmp_path)
    for name in world.nodes:
        path = tmp_path / name / SEGMENT
        path.parent.mkdir(parents=True)
        path.write_bytes(b"synced, unsynced" + bytes(512))
    return world


def note(world: World, node: str, at: int, length: int) -> None:
    """As the library does, before zeros are overwritten."""
    control = world.shim(node)
    found = (Path(world.directory(node)) / SEGMENT).stat()
    words = struct.pack("=6q", 1, found.st_dev, found.st_ino, at, length, found.st_size)
    end = control.count("notes_end")
    with control.journal.open("r+b" if control.journal.exists() else "w+b") as file:
        file.seek(end)
        file.write(words)
    raw = bytearray(control.path.read_bytes())
    raw[144:152] = (end + len(words)).to_bytes(8, "little")
    with control.path.open("r+b") as file:
        file.write(raw)


def field(world: World, node: str, name: str) -> int:
    return world.shim(node)._read(name)


def make(world: World, kind: str, *nodes: str) -> PowerLoss:
    setting = Setting(cluster=world, probe=world, clock=world)  # type: ignore[arg-type]
    given = FAULTS[kind].complete({"noted_ms": 50, "slow_ms": 1})
    fault = FAULTS[kind].make(setting, *nodes, **given)
    assert isinstance(fault, PowerLoss)
    return fault


def live(world: World, fault: PowerLoss, *unsynced: str) -> None:
    """Let it be applied and lifted; each of these nodes writes eight bytes meanwhile."""

    async def body() -> None:
        await fault.probe_before()
        for node in unsynced:
            asyncio.get_running_loop().call_later(0.02, note, world, node, 8, 8)
        await fault.apply()
        world.wait()
        await fault.probe_during()
        await fault.undo()
        await fault.probe_after()

    asyncio.run(body())


def log_of(world: World, node: str) -> bytes:
    return (Path(world.directory(node)) / SEGMENT).read_bytes()[:16]


def test_what_was_not_synced_is_gone_and_that_is_the_witness(world):
    fault = make(world, "power_loss", "n0")
    live(world, fault, "n0")
    assert fault.witness.effective
    assert fault.witness.during == 8
    assert log_of(world, "n0") == b"synced, " + bytes(8)
    assert log_of(world, "n1") == b"synced, unsynced"
    assert world.state("n0") == "running"


def test_where_nothing_waited_for_a_sync_it_had_no_effect(world):
    fault = make(world, "power_loss", "n0")
    live(world, fault)
    assert not fault.witness.effective
    assert log_of(world, "n0") == b"synced, unsynced"


def test_a_process_that_is_not_killed_loses_no_power(world):
    world.broken = {"kill"}
    fault = make(world, "power_loss", "n0")
    live(world, fault, "n0")
    assert not fault.witness.effective


def test_of_all_at_once_each_must_be_hit(world):
    fault = make(world, "power_loss_all", "n0", "n1", "n2")
    live(world, fault, "n0", "n2")
    assert fault.witness.effective
    assert fault.witness.during == 16
    assert [log_of(world, n)[8:] for n in ("n0", "n1", "n2")] == [bytes(8), b"unsynced", bytes(8)]
    assert {world.state(n) for n in world.nodes} == {"running"}


def test_a_witness_that_asks_for_no_difference_is_found_out(world):
    with planted(HARNESS_BUGS["power-lost-without-a-difference"]):
        fault = make(world, "power_loss", "n0")
        live(world, fault)
        assert fault.witness.effective


def test_what_could_not_be_noted_is_told_and_nothing_is_taken(world):
    fault = make(world, "power_loss", "n0")
    control = world.shim("n0")
    control.command(lies=1)  # so that what was noted before is kept
    raw = bytearray(control.path.read_bytes())
    raw[152:160] = (1).to_bytes(8, "little")
    with control.path.open("r+b") as file:
        file.write(raw)
    with pytest.raises(ClusterFailed, match="not all that was written could be noted"):
        live(world, fault, "n0")
    assert log_of(world, "n0") == b"synced, unsynced"
    assert field(world, "n0", "sync_us") == 0, "it goes on being slow"


def test_notes_that_another_fault_ended_take_nothing(world):
    fault = make(world, "power_loss", "n0")

    async def body() -> None:
        await fault.probe_before()
        asyncio.get_running_loop().call_later(0.02, note, world, "n0", 8, 8)
        asyncio.get_running_loop().call_later(0.03, world.shim("n0").lift)
        with pytest.raises(ClusterFailed, match="noting ended before"):
            await fault.apply()

    asyncio.run(body())
    assert log_of(world, "n0") == b"synced, unsynced"


def test_other_faults_of_the_library_stay_as_they_are(world):
    fault = make(world, "power_loss", "n0")
    world.shim("n0").command(skew_ns=7)
    lie = shimmed("lie")(Setting(cluster=world, probe=world, clock=world), "n0")  # type: ignore[arg-type]
    asyncio.run(lie.probe_before())
    asyncio.run(lie.apply())
    live(world, fault, "n0")
    assert (field(world, "n0", "skew_ns"), field(world, "n0", "lies")) == (7, 1)
    asyncio.run(lie.undo())
    assert (field(world, "n0", "skew_ns"), field(world, "n0", "lies")) == (7, 0)


def test_a_harness_that_died_starts_the_broker_again(world):
    fault = make(world, "power_loss", "n0")
    asyncio.run(fault.probe_before())
    asyncio.run(fault.apply())
    assert world.state("n0") == "gone"
    asyncio.run(lift(world, fault.undo_entry()))  # type: ignore[arg-type]
    assert world.state("n0") == "running"
