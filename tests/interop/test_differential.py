"""The same random requests to RocketMQ 4.9.7 and to ours: what differs has to be known.

``python -m tests.interop.differential`` runs longer, with other seeds.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from bench import java
from tests.interop.differential.compare import differences
from tests.interop.differential.draw import Step
from tests.interop.differential.known import reason
from tests.interop.differential.play import Difference
from tests.interop.differential.run import compare

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.interop

CODES_MIN = 45
SENT_MIN = 30


@pytest.mark.parametrize(("replicas", "requests"), [(1, 400), (3, 250)])
def test_random_requests_are_answered_as_by_rocketmq(
    replicas: int, requests: int, tmp_path: Path
) -> None:
    try:
        play = asyncio.run(compare(tmp_path, 1, requests, replicas, lambda _line: None))
    except java.JavaUnavailableError as error:
        pytest.skip(f"answers compared with RocketMQ's skipped: {error}")
    assert len(play.codes) >= CODES_MIN
    assert len(play.ours.places) >= SENT_MIN
    assert not play.found, "\n".join(found.described() for found in play.found)


def test_what_nobody_knows_is_told() -> None:
    step = Step(30, {"topic": "orders0", "queueId": 0})
    theirs, ours = ({"code": 0, "fields": {"offset": offset}} for offset in ("3", "4"))
    lines = differences(theirs, ours)
    assert lines == ["fields.offset: theirs '3' ours '4'"]
    assert reason(Difference(1, step, theirs, ours, lines, (None, None))) is None
