"""Processor time of a message, by process, and the loads that it is taken of."""

import os
import sys
import time

import pytest

from bench.loading import run_load
from bench.processor import CLIENT, FOLLOWER, LEADER, by_role, processor_seconds

LOAD = """
import time
def use(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass
use(0.3)
print("measuring", flush=True)
use(0.2)
print("measured", flush=True)
use(0.3)
print("a logger's line")
print('{"window": 1, "rate": 100.0, "errors": 0, "p50_ms": 1.0, "p99_ms": 2.0}')
"""


def test_processor_time_of_a_process_grows_as_it_works():
    before = processor_seconds(os.getpid())
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    assert processor_seconds(os.getpid()) - before >= 0.08


def test_a_process_that_is_gone_has_used_nothing():
    assert processor_seconds(2**22 + 1) == 0


def test_followers_get_their_mean_and_the_leader_its_own():
    seconds = {"n0": 0.1, "n1": 0.4, "n2": 0.3, CLIENT: 0.5}
    assert by_role(seconds, "n1", 10_000) == {LEADER: 40.0, FOLLOWER: 20.0, CLIENT: 50.0}


def test_where_nobody_says_who_leads_it_is_who_did_most():
    assert by_role({"n0": 0.1, "n1": 0.4, CLIENT: 0.5}, None, 10_000)[LEADER] == 40.0


def test_one_broker_has_no_followers():
    assert by_role({"n0": 0.1, CLIENT: 0.5}, None, 1000) == {LEADER: 100.0, CLIENT: 500.0}


def test_only_what_is_used_while_the_load_measures_counts():
    row = run_load([sys.executable, "-c", LOAD], 10.0, 60.0, {"n0": os.getpid()})
    assert row.rate == 100.0
    assert 150.0 <= row.processor_us[CLIENT] <= 250.0
    assert row.as_dict()["processor_us"] == row.processor_us


def test_a_load_that_fails_says_what_it_said():
    with pytest.raises(SystemExit, match="code 3 and 0 results: no broker"):
        run_load([sys.executable, "-c", "print('no broker'); exit(3)"], 1.0, 60.0)
