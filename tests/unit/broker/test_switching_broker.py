"""What a broker makes of what controllers say, before it has a role."""

from __future__ import annotations

import asyncio
import random

from broker.modes.assignment import AsMaster, AsSlave
from broker.server import load_config
from broker.switch.broker import SwitchingBroker
from broker.switch.controllers import View
from broker.switch.identity import Identity
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import RealDisk
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.ha.switch.in_sync import InSync


def broker_in(directory, settings=()) -> SwitchingBroker:
    """Return a broker that has not started."""
    overrides = {
        "brokerClusterName": "C", "brokerName": "a", "brokerIP1": "127.0.0.1",
        "namesrvAddr": "127.0.0.1:1", "controllerAddr": "127.0.0.1:1",
        "enableControllerMode": "true", "storePathRootDir": str(directory), **dict(settings),
    }  # fmt: skip
    return SwitchingBroker(
        load_config(None, overrides), disk=RealDisk(), clock=SystemClock(), rng=random.Random(1)
    )


def waits_for(directory, epoch: int) -> str:
    """Return what a broker waits for that registered in epoch 5, after a view of ``epoch``."""

    async def follow() -> str:
        broker = broker_in(directory)
        broker._registration._identity = Identity("C", "a", 2, "code")
        broker._registration.epoch = 5
        await broker._follow(View(0, epoch, "", "", frozenset({1}), 1))
        return broker._waits_for

    return asyncio.run(follow())


def is_master_after(directory, silent_ms: int) -> bool:
    """Return whether a master stays one that has heard of no controller for so long."""

    async def run() -> bool:
        broker = broker_in(directory, {"controllerHeartBeatTimeoutMills": "3000"})
        in_sync = InSync(2, 15_000)
        broker.role = AsMaster(own_id=2, epoch=5, in_sync=in_sync)
        broker._heard_ms = broker._clock.monotonic_ms() - silent_ms
        await broker._on_silence("nobody answers")
        return in_sync.is_open

    return asyncio.run(run())


def test_a_master_that_hears_of_no_controller_gives_up_when_its_lease_ends(tmp_path):
    assert is_master_after(tmp_path, 0)
    assert not is_master_after(tmp_path, 3_000)
    with planted(BY_TESTS["switch-lease-ignored"]):
        assert is_master_after(tmp_path, 3_000_000)


def test_what_a_controller_says_of_an_earlier_epoch_is_not_believed(tmp_path):
    assert "there is no master" in waits_for(tmp_path, 5)
    assert waits_for(tmp_path, 4) == ""
    with planted(BY_TESTS["switch-earlier-view-believed"]):
        assert "there is no master" in waits_for(tmp_path, 4)


def cut_for_the_master_of(directory, epoch: int) -> int | None:
    """Return where a slave cuts its log, which the master of epoch 5 had cut at 100."""

    async def follow() -> int | None:
        broker, begun = broker_in(directory), []

        async def begin(role, _config) -> None:
            begun.append(role)

        broker._begin_role = begin
        broker._registration._identity = Identity("C", "a", 2, "code")
        broker.role = AsSlave(
            own_id=2, epoch=5, master_address="h:1", ha_address="h:2", cut_from=None,
            on_surplus=broker._on_surplus,
        )  # fmt: skip
        broker._on_surplus(100)
        await broker._be_slave(View(1, epoch, "h:1", "h:2", frozenset({1}), 1))
        return begun[0].cut_from

    return asyncio.run(follow())


def test_a_log_is_cut_only_for_the_master_that_asked_for_it(tmp_path):
    assert cut_for_the_master_of(tmp_path, 5) == 100
    assert cut_for_the_master_of(tmp_path, 6) is None
    with planted(BY_TESTS["cut-by-a-former-master"]):
        assert cut_for_the_master_of(tmp_path, 6) == 100
