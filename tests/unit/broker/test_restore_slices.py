"""Tables are restored in slices, all of them at one time; so is the image of a compaction made."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from broker import table_text
from broker.config import BrokerConfig
from broker.retention import compaction
from broker.retention.compaction import decode_image, state_problem
from broker.state import extras
from broker.state.kinds import StateKind
from broker.state.shared_snapshot import SharedSnapshot
from broker.state.snapshot import Snapshot
from broker.state.steps import at_once, drop_steps
from broker.table_text import READ_PER_STEP, documents_of, text_in_steps
from broker.tables import Tables
from broker.transactions.table import HalfTable
from ledgermq.remoting.protocol.errors import RemoteProtocolError
from ledgermq.runtime.disk import RealDisk
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.dispatch.turns import DispatchTurns
from tests.unit.broker.fakes import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from broker.state.replicated_state import ReplicatedState

ROWS = 3_000


def empty() -> ReplicatedState:
    tables = Tables(BrokerConfig(broker_cluster_name="C", broker_name="b"), FakeClock())
    tables.add(HalfTable())
    return tables.state


def filled(rows: int = ROWS) -> ReplicatedState:
    state = empty()
    for number in range(rows):
        topic = {"config": {"topicName": f"topic-{number}"}, "timestamp": number}
        group = {"config": {"groupName": f"group-{number}"}, "timestamp": number}
        queues = [{"brokerName": "", "queueId": 0, "topic": "T"}]
        for kind, payload in (
            (StateKind.TOPIC, topic),
            (StateKind.GROUP, group),
            (StateKind.OFFSET, {f"T@group-{number}": {"0": number, "1": 7}}),
            (StateKind.LOCK, {"group": f"g{number}", "clientId": "c", "queues": queues}),
            (StateKind.HALF, [number, 1_000 * number, 5, -1, number % 7, number % 5]),
        ):
            assert state.apply(number, kind, msgspec.json.encode(payload))
    return state


def texts(state: ReplicatedState) -> dict[str, bytes]:
    return Snapshot("/none", state, RealDisk()).take()


FULL = texts(filled())
EMPTY = texts(empty())
LARGE = [name for name in FULL if name != "delayOffset.json"]


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("kind", [bytes, memoryview])
def test_a_text_is_read_in_slices_that_have_all_rows(
    name: str, kind: Callable[[bytes], bytes]
) -> None:
    documents = list(documents_of(kind(FULL[name])))
    assert len(documents) >= 3
    assert max(map(len, documents)) < 2 * READ_PER_STEP
    *_, table = json.loads(FULL[name])
    together = json.loads(FULL[name])
    rows = [json.loads(document)[table] for document in documents]
    if isinstance(together[table], dict):
        assert {key: value for part in rows for key, value in part.items()} == together[table]
    else:
        assert [row for part in rows for row in part] == together[table]
    heads = [{k: v for k, v in json.loads(one).items() if k != table} for one in documents]
    assert all(head == heads[0] for head in heads)


@pytest.mark.parametrize("text", [*EMPTY.values(), b"{}", b'{"a": [\n1\n]}', b'{"a":[1,2]}'])
def test_a_small_text_and_one_of_somebody_else_is_one_document(text: bytes) -> None:
    assert list(documents_of(text)) == [text]


def test_members_behind_the_rows_are_left_out() -> None:
    text = FULL["topics.json"]
    more = (
        text[:-2] + b',\n        "later": {\n                "x": {\n                        "y": 1'
    )
    more += b"\n                }\n        }\n}"
    json.loads(more)
    assert list(documents_of(more)) == list(documents_of(text))


def test_a_text_that_ends_in_its_rows_is_refused() -> None:
    text = FULL["openHalves.json"]
    with pytest.raises(RemoteProtocolError, match="middle of its rows"):
        list(documents_of(text[: len(text) // 2]))


def restored_in_slices() -> None:
    state = empty()
    snapshot = Snapshot("/none", state, RealDisk())
    steps = snapshot.restore_steps(FULL)
    slices = 0
    while True:
        assert texts(state) == EMPTY, "all tables are as they were, until all are exchanged"
        if next(steps, 0) == 0:
            break
        slices += 1
        assert slices < 1_000
        if slices >= sum(len(text) // (2 * READ_PER_STEP) for text in FULL.values()):
            at_once(steps)
            break
    assert slices > 10
    assert texts(state) == FULL


def test_tables_are_restored_in_slices_and_exchanged_together() -> None:
    restored_in_slices()
    with planted(BY_TESTS["restored-in-one-turn"]), pytest.raises(AssertionError):
        restored_in_slices()


def test_what_was_restored_is_as_if_it_had_been_applied() -> None:
    state = empty()
    Snapshot("/none", state, RealDisk()).restore(FULL)
    applied = filled()
    for name, table in state.tables.items():
        used = [count() for _, count in table.gauges()]
        assert used == [count() for _, count in applied.tables[name].gauges()], name


def saved_meanwhile(path: Path) -> None:
    state = empty()
    snapshot = Snapshot(str(path), state, RealDisk())
    snapshot.write(snapshot.capture(5))
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    steps = snapshot.restore_steps(FULL)
    next(steps)
    assert snapshot.saved_index == -1, "nothing of the log may go for what is on disk"
    snapshot.write(snapshot.capture(1_000))
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before
    at_once(steps)
    snapshot.write(snapshot.capture(1_000))
    assert snapshot.saved_index == 1_000
    assert (path / "openHalves.json").read_bytes() == FULL["openHalves.json"]


def test_nothing_is_saved_meanwhile(tmp_path: Path) -> None:
    saved_meanwhile(tmp_path / "a")
    with planted(BY_TESTS["saved-during-a-restore"]), pytest.raises(AssertionError):
        saved_meanwhile(tmp_path / "b")


def test_an_image_that_was_begun_anew_counts_alone() -> None:
    state = empty()
    snapshot = Snapshot("/none", state, RealDisk())
    next(snapshot.restore_steps(FULL))
    at_once(snapshot.restore_steps({}))
    assert texts(state) == EMPTY
    assert snapshot.lacking == FULL.keys()


class _Dispatcher:
    """Dispatches all that it is told, and notes it."""

    def __init__(self) -> None:
        self.applied_end = 0
        self.runs: list[int] = []

    def restart(self, position: int) -> None:
        self.applied_end = position

    def may_wait(self) -> bool:
        return False

    def run(self, committed: int) -> bool:
        self.runs.append(committed)
        self.applied_end = committed
        return False


class _Writer:
    def maybe_open(self, applied: int) -> None:
        """Take that dispatch has come so far."""


class _Life:
    is_over = False

    def guard(self, work: Callable[[], None]) -> None:
        work()


def dispatched_meanwhile() -> None:
    dispatcher, soon, done = _Dispatcher(), [], []
    turns = DispatchTurns(
        dispatcher,  # type: ignore[arg-type]
        _Writer(),  # type: ignore[arg-type]
        _Life(),  # type: ignore[arg-type]
        lambda: None,
        soon.append,
        (),
    )

    def steps():  # type: ignore[no-untyped-def]
        for number in range(3):
            yield
            done.append(number)

    turns.restart(100, iter(()))
    turns.on_committed(150)
    assert dispatcher.runs == [150], "a small state is restored at once"
    former = steps()
    turns.restart(200, former)
    turns.restart(300, steps())
    turns.on_committed(400)
    turns.resume()
    for turn in range(3):
        assert dispatcher.runs == [150], turn
        work, soon[:] = soon[:], []
        for one in work:
            one()
    assert done == [0, 1, 2], "a snapshot that came later counts alone"
    assert dispatcher.runs == [150, 400]
    assert not soon


def test_dispatch_stands_still_while_state_is_restored() -> None:
    dispatched_meanwhile()
    with planted(BY_TESTS["dispatch-during-a-restore"]), pytest.raises(AssertionError):
        dispatched_meanwhile()


def image_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "COPIED_PER_STEP", 10_000)
    starts = [("T", 0, 5), ("T", 1, 7)]

    def taken():  # type: ignore[no-untyped-def]
        yield
        return {name: bytearray(text) for name, text in FULL.items()}

    steps = compaction.image_steps(taken(), starts)
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            image: bytearray = end.value
            break
        count += 1
    assert count > sum(map(len, FULL.values())) // 10_000 - len(FULL)
    found = decode_image(bytes(image))
    assert {name: bytes(text) for name, text in found.files.items()} == FULL
    assert found.queues == starts
    assert msgspec.msgpack.decode(image) == {"files": FULL, "queues": [[*one] for one in starts]}
    assert not state_problem(Snapshot("/none", empty(), RealDisk()), bytes(image))


def test_an_image_is_made_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    image_in_slices(monkeypatch)
    with planted(BY_TESTS["image-copied-in-one-turn"]), pytest.raises(AssertionError):
        image_in_slices(monkeypatch)


def test_a_state_is_looked_at_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    image = msgspec.msgpack.encode({"files": FULL, "queues": []})
    lengths: list[int] = []
    decode = msgspec.json.decode

    def note(text: bytes, **kind: Any) -> object:
        lengths.append(len(text))
        return decode(text, **kind)

    monkeypatch.setattr(msgspec.json, "decode", note)
    snapshot = Snapshot("/none", empty(), RealDisk())
    assert state_problem(snapshot, image) == ""
    assert max(lengths) < 2 * READ_PER_STEP


def merged_in_slices(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.mkdir()
    document = json.loads(FULL["topics.json"])
    document["later"] = {"x": 1}
    document["dataVersion"]["stateVersion"] = 3
    document["topicConfigTable"]["topic-7"]["attributes"] = {"a": "b"}
    document["topicConfigTable"]["topic-2999"]["attributes"] = {"c": "d"}
    document["topicConfigTable"]["rmq_sys_theirs"] = {"topicName": "rmq_sys_theirs", "perm": 4}
    (path / "topics.json").write_text(json.dumps(document))
    tables = Tables(BrokerConfig(broker_cluster_name="C", broker_name="b"), FakeClock())
    snapshot = SharedSnapshot(str(path), tables.state, RealDisk(), tables.topics.is_system)
    assert snapshot.load_for(10, lambda _: True) == 10
    assert tables.state.apply(11, StateKind.TOPIC, b'{"config":{"topicName":"new"},"timestamp":9}')
    capture = snapshot.capture(11)
    lengths: list[int] = []
    loads = extras.loads

    def note(text: bytes, reach: object) -> object:
        lengths.append(len(text))
        return loads(text, reach)  # type: ignore[arg-type]

    monkeypatch.setattr(extras, "loads", note)
    snapshot.write(capture)
    monkeypatch.undo()
    written = json.loads((path / "topics.json").read_bytes())
    assert written.pop("ledgerIndex") == 11
    theirs, ours = document["topicConfigTable"], written["topicConfigTable"]
    assert ours.keys() == theirs.keys() | {"new"}
    for name in ("topic-7", "topic-2999", "rmq_sys_theirs"):
        assert {**ours[name], **theirs[name]} == ours[name]
    assert written["later"] == {"x": 1}
    assert written["dataVersion"]["stateVersion"] == 3
    assert max(lengths) < 2 * READ_PER_STEP


def test_members_of_rocketmq_s_are_added_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merged_in_slices(tmp_path / "a", monkeypatch)
    with (
        planted(BY_TESTS["foreign-members-merged-at-once"]),
        pytest.raises(AssertionError),
    ):
        merged_in_slices(tmp_path / "b", monkeypatch)


def test_rows_that_nobody_uses_are_freed_in_slices() -> None:
    rows = dict.fromkeys(range(10_500))
    assert [len(rows) for _ in drop_steps(rows)] == list(range(9_500, 0, -1_000))


def test_slices_are_small_whatever_the_rows_are() -> None:
    assert READ_PER_STEP <= 64 * 1024
    assert table_text.ROWS_PER_STEP <= 1_000


def test_members_of_a_later_version_are_kept_beside_rows_that_are_a_list() -> None:
    class Saved(msgspec.Struct):
        end: int
        rows: list[str]

    rows = [f"{number} {'x' * 40}" for number in range(3_000)]
    text = b"".join(text_in_steps(lambda part: Saved(7, part), rows))
    documents = list(documents_of(text))
    assert len(documents) > 1
    merged = json.loads(b"".join(extras.with_extra(iter(documents), extras.Extra({"new": 1}, {}))))
    assert merged == {"end": 7, "rows": rows, "new": 1}


def test_a_table_that_ends_in_the_middle_of_its_rows_is_refused() -> None:
    name, text = max(FULL.items(), key=lambda one: len(one[1]))
    torn = msgspec.msgpack.encode({"files": {**FULL, name: text[: len(text) // 2]}, "queues": []})
    snapshot = Snapshot("/none", empty(), RealDisk())
    assert f"its {name} is no table" in state_problem(snapshot, torn)
