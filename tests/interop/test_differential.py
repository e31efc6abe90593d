"""The same random requests to RocketMQ 4.9.7 and to ours: what differs has to be known.

``python -m tests.interop.differential`` runs longer, with other seeds.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from bench import java
from tests.interop.differential.compare import differences
from tests.interop.differential.draw import Step
from tests.interop.differential.known import NO_GROUP, NO_PERMISSION, PARSE_FAILED, reason
from tests.interop.differential.play import Difference
from tests.interop.differential.run import compare
from tests.interop.differential.sides import Ref
from tests.interop.differential.words import APART

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.interop

CODES_MIN = 45
SENT_MIN = 30


@pytest.mark.parametrize(
    ("replicas", "requests", "move_every"), [(1, 400, 0), (3, 250, 0), (3, 250, 12)]
)
def test_random_requests_are_answered_as_by_rocketmq(
    replicas: int, requests: int, move_every: int, tmp_path: Path
) -> None:
    try:
        play = asyncio.run(
            compare(tmp_path, 1, requests, replicas, lambda _line: None, move_every=move_every)
        )
    except java.JavaUnavailableError as error:
        pytest.skip(f"answers compared with RocketMQ's skipped: {error}")
    if play.moves is not None:
        assert play.moves.handed_over + play.moves.killed == requests // move_every
    assert len(play.codes) >= CODES_MIN
    assert len(play.ours.places) >= SENT_MIN
    assert not play.found, "\n".join(found.described() for found in play.found)


def test_what_nobody_knows_is_told() -> None:
    step = Step(30, {"topic": "orders0", "queueId": 0})
    theirs, ours = ({"code": 0, "fields": {"offset": offset}} for offset in ("3", "4"))
    assert differences(theirs, ours) == ["fields.offset: theirs '3' ours '4'"]
    assert why_known(step, theirs, ours, []) is None


def answered(code: int, **fields: str) -> dict[str, Any]:
    return {"code": code, "fields": fields, "body": None, "remark": bool(code) or None}


PULL = {"subscription": "red", "expressionType": "TAG", "sysFlag": 4, "topic": "orders0"}
WRONG = {
    "an offset that both have, of a question with a field of RocketMQ 5": (
        Step(14, {"setZeroIfNotFound": True}), answered(0, offset="3"), answered(0, offset="4"),
    ),
    "an expression that is right is refused": (
        Step(11, PULL), answered(0), answered(PARSE_FAILED)
    ),
    "a commit is refused for its group": (
        Step(15, {"topic": "orders0"}), answered(0), answered(NO_GROUP)
    ),
    "a commit of a transaction is not answered by RocketMQ": (
        Step(37, {"commitOrRollback": 8}), None, answered(0)
    ),
    "a half is refused": (
        Step(310, {"f": 4, "i": "TRAN_MSG\x01true"}), answered(0), answered(NO_PERMISSION)
    ),
    "what lies amid a message is handed out": (
        Step(33, {"offset": Ref(1, "physical", 1)}), answered(1), answered(0)
    ),
    "a table that slaves read has another member": (
        Step(43, {}), answered(0), {**answered(0), "body": {"offsetTable": {}}}
    ),
    "a lock is refused by brokers that have run all the time": (
        Step(41, {}), {**answered(0), "body": {"lockOKMQSet": [{}]}},
        {**answered(0), "body": {"lockOKMQSet": []}},
    ),
}  # fmt: skip


def why_known(step: Step, theirs: Any, ours: Any, asked: list[str]) -> str | None:
    lines = differences(theirs, ours)
    assert lines
    return reason(Difference(1, step, theirs, ours, lines + asked, (None, None)))


@pytest.mark.parametrize("what", WRONG)
def test_no_rule_is_so_broad(what: str) -> None:
    step, theirs, ours = WRONG[what]
    assert why_known(step, theirs, ours, []) is None


def test_no_request_explains_what_clients_were_told_of_others() -> None:
    step = Step(310, {"b": APART})
    theirs, ours = answered(0, queueId="1"), answered(0, queueId="2")
    assert why_known(step, theirs, ours, []) is not None
    assert why_known(step, theirs, ours, ["asked[0].code: theirs 40 ours 39"]) is None
