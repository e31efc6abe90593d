"""Offsets on their way into a log whose segments are small."""

import logging

import pytest

from broker.offsets.replication import OffsetReplicator
from broker.state.consumer_offset import ConsumerOffsetTable
from mutants.patches import MUTANTS
from mutants.planting import planted
from store.results import PutStatus

ROOM_BYTES = 60


class SmallLog:
    """Takes records up to a size, and applies them at once."""

    writable = True

    def __init__(self, table):
        self._table = table
        self.written = []

    def propose_state(self, _kind, payload, done):
        if len(payload) > ROOM_BYTES:
            done(PutStatus.MESSAGE_ILLEGAL)
            return
        self.written.append(payload)
        self._table.apply(payload)
        done(PutStatus.OK)


class NoTimer:
    def set(self, delay_ms):
        del delay_ms


def replicated(groups):
    """Commit an offset of each group, and let one second pass."""
    table = ConsumerOffsetTable()
    log = SmallLog(table)
    for number, group in enumerate(groups):
        table.commit(group, "T", 0, number)
    OffsetReplicator(table, log, lambda _name, _work: NoTimer()).flush()
    return table, log


def test_offsets_that_fit_into_no_segment_together_are_written_in_parts():
    groups = [f"group-{number}" for number in range(20)]
    table, log = replicated(groups)
    assert not table.has_pending
    assert [table.query(group, "T", 0) for group in groups] == list(range(20))
    assert max(map(len, log.written)) <= ROOM_BYTES
    with planted(MUTANTS["offsets-too-large-wait-for-ever"]):
        table, log = replicated(groups)
        assert table.has_pending
        assert not log.written


def test_an_offset_that_fits_into_no_segment_holds_nothing_up(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING):
        table, _ = replicated(["g" * ROOM_BYTES, "other"])
    assert not table.has_pending
    assert table.query("other", "T", 0) == 1
    assert table.query("g" * ROOM_BYTES, "T", 0) is None
    assert "event=offset_left_out" in caplog.text
