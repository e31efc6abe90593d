"""Two brokers of ours as master and slave: what is copied, served, acknowledged and refused."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.integration.broker_cluster import pull_fields, send_fields, until
from tests.integration.master_slave import (
    bytes_of,
    caught_up,
    dispatched,
    log_of,
    master_of,
    running,
    slave_of,
)
from tests.integration.plain_broker import SEGMENT_BYTES

if TYPE_CHECKING:
    from pathlib import Path


def test_a_slave_has_the_same_bytes_and_serves_reads(tmp_path: Path) -> None:
    async def main() -> None:
        master = master_of(tmp_path / "m")
        slave = slave_of(master, tmp_path / "s")
        async with running(master, slave):
            for number in range(600):  # more than two files
                await master.send("T", number % 4, b"%04d" % number * 256)
            await caught_up(master, slave)
            await dispatched(master, slave)
            found = [record.body[:4] for queue in range(4) for record in
                     await slave.read_all("T", queue)]  # fmt: skip
            assert sorted(found) == [b"%04d" % number for number in range(600)]
            refused = await slave.ask(310, b"x", **send_fields("T", 0, ""))
            assert refused.code == 14
            assert await slave.state() == "following"
            # Nobody has told it a topic: `haMasterAddress` alone says nothing of tables.
            assert [await slave.limits("T", queue) for queue in range(4)] == [(0, 150)] * 4
            assert await slave.limits("U", 0) == (0, 0)
        theirs, ours = bytes_of(tmp_path / "m"), bytes_of(tmp_path / "s")
        assert len(theirs) > 2
        assert ours == theirs

    asyncio.run(main())


def test_a_slave_goes_on_where_it_was(tmp_path: Path) -> None:
    async def main() -> None:
        master = master_of(tmp_path / "m")
        async with running(master):
            for round_ in range(4):
                slave = slave_of(master, tmp_path / "s")
                async with running(slave):
                    for number in range(100):
                        await master.send("T", 0, b"%d" % number * 999)
                    if round_ % 2:
                        await caught_up(master, slave)
            async with running(slave := slave_of(master, tmp_path / "s")):
                await caught_up(master, slave)
                await dispatched(master, slave)
                assert len(await slave.read_all("T", 0)) == 400
        assert bytes_of(tmp_path / "s") == bytes_of(tmp_path / "m")

    asyncio.run(main())


def test_a_slave_of_another_master_changes_nothing_and_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        for name, count in (("a", 3), ("b", 5)):
            master = master_of(tmp_path / name)
            slave = slave_of(master, tmp_path / "s")
            async with running(master):
                for _number in range(count):
                    await master.send("T", 0, name.encode() * 400)
                if name == "a":
                    async with running(slave):
                        await caught_up(master, slave)
                    before = bytes_of(tmp_path / "s")
                    continue
                async with running(slave):
                    state = await slave.until_state("another log")
        assert "move its commitlog" in state
        assert bytes_of(tmp_path / "s") == before

    asyncio.run(main())


def test_a_longer_slave_is_refused_by_the_master(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        master = master_of(tmp_path / "m")
        slave = slave_of(master, tmp_path / "s")
        async with running(master, slave):
            for _ in range(9):
                await master.send("T", 0, b"x" * 400)
            await caught_up(master, slave)
        shorter = master_of(tmp_path / "n")
        async with running(shorter, slave_of(shorter, tmp_path / "s")):
            await until(lambda: "this master has lost the end" in caplog.text, "a refusal")

    asyncio.run(main())
    assert len(bytes_of(tmp_path / "s")) == 1


@pytest.mark.parametrize("properties", ["", "WAIT\x01false\x02"], ids=["waits", "would not wait"])
def test_a_synchronous_master_waits_for_a_slave(tmp_path: Path, properties: str) -> None:
    async def main() -> None:
        master = master_of(
            tmp_path / "m", broker_role="SYNC_MASTER", slave_timeout_ms=300, segment_bytes=2**20
        )
        slave = slave_of(master, tmp_path / "s", segment_bytes=2**20)
        fields = send_fields("T", 0, properties)
        async with running(master):
            alone = await master.ask(310, b"a", **fields)
            assert alone.code == 11  # SLAVE_NOT_AVAILABLE
            assert alone.ext_fields["queueOffset"] == "0"
            async with running(slave):
                await until(
                    lambda: any(one["confirms"] for one in master.controller._status()["slaves"]),
                    "a slave that confirms",
                )
                await caught_up(master, slave)
                both = await master.ask(310, b"b", **fields)
                assert both.code == 0
                assert log_of(slave).end_position == log_of(master).end_position
                # A slave that has stopped to write, and is still there.
                log_of(slave).copy = lambda _runs: True
                slow = await master.ask(310, b"c", **fields)
                assert slow.code == 12  # FLUSH_SLAVE_TIMEOUT
            pulled = await master.ask(11, **pull_fields("T", 0, queueId=0))
            assert pulled.ext_fields["nextBeginOffset"] == "3"

    asyncio.run(main())


def test_a_slave_of_files_of_another_size_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        master = master_of(tmp_path / "m")
        slave = slave_of(master, tmp_path / "s", segment_bytes=SEGMENT_BYTES * 2)
        async with running(master, slave):
            for _ in range(300):
                await master.send("T", 0, b"x" * 1000)
            await slave.until_state("mappedFileSizeCommitLog")

    asyncio.run(main())


def test_a_new_slave_begins_with_the_last_file_and_goes_on(tmp_path: Path) -> None:
    async def main() -> None:
        master = master_of(tmp_path / "m")
        async with running(master):
            for number in range(700):
                await master.send("T", number % 2, b"%d" % number * 300)
            for round_ in range(3):
                slave = slave_of(master, tmp_path / "s")
                async with running(slave):
                    await caught_up(master, slave)
                    await dispatched(master, slave)
                    begin = log_of(slave).first_position
                    assert begin >= 2 * SEGMENT_BYTES
                    reader = slave.controller.store.reader
                    for queue in range(2):
                        low, high = reader.min_offset("T", queue), reader.max_offset("T", queue)
                        assert (0 < low < high, high) == (True, 350 + 10 * round_)
                    for number in range(20):
                        await master.send("T", number % 2, b"more")
        ours, theirs = bytes_of(tmp_path / "s"), bytes_of(tmp_path / "m")
        assert ours.keys() < theirs.keys()
        last = max(ours)
        assert all(ours[name] == theirs[name] for name in ours if name != last)

    asyncio.run(main())
