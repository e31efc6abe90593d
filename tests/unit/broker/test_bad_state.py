"""A committed state record of any content: every replica comes to the same tables, and goes on."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.config import BrokerConfig
from broker.delays.progress import DelayProgress
from broker.state.consumer_offset import ConsumerOffsetTable
from broker.state.kinds import StateKind
from broker.state.own_offsets import OwnOffsets
from broker.tables import Tables
from broker.transactions.table import HalfTable
from ledgermq.remoting.protocol.errors import RemoteProtocolError
from mutants.patches import BY_TESTS
from mutants.planting import Mutant, planted
from tests.unit.broker.fakes import FakeClock

KINDS = st.sampled_from([kind.value for kind in StateKind])
LEAVES = (
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False)
    | st.sampled_from(["", "t", "t@g", "@", "a@b@c", "..", "x" * 300, "0", "-1", "9" * 30])
)  # fmt: skip
NAMES = st.sampled_from(
    [
        "config", "timestamp", "topicName", "groupName", "readQueueNums", "perm", "order", "t@g",
        "t0@g", "group", "client", "clientId", "queues", "mqs", "0", "-1", "99999999999", "x",
    ]
)  # fmt: skip
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
PAYLOADS = st.binary(max_size=30) | VALUES.map(lambda value: json.dumps(value).encode())


def tables() -> Tables:
    return Tables(BrokerConfig(broker_cluster_name="C", broker_name="b"), FakeClock())


def pictures(made: Tables) -> list[bytes]:
    return [made.topics.snapshot(), made.groups.snapshot(), made.offsets.snapshot()]


@settings(max_examples=400)
@given(st.lists(st.tuples(KINDS, PAYLOADS), max_size=6))
def test_any_content_is_applied_or_quarantined_alike(records: list[tuple[str, bytes]]) -> None:
    one, other = tables(), tables()
    for index, (kind, payload) in enumerate(records):
        assert one.state.apply(index, kind, payload) == other.state.apply(index, kind, payload)
    assert pictures(one) == pictures(other)
    assert one.state.quarantined == other.state.quarantined


def apply_raising(error: Exception) -> Tables:
    made = tables()

    def refuse(payload: bytes) -> None:
        raise error

    made.state._appliers["topic"] = refuse
    made.state.apply(7, "topic", b"{}")
    return made


@pytest.mark.parametrize(
    "error",
    [
        ValueError("4300 digits"), TypeError("a list"), KeyError("name"), OverflowError("wide"),
        RecursionError("deep"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "byte"),
        msgspec.ValidationError("a field"),
    ],
)  # fmt: skip
def test_bad_content_is_named_and_counted(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    assert apply_raising(error).state.quarantined == 1
    assert "event=record_quarantined position=7 kind=topic" in caplog.text


def test_what_is_no_matter_of_content_stays_fatal() -> None:
    failures: list[Any] = [OSError("disk"), MemoryError(), AssertionError("a bug")]
    for error in failures:
        with pytest.raises(type(error)):
            apply_raising(error)


def test_planted_end_of_the_process_by_bad_content_is_found_here() -> None:
    with planted(BY_TESTS["bad-content-ends-the-process"]), pytest.raises(ValueError, match="4300"):
        apply_raising(ValueError("4300 digits"))


HUGE = {
    "half stored at": (StateKind.HALF, b"[0,0,9223372036854775808,0,0,0]"),
    "immunity of a half": (StateKind.HALF, b"[0,9223372036854775807,0,2147483648,0,0]"),
    "place of a half": (StateKind.HALF, b"[0,-1,0,0,0,0]"),
    "source of a half": (StateKind.HALF, b"[0,0,0,0,0,-9223372036854775809]"),
    "questions": (StateKind.ASKED, b"[[1,32768]]"),
    "delivered": (StateKind.DELIVERED, b"[0,9223372036854775807]"),
    "level": (StateKind.DELIVERED, b"[-1,0]"),
    "offset": (StateKind.OFFSET, b'{"t@g":{"0":1,"1":-9223372036854775809}}'),
    "queue id": (StateKind.OFFSET, b'{"t@g":{"99999999999999999999999":1}}'),
    "time of a topic": (
        StateKind.TOPIC,
        b'{"config":{"topicName":"t"},"timestamp":1%s}' % (b"0" * 30),
    ),
    "time of a group": (
        StateKind.GROUP,
        b'{"config":{"groupName":"g"},"timestamp":1%s}' % (b"0" * 30),
    ),
    "retries": (
        StateKind.GROUP,
        b'{"config":{"groupName":"g","retryMaxTimes":1%s},"timestamp":1}' % (b"0" * 30),
    ),
}


def whole_tables() -> Tables:
    made = tables()
    for table in (HalfTable(), DelayProgress()):
        made.state.add(table)
    for kind, payload in (
        (StateKind.HALF, b"[1,5,1,1,1,1]"),
        (StateKind.DELIVERED, b"[2,3]"),
        (StateKind.OFFSET, b'{"t@g":{"0":9}}'),
    ):
        assert made.state.apply(0, kind, payload)
    return made


def texts(made: Tables) -> list[bytes]:
    return [table.snapshot() for table in made.state.tables.values()]


@pytest.mark.parametrize(("kind", "payload"), HUGE.values(), ids=HUGE)
def test_a_number_that_no_table_can_hold_changes_nothing_of_it(kind: str, payload: bytes) -> None:
    """Half a row was written, or a text could not be: the process ended, at each start again."""
    made = whole_tables()
    before = texts(made)
    assert not made.state.apply(1, kind, payload)
    assert texts(made) == before


@pytest.mark.parametrize(
    ("bug", "what"),
    [
        (BY_TESTS["half-of-any-number"], "immunity of a half"),
        (BY_TESTS["offsets-of-any-number"], "offset"),
    ],
)
def test_planted_belief_in_any_number_is_found_here(bug: Mutant, what: str) -> None:
    made = whole_tables()
    with planted(bug):
        made.state._appliers |= {
            str(kind): applier
            for table in made.state.tables.values()
            for kind, applier in table.appliers().items()
        }
        before = texts(made)
        made.state.apply(1, *HUGE[what])
        with contextlib.suppress(IndexError, OverflowError):
            assert texts(made) != before


DIGITS = b"9" * 30
TEXTS: dict[str, tuple[Any, bytes]] = {
    "offsets": (ConsumerOffsetTable, b'{"offsetTable":{"t@g":{"0":%b}}}' % DIGITS),
    "delays": (DelayProgress, b'{"offsetTable":{"3":%b}}' % DIGITS),
    "level": (DelayProgress, b'{"offsetTable":{"%b":3}}' % DIGITS),
    "own": (
        lambda: OwnOffsets(ConsumerOffsetTable()),
        b'{"offsetTable":{"t@g":{"0":[-%b,null]}}}' % DIGITS,
    ),
    "halves": (HalfTable, b'{"end":%b,"halves":[]}' % DIGITS),
}


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_a_text_with_a_number_that_no_answer_can_hold_is_refused(name: str) -> None:
    make, text = TEXTS[name]
    table = make()
    before = table.snapshot()
    with pytest.raises(RemoteProtocolError):
        table.restore(text)
    assert table.snapshot() == before


def test_planted_belief_in_any_number_of_a_text_is_found_here() -> None:
    with (
        planted(BY_TESTS["saved-offsets-of-any-number"]),
        pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"),
    ):
        test_a_text_with_a_number_that_no_answer_can_hold_is_refused("offsets")
