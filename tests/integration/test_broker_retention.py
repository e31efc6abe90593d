"""Retention in groups of brokers: by age, by disk and on request; who was behind or down goes on.

All over loopback, with brokers as they are started; log files are small so that many can go. What
is old was written by a clock that stood in the past.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import json
import logging
import os
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from broker.retention_policy import DISTRUST_MS, HOUR_MS
from chaos.backends.sparse import copy_used_prefix
from cli.main import run as command
from ledgermq.client import (
    ClientConfig,
    ConsumeContext,
    ConsumeStatus,
    MessageExt,
    MessageQueue,
    PullConsumer,
    PullStatus,
    PushConsumer,
)
from ledgermq.remoting.protocol.message import decode_records
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import Disk, RealDisk, Space
from store.layout import UNIT_BYTES
from tests.integration.broker_cluster import Cluster, cluster, pull_fields, send_fields, until
from tests.integration.faulty_disk import FaultyDisk

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from broker.controller import BrokerController

BODY = b"x" * 900
SEGMENT = 1 << 16
LONG_AGO_MS = -100 * HOUR_MS
KINDS: dict[str, dict[str, Any]] = {"group": {}, "plain": {"enable_dledger": False}}
STEPS = {
    "group": ("replace /dledger-n0/snapshot", "remove /dledger-n0/data", "remove /consumequeue/T"),
    "plain": ("remove /commitlog", "remove /consumequeue/T"),
}
EXPIRED_LOG, EXPIRED_QUEUES, UNUSED_TOPICS, RAFT_STATUS = 329, 306, 316, 29_001
ALL_DAY = ";".join(f"{hour:02d}" for hour in range(24))


class ShiftedClock(SystemClock):
    """Its wall clock is wrong by so much; both clocks can be moved on."""

    __slots__ = ("later_ms", "shift_ms")

    def __init__(self, shift_ms: int = 0) -> None:
        self.shift_ms = shift_ms
        self.later_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.shift_ms + self.later_ms

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.later_ms

    def monotonic_ns(self) -> int:
        return super().monotonic_ns() + self.later_ms * 1_000_000


class LevelDisk(RealDisk):
    """A real disk that is as full as the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.used = 0.5

    def space(self, path: str) -> Space:
        free, usable = super().space(path)
        assert 0 < free <= usable, "the path must be there"
        return Space(round(usable * (1.0 - self.used)), usable)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(90):
            await scenario

    uvloop.run(bounded())


def node(group: Cluster, number: int) -> BrokerController:
    controller = group.brokers[number]
    assert controller is not None
    return controller


async def send(group: Cluster, number: int, topic: str, count: int) -> None:
    for _ in range(count):
        answer = await group.ask(number, 310, BODY, **send_fields(topic))
        assert answer.code == 0, answer.remark


async def limits(group: Cluster, number: int, topic: str, *, after_s: float = 0) -> tuple[int, int]:
    """Return the minimum and maximum offset of a queue, a moment later if wanted."""
    await asyncio.sleep(after_s)
    found = [
        int((await group.ask(number, code, topic=topic, queueId=0)).ext_fields["offset"])
        for code in (31, 30)
    ]
    return found[0], found[1]


async def expire(group: Cluster, number: int) -> dict[str, Any]:
    answer = await group.ask(number, EXPIRED_LOG, report="true")
    assert answer.code == 0, answer.remark
    report: dict[str, Any] = json.loads(answer.body)
    return report


async def applied_everywhere(group: Cluster, leader: int) -> None:
    end = node(group, leader).node.end_index
    running = [controller for controller in group.brokers if controller is not None]
    await until(lambda: all(b.applied_index >= end for b in running), "all have applied")


async def read_all(group: Cluster, number: int, topic: str, offset: int) -> list[int]:
    found: list[int] = []
    while (answer := await group.ask(number, 11, b"", **pull_fields(topic, offset))).code == 0:
        found += [record.queue_offset for record in decode_records(answer.body)]
        offset = int(answer.ext_fields["nextBeginOffset"])
    return found


def first_position(group: Cluster, number: int) -> int:
    return node(group, number)._mode.log.first_position


def long_ago(group: Cluster) -> None:
    group.clock = ShiftedClock(LONG_AGO_MS)


def come_back(group: Cluster) -> None:
    assert isinstance(group.clock, ShiftedClock)
    group.clock.shift_ms = 0


def pass_the_time_of_distrust(group: Cluster) -> None:
    assert isinstance(group.clock, ShiftedClock)
    group.clock.later_ms += DISTRUST_MS


def test_expired_files_go_on_request_from_every_replica(tmp_path: Path) -> None:
    def prepare(group: Cluster) -> None:
        long_ago(group)
        group.settings = {"queue_file_bytes": 50 * UNIT_BYTES}

    async def scenario() -> None:
        async with cluster(tmp_path, 3, SEGMENT, prepare) as group:
            leader = await group.leader()
            await send(group, leader, "Old", 5)
            await send(group, leader, "T", 300)
            await applied_everywhere(group, leader)
            assert (await expire(group, leader))["reason"] == "no closed segment is old enough"
            held = node(group, leader).store.reader.get("T", 0, 0, 32, 1 << 20, None).buffers
            before = [bytes(view) for view in held]
            come_back(group)
            await send(group, leader, "T", 1)
            reports = [await expire(group, number) for number in range(3)]
            assert all(report["dropped_bytes"] >= 3 * SEGMENT for report in reports), reports
            assert len({node(group, number).node.first_index for number in range(3)}) == 1
            # Nothing more is old: the file that holds the newest messages stays, here and there.
            again = await expire(group, leader)
            assert (again["dropped_bytes"], again["reason"]) == (
                0, "no closed segment is old enough",
            )  # fmt: skip
            assert [bytes(view) for view in held] == before, "who reads goes on reading"
            low, high = await limits(group, leader, "T")
            assert (low > 200, high) == (True, 301)
            assert await limits(group, leader, "Old") == (5, 5)
            # A consumer that is behind hears where the queue begins, and reads on from there.
            answer = await group.ask(leader, 11, b"", **pull_fields("T", 7))
            fields = answer.ext_fields
            assert (answer.code, answer.remark) == (21, "OFFSET_TOO_SMALL")
            assert (fields["nextBeginOffset"], fields["minOffset"]) == (str(low), str(low))
            assert fields["maxOffset"] == "301"
            assert await read_all(group, leader, "T", low) == list(range(low, 301))
            # The files of the queue follow, at the next tick at the latest.
            queue = tmp_path / f"n{leader}" / "consumequeue" / "T" / "0"
            first = low // 50 * 50 * UNIT_BYTES
            await until(lambda: min(path.name for path in queue.iterdir()) == f"{first:020d}", "")
            assert (await group.ask(leader, EXPIRED_QUEUES)).code == 0
            status = json.loads((await group.ask(leader, RAFT_STATUS)).body)
            assert status["dropped_bytes_total"] == reports[leader]["dropped_bytes"]
            for number in range(3):
                await group.stop(number)
            for number in range(3):
                await group.start(number)
            leader = await group.leader()
            assert await limits(group, leader, "T") == (low, 301)
            assert await limits(group, leader, "Old") == (5, 5)
            await send(group, leader, "Old", 1)
            assert await read_all(group, leader, "Old", 5) == [5]

    run(scenario())


def test_expired_files_go_in_their_hour_and_nothing_goes_after_the_clock_has_jumped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def prepare(group: Cluster) -> None:
        long_ago(group)
        group.settings = {"delete_when": ALL_DAY, "clean_interval_ms": 30}

    told = "event=clock_jumped_ahead retention_by_age="
    waits, believed = told + "waits", told + "on"

    async def scenario() -> None:
        async with cluster(tmp_path, 1, SEGMENT, prepare) as group:
            await group.leader()
            await send(group, 0, "T", 300)
            come_back(group)
            await until(lambda: waits in caplog.text, "the jump is seen")
            await asyncio.sleep(0.1)
            assert node(group, 0).node.first_index == 0, "its messages only look old"
            await group.stop(0)
            group.settings |= {"delete_when": ""}
            await group.start(0)
            await group.leader()
            await until(lambda: caplog.text.count(waits) == 2, "a start far ahead of the log")
            pass_the_time_of_distrust(group)
            await until(lambda: caplog.text.count(believed) == 1, "the clock kept its time")
            await asyncio.sleep(0.1)
            assert node(group, 0).node.first_index == 0, "no hour is an hour to delete in"
            await group.stop(0)
            group.settings |= {"delete_when": ALL_DAY}
            await group.start(0)
            await group.leader()
            await send(group, 0, "T", 1)
            await until(lambda: caplog.text.count(waits) == 3, "each start is far ahead of the log")
            await asyncio.sleep(0.1)
            assert node(group, 0).node.first_index == 0, "the clock of a start may be wrong"
            pass_the_time_of_distrust(group)
            await until(lambda: node(group, 0).node.first_index > 200, "expired")
            low, high = await limits(group, 0, "T")
            assert await read_all(group, 0, "T", low) == list(range(low, high))

    with caplog.at_level(logging.INFO):
        run(scenario())


@pytest.mark.parametrize("kind", ["group", "plain"])
def test_a_disk_that_fills_up_first_loses_old_files_then_refuses_messages(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    disk = LevelDisk()
    as_the_contract_says: Disk = disk

    def prepare(group: Cluster) -> None:
        group.disk = as_the_contract_says
        group.settings = {"clean_interval_ms": 20, **KINDS[kind]}

    async def scenario() -> None:
        async with cluster(tmp_path, 1, SEGMENT, prepare) as group:
            await group.leader()
            await send(group, 0, "T", 300)

            async def status() -> dict[str, Any]:
                answer: dict[str, Any] = json.loads((await group.ask(0, RAFT_STATUS)).body)
                return answer

            async def level(used: float, name: str) -> None:
                disk.used = used
                async with asyncio.timeout(5):
                    while (await status())["disk_level"] != name:
                        await asyncio.sleep(0.01)

            await level(0.8, "HIGH")
            await asyncio.sleep(0.1)
            assert first_position(group, 0) == 0, "nothing is old"
            await level(0.87, "FORCED")
            await until(lambda: first_position(group, 0) > 2 * SEGMENT, "young files go")
            first = first_position(group, 0)
            await send(group, 0, "T", 1)
            await level(0.93, "FULL")
            assert (await status())["refuses_messages"] is True
            answer = await group.ask(0, 310, BODY, **send_fields("T"))
            assert (answer.code, "disk is full" in (answer.remark or "")) == (14, True)
            low, _ = await limits(group, 0, "T")
            assert await read_all(group, 0, "T", low) == list(range(low, 301))
            # Who reads may say how far it has come: only messages are refused.
            place = {"consumerGroup": "g", "topic": "T", "queueId": 0}
            await group.ask(0, 15, b"", **place, commitOffset=low)
            offsets = node(group, 0).tables.offsets
            await until(lambda: b'"T@g"' in offsets.snapshot(), "the offset is in the log")
            await level(0.86, "FULL")
            assert (await group.ask(0, 310, BODY, **send_fields("T"))).code == 14
            await level(0.5, "OK")
            await send(group, 0, "T", 1)
            assert first_position(group, 0) == first, "the last file stays"

    with caplog.at_level(logging.INFO):
        run(scenario())
    told = [record.message for record in caplog.records if "event=disk_level" in record.message]
    assert len(told) == 4, told
    assert sum("event=nothing_expires" in record.message for record in caplog.records) <= 4


@pytest.mark.parametrize(("kind", "count"), [("group", 3), ("plain", 1)])
def test_files_go_under_load_and_nobody_is_disturbed(tmp_path: Path, kind: str, count: int) -> None:
    disk = LevelDisk()
    disk.used = 0.87

    def prepare(group: Cluster) -> None:
        group.disk = disk
        group.settings = {"clean_interval_ms": 30, "queue_file_bytes": 1_000, **KINDS[kind]}

    async def scenario() -> None:
        async with cluster(tmp_path, count, SEGMENT, prepare) as group:
            leader = await group.leader()
            seen: list[int] = []
            moved: list[int] = []

            async def read() -> None:
                offset = 0
                while not seen or seen[-1] < 1_200:
                    answer = await group.ask(leader, 11, b"", **pull_fields("T", offset))
                    assert answer.code in {0, 19, 20, 21}, (answer.code, answer.remark)
                    if answer.code == 0:
                        first, *others = decode_records(answer.body)
                        if first_position(group, leader) > first.physical_offset - 3 * len(BODY):
                            moved.append(first.queue_offset)  # What lay before it went meanwhile.
                        seen.extend(m.queue_offset for m in (first, *others))
                    if answer.code == 21:
                        moved.append(int(answer.ext_fields["nextBeginOffset"]))
                    offset = int(answer.ext_fields["nextBeginOffset"])
                    await asyncio.sleep(0 if answer.code == 0 else 0.01)

            await send(group, leader, "T", 1)
            reader = asyncio.create_task(read())
            await asyncio.gather(*(send(group, leader, "T", 150) for _ in range(8)))
            await reader
            assert seen == sorted(set(seen))
            gaps = [b for a, b in itertools.pairwise(seen) if b != a + 1]
            assert set(gaps) <= set(moved), "it jumps where it was told to, or over what is gone"
            await until(lambda: first_position(group, leader) >= 15 * SEGMENT, "most of it went")
            disk.used = 0.1  # nothing more goes; a round that is under way may end
            low, high = await limits(group, leader, "T")
            while (again := await limits(group, leader, "T", after_s=0.2)) != (low, high):
                low, high = again
            assert high == 1_201
            assert await read_all(group, leader, "T", low) == list(range(low, high))

    run(scenario())


def test_clients_that_are_behind_go_on_where_the_queue_begins(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path, 1, SEGMENT, long_ago) as group:
            await group.leader()
            await send(group, 0, "T", 300)
            place = {"consumerGroup": "behind", "topic": "T", "queueId": 0}
            assert (await group.ask(0, 15, b"", **place, commitOffset=3)).code == 0
            come_back(group)
            await send(group, 0, "T", 1)
            await expire(group, 0)
            low, high = await limits(group, 0, "T")
            assert low > 200
            namesrv = group.config(0).namesrv_addr
            config = ClientConfig(namesrv_addrs=(namesrv,), group="behind")
            async with PullConsumer(config) as puller:
                queue = MessageQueue("T", "g0", 0)
                result = await puller.pull(queue, offset=3)
                assert result.status is PullStatus.OFFSET_ILLEGAL
                assert (result.next_offset, result.min_offset) == (low, low)
                assert (await puller.pull(queue, offset=low)).messages[0].queue_offset == low
            seen: list[int] = []

            def listen(messages: list[MessageExt], _context: ConsumeContext) -> ConsumeStatus:
                seen.extend(message.queue_offset for message in messages)
                return ConsumeStatus.CONSUME_SUCCESS

            pusher = PushConsumer(config, listen)
            pusher.subscribe("T", "*")
            async with pusher:
                await until(lambda: len(seen) >= high - low, "it reads on")
            assert sorted(seen) == list(range(low, high))

    run(scenario())


def test_a_follower_that_was_down_while_the_others_dropped_gets_a_snapshot(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path, 3, SEGMENT, long_ago) as group:
            leader = await group.leader()
            await send(group, leader, "T", 20)
            await applied_everywhere(group, leader)
            down = (leader + 1) % 3
            await group.stop(down)
            await send(group, leader, "T", 300)
            come_back(group)
            await send(group, leader, "T", 1)
            for number in {0, 1, 2} - {down}:
                while (report := await expire(group, number))["dropped_bytes"] == 0:
                    assert f"n{down} has no more yet" in report["reason"], "it is not yet given up"
                    await asyncio.sleep(0.05)
            first = node(group, leader).node.first_index
            low, high = await limits(group, leader, "T")
            await group.start(down)
            await until(lambda: node(group, down).node.first_index == first, "installed")
            await applied_everywhere(group, leader)
            store = node(group, down).store
            assert (store.reader.min_offset("T", 0), store.reader.max_offset("T", 0)) == (low, high)
            await group.stop(down)
            await group.start(down)
            await applied_everywhere(group, leader)
            store = node(group, down).store
            assert (store.reader.min_offset("T", 0), store.reader.max_offset("T", 0)) == (low, high)
            # It drops for itself as well: what is left is not old.
            assert (await expire(group, down))["reason"] == "no closed segment is old enough"

    run(scenario())


def test_without_space_for_what_stands_for_them_files_stay(tmp_path: Path) -> None:
    disk = FaultyDisk()

    def prepare(group: Cluster) -> None:
        long_ago(group)
        group.disk = disk

    async def scenario() -> None:
        async with cluster(tmp_path, 1, SEGMENT, prepare) as group:
            await group.leader()
            await send(group, 0, "T", 200)
            come_back(group)
            await send(group, 0, "T", 1)
            disk.fail(errno.ENOSPC, "replace */snapshot", "replace */config/*", "replace */ch*")
            report = await expire(group, 0)
            assert (report["dropped_bytes"], first_position(group, 0)) == (0, 0), report
            assert await read_all(group, 0, "T", 0) == list(range(201))
            disk.heal()
            assert (await expire(group, 0))["dropped_bytes"] > 0
            low, high = await limits(group, 0, "T")
            assert await read_all(group, 0, "T", low) == list(range(low, high))

    run(scenario())


def test_requests_are_answered_as_rocketmq_does(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path, 1, SEGMENT, long_ago) as group:
            await group.leader()
            await send(group, 0, "T", 100)
            come_back(group)
            await send(group, 0, "T", 1)
            for code in (EXPIRED_QUEUES, UNUSED_TOPICS, EXPIRED_LOG):
                answer = await group.ask(0, code)
                assert (answer.code, answer.remark, answer.body) == (0, None, b"")
            await until(lambda: node(group, 0).node.first_index > 0, "done behind the answer")

    run(scenario())


def test_the_command_line_tells_what_went(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path, 1, SEGMENT, long_ago) as group:
            await group.leader()
            await send(group, 0, "T", 100)
            come_back(group)
            await send(group, 0, "T", 1)
            namesrv = group.config(0).namesrv_addr

            async def shown(*words: str) -> str:
                assert await asyncio.to_thread(command, ["admin", *words, "-n", namesrv]) == 0
                return capsys.readouterr().out

            head, row = (await shown("deleteExpiredCommitLog")).splitlines()
            assert head.split() == ["address", "dropped_bytes", "reason", "disk_used", "disk_level"]
            assert row.split()[:2] == [group.address(0), str(SEGMENT)]
            again = json.loads(await shown("deleteExpiredCommitLog", "--json"))[0]
            assert (again["dropped_bytes"], again["rounds_asked"]) == (0, 19)
            assert "dropped_files" in await shown("cleanExpiredCQ")
            assert "dropped_files" in await shown("cleanUnusedTopic")
            address = group.address(0)
            await group.stop(0)
            assert await asyncio.to_thread(command, ["admin", "cleanExpiredCQ", "-b", address]) == 1

    run(scenario())


def sparse(source: str, target: str) -> None:
    """Copy a file, mostly holes, and leave the holes."""
    copy_used_prefix(Path(source), Path(target))
    os.truncate(target, Path(source).stat().st_size)


class CopyingDisk(RealDisk):
    """Keeps a copy of a directory as it is before each file is replaced or removed."""

    def __init__(self, source: Path, target: Path) -> None:
        super().__init__()
        self._source = source
        self._target = target
        self._one_at_a_time = threading.Lock()
        self.is_on = False
        self.steps: list[str] = []

    def replace(self, path: str, data: bytes | bytearray) -> None:
        with self._one_at_a_time:
            self._copy("replace", path)
            super().replace(path, data)

    def remove(self, path: str) -> None:
        with self._one_at_a_time:
            self._copy("remove", path)
            super().remove(path)

    def _copy(self, what: str, path: str) -> None:
        if self.is_on:
            shutil.copytree(
                self._source, self._target / f"{len(self.steps):03d}" / "n0", copy_function=sparse
            )
            self.steps.append(f"{what} {path.removeprefix(str(self._source))}")


@pytest.mark.parametrize("kind", ["group", "plain"])
def test_a_start_after_a_crash_between_any_two_steps_finds_a_sound_store(
    tmp_path: Path, kind: str
) -> None:
    live, copies = tmp_path / "live", tmp_path / "copies"
    disk = CopyingDisk(live / "n0", copies)

    def prepare(group: Cluster) -> None:
        long_ago(group)
        group.disk = disk
        settings_of(group)

    async def record() -> int:
        async with cluster(live, 1, SEGMENT, prepare) as group:
            await group.leader()
            await send(group, 0, "Old", 5)
            await send(group, 0, "T", 200)
            come_back(group)
            await send(group, 0, "T", 1)
            disk.is_on = True
            await expire(group, 0)
            low, _ = await limits(group, 0, "T")
            queue = live / "n0" / "consumequeue" / "T" / "0"
            await until(lambda: len(list(queue.iterdir())) < 4, "the queue's files are gone")
            disk.is_on = False
            return low

    async def check(number: int, low: int) -> None:
        async with cluster(copies / f"{number:03d}", 1, SEGMENT, settings_of) as group:
            await group.leader()
            begin, high = await limits(group, 0, "T")
            assert (0 <= begin <= low, high) == (True, 201), (number, disk.steps[number], begin)
            assert await read_all(group, 0, "T", begin) == list(range(begin, 201))
            assert (await limits(group, 0, "Old"))[1] == 5
            # A second round finishes what the first one began.
            await expire(group, 0)
            assert (await limits(group, 0, "T"))[0] == low
            await send(group, 0, "Old", 1)
            assert await read_all(group, 0, "Old", 5) == [5]

    def settings_of(group: Cluster) -> None:
        group.settings = {
            "queue_file_bytes": 50 * UNIT_BYTES, "event_file_bytes": 0, **KINDS[kind]
        }  # fmt: skip

    async def scenario() -> None:
        low = await record()
        assert low > 100
        kinds = " ".join(disk.steps)
        for step in STEPS[kind]:
            assert step in kinds, disk.steps
        for number in range(len(disk.steps)):
            await check(number, low)

    run(scenario())
