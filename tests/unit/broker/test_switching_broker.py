"""What a broker makes of what controllers say, before it has a role."""

from __future__ import annotations

import asyncio
import random

import pytest

from broker.modes.assignment import AsMaster, AsSlave
from broker.server import load_config
from broker.switch.broker import SwitchingBroker
from broker.switch.controllers import Controllers, Unanswered, View
from broker.switch.identity import Identity
from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.command import RemotingCommand
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


@pytest.mark.parametrize("address", ["", "nonsense", "h:70000", "[h"])
def test_a_master_at_an_address_that_is_none_does_not_end_its_slaves(tmp_path, address):
    """Whoever has an id may have registered it."""

    async def follow() -> list[str]:
        broker, begun = broker_in(tmp_path, {"namesrvAddr": ""}), []

        async def begin(role, config) -> None:
            assert config.is_slave
            begun.append(role.ha_address)

        broker._begin_role = begin
        broker._registration._identity = Identity("C", "a", 2, "code")
        await broker._be_slave(View(1, 6, "h:1", address, frozenset({1}), 1))
        return begun

    assert asyncio.run(follow()) == [address]


def asked_to_give_way(directory, end: int, *, later: int = 0) -> tuple[list[bytes], bool]:
    """Return what a master asks for that hears of an older log, and whether it is master still.

    ``end`` is where its own log ends, ``later`` where it does once it is closed.
    """

    async def run() -> tuple[list[bytes], bool]:
        broker, asked, ended = broker_in(directory), [], []

        class Silent:
            async def ask(self, code: int, fields: object, body: bytes, *_: object) -> None:
                assert not in_sync.is_open, "it acknowledges still"
                assert ended, "it takes messages still"
                asked.append(body)
                raise Unanswered("nobody", is_certain=False)

        async def end_role(reason: str) -> None:
            ended.append(reason)
            broker._progress._last = (5, later)

        broker._end_role = end_role

        in_sync = InSync(2, 15_000)
        broker._registration._identity = Identity("C", "a", 2, "code")
        broker._registration.epoch = 5
        broker.role = AsMaster(own_id=2, epoch=5, in_sync=in_sync)
        broker._progress._last = (5 if end else 0, end)
        broker._controllers = Silent()  # type: ignore[assignment]
        await broker._follow(View(2, 5, "", "", frozenset({2}), 7, older=3))
        return asked, in_sync.is_open

    return asyncio.run(run())


def test_a_master_gives_way_to_an_older_log_only_while_it_has_nothing(tmp_path):
    body = b'{"syncStateSet": [2, 3], "syncStateSetEpoch": 7}'
    assert asked_to_give_way(tmp_path, 0) == ([body], False)
    assert asked_to_give_way(tmp_path, 500) == ([], True)
    assert asked_to_give_way(tmp_path, 0, later=300) == ([], False)
    with planted(BY_TESTS["switch-gives-way-while-it-takes"]), pytest.raises(AssertionError):
        asked_to_give_way(tmp_path, 0)
    with planted(BY_TESTS["switch-gives-way-with-what-came-last"]):
        assert asked_to_give_way(tmp_path, 0, later=300) == ([body], False)
    with planted(BY_TESTS["switch-gives-way-with-messages"]):
        assert asked_to_give_way(tmp_path, 500) == ([body], False)
    with planted(BY_TESTS["switch-gives-way-and-goes-on"]), pytest.raises(AssertionError):
        asked_to_give_way(tmp_path, 0)


class Role:
    """A broker of one role."""

    mode = None

    def __init__(self) -> None:
        self.parts, self.ended = ["the log"], []

    async def stop(self) -> None:
        """End what has not begun to end: a second call takes up nothing."""
        while self.parts:
            part = self.parts.pop()
            await asyncio.sleep(0.05)
            self.ended.append(part)


def test_a_stop_lets_a_role_end_that_ends_just_now(tmp_path):
    """Cut short, it would neither sync its log nor leave its directory clean."""

    async def run() -> list[str]:
        broker, role = broker_in(tmp_path), Role()
        broker.running = role
        broker._tasks.spawn("role of this broker", broker._end_role("there is another master"))
        await asyncio.sleep(0)
        await broker.stop()
        return role.ended

    assert asyncio.run(run()) == ["the log"]


def test_no_role_begins_to_end_while_tasks_are_cancelled(tmp_path):
    """They are cancelled one by one, and a controller may answer one that is not yet."""

    async def run() -> list[str]:
        broker, role, answered = broker_in(tmp_path), Role(), asyncio.Event()
        broker.running = role

        async def live() -> None:
            await answered.wait()
            await broker._end_role("there is another master")

        async def keep() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                answered.set()
                await asyncio.sleep(0.01)

        broker._tasks.spawn("role of this broker", live())
        broker._tasks.spawn("in-sync set", keep())
        await asyncio.sleep(0)
        await broker.stop()
        return role.ended

    assert asyncio.run(run()) == ["the log"]


def greetings(directory, period_ms: int) -> list[int]:
    """Return how many heartbeats were sent by each of four answers; two of them are of new ones."""

    async def run() -> list[int]:
        broker, beats, counts = broker_in(directory, beating(period_ms)), [], []

        async def beat() -> None:
            beats.append(1)

        broker._beat_once = beat
        for number in range(4):
            broker._controllers.found += number in {0, 2}
            await broker._greet()
            counts.append(len(beats))
        return counts

    return asyncio.run(run())


def beating(period_ms: int) -> dict[str, str]:
    """Return settings of a broker with such heartbeats."""
    silence_ms = str(2 * period_ms + 1)
    return {
        "brokerHeartbeatInterval": str(period_ms), "controllerHeartBeatTimeoutMills": silence_ms,
    }  # fmt: skip


def test_a_controller_that_leads_since_just_now_hears_of_a_broker_with_seldom_heartbeats(tmp_path):
    """It takes for dead whom it has not heard of within three seconds."""
    assert greetings(tmp_path, 5_000) == [1, 1, 2, 2]
    assert greetings(tmp_path, 1_000) == [0, 0, 0, 0]
    with planted(BY_TESTS["controller-that-is-new-is-not-greeted"]):
        assert greetings(tmp_path, 5_000) == [0, 0, 0, 0]


def test_who_leads_is_counted_when_it_is_found(tmp_path):
    class Client:
        async def request(self, *_: object) -> RemotingCommand:
            return RemotingCommand(0, ext_fields={"isLeader": "true"})

    controllers = Controllers(["h:1"], Client(), {}, lambda command, _: command)
    asyncio.run(controllers.ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, {}))
    asyncio.run(controllers.ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, {}))
    assert controllers.found == 1
    controllers._leader = ""
    asyncio.run(controllers.ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, {}))
    assert controllers.found == 2
