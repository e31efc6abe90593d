"""What a broker makes of what controllers say, before it has a role."""

from __future__ import annotations

import asyncio
import random

from broker.server import load_config
from broker.switch.broker import SwitchingBroker
from broker.switch.controllers import View
from broker.switch.identity import Identity
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import RealDisk
from mutants.patches import BY_TESTS
from mutants.planting import planted


def waits_for(directory, epoch: int) -> str:
    """Return what a broker waits for that registered in epoch 5, after a view of ``epoch``."""
    overrides = {
        "brokerClusterName": "C", "brokerName": "a", "brokerIP1": "127.0.0.1",
        "namesrvAddr": "127.0.0.1:1", "controllerAddr": "127.0.0.1:1",
        "enableControllerMode": "true", "storePathRootDir": str(directory),
    }  # fmt: skip

    async def follow() -> str:
        broker = SwitchingBroker(
            load_config(None, overrides), disk=RealDisk(), clock=SystemClock(), rng=random.Random(1)
        )
        broker._registration._identity = Identity("C", "a", 2, "code")
        broker._registration.epoch = 5
        await broker._follow(View(0, epoch, "", "", frozenset({1}), 1))
        return broker._waits_for

    return asyncio.run(follow())


def test_what_a_controller_says_of_an_earlier_epoch_is_not_believed(tmp_path):
    assert "there is no master" in waits_for(tmp_path, 5)
    assert waits_for(tmp_path, 4) == ""
    with planted(BY_TESTS["switch-earlier-view-believed"]):
        assert "there is no master" in waits_for(tmp_path, 4)
