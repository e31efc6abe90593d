"""What a snapshot has for tables is read before it replaces a log, and named at starts."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from broker.config import BrokerConfig
from broker.delays.progress import DelayProgress
from broker.retention.compaction import Compactor, StateImage, state_problem
from broker.state.shared_snapshot import SharedSnapshot
from broker.state.snapshot import Snapshot
from broker.switch.identity import load_identity
from broker.tables import Tables
from broker.transactions.table import HalfTable
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.errors import FatalError
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.queues.start import START_MAX
from tests.unit.broker.fakes import FakeClock

if TYPE_CHECKING:
    from pathlib import Path

DEEP = b"[" * 100_000 + b"]" * 100_000
BAD = {
    "a list": ("topics.json", b"[]"),
    "a number for topics": ("topics.json", b'{"topicConfigTable":7}'),
    "nothing": ("topics.json", b"{}"),
    "half a character": ("topics.json", b'{"topicConfigTable":{"a":{"topicName":"\\ud800"}}}'),
    "no UTF-8": ("topics.json", b'{"\xff":1}'),
    "an offset that is a word": ("consumerOffset.json", b'{"offsetTable":{"T@g":{"0":"x"}}}'),
    "a level that is a word": ("delayOffset.json", b'{"offsetTable":{"x":1}}'),
    "a number for locks": ("queueLock.json", b'{"lockTable":3}'),
    "a short half": ("openHalves.json", b'{"end":5,"halves":["1 2 3"]}'),
    "a long number": ("openHalves.json", b'{"end":5,"halves":["%s"]}' % (b"9" * 4_000)),
    "fastjson's dialect": ("topics.json", b"{'topicConfigTable':{}}"),
    "deep": ("topics.json", DEEP),
    "deep where nobody looks": ("queueLock.json", b'{"lockTable":[],"x":' + DEEP + b"}"),
}


def tables() -> Tables:
    made = Tables(BrokerConfig(broker_cluster_name="C", broker_name="b"), FakeClock())
    made.add(HalfTable())
    made.add(DelayProgress())
    return made


def snapshot(directory: str = "/none") -> Snapshot:
    return Snapshot(directory, tables().state, RealDisk())


FILES = snapshot().take()


def image(files: dict[str, bytes], queues: list[tuple[str, int, int]]) -> bytes:
    views = {name: memoryview(text) for name, text in files.items()}
    return msgspec.msgpack.encode(StateImage(views, queues))


def with_bad(what: str) -> bytes:
    name, text = BAD[what]
    return image({**FILES, name: text}, [])


def problem_of(what: str) -> None:
    held = snapshot()
    before = held.take()
    assert BAD[what][0] in state_problem(held, with_bad(what))
    assert held.take() == before, "nothing is changed by a look"


@pytest.mark.parametrize("what", BAD)
def test_a_table_that_cannot_be_taken_over_is_a_problem(what: str) -> None:
    problem_of(what)


def test_what_a_broker_wrote_is_none() -> None:
    held = snapshot()
    assert state_problem(held, image(FILES, [("T", 0, 5), ("T", 1, START_MAX)])) == ""
    assert state_problem(held, image({**FILES, "later.json": b"?"}, [])) == ""
    assert held.take() == FILES


def test_a_planted_look_at_nothing_but_json_is_found() -> None:
    with planted(BY_TESTS["tables-of-a-snapshot-not-read"]), pytest.raises(AssertionError):
        problem_of("a list")


@pytest.mark.parametrize("offset", [-1, 1 << 62, (1 << 63) - 1, (1 << 64) - 1])
def test_a_queue_that_cannot_begin_there_is_a_problem(offset: int) -> None:
    assert f"cannot begin at {offset}" in state_problem(
        snapshot(), image(FILES, [("T", 0, offset)])
    )


def test_an_image_that_is_none_is_a_problem() -> None:
    for data in (b"", b"\x91" * 100_000, b"\xc1", image(FILES, [("T", 0, 1)])[:-1]):
        assert "state of a broker" in state_problem(snapshot(), data)


# A start


def compactor(state: bytes, store: Any = None, trimmer: Any = None) -> Compactor:
    reader = SimpleNamespace(
        snapshot_meta=SimpleNamespace(id=SimpleNamespace(last_index=30), state_index=32),
        snapshot_state=lambda: state,
        snapshot_path="/store/dledger-n0/snapshot",
    )

    async def sync_to(_index: int) -> bool:
        return True

    node: Any = SimpleNamespace(
        reader=reader, trimmer=trimmer, self_id="n0", first_index=0, first_position=0,
        operations=SimpleNamespace(sync_to=sync_to),
    )  # fmt: skip
    log: Any = SimpleNamespace(index_before=lambda _position: 90)

    async def save() -> None:
        """Take that the tables are on disk."""

    return Compactor(node, log, store, snapshot(), save)


def named_at_a_start(state: bytes) -> None:
    error: Exception | None = None
    try:
        compactor(state).load(-1)
    except Exception as failure:  # noqa: BLE001 - which one, is what is asked
        error = failure
    assert isinstance(error, FatalError), error
    assert error.message.startswith("/store/dledger-n0/snapshot: ")
    assert "move the directory away" in error.message


@pytest.mark.parametrize("what", ["a list", "a level that is a word", "half a character", "deep"])
def test_a_start_names_the_snapshot_whose_table_is_none(what: str) -> None:
    named_at_a_start(with_bad(what))


def test_a_start_names_the_snapshot_that_is_none_of_a_broker() -> None:
    named_at_a_start(b"?")
    named_at_a_start(image(FILES, [("T", 0, 1 << 62)]))
    assert compactor(image(FILES, [("T", 0, 5)])).load(-1) == (32, [("T", 0, 5)])


def test_a_planted_start_that_ends_with_a_trace_is_found() -> None:
    with planted(BY_TESTS["bad-snapshot-without-a-name"]), pytest.raises(AssertionError):
        named_at_a_start(with_bad("a list"))


def deep_index_is_told(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (path / "appliedIndex.json").write_bytes(b'{"x":' + DEEP + b"}")
    held: Any = None
    with suppress(RecursionError):
        held = snapshot(str(path)).load()
    assert held == -1
    shared = SharedSnapshot(str(path), tables().state, RealDisk(), lambda _: False)
    assert shared.load_for(7, lambda _: True) == -1
    assert caplog.text.count(f"event=snapshot_index_unreadable file={path}/appliedIndex.json") == 2


def test_a_deep_index_of_the_tables_is_told_by_its_path(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    deep_index_is_told(tmp_path, caplog)
    with planted(BY_TESTS["deep-index-ends-a-start"]), pytest.raises(AssertionError):
        deep_index_is_told(tmp_path, caplog)


def test_a_deep_identity_is_named(tmp_path: Path) -> None:
    (tmp_path / "brokerIdentity.json").write_bytes(b'{"x":' + DEEP + b"}")
    with pytest.raises(FatalError, match=r"brokerIdentity\.json is damaged"):
        load_identity(str(tmp_path), RealDisk(), "C", "b")


# A compaction


def compacted(*, is_whole: bool) -> tuple[str, list[int]]:
    """Compact while queues begin; return the reason why no more was dropped, and what was."""
    trimmed: list[int] = []

    async def trim(_plan: object, index: int, _image: object) -> bool:
        trimmed.append(index)
        return True

    async def nothing(*_: object) -> None:
        """Do what is not asked about."""

    store: Any = SimpleNamespace(
        checkpoints=SimpleNamespace(write=nothing, covered=0),
        log_start=SimpleNamespace(
            resolve=nothing, queue_starts_at=lambda _position: [], is_whole=is_whole
        ),
        applied=0,
    )
    trimmer: Any = SimpleNamespace(
        limit=lambda: SimpleNamespace(last_index=90, reason=""),
        plan=lambda _limit: SimpleNamespace(position=4_096),
        trim=trim,
    )
    found = asyncio.run(compactor(b"", store, trimmer).compact(50))
    return found["reason"], trimmed


def no_compaction_while_queues_begin() -> None:
    reason, trimmed = compacted(is_whole=False)
    assert not trimmed
    assert reason.startswith("the queues do not begin where the log does yet")
    assert compacted(is_whole=True)[1] == [90]


def test_nothing_is_compacted_while_queues_begin() -> None:
    no_compaction_while_queues_begin()
    with planted(BY_TESTS["compaction-while-queues-begin"]), pytest.raises(AssertionError):
        no_compaction_while_queues_begin()
