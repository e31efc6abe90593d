"""Times that a person types: UTC where no zone is named, in each command."""

import time

import pytest

from cli.consume import parse_begin
from cli.store import _time_ms
from cli.times import moment_ms

NOON_MS = 1_738_324_800_000
"""2025-01-31T12:00Z."""


@pytest.fixture(autouse=True, params=["UTC", "Asia/Tokyo"])
def _zone(request, monkeypatch):
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("zone", ["", "Z", "+00:00"])
def test_a_time_is_utc_unless_it_names_a_zone_in_every_command(zone):
    text = f"2025-01-31T12:00{zone}"
    assert moment_ms(text) == parse_begin(text) == _time_ms(text, "--since") == NOON_MS


def test_what_is_no_time_is_none():
    assert moment_ms("noon") is None
