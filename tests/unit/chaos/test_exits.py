"""Processes that end by themselves, or badly when they are asked to: all are told of."""

import asyncio
import contextlib
from types import SimpleNamespace

import pytest

from chaos.backends import docker
from chaos.backends.base import ClusterFailed, ClusterSpec
from chaos.backends.docker import DockerCluster
from chaos.backends.local import LocalCluster
from chaos.backends.pair import LocalPair
from chaos.backends.process import Child
from chaos.run import _put_down
from chaos.workers import Worker, Workers
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted

ASKED = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit({code}))
pathlib.Path({ready!r}).touch()
time.sleep(60)
"""


async def started(run, name, code):
    """Start a process that ends with this code when it is asked to, or with 3 at once for None."""
    ready, log = run / f"{name}.ready", run / f"{name}.log"
    text = "raise SystemExit(3)" if code is None else ASKED.format(code=code, ready=str(ready))
    child = await Child.start(name, ["-c", text], log)
    if code is None:
        await child.process.wait()
    while code is not None and not ready.exists():
        await asyncio.sleep(0.01)
    return child


def made(run, kind=LocalCluster, **settings):
    (run / "config").mkdir()
    return kind(ClusterSpec(run=run, nodes=("n0", "n1"), name_servers=1, **settings))


def told(cluster):
    """Return who ended how, without the process ids."""
    lines = [line.split() for line in cluster.unexpected_exits()]
    return [" ".join(word for word in words if "pid=" not in word) for words in lines]


async def _name_server_gone_before_it_is_killed(run):
    cluster = made(run)
    cluster._name_servers = [(1, await started(run, "ns0", None))]
    await cluster.kill_name_server("ns0")
    return told(cluster)


def test_name_server_that_ended_by_itself_is_told_of_though_it_is_killed_then(tmp_path):
    assert asyncio.run(_name_server_gone_before_it_is_killed(tmp_path)) == ["ns0 exit=3"]


def test_end_of_a_name_server_that_nobody_sees_is_seen(tmp_path):
    with planted(HARNESS_BUGS["name-server-gone-unseen"]):
        assert asyncio.run(_name_server_gone_before_it_is_killed(tmp_path)) == []


def test_name_server_that_is_killed_is_not_told_of(tmp_path):
    async def body():
        cluster = made(tmp_path)
        cluster._name_servers = [(1, await started(tmp_path, "ns0", 0))]
        await cluster.kill_name_server("ns0")
        return told(cluster)

    assert asyncio.run(body()) == []


@pytest.mark.parametrize(
    ("codes", "lines"),
    [
        ((0, 0), []),
        ((7, 0), ["n0 exit=7 when asked to end"]),
        ((0, 9), ["ns0 exit=9 when asked to end"]),
    ],
)
def test_who_ends_badly_at_the_end_of_a_run_is_told_of(tmp_path, codes, lines):
    async def body():
        cluster = made(tmp_path)
        cluster._nodes["n0"].child = await started(tmp_path, "n0", codes[0])
        cluster._name_servers = [(1, await started(tmp_path, "ns0", codes[1]))]
        assert told(cluster) == []
        await cluster.stop()
        return told(cluster)

    assert asyncio.run(body()) == lines


def test_slave_that_ends_badly_as_it_is_made_the_master_is_told_of(tmp_path):
    async def body():
        cluster = made(tmp_path, LocalPair, mode="sync-master")
        cluster._nodes["n1"].child = await started(tmp_path, "n1", 7)
        await cluster.make_master("n1")
        await cluster._nodes["n1"].child.kill()
        return told(cluster)

    assert asyncio.run(body()) == ["n1 exit=7 when asked to end"]


def test_run_asks_once_more_who_ended_once_all_were_asked_to(tmp_path):
    lines = ["n0 pid=1 exit=3"]

    async def stop():
        lines.append("n1 pid=2 exit=7 when asked to end")

    async def nothing():
        return []

    parts = SimpleNamespace(
        phase=lambda _name, _text: None, problem=pytest.fail, decisions=None, exits=None,
        options=SimpleNamespace(run=tmp_path), workers=SimpleNamespace(kill_all=nothing),
        probe=SimpleNamespace(stop=nothing),
        cluster=SimpleNamespace(stop=stop, unexpected_exits=lambda: list(lines)),
    )  # fmt: skip
    asyncio.run(_put_down(parts))
    assert [(row["process"], row["exit"]) for row in parts.exits] == [
        ("n0", "pid=1 exit=3"),
        ("n1", "pid=2 exit=7 when asked to end"),
    ]


def test_short_directory_of_a_proxy_goes_with_its_cluster(tmp_path):
    """A run whose path is too long for a socket has it elsewhere; other runs leave theirs alone."""
    for name in ("r", "r" * 120):
        (tmp_path / name).mkdir()
        cluster = made(tmp_path / name)
        cluster._socket.touch()
        asyncio.run(cluster.stop())
        assert cluster._socket.parent.exists() is (cluster._socket.parent.name == "r")
        assert not cluster._socket.exists()


@pytest.mark.parametrize("code", [0, 3])
def test_worker_that_ends_badly_before_it_is_waited_for_is_told_of(tmp_path, code):
    async def body():
        text = f"import sys; sys.stdin.readline(); sys.exit({code})"
        child = await Child.start("w", ["-c", text], tmp_path / "w.log", pipes=True)
        worker = Worker("producer", SimpleNamespace(name="w"), child)
        worker.status.done = code == 0
        worker.listener = asyncio.create_task(worker.listen())
        workers = Workers(tmp_path)
        await workers._tell(worker, b"stop\n")
        await child.process.wait()
        await workers._await_end(worker)
        return workers.problems

    assert asyncio.run(body()) == (["w ended with exit code 3"] if code else [])


@pytest.mark.parametrize("state", ["running", "gone"])
def test_container_that_ended_by_itself_is_told_of_though_it_is_killed_then(
    tmp_path, monkeypatch, state
):
    async def call(command, **_):
        if state == "gone":
            raise ClusterFailed("docker kill ... said: it is not running")

    monkeypatch.setattr(docker.engine, "call", call)
    monkeypatch.setattr(docker.engine, "container_state", lambda _: state)
    monkeypatch.setattr(docker.engine, "inspect", lambda *_: "3")
    cluster = DockerCluster(ClusterSpec(run=tmp_path))
    cluster._containers = {"n0": "c0"}
    with contextlib.suppress(ClusterFailed):
        asyncio.run(cluster.kill("n0"))
    assert told(cluster) == ([] if state == "running" else ["n0 container=c0 exit=3"])


def test_member_that_was_to_leave_and_is_killed_before_is_no_problem_of_the_run(tmp_path):
    async def body():
        child = await Child.start("w", ["-c", "input()"], tmp_path / "w.log", pipes=True)
        workers = Workers(tmp_path)
        workers._workers = [Worker("consumer", SimpleNamespace(name="w"), child)]
        assert await workers.crash("w")
        await workers.leave("w")
        return workers.problems

    assert asyncio.run(body()) == []


def test_member_that_is_killed_while_it_leaves_is_no_problem_of_the_run(tmp_path):
    async def body():
        child = await Child.start("w", ["-c", "import time; time.sleep(60)"], tmp_path / "w.log")
        workers = Workers(tmp_path)
        worker = Worker("consumer", SimpleNamespace(name="w"), child)
        worker.listener = asyncio.create_task(asyncio.sleep(0))
        workers._workers = [worker]
        leaving = asyncio.create_task(workers.leave("w"))
        await asyncio.sleep(0.1)
        assert await workers.crash("w")
        await leaving
        return workers.problems

    assert asyncio.run(body()) == []
