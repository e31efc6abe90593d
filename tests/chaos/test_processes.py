"""Processes of the harness, and the interpreter with a client that answers by script."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chaos.backends.process import DIE_WITH_PARENT, Child, process_state
from chaos.generator import Emit, Limit, Op, constant
from chaos.interpreter import Completion, Interpreter, Slots
from chaos.record import Recorder, read_recording
from ledgermq.runtime.clock import SystemClock

SLEEPER = ["-c", "import time; time.sleep(60)"]


def test_child_is_frozen_woken_and_killed_by_pid(tmp_path):
    async def body() -> None:
        child = await Child.start("sleeper", SLEEPER, tmp_path / "log")
        child.signal(signal.SIGSTOP)
        while child.state() != "stopped":
            await asyncio.sleep(0.01)
        assert await child.stop(30) == -signal.SIGTERM, "a frozen child is woken to end"
        assert child.state() == "gone"

    asyncio.run(body())


def test_children_die_with_the_harness(tmp_path):
    """The middle process plays the harness; when it is killed its child must be gone."""
    middle = (
        "import subprocess, sys, os, time\n"
        f"p = subprocess.Popen([sys.executable, '-I', '-S', {str(DIE_WITH_PARENT)!r},"
        " str(os.getpid()),"
        " sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(p.pid, flush=True)\n"
        "time.sleep(60)\n"
    )

    async def body() -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", middle, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        grandchild = int(await process.stdout.readline())
        while Path(f"/proc/{grandchild}/cmdline").read_bytes().find(b"die_with_parent") >= 0:
            await asyncio.sleep(0.01)
        process.kill()
        await process.wait()
        async with asyncio.timeout(60):
            while process_state(grandchild) != "gone":
                await asyncio.sleep(0.01)

    asyncio.run(body())


def test_process_that_never_was_is_gone():
    assert process_state(2**22 + 1) == "gone"
    assert process_state(os.getpid()) == "running"


class Scripted:
    """Answers the n-th operation with the n-th type; ``boom`` raises."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.in_flight: set[int] = set()

    def prepare(self, op: Op) -> Mapping[str, Any]:
        assert op.process not in self.in_flight, "one operation per process"
        self.in_flight.add(op.process)
        return {"n": 1}

    async def invoke(self, op: Op, prepared: Mapping[str, Any]) -> Completion:
        answer = self.answers.pop(0)
        await asyncio.sleep(0)
        self.in_flight.discard(op.process)
        if answer == "boom":
            raise ValueError("boom")
        return Completion(type=answer, value={"n": 2})


def history(tmp_path: Path, *answers: str, processes: int = 2) -> list[dict[str, Any]]:
    path = tmp_path / "raw.jsonl"

    async def body() -> None:
        slots = Slots(worker=3, role="producer", count=processes, first_process=100)
        with Recorder(path) as recorder:
            interpreter = Interpreter(
                client=Scripted(*answers), recorder=recorder, clock=SystemClock(), slots=slots
            )
            await interpreter.run(Limit(len(answers), Emit("send", constant())))
            tally = interpreter.tally
            assert tally.invoked == len(answers) == tally.ok + tally.fail + tally.info

    asyncio.run(body())
    return [row for _, _, row in read_recording(path)]


def test_every_operation_is_invoked_and_completed_once(tmp_path):
    rows = history(tmp_path, "ok", "fail", "info", "ok", "boom", "ok")
    invoked = [row["op_id"] for row in rows if row["type"] == "invoke"]
    completed = [row["op_id"] for row in rows if row["type"] != "invoke"]
    assert invoked == sorted(set(completed))
    assert all(op_id >> 40 == 3 for op_id in invoked)
    assert [row["definite"] for row in rows if row["type"] == "info"] == [False, False]


def test_process_is_retired_after_an_unknown_outcome(tmp_path):
    rows = history(tmp_path, "info", "ok", "boom", "ok", processes=1)
    assert [row["process"] for row in rows if row["type"] == "invoke"] == [100, 101, 101, 102]
    boom = [row for row in rows if row["err_class" if "err_class" in row else "f"] == "ValueError"]
    assert [row["type"] for row in boom] == ["info"]
