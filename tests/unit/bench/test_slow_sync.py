"""Syncs of the processes of a benchmark take longer where that is asked for, and nothing else."""

import os
import subprocess
import sys
import time

import pytest

from bench import __main__ as bench
from bench.slow_sync import PRELOAD, SYNC_US, slow_syncs
from chaos.shim import build

SYNC_US_ASKED = 60_000
TIMED = """
import mmap, os, sys, time
file = open(sys.argv[1], "wb+")
file.truncate(4096)
view = mmap.mmap(file.fileno(), 4096)
for call in (lambda: os.fsync(file.fileno()), lambda: os.fdatasync(file.fileno()), view.flush):
    view[0] = 1
    begun = time.monotonic()
    call()
    print(time.monotonic() - begun)
begun = time.monotonic()
os.pwrite(file.fileno(), b"x", 0)
print(time.monotonic() - begun)
"""

pytestmark = pytest.mark.skipif(build.compiler() is None, reason="no C compiler")


def took(path):
    command = [sys.executable, "-c", TIMED, str(path)]
    out = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    return [float(line) for line in out.split()]


def test_each_sync_takes_longer_and_a_write_does_not(tmp_path):
    before = dict(os.environ)
    with slow_syncs(SYNC_US_ASKED):
        *syncs, written = took(tmp_path / "file")
    assert len(syncs) == 3
    assert min(syncs) >= SYNC_US_ASKED / 1e6
    assert written < SYNC_US_ASKED / 1e6
    assert dict(os.environ) == before


def test_nothing_takes_longer_where_nobody_asks():
    before = dict(os.environ)
    with slow_syncs(0):
        assert dict(os.environ) == before
        assert SYNC_US not in os.environ


def test_what_others_have_loaded_stays(monkeypatch):
    monkeypatch.setenv(PRELOAD, "/lib/other.so")
    with slow_syncs(1):
        library, other = os.environ[PRELOAD].split(":")
        assert other == "/lib/other.so"
        assert os.path.exists(library)
    assert os.environ[PRELOAD] == "/lib/other.so"


def test_the_suite_says_what_is_missing_without_a_compiler(monkeypatch, capsys):
    monkeypatch.setattr(build, "compiler", lambda: None)
    begun = time.monotonic()
    assert bench.main(["--only", "echo", "--windows", "1", "--sync-us", "5"]) == 2
    assert "C compiler" in capsys.readouterr().out
    assert time.monotonic() - begun < 30
