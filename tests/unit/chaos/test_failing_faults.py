"""Faults that fail by what nobody foresaw are told as failed, and lifted as all others are."""

import asyncio
import errno
import os
import threading
import time
from types import SimpleNamespace

import pytest

from chaos.backends import engine
from chaos.backends.base import ClusterFailed, ClusterSpec
from chaos.backends.local import LocalCluster
from chaos.catalogue.faults import BY_NEMESIS
from chaos.catalogue.kinds import FaultSpec
from chaos.generator import Op, Stream
from chaos.nemesis import disk
from chaos.nemesis.journal import UndoJournal, heal_all, pending
from chaos.nemesis.limits import Descriptors, Starve
from chaos.nemesis.runner import Nemesis
from chaos.nemesis.wait import every
from chaos.record import Recorder, read_recording
from chaos.run import _put_down
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted
from tests.unit.chaos.world import World, setting_of

NAME = "1-kill"


class Failing(World):
    """A cluster whose commands may raise what is no word of ours."""

    raising: str = ""

    def raise_in(self, name):
        self.raising = name

    async def ask(self, node):
        self._maybe_raise("ask")
        return await super().ask(node)

    async def kill(self, node):
        await super().kill(node)
        self._maybe_raise("kill")

    async def restart(self, node):
        self._maybe_raise("restart")
        await super().restart(node)

    def _maybe_raise(self, name):
        if f"{name}-cancelled" in self.raising.split():
            raise asyncio.CancelledError
        if name in self.raising.split():
            raise OSError(errno.EIO, os.strerror(errno.EIO))


class Run:
    """A nemesis, its journal and its record."""

    def __init__(self, root):
        self.world = Failing()
        self.path = root / "undo.jsonl"
        self.raw = root / "raw.jsonl"
        self.recorder = Recorder(self.raw)
        self.nemesis = Nemesis(
            setting=setting_of(self.world), recorder=self.recorder,
            journal=UndoJournal(self.path), stream=Stream(1, "nemesis"), last_ack_ns=int,
            notice=lambda _: None,
        )  # fmt: skip
        self.nemesis.plan([(NAME, FaultSpec(kind=BY_NEMESIS["kill"], target=("leader",)))])
        self.nemesis._roles = {"leader": "n0"}

    def start(self):
        op = Op(f="start", value={"name": NAME, "targets": ["leader"]})
        return asyncio.run(self.nemesis.start(op))

    @property
    def last(self):
        return [row for _, _, row in read_recording(self.raw)][-1]


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path)


def test_fault_that_fails_before_it_is_applied_leaves_nothing_to_lift(run):
    run.world.raise_in("ask")
    assert run.start() == "failed: OSError: [Errno 5] Input/output error"
    assert run.last["status"] == "failed"
    assert run.last["t_on0"] is None
    assert pending(run.path) == {}


def test_fault_that_fails_half_applied_is_told_and_lifted_at_once(run):
    run.world.raise_in("kill")
    assert run.start() == "failed: OSError: [Errno 5] Input/output error"
    assert run.world.state("n0") == "running"
    run.nemesis.close_plan()
    told = run.last
    assert (told["status"], told["t_on1"]) == ("failed", None)
    assert told["t_on0"] <= told["t_off0"] <= told["t_off1"]
    run.world.nodes["n0"].state = "gone"  # by what was under way still
    assert asyncio.run(heal_all(run.world, run.path)) == []
    assert run.world.state("n0") == "running"


def test_fault_that_is_left_half_applied_is_seen(run):
    run.world.raise_in("kill")
    with planted(HARNESS_BUGS["half-applied-is-left-on"]):
        run.start()
    assert run.world.state("n0") == "gone"


def test_fault_that_fails_half_applied_and_cannot_be_lifted_is_told_as_such(run):
    run.world.raise_in("kill restart")
    eio = "OSError: [Errno 5] Input/output error"
    assert run.start() == f"heal_failed: {eio}; {eio}"
    assert (run.last["status"], run.last["t_off1"]) == ("heal_failed", None)
    assert list(pending(run.path)) == [NAME]


def test_fault_amid_which_the_timeline_ends_is_no_fault_that_was_never_reached(run):
    run.world.raise_in("kill-cancelled")
    with pytest.raises(asyncio.CancelledError):
        run.start()
    run.nemesis.close_plan()
    told = run.last
    assert (told["status"], told["spec"]["said"]) == ("failed", "the timeline ended amid it")
    assert told["t_on0"] is not None  # half applied: the verdict is unknown by it
    run.world.raise_in("")
    assert asyncio.run(heal_all(run.world, run.path)) == []
    assert run.world.state("n0") == "running"


def test_broker_that_is_down_already_is_left_to_whose_it_is(run):
    run.world.nodes["n0"].state = "gone"
    assert run.start() == "failed: n0 is not running"
    assert (run.last["t_on0"], run.world.state("n0")) == (None, "gone")


def test_no_kill_is_under_way_still_when_faults_of_several_have_failed():
    ended = []

    async def kill(name, seconds):
        await asyncio.sleep(seconds)
        ended.append(name)
        if not seconds:
            raise ClusterFailed("it is not there")

    async def body():
        with pytest.raises(ClusterFailed, match="it is not there"):
            await every([kill("n0", 0), kill("n1", 0.05)])

    asyncio.run(body())
    assert ended == ["n0", "n1"]


def test_files_are_not_changed_any_more_once_who_changes_them_was_cancelled(monkeypatch, tmp_path):
    """A timeline that ends amid a fault starts its broker at once."""
    done, begun = [], threading.Event()

    def slowly(*_):
        begun.set()
        time.sleep(0.1)
        done.append("changed")
        return 1

    async def body():
        monkeypatch.setitem(disk.CHANGES, "wipe", slowly)
        fault = disk.damage("wipe")(setting_of(World(root=tmp_path)), "n0")
        await fault.probe_before()
        task = asyncio.create_task(fault.apply())
        await asyncio.to_thread(begun.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return list(done)

    assert asyncio.run(body()) == ["changed"]


def test_fault_that_could_not_be_lifted_is_told_and_lifted_in_the_end(run):
    assert run.start() == "active"
    run.world.raise_in("restart")
    said = asyncio.run(run.nemesis.stop(NAME))
    assert said == "heal_failed: OSError: [Errno 5] Input/output error"
    assert run.last["status"] == "heal_failed"
    run.world.raise_in("")
    assert asyncio.run(heal_all(run.world, run.path)) == []
    assert run.world.state("n0") == "running"


def test_what_cannot_be_lifted_keeps_nothing_else_from_being_lifted(run):
    run.start()
    journal = UndoJournal(run.path)
    journal.will_apply("2", {"do": "what nobody knows"})
    journal.close()
    failures = asyncio.run(heal_all(run.world, run.path))
    assert failures == ["2: the journal asks for 'what nobody knows'"]
    assert run.world.state("n0") == "running"


def test_cluster_is_put_down_where_nothing_can_be_recorded():
    done = []

    def noted(name):
        async def call():
            done.append(name)
            return []

        return call

    def phase(_name, _text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    parts = SimpleNamespace(
        phase=phase,
        workers=SimpleNamespace(kill_all=noted("workers")),
        probe=SimpleNamespace(stop=noted("probe")),
        decisions=None,
        cluster=SimpleNamespace(stop=noted("cluster"), unexpected_exits=list),
        exits=None,
    )
    asyncio.run(_put_down(parts))
    assert done == ["workers", "probe", "cluster"]


def test_cluster_that_does_not_stop_is_a_problem_of_a_run_that_is_judged():
    problems = []

    async def late():
        raise TimeoutError("it is still there")

    async def refuses():
        raise ClusterFailed("compose stop ... took longer than 120 s")

    async def stopped():
        return ["a poll ended early: TypeError: no number"]

    parts = SimpleNamespace(
        phase=lambda _name, _text: None,
        problem=problems.append,
        options=SimpleNamespace(run=None),
        workers=SimpleNamespace(kill_all=late),
        probe=SimpleNamespace(stop=stopped),
        decisions=None,
        cluster=SimpleNamespace(stop=refuses, unexpected_exits=list),
        exits=None,
    )
    asyncio.run(_put_down(parts))
    assert problems == [
        "the clients could not be ended: TimeoutError: it is still there",
        "a poll ended early: TypeError: no number",
        "the cluster could not be stopped: ClusterFailed: compose stop ... took longer than 120 s",
    ]
    assert parts.exits == []


def test_engine_that_does_not_answer_in_time_is_told_as_such(tmp_path, monkeypatch):
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\nexec sleep 30\n")
    docker.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(engine, "STATE_TIMEOUT_S", 0.2)
    monkeypatch.setattr(engine, "COMMAND_TIMEOUT_S", 0.2)
    with pytest.raises(ClusterFailed, match=r"docker inspect \.\.\. took longer"):
        engine.container_state("c")
    with (tmp_path / "log").open("wb") as out, pytest.raises(ClusterFailed, match="docker logs"):
        engine.copy_logs("c", out)


class Strict(World):
    """A cluster that refuses to stop or to name a process that is gone, as ours does."""

    async def pause(self, node):
        if self.dies:
            self.nodes[node].state = "gone"
        if self.state(node) == "gone":
            raise ClusterFailed(f"{node} is not running")

    async def resume(self, node):
        pass

    def pid(self, node):
        if self.state(node) == "gone":
            raise ClusterFailed(f"{node} is not running")
        return os.getpid()

    dies = False


def test_starving_of_a_broker_that_dies_as_it_is_stopped_is_lifted():
    async def body():
        world = Strict()
        fault = Starve(setting_of(world), "n0", share=0.5, period_ms=20)
        await fault.probe_before()
        await fault.apply()
        await asyncio.sleep(0.03)
        world.dies = True
        await asyncio.sleep(0.05)
        await fault.undo()
        await fault.probe_after()
        return fault.witness.effective

    assert not asyncio.run(body())


def test_limit_of_a_process_that_is_gone_is_lifted_with_it():
    async def body():
        world = Strict()
        fault = Descriptors(setting_of(world), "n0", spare=1_000)
        await fault.probe_before()
        world.nodes["n0"].state = "gone"
        await fault.undo()
        await fault.probe_after()
        return fault.witness.effective

    assert not asyncio.run(body())


def test_broker_that_is_gone_need_not_go_on(tmp_path):
    cluster = LocalCluster(ClusterSpec(run=tmp_path))
    asyncio.run(cluster.resume("n0"))
