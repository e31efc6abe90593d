"""A slave's own offsets are compared, written and forgotten in slices, however many there are."""

from __future__ import annotations

import json

import msgspec

from broker.offsets.promotion import FORGOTTEN_PER_TICK, OwnOffsetsTakeover
from broker.state.consumer_offset import ConsumerOffsetTable
from broker.state.own_offsets import ROWS_PER_STEP, OwnOffset, OwnOffsets
from broker.state.steps import at_once

MANY = 3 * FORGOTTEN_PER_TICK


class Counted(ConsumerOffsetTable):
    """Counts what is looked at."""

    looked_at = 0

    def pending_offset(self, key: str, queue_id: int) -> int | None:
        self.looked_at += 1
        return super().pending_offset(key, queue_id)

    def most_of(self, steps):
        """Return the most that one step looks at, and what is made in steps."""
        most, parts = 0, []
        while True:
            self.looked_at = 0
            try:
                parts.append(next(steps))
            except StopIteration as end:
                return max(most, self.looked_at), parts if end.value is None else end.value
            most = max(most, self.looked_at)


def slave_with(count: int) -> tuple[Counted, OwnOffsets]:
    own = OwnOffsets(offsets := Counted())
    for number in range(count):
        assert own.commit("g", f"t{number}", 0, 7)
    return offsets, own


def test_a_turn_compares_some_of_them():
    offsets, own = slave_with(MANY)
    most, due = offsets.most_of(own.compare_steps({"t0@g": {0: 9}}))
    assert most <= ROWS_PER_STEP
    assert len(due) == MANY - 1
    assert due[0] == OwnOffset("t1", "g", 0, 7, None)
    assert offsets.query("g", "t0", 0) is None, "the master knows better"


def test_what_is_committed_between_two_turns_is_kept():
    _, own = slave_with(MANY)
    steps = own.compare_steps({f"t{MANY - 1}@g": {0: 3}})
    next(steps)
    own.commit("g", f"t{MANY - 1}", 0, 11)
    own.commit("g", "new", 0, 1)
    at_once(steps)
    rows = json.loads(own.snapshot())["offsetTable"]
    assert rows["new@g"] == {"0": [1, None]}


def test_a_turn_makes_text_of_some_of_them():
    offsets, own = slave_with(MANY)
    text = own.snapshot()
    offsets.looked_at = 0
    steps = own.snapshot_steps()
    assert not offsets.looked_at
    most, parts = offsets.most_of(steps)
    assert most <= ROWS_PER_STEP
    assert b"".join(parts) == text
    assert len(json.loads(text)["offsetTable"]) == MANY


def test_what_goes_while_text_is_made_is_not_in_it():
    _, own = slave_with(MANY)
    steps = own.snapshot_steps()
    parts = [next(steps)]
    at_once(own.compare_steps({f"t{MANY - 1}@g": {0: 9}}))
    rows = json.loads(b"".join([*parts, *steps]))["offsetTable"]
    assert not rows.get(f"t{MANY - 1}@g")
    assert len(rows) >= MANY - 1


def test_a_tick_forgets_some_of_them_and_ticks_forget_all():
    offsets, own = slave_with(MANY)
    offsets.apply(msgspec.json.encode({f"t{number}@g": {0: 7} for number in range(1, MANY)}))
    takeover = OwnOffsetsTakeover(own, lambda *_: 100)
    offsets.looked_at = 0
    takeover.tick()
    assert offsets.looked_at <= FORGOTTEN_PER_TICK
    for _ in range(3):
        takeover.tick()
    assert json.loads(own.snapshot())["offsetTable"] == {"t0@g": {"0": [7, None]}}
