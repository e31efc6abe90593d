"""The groups of our producer at RocketMQ 4.9.7, alone and as a DLedger group."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from bench import java
from ledgermq.client import ClientConfig
from tests.integration.test_auto_batch import check_each_is_where_its_result_says, send_in_groups

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def tools() -> java.JavaTools:
    try:
        return java.prepare()
    except java.JavaUnavailableError as error:
        pytest.skip(f"interop with the real broker skipped: {error}")


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 3])
def test_the_real_broker_stores_every_member_of_a_group_once(
    tools: java.JavaTools, tmp_path: Path, replicas: int
) -> None:
    async def main(namesrv_addr: str) -> None:
        config = ClientConfig(namesrv_addrs=(namesrv_addr,), group="grouping")
        await check_each_is_where_its_result_says(config, await send_in_groups(config))

    with java.RealRocketMQ(tools, tmp_path, replicas=replicas, sync_flush=False) as real:
        java.settle(15)  # sends amid the first election are tried again, and may be stored twice
        asyncio.run(main(real.namesrv_addr))
