"""Differences that are meant: where RocketMQ 4.9.7 guesses, fails, or knows less than we do."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.interop.differential.words import APART, CARELESS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.differential.draw import Step
    from tests.interop.differential.play import Difference

GROUP_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]{1,120}")
SYSTEM_ERROR, NOT_SUPPORTED, NO_PERMISSION, NO_TOPIC, NOT_FOUND = 1, 3, 16, 17, 22
PARSE_FAILED, NO_GROUP = 23, 26
RIGHT_EXPRESSIONS: Final = frozenset({
    ("*", "TAG"), ("red", "TAG"), ("red || green", "TAG"), ("price > 3", "SQL92"),
    ("TAGS = 'red'", "SQL92"),
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rule:
    """A kind of difference that is known."""

    why: str
    holds: Callable[[Difference], bool]


def reason(found: Difference) -> str | None:
    """Return why a difference is meant; None where nobody knows it."""
    if any(line.startswith("asked") for line in found.lines):
        return None  # what clients were told comes of requests before, to which no rule looks
    return next((rule.why for rule in RULES if rule.holds(found)), None)


def _codes(found: Difference) -> tuple[int | None, int | None]:
    return tuple(None if said is None else said["code"] for said in (found.theirs, found.ours))  # type: ignore[return-value]


def _says(found: Difference, side: int, words: str) -> bool:
    return words in (found.remarks[side] or "")


def _is_spoilt(found: Difference) -> bool:
    """A field is missing or unreadable: RocketMQ takes 0 or null for it, or fails itself."""
    step = found.step
    is_spoilt = bool(step.odd) or step.code in {41, 42} or "" in step.fields.values()
    return is_spoilt and _says(found, 1, "InvalidHeader")


def _fails_inside(found: Difference) -> bool:
    return _says(found, 0, "java.") or _says(found, 0, "RemotingCommandException")


def _is_of_the_group_name(found: Difference) -> bool:
    fields = found.step.fields
    names = [
        str(fields[name]) for name in ("consumerGroup", "group", "destGroup") if name in fields
    ]
    if found.step.code == 200 and found.step.body[:1] == b"{":
        names = [str(json.loads(found.step.body).get("groupName", ""))]
    is_illegal = any(not GROUP_NAME.fullmatch(name) for name in names)
    return is_illegal and _codes(found)[1] in {NO_GROUP, SYSTEM_ERROR}


def _may_be_wrong(step: Step) -> bool:
    """Tell whether a request has an expression that may be wrong, or the one of a member."""
    if step.code == 46:
        told = json.loads(step.body)["subscriptionData"]
        return (told["subString"], told["expressionType"]) not in RIGHT_EXPRESSIONS
    has_its_own = step.fields.get("sysFlag") in {4, 5, 6, 7} and not step.odd
    told = (step.fields.get("subscription"), step.fields.get("expressionType"))
    return step.code == 11 and not (has_its_own and told in RIGHT_EXPRESSIONS)


SYSTEM_TOPICS = (
    "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC",
)  # fmt: skip

RULES: Final = (
    Rule(
        "system topics are in the table of topics",
        lambda found: (
            str(found.step.fields.get("topic")) in SYSTEM_TOPICS
            and (_codes(found)[0] == NO_TOPIC or found.step.code in {208, 308})
        ),
    ),
    Rule("a field that is missing or unreadable is refused", _is_spoilt),
    Rule("RocketMQ fails by an exception of its own", _fails_inside),
    Rule(
        "a name server says that it does not know a request; RocketMQ's says nothing",
        lambda found: found.step.target == "namesrv" and _codes(found) == (None, NOT_SUPPORTED),
    ),
    Rule(
        "a transaction whose end is unknown is answered, though oneway clients never see it",
        lambda found: (
            found.step.code == 37
            and _codes(found) == (None, 0)
            and found.step.fields.get("commitOrRollback") not in {8, 12}
        ),
    ),
    Rule(
        "what is no half of a transaction cannot be rolled back",
        lambda found: (
            found.step.code == 37
            and found.step.fields.get("msgId") == "none"
            and _codes(found) == (0, SYSTEM_ERROR)
        ),
    ),
    Rule(
        "the half that a transaction's id names is the one that is ended",
        lambda found: (
            found.step.code == 37
            and found.step.odd_field in {"msgId", "transactionId"}
            and _codes(found) == (0, SYSTEM_ERROR)
            and _says(found, 1, "is that of another transaction")
        ),
    ),
    Rule(
        "a request that is refused makes no group, and one that is copied to is made",
        lambda found: (
            found.step.code == 201 and all("alone {'brokerId'" in line for line in found.lines)
        ),
    ),
    Rule(
        "offsets have a version, which slaves of RocketMQ 5 need",
        lambda found: (
            found.step.code == 43
            and all(line.startswith("body.dataVersion: ours alone") for line in found.lines)
        ),
    ),
    Rule(
        "timers and groups that pop, RocketMQ 5's, are told: there are none",
        lambda found: found.step.code in {60, 61, 402} and _codes(found) == (NOT_SUPPORTED, 0),
    ),
    Rule(
        "setZeroIfNotFound is RocketMQ 5's",
        lambda found: (
            found.step.code == 14
            and "setZeroIfNotFound" in found.step.fields
            and _codes(found) in {(0, NOT_FOUND), (NOT_FOUND, 0)}
            and any(line.endswith("alone '0'") for line in found.lines)
        ),
    ),
    Rule(
        "a reply whose asker is gone is not stored",
        lambda found: found.step.code in {324, 325} and _codes(found) == (1, 1),
    ),
    Rule(
        "an expression that is wrong is refused; RocketMQ takes all messages, or the one before",
        lambda found: (
            _may_be_wrong(found.step)
            and (
                _codes(found)[1] == PARSE_FAILED
                or _says(found, 1, "consumer to filter message by")
                or _says(found, 1, "Your expression may be wrong")
            )
        ),
    ),
    Rule(
        "groups whose names no client takes are not made",
        _is_of_the_group_name,
    ),
    Rule(
        "an offset of a queue or topic that is not there is refused",
        lambda found: (
            found.step.code == 15
            and (_codes(found) == (0, NO_TOPIC) or _says(found, 1, "is illegal, topic:"))
        ),
    ),
    Rule(
        "what lies apart differs, after a request that the one side took and the other did not",
        lambda found: (
            APART in (found.step.fields.get("b"), found.step.fields.get("topic"))
            and (_codes(found)[0] == 0 or all(".queue" in line for line in found.lines))
        ),
    ),
    Rule(
        "what begins amid a message is no message",
        lambda found: (
            found.step.code in {33, 36}
            and _codes(found)[1] != 0
            and (
                getattr(found.step.fields.get("offset"), "plus", 0) > 0
                or found.step.odd_field == "offset"
            )
        ),
    ),
    Rule(
        "a group apart differs, after settings that the one side took and the other did not",
        lambda found: CARELESS in found.step.fields.values(),
    ),
    Rule(
        "of events of offsets that moved there is one for a group and queue within 10 s",
        lambda found: (
            found.step.fields.get("topic") == "OFFSET_MOVED_EVENT"
            and all("ffset: theirs" in line for line in found.lines)
        ),
    ),
    Rule(
        "a value of a name server has a namespace and a key",
        lambda found: (
            found.step.code == 100
            and "" in {found.step.fields.get(name) for name in ("namespace", "key")}
            and _codes(found) == (0, SYSTEM_ERROR)
        ),
    ),
    Rule(
        "a body that is no heartbeat is refused",
        lambda found: found.step.code == 34 and _codes(found) == (0, SYSTEM_ERROR),
    ),
    Rule(
        "a batch to a retry topic is refused, as clients do",
        lambda found: (
            found.step.code == 320
            and str(found.step.fields.get("b")).startswith("%RETRY%")
            and _codes(found) == (0, 13)
        ),
    ),
    Rule(
        "a subscription without an expression is told as one to all",
        lambda found: (
            found.step.code == 203
            and all("subString" in line and line.endswith("'*'") for line in found.lines)
        ),
    ),
    Rule(
        "settings of a topic or a group that make no sense are refused",
        lambda found: (
            _codes(found) == (0, SYSTEM_ERROR)
            and (
                (found.step.code == 17 and found.step.fields.get("topic") == APART)
                or (found.step.code == 200 and CARELESS.encode() in found.step.body)
            )
        ),
    ),
    Rule(
        "a body that is no group is refused",
        lambda found: found.step.code == 200 and found.step.body in {b"null", b"", b"{}", b"[]"},
    ),
    Rule(
        "a transaction without the property TRAN_MSG is refused",
        lambda found: (
            found.step.code in {10, 310}
            and _codes(found) == (0, NO_PERMISSION)
            and not any("TRAN_MSG\x01true" in str(value) for value in found.step.fields.values())
        ),
    ),
    Rule(
        "a topic has as many queues as may be read or written, as in RocketMQ 5",
        lambda found: (
            (found.step.code == 202 and all("ours alone {'last" in line for line in found.lines))
            or (found.step.code == 303 and found.lines[0].startswith("body.consumeTimeSpanSet:"))
        ),
    ),
    Rule(
        "a queue that nobody has asked for has no entries",
        lambda found: found.step.code == 321 and _says(found, 1, "is not exist!"),
    ),
    Rule(
        "a broker that begins anew begins the leases of locks anew (ADR 4)",
        lambda found: (
            found.step.code == 41
            and found.is_of_a_later_life
            and _codes(found) == (0, 0)
            and all(line.startswith("body.lockOKMQSet: theirs") for line in found.lines)
        ),
    ),
    Rule(
        "topics of the unit mode are not told apart",
        lambda found: found.step.code in {311, 312, 313} and _codes(found) == (0, NOT_SUPPORTED),
    ),
    Rule(
        "topics have an order as in RocketMQ 5, and no flag of the unit mode from sends",
        lambda found: (
            (found.step.code == 21 or found.step.target == "namesrv")
            and all(
                "topicSysFlag" in line or line.endswith("order: theirs False ours True")
                for line in found.lines
            )
        ),
    ),
    Rule(
        "an empty body is refused, as by RocketMQ 5 and by clients",
        lambda found: (
            found.step.code in {10, 310} and not found.step.body and _codes(found) == (0, 13)
        ),
    ),
)
