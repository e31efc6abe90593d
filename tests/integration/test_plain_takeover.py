"""A directory that somebody else worked on since we did: our private files are old then.

Who wrote meanwhile is played by our own broker: afterwards the files that only we have are put back
as they were before, and our mark is taken out of ``config``, which is what RocketMQ leaves.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from typing import TYPE_CHECKING

import pytest

from ledgermq.runtime.errors import FatalError
from tests.integration.broker_cluster import pull_fields, until
from tests.integration.plain_broker import SEGMENT_BYTES, Plain, copy_running, plain

if TYPE_CHECKING:
    from pathlib import Path

OURS = ["consumequeue.checkpoint", "consumequeue.clean", "config/appliedIndex.json"]
#: Of every message; with topics of equal length, all records have one size.
BODY_BYTES = 900


class Known:
    """What was acknowledged: by queue, the bodies in order."""

    def __init__(self) -> None:
        self.bodies: dict[tuple[str, int], list[bytes]] = {}
        self.count = 0

    async def write(self, broker: Plain, topic: str, count: int, queues: int = 2) -> None:
        for _ in range(count):
            queue_id = self.count % queues
            body = (b"%d " % self.count).ljust(BODY_BYTES, b".")
            queue = self.bodies.setdefault((topic, queue_id), [])
            assert await broker.send(topic, queue_id, body) == len(queue)
            queue.append(body)
            self.count += 1

    async def check(self, broker: Plain, begin: int = 0) -> None:
        """Compare; ``begin``: queues may begin as late as at this message."""
        for (topic, queue_id), bodies in self.bodies.items():
            low, high = await broker.limits(topic, queue_id)
            assert high == len(bodies), (topic, queue_id)
            found = [record.body for record in await broker.read_all(topic, queue_id)]
            assert found == bodies[low:], (topic, queue_id)
            assert all(int(body.split()[0]) < begin for body in bodies[:low])


async def commit(broker: Plain, offset: int) -> None:
    fields = {"topic": "one", "consumerGroup": "g", "queueId": 0}
    assert (await broker.ask(15, **fields, commitOffset=offset)).code == 0
    offsets = broker.controller.tables.offsets
    await until(lambda: not offsets.has_pending, "an offset in the log")


async def committed(broker: Plain) -> int:
    return await broker.offset(14, topic="one", consumerGroup="g", queueId=0)


def private(store: Path) -> dict[str, bytes]:
    """Return the files that only we have."""
    return {name: (store / name).read_bytes() for name in OURS if (store / name).exists()}


def left_by_rocketmq(store: Path, before: dict[str, bytes]) -> None:
    """Make the directory what it would be if RocketMQ had worked on it since ``before``."""
    for name in OURS:
        (store / name).unlink(missing_ok=True)
    for name, data in before.items():
        (store / name).write_bytes(data)
    for path in (store / "config").glob("*.json"):
        text = path.read_text()
        path.write_text(re.sub(r'\s*"ledgerIndex": -?\d+,?', "", text))


@pytest.mark.parametrize("clean", [True, False])
def test_what_rocketmq_wrote_behind_us_is_there(tmp_path: Path, clean: bool) -> None:
    store, known = tmp_path / "store", Known()

    async def main() -> None:
        async with plain(store) as broker:
            await known.write(broker, "one", 100)
            await commit(broker, 11)
        before = private(store)
        async with plain(store) as broker:
            await known.write(broker, "two", 80)
            await known.write(broker, "one", 80)
            await commit(broker, 22)
        left_by_rocketmq(store, before)
        if not clean:
            (store / "abort").touch()
        for times in range(3):
            async with plain(store) as broker:
                await known.check(broker)
                assert await committed(broker) == (33 if times else 22)
                await commit(broker, 33)
                await known.write(broker, "one", 7)
                await known.check(broker)

    asyncio.run(main())


def test_a_log_that_was_written_over_is_not_taken_for_ours(tmp_path: Path) -> None:
    """Records of other queues, of the same size, at the positions that our checkpoint names."""
    store, known = tmp_path / "store", Known()

    async def main() -> None:
        async with plain(store) as broker:
            await known.write(broker, "one", 60)
        cut = (store / "commitlog/00000000000000000000").read_bytes()
        async with plain(store) as broker:
            lost = Known()
            lost.bodies = {key: list(bodies) for key, bodies in known.bodies.items()}
            lost.count = known.count
            await lost.write(broker, "one", 60)
        before = private(store)
        # A loss of power took what was not synced, and the next broker wrote over it.
        (store / "commitlog/00000000000000000000").write_bytes(cut)
        for name in OURS:
            (store / name).unlink(missing_ok=True)
        (store / "abort").touch()
        async with plain(store) as broker:
            await known.check(broker)
            await known.write(broker, "two", 60)
            await known.write(broker, "one", 20)
        left_by_rocketmq(store, before)
        (store / "abort").touch()
        async with plain(store) as broker:
            await known.check(broker)
            await known.write(broker, "one", 5)
        async with plain(store) as broker:
            await known.check(broker)

    asyncio.run(main())


def test_a_log_whose_end_is_lost_does_not_leave_an_old_checkpoint(tmp_path: Path) -> None:
    """The log lost its end; the next life wrote over it and was killed before a checkpoint."""
    store, known = tmp_path / "store", Known()

    async def main() -> None:
        async with plain(store) as broker:
            await known.write(broker, "one", 60)
        cut = (store / "commitlog/00000000000000000000").read_bytes()
        async with plain(store) as broker:
            lost = Known()
            lost.bodies = {key: list(bodies) for key, bodies in known.bodies.items()}
            lost.count = known.count
            await lost.write(broker, "one", 60)
        (store / "commitlog/00000000000000000000").write_bytes(cut)
        (store / "abort").touch()
        async with plain(store) as broker:
            await known.write(broker, "two", 80)
            assert not (store / "consumequeue.checkpoint").exists(), "not before the next one"
            killed = tmp_path / "killed"
            copy_running(store, killed)
        async with plain(killed) as broker:
            await known.check(broker)

    asyncio.run(main())


def test_a_crash_loses_no_offset_and_no_topic_that_is_in_the_log(tmp_path: Path) -> None:
    store, known = tmp_path / "store", Known()

    async def main() -> None:
        async with plain(store) as broker:
            await known.write(broker, "one", 10)
            await commit(broker, 3)
        async with plain(store) as broker:
            await known.write(broker, "two", 10)
            await commit(broker, 4)
            copy_running(store, tmp_path / "soon")
            topics = store / "config/topics.json"
            await until(lambda: '"two"' in topics.read_text(), "the new topic in its file")
        for name in ("soon", "store"):
            async with plain(tmp_path / name) as broker:
                await known.check(broker)
                assert await committed(broker) == 4
                topic = broker.controller.tables.topics.get("two")
                assert topic is not None
                assert topic.write_queues == 4

    asyncio.run(main())


def test_abort_stays_when_the_store_fails(tmp_path: Path) -> None:
    store = tmp_path / "store"

    async def main() -> None:
        broker = Plain(store)
        await broker.start()
        await broker.send("one", 0, b"x")
        await broker.controller.store.checkpoints.write()
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        broker.controller.store._life.fail(FatalError("a disk that fails"))
        await broker.stop()

    asyncio.run(main())
    assert (store / "abort").exists()


@pytest.mark.parametrize("kept", [True, False])
def test_queues_follow_a_log_whose_beginning_rocketmq_dropped(tmp_path: Path, kept: bool) -> None:
    store, known = tmp_path / "store", Known()

    async def main() -> None:
        async with plain(store) as broker:
            await known.write(broker, "gone", 10, queues=1)
            await known.write(broker, "one", 600)
        dropped = 2
        for number in range(dropped):
            (store / f"commitlog/{number * SEGMENT_BYTES:020}").unlink()
        for path in sorted((store / "consumequeue/one").glob("*/0*")):
            units = path.read_bytes()
            last = int.from_bytes(units[-20:-12], "big")
            if 0 < last < dropped * SEGMENT_BYTES:
                path.unlink()
        if not kept:
            for name in OURS:
                (store / name).unlink()
        async with plain(store) as broker:
            assert await broker.limits("gone", 0) == (10, 10), "it goes on counting"
            low, _ = await broker.limits("one", 0)
            assert low > 0
            await known.check(broker, begin=dropped * SEGMENT_BYTES // BODY_BYTES)
            await known.write(broker, "gone", 3, queues=1)
            await known.write(broker, "one", 10)
        async with plain(store) as broker:
            await known.check(broker, begin=dropped * SEGMENT_BYTES // BODY_BYTES)

    asyncio.run(main())


@pytest.mark.parametrize("hurt", ["flip", "remove", "wipe"])
def test_queues_that_were_hurt_while_we_were_away_are_made_good(tmp_path: Path, hurt: str) -> None:
    store, known = tmp_path / "store", Known()

    async def main() -> None:
        async with plain(store) as broker:
            await known.write(broker, "one", 450)
            await known.write(broker, "two", 50)
        file = store / "consumequeue/one/0/00000000000000002000"
        if hurt == "flip":
            units = bytearray(file.read_bytes())
            units[407] ^= 16
            file.write_bytes(units)
        elif hurt == "remove":
            file.unlink()
        else:
            shutil.rmtree(store / "consumequeue/one")
        async with plain(store) as broker:
            await until(
                lambda: not broker.controller.store._queues.files.damaged, "repaired queues"
            )
            for _ in range(50):  # a block that is read the first time may be found damaged then
                answer = await broker.ask(11, **pull_fields("one", 120))
                if answer.code == 0:
                    break
                await asyncio.sleep(0.05)
            await known.check(broker)
            await known.write(broker, "one", 20)
        async with plain(store) as broker:
            await known.check(broker)

    asyncio.run(main())
