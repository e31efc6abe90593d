"""A snapshot is of one moment, however many turns of the loop its text takes."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from broker import table_text
from broker.config import BrokerConfig
from broker.state.kinds import StateKind
from broker.state.snapshot import Snapshot
from broker.state.steps import at_once, in_turns
from broker.state.table import ReplicatedTable
from broker.tables import Tables
from ledgermq.runtime.disk import RealDisk
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.broker.fakes import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

ROWS = 4_000


def tables() -> Tables:
    made = Tables(BrokerConfig(broker_cluster_name="C", broker_name="b"), FakeClock())
    for number in range(ROWS):
        offsets = b'{"T@g%d":{"0":1,"1":1}}' % number
        lock = (
            b'{"group":"g%d","clientId":"c","queues":[{"brokerName":"","queueId":0,"topic":"T"}]}'
        )
        assert made.state.apply(number, StateKind.OFFSET, offsets)
        assert made.state.apply(number, StateKind.LOCK, lock % number)
    return made


def change(made: Tables, step: int) -> None:
    """Change rows that are text already and rows that are not, remove some, add some."""
    for group in (step, ROWS - 1 - step):
        forgotten = b'{"offsets":{"T@g%d":[1]}}' % group
        assert made.state.apply(0, StateKind.OFFSET, b'{"T@g%d":{"0":7,"5":7}}' % group)
        assert made.state.apply(0, StateKind.FORGET_OFFSETS, forgotten)
    assert made.state.apply(0, StateKind.OFFSET, b'{"T@new%d":{"0":1}}' % step)


def taken_meanwhile(made: Tables, snapshot: Snapshot, *, others: int = 0) -> dict[str, bytes]:
    steps = snapshot.take_steps()
    next(steps)
    shorter = [snapshot.take_steps() for _ in range(others)]
    for one in shorter:
        next(one)
        one.close()
    count = 0
    while True:
        change(made, count)
        count += 1
        try:
            next(steps)
        except StopIteration as end:
            assert count > 10
            files: dict[str, bytes] = end.value
            return files


@pytest.mark.parametrize("others", [0, 2])
def test_a_snapshot_is_as_of_its_beginning(others: int) -> None:
    made = tables()
    snapshot = Snapshot("/none", made.state, RealDisk())
    before = snapshot.take()
    assert taken_meanwhile(made, snapshot, others=others) == before
    assert json.loads(snapshot.take()["consumerOffset.json"])["offsetTable"]["T@g0"] == {
        "0": 7, "5": 7,
    }  # fmt: skip
    with planted(BY_TESTS["snapshot-shares-offsets"]):
        again = tables()
        snapshot = Snapshot("/none", again.state, RealDisk())
        assert taken_meanwhile(again, snapshot) != before


def test_no_queues_are_copied_once_the_snapshot_is_made() -> None:
    made = tables()
    snapshot = Snapshot("/none", made.state, RealDisk())
    snapshot.take()
    queues = made.offsets._applied["T@g0"]
    change(made, 0)
    assert made.offsets._applied["T@g0"] is queues


def test_a_turn_encodes_a_bounded_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    made, turns = tables(), [0]
    snapshot = Snapshot("/none", made.state, RealDisk())
    encode = table_text._text

    def count(document: object) -> bytes:
        last = list(document.__struct_fields__)[-1]  # type: ignore[attr-defined]
        turns[-1] += len(getattr(document, last))
        return encode(document)  # type: ignore[arg-type]

    monkeypatch.setattr(table_text, "_text", count)

    async def take() -> dict[str, bytes]:
        done = asyncio.ensure_future(in_turns(snapshot.take_steps()))
        while not done.done():
            turns.append(0)
            await asyncio.sleep(0)
        return await done

    files = asyncio.run(take())
    assert len(files) == 4
    assert sum(turns) >= 2 * ROWS
    # The end of one table and the beginning of the next may share a turn.
    assert max(turns) <= 3 * (table_text.ROWS_PER_STEP + 1)
    turns[:] = [0]
    assert at_once(snapshot.take_steps()) == files
    assert turns[0] >= 2 * ROWS, "as it is without turns"


class Colours(ReplicatedTable):
    """A table of one row."""

    file = "colours.json"
    kind = "colour"

    def appliers(self) -> Mapping[str, Callable[[bytes], object]]:
        return {self.kind: lambda _: None}

    def snapshot_steps(self) -> Iterator[bytes]:
        yield b"{}"

    def restore(self, data: bytes) -> None:
        assert data == b"{}"

    def gauges(self) -> Iterable[tuple[object, Callable[[], int]]]:  # type: ignore[override]
        return ()


def test_a_table_is_registered_by_one_line() -> None:
    made = tables()
    made.add(Colours())
    assert made.state.apply(1, "colour", b"")
    assert Snapshot("/none", made.state, RealDisk()).take()["colours.json"] == b"{}"


@pytest.mark.parametrize(
    ("file", "kind", "taken"),
    [("topics.json", "colour", "topics.json"), ("colours.json", "offset", "offset")],
)
def test_no_two_tables_have_a_kind_or_a_file(
    file: str, kind: str, taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Colours, "file", file)
    monkeypatch.setattr(Colours, "kind", kind)
    with pytest.raises(ValueError, match=f"Colours: {taken} belongs to another table"):
        tables().add(Colours())
