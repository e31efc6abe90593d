"""The frame of a process: signals, fatal errors, exit codes. Each test is a process of its own."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 30
PROGRAM = """
import asyncio, sys
from ledgermq.runtime.errors import FatalError
from ledgermq.runtime.process import freeze_gc, run_process
from ledgermq.runtime.tasks import Supervisor

def fail(error):
    raise error

async def later(error):
    await asyncio.sleep(0.01)
    raise error

async def slow_to_die():
    try:
        await asyncio.Event().wait()
    finally:
        raise ValueError("while stopping")

async def main():
    supervisor = Supervisor()
    loop = asyncio.get_running_loop()
    calls = []
    freeze_gc()
    try:
        what = sys.argv[1]
        if what == "fatal":
            raise FatalError("f.conf:1: wrong")
        if what == "crash":
            raise KeyError("x")
        if what == "task":
            supervisor.spawn("worker", later(ValueError("x")))
        if what == "fatal-task":
            supervisor.spawn("worker", later(FatalError("fsync failed", 3)))
        if what == "fatal-callback":
            loop.call_later(0.01, fail, FatalError("fsync failed", 3))
        if what == "invariant":
            loop.call_later(0.01, fail, AssertionError("1 < 0"))
        if what == "callback":
            loop.call_later(0.01, fail, ValueError("not fatal"))
        if what == "cancelled":
            asyncio.current_task().cancel()
        supervisor.every("tick", 5, lambda: calls.append(1))
        supervisor.spawn("short", asyncio.sleep(0))
        if what in ("wait", "deaf"):
            supervisor.spawn("slow", slow_to_die())
            print("ready", flush=True)
            await loop.create_future()
        if what in ("task", "fatal-task", "fatal-callback", "invariant", "cancelled"):
            await loop.create_future()  # it is not this that ends the process
        await asyncio.sleep(0.2)
        while len(calls) < 3:  # late calls do not pile up
            await asyncio.sleep(0.01)
    finally:
        print("cleaning", flush=True)
        if sys.argv[1] == "deaf":
            await asyncio.sleep(60)
        await supervisor.stop()
        print("cleaned", flush=True)

run_process(main)
"""


def start(*arguments: str, options: tuple[str, ...] = ()) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, *options, "-c", PROGRAM, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(started: "subprocess.Popen[str]") -> tuple[int, str, list[str]]:
    try:
        out, err = started.communicate(timeout=TIMEOUT_S)
    finally:
        started.kill()
    return started.returncode, out, err.splitlines()


def test_a_return_is_exit_code_0():
    assert finish(start("return")) == (0, "cleaning\ncleaned\n", [])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_cleans_up_and_is_exit_code_0(number):
    started = start("wait")
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n"
    started.send_signal(number)
    code, out, lines = finish(started)
    assert (code, out) == (0, "cleaning\ncleaned\n")
    assert [line.rpartition("event=")[2][:22] for line in lines] == [
        f"stopping signal={number.name}"[:22],
        "task_failed_while_stop",
        "stopped",
    ]


def test_a_second_signal_does_not_wait():
    started = start("deaf")
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n"
    started.send_signal(signal.SIGTERM)
    assert started.stdout.readline() == "cleaning\n"
    started.send_signal(signal.SIGTERM)
    assert finish(started)[0] == 128 + signal.SIGTERM


def test_a_fatal_error_of_the_main_coroutine_is_one_line_after_the_clean_up():
    code, out, lines = finish(start("fatal"))
    assert (code, out) == (2, "cleaning\ncleaned\n")
    assert len(lines) == 1
    assert lines[0].endswith("fatal exit_code=2 f.conf:1: wrong")


@pytest.mark.parametrize("what", ["fatal-task", "fatal-callback"])
def test_a_fatal_error_anywhere_else_ends_the_process_on_the_spot(what):
    code, out, lines = finish(start(what))
    assert (code, out) == (3, "")
    assert len(lines) == 1
    assert lines[0].endswith("fatal exit_code=3 fsync failed")


def test_a_supervised_task_that_dies_is_fatal():
    code, out, lines = finish(start("task"))
    assert (code, out) == (3, "")
    assert "event=task_failed task=worker" in lines[0]
    assert lines[-1].endswith("fatal exit_code=3 task worker failed: ValueError('x')")


def test_a_broken_invariant_is_fatal():
    code, out, lines = finish(start("invariant"))
    assert (code, out) == (3, "")
    assert lines[-1].endswith("fatal exit_code=3 invariant broken: 1 < 0")


def test_another_exception_in_a_callback_is_logged_and_the_process_goes_on():
    code, out, lines = finish(start("callback"))
    assert (code, out) == (0, "cleaning\ncleaned\n")
    assert "event=uncaught" in lines[0]


@pytest.mark.parametrize("what", ["crash", "cancelled"])
def test_another_exception_of_the_main_coroutine_is_exit_code_3(what):
    code, _, lines = finish(start(what))
    assert code == 3
    assert "event=crashed" in lines[0]


def test_without_assertions_nothing_starts():
    code, out, lines = finish(start("return", options=("-O",)))
    assert (code, out) == (2, "")
    assert len(lines) == 1
    assert "fatal exit_code=2 run without -O" in lines[0]
