"""The recorded session of a Java client that traces: the same answers, its traces are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import uvloop

from tests.conformance.test_broker_replay import Replay, broker, wire

if TYPE_CHECKING:
    from pathlib import Path

TRACES = "RMQ_SYS_TRACE_TOPIC"


def test_a_client_that_traces_gets_the_answers_it_got_from_the_real_broker(tmp_path: Path) -> None:
    """What the name server was asked is left out: when it knew which topic was a matter of time."""

    async def scenario() -> None:
        async with broker(tmp_path / "n0", trace_topic_enable=True) as controller:
            replay = Replay(wire("java497_trace"), {"broker": controller.server_port})
            await replay.run()
            sent = [one for one in replay.requests.values() if one["code"] == 310]
            topics = [one["header"]["extFields"]["b"] for one in sent]
            assert topics.count(TRACES) == 2
            assert replay.compared > 10

    uvloop.run(scenario())
