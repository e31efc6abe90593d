"""A slave that is elected follows nobody before anything of its log counts."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING

from broker.modes import switched
from broker.modes.switched import SwitchedSlave
from mutants.patches import BY_TESTS
from mutants.planting import planted

if TYPE_CHECKING:
    import pytest


def steps_of_settling(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what a slave of a log that ends at 7, and is dispatched to 5, does in order."""
    steps: list[str] = []
    store = SimpleNamespace(applied=5)

    def confirm(position: int) -> None:
        steps.append(f"{position} counts")
        store.applied = position

    slave = SimpleNamespace(
        _core=SimpleNamespace(store=store),
        _own_log=SimpleNamespace(end_position=7, confirm=confirm),
        _epochs=None,
        _ha=SimpleNamespace(set_master=lambda address: steps.append(f"follows {address!r}")),
    )
    monkeypatch.setattr(
        switched, "_begin_epoch", lambda _epochs, _log, epoch: steps.append(f"epoch {epoch}")
    )
    asyncio.run(SwitchedSlave.settle(slave, 4))  # type: ignore[arg-type]
    return steps


def test_the_former_master_is_left_before_the_epoch_begins(monkeypatch):
    """It may live still, and send what nobody else has: that would count as acknowledged."""
    assert steps_of_settling(monkeypatch) == ["follows ''", "epoch 4", "7 counts"]
    with planted(BY_TESTS["followed-while-it-settles"]):
        assert steps_of_settling(monkeypatch) == ["epoch 4", "7 counts"]
