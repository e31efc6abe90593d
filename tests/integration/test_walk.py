"""The walk of a single send, as docs/architecture.md lists it, is the one that a leader takes."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from tests.integration.broker_cluster import cluster, send_fields

if TYPE_CHECKING:
    from types import FrameType

    from broker.controller import BrokerController

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = tuple(f"{ROOT}/{name}/" for name in ("broker", "dledger", "ledgermq", "store"))


def listed() -> tuple[int, list[str]]:
    """How many hops the page states, and the hops of its table, as ``file:function``."""
    page = (ROOT / "docs/architecture.md").read_text()
    section = page.split("### The walk of a single send")[1].split("\nWhen the leader dies")[0]
    (stated,) = re.findall(r"These are (\d+) hops", section)
    rows = [line for line in section.splitlines() if line.startswith("| ") and "`" in line]
    return int(stated), [hop for row in rows for hop in re.findall(r"`([\w/]+\.py:\w+)`", row)]


def belongs_to(leader: BrokerController, frame: FrameType) -> bool:
    """Tell whether a call is made by the leader's connections or its node."""
    node = leader._mode.log
    owners = {id(leader.server), id(node), id(node._transport)}
    caller: FrameType | None = frame
    while caller is not None:
        me = caller.f_locals.get("self")
        if me is not None and (
            id(me) in owners
            or id(getattr(me, "_owner", None)) in owners
            or id(getattr(me, "_dispatcher", None)) in owners
        ):
            return True
        caller = caller.f_back
    return False


async def walk_of_one(directory: Path) -> list[str]:
    """The calls of a leader of three from the frame of a message to its answer."""
    calls: list[str] = []
    async with cluster(directory, 3) as group:
        number = await group.leader()
        leader = group.brokers[number]

        def note(frame: FrameType, event: str, _argument: object) -> None:
            path = frame.f_code.co_filename
            if event == "call" and path.startswith(PACKAGES) and belongs_to(leader, frame):
                calls.append(f"{path.removeprefix(f'{ROOT}/')}:{frame.f_code.co_name}")

        fields = send_fields("T", queue_id=0)
        for _ in range(3):
            await group.ask(number, 310, body=b"x", **fields)
        await asyncio.sleep(0.3)
        sys.setprofile(note)
        try:
            answer = await group.ask(number, 310, body=b"x", **fields)
        finally:
            sys.setprofile(None)
        assert answer.code == 0, answer.remark
    return calls


def test_the_page_lists_the_walk_of_a_send(tmp_path):
    stated, hops = listed()
    assert stated == len(hops), "the page counts its own list"
    calls = uvloop.run(walk_of_one(tmp_path))
    rest = iter(calls)
    for hop in hops:
        assert any(call.endswith(hop) for call in rest), f"{hop} is not called there, in {calls}"
