"""Brokers whose role controllers say, as processes: kills, tails, restarts, cut-off controllers."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ledgermq.client import (
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    Message,
    PushConsumer,
    SendFailed,
)
from tests.integration.controlled_brokers import TOPIC, Controlled, controlled
from tests.integration.controllers import ROOT, TIMEOUT_S

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

TAIL = 3
ON = {"enableControllerMode": "true", "controllerAddr": "h:1"}


async def pair(group: Controlled, **settings: object) -> tuple[int, int]:
    """Start two brokers; return which is master, and which is in sync with it."""
    group.start(1, **settings)
    master = await group.master(1)
    group.start(2, **settings)
    await group.in_sync(master, 2)
    return master, 2


async def same(group: Controlled, master: int, slave: int) -> None:
    """Wait until two brokers have the same log."""
    async with asyncio.timeout(TIMEOUT_S):
        while group.bytes_of(master) != group.bytes_of(slave):
            await asyncio.sleep(0.1)


async def bodies_of(group: Controlled, count: int) -> set[bytes]:
    """Return the bodies that a new group of consumers gets."""
    found: set[bytes] = set()

    def listen(messages: list[Message], _context: object) -> ConsumeStatus:
        found.update(message.body for message in messages)
        return ConsumeStatus.CONSUME_SUCCESS

    options = ConsumeOptions(consume_from=ConsumeFrom.FIRST_OFFSET, suspend_ms=1_000)
    consumer = PushConsumer(group.config(f"g{count}", rebalance_ms=500), listen, options)
    consumer.subscribe(TOPIC)
    await consumer.start()
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while len(found) < count:
                await asyncio.sleep(0.05)
    finally:
        await consumer.stop()
    return found


def test_a_killed_master_is_followed_by_its_slave_and_comes_back_as_one(tmp_path: Path) -> None:
    async def run() -> None:
        async with controlled(tmp_path) as group:
            first, second = await pair(group)
            async with group.producer() as producer:
                await group.send(producer, 20)
                group.kill(first)
                await group.send(producer)
                assert (await group.status(second))["mode"] == "CONTROLLED_MASTER"
                await group.send(producer, 10)
                group.start(first)
                await group.in_sync(second, 2)
                await group.send(producer, 10)
                await same(group, second, first)
                assert await bodies_of(group, 41) == set(group.sent)
                group.kill(second)
                await group.send(producer, 5)
                assert await group.master(first) == first
                group.start(second)
                await group.in_sync(first, 2)
                await same(group, first, second)
            assert await bodies_of(group, 46) == set(group.sent)
            status = await group.status(first)
            assert status["epoch"] == 3
            for number in (1, 2):
                group.stop(number)

    asyncio.run(run())


async def unacknowledged(group: Controlled) -> None:
    """Have the master store messages that nobody acknowledges: its slave is gone, in the set."""
    async with group.producer() as producer:
        tasks = [
            asyncio.create_task(
                producer.send(Message(TOPIC, b"tail-%d" % number * 50), timeout_ms=4_000)
            )
            for number in range(TAIL)
        ]
        found = await asyncio.gather(*tasks, return_exceptions=True)
    for one in found:
        assert isinstance(one, SendFailed) or one.status.name == "FLUSH_SLAVE_TIMEOUT", one


def test_what_only_a_former_master_had_is_cut_off_and_nobody_ever_sees_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with controlled(tmp_path) as group:
            settings = {"controllerHeartBeatTimeoutMills": 60_000}
            first, second = await pair(group, **settings)
            async with group.producer() as producer:
                await group.send(producer, 10)
                for number in (0, 1):
                    group.servers.kill(number)  # nobody lets the slave go
                group.kill(second)
                await unacknowledged(group)
                assert b"tail-" in group.bytes_of(first)
                group.kill(first)
                for number in (0, 1):
                    group.servers.start(number)
                group.start(second, **settings)
                await group.send(producer, 10)
                assert b"tail-" not in group.bytes_of(second)
                group.start(first, **settings)
                await group.in_sync(second, 2)
                assert "event=commit_log_cut_to_the_master" in group.log(first)
                await group.send(producer, 5)
                await same(group, second, first)
            assert await bodies_of(group, 25) == set(group.sent)

    asyncio.run(run())


def test_sends_wait_for_a_hanging_slave_until_it_is_out_of_the_set(tmp_path: Path) -> None:
    async def run() -> None:
        async with controlled(tmp_path) as group:
            first, second = await pair(group)
            async with group.producer() as producer:
                await group.send(producer, 5)
                os.kill(group.processes[second].pid, signal.SIGSTOP)
                await group.send(producer, 5)
                assert (await group.status(first))["in_sync"] == [1]
                os.kill(group.processes[second].pid, signal.SIGCONT)
                await group.in_sync(first, 2)
                await group.send(producer, 5)
                await same(group, first, second)
            assert "event=commit_log_cut_to_the_master" not in group.log(second)

    asyncio.run(run())


def test_both_are_killed_and_come_back(tmp_path: Path) -> None:
    async def run() -> None:
        async with controlled(tmp_path) as group:
            first, second = await pair(group)
            async with group.producer() as producer:
                await group.send(producer, 10)
                group.kill(first)
                group.kill(second)
                group.start(second)
                group.start(first)
                master = await group.master(first, second)
                await group.in_sync(master, 2)
                await group.send(producer, 5)
                await same(group, first, second)
            assert await bodies_of(group, 15) == set(group.sent)

    asyncio.run(run())


def test_an_empty_master_gives_way_to_a_log_from_before_there_were_controllers(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with controlled(tmp_path) as group:
            group.start(2, enableControllerMode="false")
            async with group.producer() as producer:
                await group.send(producer, 5)
                group.stop(2)
                group.start(1)
                assert await group.master(1) == 1
                group.start(2)
                assert await group.master(2) == 2
                await group.in_sync(2, 2)
                await group.send(producer, 5)
                await same(group, 2, 1)
            assert await bodies_of(group, 10) == set(group.sent)

    asyncio.run(run())


def test_an_older_log_that_was_shut_out_is_made_the_master_by_command(tmp_path: Path) -> None:
    """An empty broker took messages before it came: one of the two logs has to go."""

    async def run() -> None:
        async with controlled(tmp_path) as group:
            group.start(2, enableControllerMode="false")
            async with group.producer() as producer:
                await group.send(producer, 5)
                older = set(group.sent)
                group.stop(2)
                group.start(1)
                assert await group.master(1) == 1
                await group.send(producer, 5)
                group.start(2)
                async with asyncio.timeout(TIMEOUT_S):
                    while "-n NAME -b 2 --accept-loss" not in group.log(2):
                        await asyncio.sleep(0.1)
                where = ";".join(group.servers.controllers)
                command = [sys.executable, "-m", "cli", "admin", "electMaster", "-a", where]
                command += ["-n", "a", "-b", "2"]
                refused, done = [
                    await asyncio.to_thread(
                        subprocess.run, [*command, *more], cwd=ROOT, timeout=TIMEOUT_S,
                        capture_output=True, check=False,
                    )
                    for more in ((), ("--accept-loss",))
                ]  # fmt: skip
                assert (refused.returncode != 0, done.returncode) == (True, 0)
                assert await group.master(2) == 2
                group.stop(1)
                shutil.rmtree(group.store(1))
                group.start(1)
                await group.in_sync(2, 2)
                group.sent[:] = sorted(older)
                await same(group, 2, 1)
            assert await bodies_of(group, 5) == older

    asyncio.run(run())


def test_without_a_majority_of_controllers_a_master_takes_nothing_and_says_why(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with controlled(tmp_path) as group:
            first, second = await pair(group)
            async with group.producer() as producer:
                await group.send(producer, 5)
                for number in (0, 1):
                    group.servers.kill(number)
                said = ("no controller was reached", "a majority of the name servers")
                async with asyncio.timeout(TIMEOUT_S):
                    while not all(words in group.log(first) for words in said):
                        await asyncio.sleep(0.1)
                for number in (0, 1):
                    group.servers.start(number)
                master = await group.master(first, second)
                await group.in_sync(master, 2)
                await group.send(producer, 5)
                await same(group, first, second)
            assert await bodies_of(group, 10) == set(group.sent)

    asyncio.run(run())


def test_an_administrator_moves_the_mastership_while_both_live(tmp_path: Path) -> None:
    async def run() -> None:
        async with controlled(tmp_path, key="a key of many characters") as group:
            first, second = await pair(group)
            key_file = tmp_path / "key"
            key_file.write_text(group.key)
            key_file.chmod(0o600)
            async with group.producer() as producer:
                await group.send(producer, 5)
                command = [
                    sys.executable, "-m", "cli", "admin", "--key-file", str(key_file),
                    "electMaster", "-a", ";".join(group.servers.controllers), "-n", "a", "-b", "2",
                ]  # fmt: skip
                await asyncio.to_thread(
                    subprocess.run, command, cwd=ROOT, check=True, timeout=TIMEOUT_S,
                    capture_output=True,
                )  # fmt: skip
                await group.send(producer, 5)
                await group.in_sync(second, 2)
                assert (await group.status(first))["mode"] == "CONTROLLED_SLAVE"
                await same(group, second, first)
            assert await bodies_of(group, 10) == set(group.sent)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"enableControllerMode": "true"}, "controllerAddr is needed"),
        ({"enableControllerMode": "true", "controllerAddr": "here"}, "is not host:port"),
        (
            {
                **ON,
                "allAckInSyncStateSet": "false",
            },
            "remove the line",
        ),
        (
            {
                **ON,
                "enableDLegerCommitLog": "true",
            },
            "remove one of the two lines",
        ),
        (
            {**ON, "haMaxTimeSlaveNotCatchup": "5000", "haSendHeartbeatInterval": "5000"},
            "haMaxTimeSlaveNotCatchup=5000: more than haSendHeartbeatInterval=5000",
        ),
        (
            {**ON, "haMaxTimeSlaveNotCatchup": "400"},
            "leaves the in-sync set between two heartbeats",
        ),
    ],
)
def test_settings_that_cannot_be_end_the_start(
    tmp_path: Path, settings: dict[str, str], words: str
) -> None:
    options = [item for one in settings.items() for item in ("-p", "=".join(one))]
    done = subprocess.run(
        [sys.executable, "-m", "broker", "-p", f"storePathRootDir={tmp_path}", *options],
        cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert words in done.stderr


@pytest.mark.parametrize("role", ["", "ASYNC_MASTER", "SLAVE"])
def test_a_directory_with_epochs_starts_in_no_other_mode(tmp_path: Path, role: str) -> None:
    (tmp_path / "epochFileCheckpoint").write_bytes(b"1\n0\n1-0\n")
    number = "1" if role == "SLAVE" else "0"
    options = [f"brokerRole={role}", f"brokerId={number}", "namesrvAddr=127.0.0.1:1"]
    done = subprocess.run(
        [
            sys.executable, "-m", "broker", "-p", f"storePathRootDir={tmp_path}",
            *(item for one in options for item in ("-p", one)),
        ],
        cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "epochFileCheckpoint" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epochFileCheckpoint"]
