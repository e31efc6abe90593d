"""A slave asks for tables where the log comes from, and nobody whose log it refuses."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.integration.broker_cluster import until
from tests.integration.master_slave import caught_up, master_of, running, slave_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.plain_broker import Plain


def tell(slave: Plain, master: Plain) -> str:
    """Have a name server call a master that of the slave; return where it answers."""
    address = master.config.broker_addr
    ha_address = f"127.0.0.1:{master.config.ha_port}"
    mode = slave.controller._mode
    mode.on_registered({"masterAddr": address, "haServerAddr": ha_address})
    return address


def followed(slave: Plain) -> str:
    return str(slave.controller._mode.followed_master())  # type: ignore[attr-defined]  # a slave's


def test_tables_are_those_of_the_log(tmp_path: Path) -> None:
    async def main() -> None:
        master, other = master_of(tmp_path / "m"), master_of(tmp_path / "o")
        async with running(master, other):
            async with running(slave := slave_of(master, tmp_path / "s")):
                for _ in range(3):
                    await master.send("T1", 0, b"x" * 100)
                await caught_up(master, slave)
                address = tell(slave, master)
                await until(lambda: followed(slave) == address, "the master is known")
                entries = slave.controller.tables.topics.entries
                await until(lambda: "T1" in entries, "the topic is known")
                tell(slave, other)
                assert not followed(slave), "its log comes from another broker"
            for _ in range(8):
                await other.send("T2", 0, b"y" * 100)
            async with running(slave := slave_of(other, tmp_path / "s")):
                tell(slave, other)
                await slave.until_state("has another log")
                for _ in range(100):
                    assert not followed(slave)
                    await asyncio.sleep(0.005)
                assert "T1" in slave.controller.tables.topics.entries

    asyncio.run(main())


def test_a_slave_made_the_master_has_no_offset_past_its_queues(tmp_path: Path) -> None:
    async def main() -> None:
        master = master_of(tmp_path / "m")
        async with running(master, slave := slave_of(master, tmp_path / "s")):
            for _ in range(3):
                await master.send("T", 0, b"x" * 100)
            await caught_up(master, slave)
            entries = slave.controller.tables.topics.entries
            await until(lambda: "T" in entries, "the topic is known")
            taken = await slave.ask(15, consumerGroup="g", topic="T", queueId=0, commitOffset=200)
            assert taken.code == 0, taken
        async with running(master := master_of(tmp_path / "s")):
            offsets = master.controller.tables.offsets
            await until(lambda: offsets.applied_offset("T@g", 0) is not None, "it is replicated")
            assert await master.offset(14, consumerGroup="g", topic="T", queueId=0) == 3
        text = (tmp_path / "s" / "config" / "slaveOffset.json").read_text()
        assert "T@g" not in text

    asyncio.run(main())
