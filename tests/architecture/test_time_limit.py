"""A test that hangs fails in time, says where, and costs no other test, whatever it hangs in."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIMIT_S = 120

HANGING = """
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

def test_asyncio():
    asyncio.run(for_ever())

def test_uvloop():
    uvloop.run(for_ever())

def test_uvloop_in_the_clean_up():
    uvloop.run(in_the_clean_up())

def test_uvloop_that_fails_with_a_port_open():
    uvloop.run(open_at_the_end())

def test_c():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    ctypes.CDLL(None).sleep(1000)

def test_behind():
    pass
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What a run of these tests prints, with this project's settings but for the time."""
    file = tmp_path_factory.mktemp("hanging") / "test_it.py"
    file.write_text(HANGING)
    words = [sys.executable, "-m", "pytest", "-c", "pyproject.toml", "--rootdir=.", "-n1"]
    words += ["--timeout=1", "--confcutdir=tests", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*words, "-p", "tests.time_limit", str(file)],
        cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", ["asyncio", "uvloop", "uvloop_in_the_clean_up"])
def test_one_that_hangs_in_a_loop_fails_and_says_where(said, name):
    _, _, told = said.partition(f"_ test_{name} _")
    told = told.partition("\n____")[0]
    assert "has not ended after 1 s" in told
    assert re.search(r"test_it\.py:5 in for_ever", told)


def test_one_that_fails_on_uvloop_with_a_port_open_is_told_and_does_not_hang(said):
    assert "ValueError: the true reason" in said


def test_one_that_no_signal_ends_ends_its_worker_once_and_no_other_test(said):
    assert said.count("replacing crashed worker") == 1
    assert re.search(r"crashed while running '.*test_c'", said)
    assert "5 failed, 1 passed" in said
