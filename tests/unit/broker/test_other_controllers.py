"""A directory whose masters other controllers chose takes no part with these."""

from __future__ import annotations

import asyncio

import pytest

from broker.switch.controllers import Answer, View
from broker.switch.progress import LogProgress
from broker.switch.registration import NotRegistered, Registration
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from mutants.patches import BY_TESTS
from mutants.planting import planted
from sim.disk import SimDisk
from sim.rng import SplitRng
from store.ha.switch.epochs import EPOCH_FILE, Epoch, encode_epochs
from tests.unit.broker.test_lost_end import STORE, config_of


class Controllers:
    """Give the next id, and take every registration."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self.registered = 0

    async def ask(self, code: RequestCode, *_: object, **__: object) -> Answer:
        self.registered += code is RequestCode.CONTROLLER_REGISTER_BROKER
        view = View(0, self._epoch, "", "", frozenset(), 0)
        return Answer(ResponseCode.SUCCESS, "", view, {"nextBrokerId": "1"})


def register(known: int, told: int) -> int:
    """Return how often a directory that knows an epoch registers, where another one is told."""
    disk, config, controllers = SimDisk(SplitRng(1)), config_of(), Controllers(told)
    disk.make_directories(STORE)
    disk.replace(f"{STORE}/{EPOCH_FILE}", encode_epochs((Epoch(known, 0),)))
    registration = Registration(config, disk, SplitRng(2), controllers)  # type: ignore[arg-type]
    registration.load()
    progress = LogProgress(config, disk)
    progress.load()
    try:
        asyncio.run(registration.register(progress))
    finally:
        assert registration.is_done == bool(controllers.registered)
    return controllers.registered


def test_a_log_with_epochs_of_other_controllers_is_not_registered() -> None:
    """Elected first, its broker could not begin epoch 1, and ended."""
    with pytest.raises(NotRegistered, match="others chose the masters of its log"):
        register(known=7, told=0)
    assert register(known=7, told=7) == 1
    with planted(BY_TESTS["switch-other-controllers-believed"]):
        assert register(known=7, told=0) == 1
