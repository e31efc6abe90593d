"""Faults of a broker's files while it is down: wiped, rolled back, bits flipped, a tail cut off.

Each kills the broker, changes its files, and is undone by a restart: its peers send what it lacks.
What it had acknowledged is gone, so each counts as a disk that was lost (`Takes.SYNCED`): as long
as a majority keeps its disks nothing may be lost.

Of a master or slave it is counted how many messages it alone had (`chaos.nemesis.alone`).

Witness: that of a kill, and bytes that differ, read back from the files. Numbers: bytes of the log
before; bytes that differ, or are gone; bytes of the log after the restart.

Source: spec/proof.md D8, D9, D10.
"""

import asyncio
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from chaos.backends.base import ClusterFailed, Machine
from chaos.backends.sparse import copy_extents, used_bytes
from chaos.generator import Stream
from chaos.nemesis.alone import count_alone
from chaos.nemesis.base import Setting, Witness
from chaos.nemesis.process import Kill
from chaos.nemesis.restarts import machine_of
from chaos.nemesis.wait import in_thread, until

CAUGHT_UP_TIMEOUT_S = 20.0
TAIL_SHARE: Final = 0.5
"""Bits flip in the last part of what was written: that is what a replica reads first."""


class DiskFault:
    """A broker is killed and its files are changed while it is down."""

    def __init__(
        self, setting: Setting, kind: str, node: str, parameters: Mapping[str, Any]
    ) -> None:
        self.kind = kind
        self.targets = (node,)
        self.witness = Witness(probe="bytes of the log before; that differ; after the restart")
        self._setting = setting
        self._node = node
        self._parameters = parameters
        self._kill = Kill(setting, node)
        self._machine: Machine | None = None

    def undo_entry(self) -> Mapping[str, Any]:
        """Return the journal entry: what is lost stays lost."""
        return {"do": "restart", "node": self._node}

    async def probe_before(self) -> None:
        """Note which boot answers. Errors: ClusterFailed where the files are not at hand."""
        self._machine = machine_of(self._setting, self.kind)
        await self._kill.probe_before()

    async def apply(self) -> None:
        """Kill it, and change its files. Errors: ClusterFailed if there is nothing to change."""
        assert self._machine is not None
        root = self._machine.directory(self._node)
        stream = self._setting.stream.split(f"disk/{self.kind}/{self._node}")
        if self.kind == "rollback":
            await self._grow_old(root)
        await self._kill.apply()
        if self.kind != "spoil":
            self.witness.only_there = await count_alone(self._setting.cluster, self._node)
        self.witness.before = float(log_bytes(root))
        changed = await in_thread(CHANGES[self.kind], root, self._parameters, stream)
        self.witness.during = float(changed)

    async def probe_during(self) -> None:
        """See that it is gone; the files say how many bytes differ."""
        await self._kill.probe_during()

    async def undo(self) -> None:
        """Start it again."""
        await self._kill.undo()

    async def probe_after(self) -> None:
        """Wait for the first answer of the new boot."""
        await self._kill.probe_after()
        assert self._machine is not None
        self.witness.after = float(log_bytes(self._machine.directory(self._node)))
        self.witness.effective = self._kill.witness.effective and bool(self.witness.during)

    async def _grow_old(self, root: Path) -> None:
        """Take a copy while the broker is down; let it catch up, and go on for a while."""
        cluster, probe = self._setting.cluster, self._setting.probe
        boot = (await probe.ask(self._node)).boot_id

        async def is_back() -> bool:
            status = await probe.ask(self._node)
            return status.ok and status.boot_id != boot and probe.healthy()

        await cluster.kill(self._node)
        await in_thread(_copy_tree, root, _aside(root))
        await cluster.restart(self._node)
        if not await until(is_back, CAUGHT_UP_TIMEOUT_S):
            raise ClusterFailed(f"{self._node} did not catch up after its older copy was made")
        await asyncio.sleep(float(self._parameters["age_ms"]) / 1000)


def segments_of(root: Path) -> list[Path]:
    """Return the files of a broker's log, oldest first: of a group, or a plain commit log."""
    found = [*root.glob("dledger-*/data/*"), *root.glob("commitlog/*")]
    return sorted(path for path in found if path.name.isdigit())


def log_bytes(root: Path) -> int:
    """Return how many bytes of a broker's log were written."""
    return sum(used_bytes(path) for path in segments_of(root))


def _aside(root: Path) -> Path:
    return root.with_name(f"{root.name}.old")


def _copy_tree(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, copy_function=copy_extents)


def wipe(root: Path, _parameters: Mapping[str, Any], _stream: Stream) -> int:
    """Remove everything; return the bytes of the log that are gone."""
    lost = log_bytes(root)
    shutil.rmtree(root)
    return lost if not root.exists() else 0


def roll_back(root: Path, _parameters: Mapping[str, Any], _stream: Stream) -> int:
    """Put the older copy in the place of the directory; return by how much its log is shorter."""
    newer, old = log_bytes(root), _aside(root)
    if not old.is_dir():
        raise ClusterFailed(f"there is no older copy of {root}")
    shutil.rmtree(root)
    old.rename(root)
    return newer - log_bytes(root)


def flip(root: Path, parameters: Mapping[str, Any], stream: Stream) -> int:
    """Flip bits in the last part of the log; return how many bytes differ, as read back."""
    path, size = _last_written(root)
    places = {
        stream.randint(at, int(size * TAIL_SHARE), size - 1)
        for at in range(int(parameters["bits"]))
    }
    differ = 0
    with path.open("r+b") as file:
        for place in sorted(places):
            file.seek(place)
            before = file.read(1)
            file.seek(place)
            file.write(bytes([before[0] ^ 1 << stream.randint(place, 0, 7)]))
            file.seek(place)
            differ += file.read(1) != before
    return differ


def truncate(root: Path, parameters: Mapping[str, Any], _stream: Stream) -> int:
    """Cut off the end of what was written; return the bytes that are gone.

    The file keeps its size, as segments have it from the beginning: zeros follow.
    """
    path, size = _last_written(root)
    with path.open("r+b") as file:
        whole = file.seek(0, 2)
        file.truncate(max(0, size - int(parameters["bytes"])))
        file.truncate(whole)
    return size - used_bytes(path)


def spoil(root: Path, _parameters: Mapping[str, Any], _stream: Stream) -> int:
    """Change the last bytes of each queue file, and of their checkpoint; the log stays whole.

    Return how many differ.
    """
    differ = 0
    for path in sorted([*(root / "consumequeue").rglob("*"), *root.glob("consumequeue.*")]):
        size = used_bytes(path) if path.is_file() else 0
        if size:
            with path.open("r+b") as file:
                file.seek(max(0, size - 40))
                before = file.read(40)
                file.seek(max(0, size - 40))
                file.write(bytes(byte ^ 0xFF for byte in before))
                differ += len(before)
    return differ


def _last_written(root: Path) -> tuple[Path, int]:
    """Return the last segment that anything was written to, and the end of that."""
    for path in reversed(segments_of(root)):
        size = used_bytes(path)
        if size:
            return path, size
    raise ClusterFailed(f"nothing was written under {root}")


CHANGES: Final[Mapping[str, Callable[[Path, Mapping[str, Any], Stream], int]]] = {
    "wipe": wipe,
    "rollback": roll_back,
    "flip": flip,
    "truncate": truncate,
    "spoil": spoil,
}
"""What is done to the files, by the kind."""


def damage(kind: str) -> Callable[..., DiskFault]:
    """Return what makes a fault of a kind."""

    def make(setting: Setting, node: str, **parameters: float | str) -> DiskFault:
        return DiskFault(setting, kind, node, parameters)

    return make
