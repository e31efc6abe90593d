"""Three name servers with controllers, as processes: ids, elections, kills, who is refused.

A broker is played by the requests that one makes; each has a connection of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from chaos.backends.ports import take_ports
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.errors import RemotingError
from ledgermq.remoting.protocol.signing import CONTROLLER_AUDIENCE, KeyCredentials, sign
from ledgermq.remoting.transport.client import RemotingClient
from ledgermq.remoting.transport.credentials import SecuritySettings
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.rng import SystemRng
from mutants.patches import BY_TESTS
from mutants.planting import planted
from namesrv.config import NamesrvConfig
from namesrv.controller.commands import AlterInSync, ApplyId, Elect, Register
from namesrv.controller.config import ControllerConfig
from namesrv.controller.liveness import Heard
from namesrv.controller.server import ControllerServer
from tests.integration.controllers import ROOT, TIMEOUT_S, Servers, servers
from tests.integration.dledger_group import StoppableClock

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

KEY = "a key of many characters"
NOT_LEADER = 2007


class Replica:
    """What one broker says to controllers, over connections of its own."""

    def __init__(self, group: Servers, number: int = 0) -> None:
        self.group = group
        self.number = number
        self.address = f"127.0.0.1:{10_000 + number}"
        self.client = RemotingClient()
        self.nonce = 0

    async def ask(self, address, code, body=b"", **fields):
        command = RemotingCommand(code, ext_fields={"brokerName": "a", "clusterName": "C"} | fields)
        command.body = body
        if self.group.key:
            self.nonce += 1
            command = sign(
                command, KeyCredentials(self.group.key.encode(), "broker"),
                now_ms=SystemClock().wall_ms(), nonce=f"{id(self)}-{self.nonce}",
                audience=CONTROLLER_AUDIENCE + address,
            )  # fmt: skip
        return await self.client.request(address, command, 5_000)

    async def leader(self) -> int:
        """Return the number of the controller that leads, once one does."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                for number in self.group.processes:
                    with contextlib.suppress(RemotingError):
                        answer = await self.ask(self.group.controllers[number], 1005)
                        if answer.ext_fields.get("isLeader") == "true":
                            return number
                await asyncio.sleep(0.02)

    async def ask_leader(self, code, body=b"", **fields):
        """Ask whoever leads, again if that has just changed."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                address = self.group.controllers[await self.leader()]
                with contextlib.suppress(RemotingError):
                    answer = await self.ask(address, code, body, **fields)
                    if answer.code != NOT_LEADER:
                        return answer

    async def register(self):
        """Take an id and register; return the answer."""
        code = f"code-{self.number}"
        fields = {"appliedBrokerId": str(self.number), "registerCheckCode": code}
        assert (await self.ask_leader(1013, **fields)).code == 0
        return await self.ask_leader(
            1003, brokerId=str(self.number), brokerAddress=self.address, registerCheckCode=code
        )

    async def beat(self, offset=0):
        """Tell all controllers that it lives."""
        for number in list(self.group.processes):
            with contextlib.suppress(RemotingError):
                await self.ask(
                    self.group.controllers[number], 904, brokerAddr=self.address,
                    brokerId=str(self.number), epoch="1", maxOffset=str(offset),
                    heartbeatTimeoutMills="60000",
                )  # fmt: skip

    async def master(self) -> tuple[int, int]:
        """Return id and epoch of the master."""
        fields = (await self.ask_leader(1004)).ext_fields
        return int(fields["masterBrokerId"]), int(fields["masterEpoch"])


async def trio(group: Servers) -> list[Replica]:
    """Return three replicas, the first of which is master; the second is in sync with it."""
    replicas = [Replica(group, number) for number in (1, 2, 3)]
    for one in replicas:
        assert (await one.register()).code == 0
        await one.beat()
    answer = await replicas[0].ask_leader(1002, brokerId="1")
    assert (answer.code, answer.ext_fields["masterBrokerId"]) == (0, "1")
    body = json.dumps({"syncStateSet": [1, 2], "syncStateSetEpoch": 1}).encode()
    answer = await replicas[0].ask_leader(1001, body, masterBrokerId="1", masterEpoch="1")
    assert (answer.code, answer.ext_fields["newSyncStateSetEpoch"]) == (0, "2")
    return replicas


async def close(replicas: list[Replica]) -> None:
    for one in replicas:
        await one.client.close()


def admin(*arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "cli", "admin", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    return done.returncode, done.stdout + done.stderr


async def elected(replica: Replica, epoch: int) -> tuple[int, float]:
    """Wait for the master of an epoch; return its id and how many seconds that took."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            master, found = await replica.master()
            if found >= epoch:
                return master, loop.time() - begun
            await replica.beat()
            await asyncio.sleep(0.05)


def test_a_master_that_is_gone_is_followed_by_one_that_was_in_sync(tmp_path):
    async def run(group: Servers) -> None:
        one, two, three = await trio(group)
        await asyncio.sleep(4)  # the controller that leads has heard everybody by then
        await two.beat()
        await three.beat(offset=999)  # it has most, and was not in sync
        await one.client.close()
        master, seconds = await elected(two, 2)
        assert master == 2
        assert seconds < 20
        body = json.dumps({"syncStateSet": [1, 2], "syncStateSetEpoch": 2}).encode()
        late = await three.ask_leader(1001, body, masterBrokerId="1", masterEpoch="1")
        assert late.code == 2002  # what the former master still asks for
        await close([two, three])

    with servers(tmp_path) as group:
        asyncio.run(run(group))


def test_decisions_survive_kills_of_controllers(tmp_path):
    async def run(group: Servers) -> None:
        replicas = await trio(group)
        watcher = replicas[1]
        first = await watcher.leader()
        group.kill(first)
        assert await watcher.master() == (1, 1)
        answer = await watcher.ask_leader(1003, brokerId="9", brokerAddress="h:9")
        assert answer.code == 2010
        group.start(first)
        for number in list(group.processes):
            group.kill(number)
        for number in range(3):
            group.start(number)
        assert await watcher.master() == (1, 1)
        body = (await watcher.ask_leader(1006, b"[]")).body
        table = json.loads(bytes(body))["replicasInfoTable"]["a"]
        assert [one["brokerId"] for one in table["inSyncReplicas"]] == [1, 2]
        assert table["syncStateSetEpoch"] == 2
        await close(replicas)

    with servers(tmp_path) as group:
        asyncio.run(run(group))


def test_without_a_majority_nothing_is_decided(tmp_path):
    async def run(group: Servers) -> None:
        replicas = await trio(group)
        watcher = replicas[0]
        last = await watcher.leader()
        for number in set(range(3)) - {last}:
            group.kill(number)
        address = group.controllers[last]
        answer = await watcher.ask(address, 1013, appliedBrokerId="4", registerCheckCode="x")
        assert answer.code == NOT_LEADER
        await asyncio.sleep(2)
        answer = await watcher.ask(address, 1004)
        assert answer.code == NOT_LEADER
        await close(replicas)

    with servers(tmp_path) as group:
        asyncio.run(run(group))


def test_an_administrator_sees_moves_and_removes(tmp_path):
    async def run(group: Servers) -> None:
        replicas = await trio(group)
        where = ";".join(group.controllers)
        code, text = await asyncio.to_thread(admin, "getSyncStateSet", "-a", where, "-n", "a")
        assert code == 0, text
        assert [line.split()[:5] for line in text.splitlines()[1:]] == [
            ["a", "1", "master", "yes", "yes"], ["a", "2", "slave", "yes", "yes"],
            ["a", "3", "slave", "no", "yes"],
        ]  # fmt: skip
        code, text = await asyncio.to_thread(
            admin, "electMaster", "-a", where, "-n", "a", "-b", "3"
        )
        assert code == 1
        assert "only a replica that was in sync (1, 2)" in text
        code, text = await asyncio.to_thread(
            admin, "electMaster", "-a", where, "-n", "a", "-b", "2"
        )
        assert (code, "master=2 epoch=2" in text) == (0, True), text
        remove = "cleanBrokerMetadata", "-a", where, "-n", "a", "-b", "3"
        code, text = await asyncio.to_thread(admin, *remove)
        assert (code, "3 is alive" in text) == (1, True), text
        code, text = await asyncio.to_thread(admin, *remove, "-l")
        assert code == 0, text
        code, text = await asyncio.to_thread(admin, "getControllerMetaData", "-a", where)
        assert (code, text.count("true")) == (0, 1), text
        code, text = await asyncio.to_thread(
            admin, "getControllerMetaData", "-a", f"127.0.0.1:1;{where}"
        )
        assert (code, text.count("true")) == (1, 1), text
        assert "cannot connect to 127.0.0.1:1" in text
        await close(replicas)

    with servers(tmp_path) as group:
        asyncio.run(run(group))


def test_with_a_key_only_who_has_it_is_heard(tmp_path):
    async def run(group: Servers) -> None:
        replicas = await trio(group)
        stranger = Replica(group, 4)
        address = group.controllers[await stranger.leader()]
        group.key = ""
        answer = await stranger.ask(address, 1013, appliedBrokerId="4", registerCheckCode="x")
        assert answer.code == 16
        group.key = KEY
        wanted = "electMaster", "-a", address, "-n", "a", "-b", "2"
        code, text = await asyncio.to_thread(admin, *wanted)
        assert (code, "not signed" in text) == (1, True), text
        key_file = tmp_path / "key"
        key_file.write_text(KEY)
        key_file.chmod(0o600)
        code, text = await asyncio.to_thread(admin, "--key-file", str(key_file), *wanted)
        assert (code, "master=2" in text) == (0, True), text
        # The tool signs for the name that the controller has itself, however it is called here.
        called = (
            "electMaster",
            "-a",
            address.replace("127.0.0.1", "localhost"),
            "-n",
            "a",
            "-b",
            "3",
        )
        code, text = await asyncio.to_thread(admin, "--key-file", str(key_file), *called)
        assert (code, "code 2012: only a replica that was in sync" in text) == (1, True), text
        await close([*replicas, stranger])

    with servers(tmp_path, key=KEY) as group:
        asyncio.run(run(group))
        group.kill(2)
        group.key = "another key of characters"
        group.start(2)
        asyncio.run(refused(group, 2))


async def refused(group: Servers, number: int) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while "event=controller_message_refused" not in group.log(number):
            await asyncio.sleep(0.1)
    assert "not that of the shared key" in group.log(number)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"bindAddress": "0.0.0.0"}, "needs a key"),
        ({"controllerDLegerPeers": "n0-10.0.0.1:9878"}, "needs a key"),
        ({"controllerDLegerPeers": "n1-127.0.0.1:9878"}, "not among controllerDLegerPeers"),
        ({"controllerDLegerPeers": "n0"}, "not id-host:port"),
        ({"controllerDLegerPeers": ""}, "1 to 7 peers"),
        ({"controllerStorePath": ""}, "controllerStorePath are needed"),
        ({"peerTlsCaPath": "/nonexistent/ca.pem"}, "set peerSharedKeyFile beside peerTlsCaPath"),
    ],
)
def test_settings_that_cannot_be_end_the_start(tmp_path, settings, words):
    group = Servers(tmp_path, count=1, **settings)
    try:
        assert group.processes[0].wait(TIMEOUT_S) == 2
    finally:
        group.processes.clear()
    assert words in group.log(0)


def test_a_directory_in_use_ends_the_start(tmp_path):
    with servers(tmp_path, count=1) as group:

        async def lead() -> None:
            one = Replica(group)
            await one.leader()
            await one.client.close()

        asyncio.run(lead())
        again = Servers(tmp_path, count=1)
        assert again.processes[0].wait(TIMEOUT_S) == 2
        assert "in use by another process" in group.log(0)


def test_planted_a_controller_that_others_reach_starts_without_a_key(tmp_path):
    config = NamesrvConfig(
        enable_controller=True, controller_id="n0", controller_peers="n0-10.0.0.1:9878",
        controller_store_path=str(tmp_path),
    )  # fmt: skip
    with planted(BY_TESTS["controller-without-a-key"]):
        assert config.controller is not None


async def alone(folder: Path, clock: SystemClock) -> ControllerServer:
    """Start the only controller of a group in this process, and wait until it leads."""
    (port,) = take_ports(1)
    config = ControllerConfig(
        group="g", own_id="n0", peers={"n0": f"127.0.0.1:{port}"}, store_path=str(folder),
        bind_address="127.0.0.1",
    )  # fmt: skip
    machine = clock, RealDisk(), SystemRng()
    server = ControllerServer(config, SecuritySettings(), machine, 100)
    await server.start()
    async with asyncio.timeout(TIMEOUT_S):
        while not server.controller.leads:
            await asyncio.sleep(0.02)
    return server


def heard(number: int) -> Heard:
    now_ms = SystemClock().monotonic_ms()
    return Heard(now_ms, 10_000, f"h:{number}", number, 1, 100)


async def master_soon_after_the_start(folder: Path, looks_max: float) -> int:
    """Return who is master while a controller has just begun to lead; 1 has not been heard.

    The time stands still there: it looks so often whether an election is due.
    """
    clock = StoppableClock()
    server = await alone(folder, clock)
    decide = server.controller.decide
    for number in (1, 2):
        await decide(ApplyId(group="a", cluster="C", id=number, check_code=f"c{number}"))
        await decide(Register(group="a", cluster="C", id=number, address=f"h:{number}"))
    await decide(Elect(group="a", master_epoch=0, alive=(1,)))
    await decide(
        AlterInSync(
            group="a", master=1, master_epoch=1, in_sync_epoch=1, in_sync=(1, 2), alive=(1, 2)
        )
    )
    await server.stop()
    clock.stop()
    server = await alone(folder, clock)
    server.controller.hear("a", 2, heard(2))
    looks, expire = [], server.controller.liveness.expire
    server.controller.liveness.expire = lambda now_ms: looks.append(now_ms) or expire(now_ms)
    groups = server.controller.groups
    async with asyncio.timeout(TIMEOUT_S):
        while groups["a"].master != 2 and len(looks) < looks_max:
            await asyncio.sleep(0.02)
    master = groups["a"].master
    await server.stop()
    return master


def test_who_has_not_been_heard_yet_is_not_taken_for_dead(tmp_path):
    assert asyncio.run(master_soon_after_the_start(tmp_path / "right", looks_max=10)) == 1
    with planted(BY_TESTS["controller-takes-the-silent-for-dead"]):
        found = master_soon_after_the_start(tmp_path / "planted", looks_max=float("inf"))
        assert asyncio.run(found) == 2
