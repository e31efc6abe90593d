"""A disk that is full, or fails, at any step: nothing acknowledged is lost, and it is over after.

``STORE_FAULT_CASES=1000`` takes so many steps of each, which is all of them.
"""

from contextlib import suppress

import pytest

from dledger.errors import DiskFull
from dledger.segments.row import Segments
from dledger.storage.log_store import LogStore
from tests.unit.store.faults.conftest import CASES
from tests.unit.store.faults.disks import fails_at, full_from
from tests.unit.store.faults.test_crash_anywhere import MODES, cases

CI_CASES = 50
COUNT = CASES or CI_CASES


def fill_up(count, *, raft=True):
    for step, _ in cases(count, raft=raft):
        full_from(step, raft=raft)


def fail(count, *, raft=True, **options):
    return [fails_at(step, raft=raft, **options) for step, _ in cases(count, raft=raft)]


@pytest.mark.parametrize("raft", MODES)
def test_with_the_disk_full_from_any_step_nothing_is_lost_and_service_resumes_by_itself(raft):
    fill_up(COUNT, raft=raft)


@pytest.mark.parametrize("raft", MODES)
def test_a_disk_that_fails_once_ends_the_process_and_a_restart_is_sound(raft):
    ended = fail(COUNT, raft=raft)
    assert sum(ended) > COUNT * 0.6, "the files of events may fail, and the script goes on after it"


@pytest.mark.parametrize("raft", MODES)
def test_a_disk_that_fails_for_good_ends_the_process_and_a_restart_is_sound(raft):
    assert sum(fail(COUNT, raft=raft, for_good=True)) > COUNT * 0.9


def test_a_broker_that_answers_for_what_found_no_space_would_be_found(monkeypatch):
    append = LogStore.append

    def append_or_not(store, spans):
        with suppress(DiskFull):
            append(store, spans)

    monkeypatch.setattr(LogStore, "append", append_or_not)
    with pytest.raises(AssertionError):
        fill_up(20)


def test_a_start_that_trusts_what_a_failed_sync_left_in_memory_would_be_found(monkeypatch):
    monkeypatch.setattr(Segments, "rewrite", lambda *_: {})
    with pytest.raises((AssertionError, KeyError)):
        fail(200)
