"""A test that hangs fails in time, says where, and costs no other test, whatever it hangs in."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIMIT_S = 60

WAITS = """
import asyncio, ctypes, signal, uvloop

async def for_ever():
    await asyncio.Event().wait()

async def in_the_clean_up():
    try:
        await for_ever()
    finally:
        await for_ever()

async def open_at_the_end():
    await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
    raise ValueError("the true reason")

def in_c():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    ctypes.CDLL(None).sleep(1000)
"""


def outcome(tmp_path, body, *options):
    """Run a test of two lines and one behind it, with this project's settings; return the words."""
    file = tmp_path / "test_it.py"
    file.write_text(f"{WAITS}\ndef test_it():\n    {body}\n\ndef test_behind():\n    pass\n")
    words = [sys.executable, "-m", "pytest", "-c", "pyproject.toml", "--rootdir=.", *options]
    words += ["-p", "no:cacheprovider", "--confcutdir=tests", "-p", "tests.time_limit", str(file)]
    done = subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("run", ["asyncio.run", "uvloop.run"])
@pytest.mark.parametrize("what", ["for_ever", "in_the_clean_up"])
def test_a_test_that_hangs_in_a_loop_fails_and_says_where(tmp_path, run, what):
    words = outcome(tmp_path, f"{run}({what}())", "-n0", "--timeout=2")
    assert "1 failed, 1 passed" in words
    assert "has not ended after 2 s" in words
    assert re.search(r"test_it\.py:5 in for_ever", words)


def test_a_failure_on_uvloop_with_connections_open_is_told_and_does_not_hang(tmp_path):
    words = outcome(tmp_path, "uvloop.run(open_at_the_end())", "-n0")
    assert "1 failed, 1 passed" in words
    assert "ValueError: the true reason" in words


def test_a_test_that_no_signal_ends_ends_its_worker_and_no_other_test(tmp_path):
    words = outcome(tmp_path, "in_c()", "-n1", "--timeout=2")
    assert "1 failed, 1 passed" in words
    assert "crashed while running" in words
