"""Legal but seldom uses of the published Java clients, 4.9.7 and 5.3.3, a leader kill amid them.

RocketMQ 4.9.7's broker answers the same, but for times of delivery of RocketMQ 5: it takes such a
message and delivers it at once, where ours says that it cannot, unless the time has come. A level
that is no number is refused by ours.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from bench import java
from bench.cluster import Cluster
from ledgermq.client import AdminClient, ClientConfig, RemotingError
from tests.interop.java_program import JavaProgram

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(900)]

TOPIC = "odd_topic"
START_S, HALF_S, REST_S = 60.0, 400.0, 400.0
MIB = 1024 * 1024
ILLEGAL = "code 13 the message is illegal"
WANTED = {
    # As the sender's client read it back: equal, and stored compressed. 4.9.7 has zlib only.
    **{f"compressed-{kind}": "SEND_OK true true" for kind in ("ZLIB", "LZ4", "ZSTD")},
    "batch": "SEND_OK 10",
    "oneway": "found true",
    f"body-{4 * MIB - 1024}": "SEND_OK true",
    f"body-{4 * MIB}": "SEND_OK true",
    f"body-{4 * MIB + 1}": ILLEGAL,
    "property-32000": "SEND_OK 32000",
    "property-32767": ILLEGAL,
    "property-40000": ILLEGAL,
    **{f"level-{level}": "SEND_OK" for level in ("19", "99", "-1")},
    "level-x": f"{ILLEGAL}: its property DELAY is not a number",
    **{
        f"timer-{name}": f"{ILLEGAL}: {name} is RocketMQ 5's"
        for name in ("TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS")
    },
    "timer-over": "SEND_OK",
    "timer-with-level": "SEND_OK",
    "timer-x": f"{ILLEGAL}: TIMER_DELAY_MS is not a number",
    # RocketMQ's signatures are ignored.
    "signed": "SEND_OK",
    "namespace": "SEND_OK [spaced_topic spaced]",
    # Four queues; read again after a seek, nothing at the end, all again by time, committed.
    "assign-and-seek": "4 true true 0 true true",
    # All messages, none out of order, each queue suspended once.
    "orderly-suspend": "64 0 4",
}


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_odd_uses_come_to_what_they_should(version: str, tmp_path: Path) -> None:
    try:
        tools = java.prepare(version)
    except java.JavaUnavailableError as error:
        pytest.skip(f"interop with the Java client {version} skipped: {error}")
    with Cluster(tmp_path / "cluster", replicas=3, sync_flush=False) as cluster:
        leader = cluster.leader()
        asyncio.run(create(cluster.namesrv_addr))
        arguments = [cluster.namesrv_addr, TOPIC]
        with JavaProgram(tools, "ledgermq.Odd", arguments, tmp_path / "odd.log") as running:
            running.wait_for(lambda: "HALF" in running.lines, HALF_S, "first half")
            cluster.kill(leader)
            running.go_on()
            running.wait_for(lambda: "SENT" in running.lines, REST_S, "second half")
            found = {words[0]: " ".join(words[1:]) for words in running.words("CASE")}
    assert found.keys() == WANTED.keys()
    assert not {
        name: found[name] for name, wanted in WANTED.items() if not found[name].startswith(wanted)
    }


async def create(namesrv_addr: str) -> None:
    config = ClientConfig(namesrv_addrs=(namesrv_addr,), group="odd", request_timeout_ms=30_000)
    async with AdminClient(config) as admin, asyncio.timeout(START_S):
        for topic in (TOPIC, f"{TOPIC}_orderly"):
            while True:
                with contextlib.suppress(RemotingError):  # of a leader that is not registered yet
                    await admin.create_topic(topic, 4)
                    break
                await asyncio.sleep(0.1)
