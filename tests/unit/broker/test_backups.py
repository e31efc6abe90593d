"""A table that is damaged is restored from its backup, which stays until a good file is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker.state.shared_snapshot import SharedSnapshot
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.errors import FatalError
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.broker.test_shared_snapshot import GROUPS, OFFSETS, TOPICS, World
from tests.unit.broker.test_snapshot_state import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAME = "consumerOffset.json"
DAMAGE = [b"{", b"\0" * 40, b"\xff\xfe", b""]


class KilledError(Exception):
    """The process ends here."""


class DyingDisk(RealDisk):
    """Ends the process before a file of the name is replaced."""

    def replace(self, path: str, data: bytes | bytearray) -> None:
        if path.endswith(f"/{NAME}"):
            raise KilledError
        super().replace(path, data)


def killed_as_it_saves(directory: Path) -> None:
    """Start on a directory that RocketMQ had, and be killed amid the first save."""
    world = World(directory, 1000)
    dying = world.snapshot = SharedSnapshot(
        str(directory), world.tables.state, DyingDisk(), world.tables.topics.is_system
    )
    dying.load_for(1000, lambda _: True)
    with pytest.raises(KilledError):
        world.save(1000)


def assert_found_after_a_kill(directory: Path, damage: bytes) -> None:
    (directory / "topics.json").write_text(TOPICS)
    (directory / "subscriptionGroup.json").write_text(GROUPS)
    (directory / NAME).write_bytes(damage)
    (directory / f"{NAME}.bak").write_text(OFFSETS)
    killed_as_it_saves(directory)
    again = World(directory, 1000)
    assert again.tables.offsets.query("g", "orders", 0) == 5
    again.save(1000)
    assert World(directory, 1000).tables.offsets.query("g", "orders", 0) == 5


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_kill_amid_a_save_leaves_the_good_copy(tmp_path: Path, damage: bytes) -> None:
    # 1. The file of a table is damaged; the backup is taken. 2. It is saved, and the broker is
    # killed before the new file is there. 3. The next start has the backup still.
    assert_found_after_a_kill(tmp_path, damage)


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_planted_copy_of_the_damaged_one_is_found(tmp_path: Path, damage: bytes) -> None:
    with (
        planted(BY_TESTS["damaged-table-kept-as-its-backup"]),
        pytest.raises((AssertionError, FatalError), match=r"None == 5|cannot be read"),
    ):
        assert_found_after_a_kill(tmp_path, damage)


def test_so_is_one_of_a_group(tmp_path: Path) -> None:
    files: dict[str, Callable[[], bytes]] = {
        name: (tmp_path / name).read_bytes for name in (NAME, f"{NAME}.bak")
    }
    tables = snapshot(str(tmp_path))
    tables.write(tables.capture(5))
    good = files[NAME]()
    (tmp_path / f"{NAME}.bak").write_bytes(good)
    (tmp_path / NAME).write_bytes(b"{")
    again = snapshot(str(tmp_path))
    assert again.load() == -1
    again.write(again.capture(6))
    assert (files[NAME](), files[f"{NAME}.bak"]()) == (good, good)
    (tmp_path / NAME).write_bytes(good + b"\n")
    again._saved_revisions.clear()
    again.write(again.capture(7))
    assert files[f"{NAME}.bak"]() == good + b"\n", "from now on as ever"
