"""The client that sends odd frames: it counts what left, and its end is no secret."""

import asyncio
import json

import pytest

from chaos.backends.ports import take_ports
from chaos.record import read_recording
from chaos.workload import hostile
from chaos.workload.worker import WorkerSpec


def spec_of(tmp_path, port):
    return WorkerSpec(
        run_id="r", name="hostile-0", worker=7, raw=str(tmp_path / "raw.jsonl"),
        namesrv_addrs=(f"127.0.0.1:{port}",), node_by_addr={f"127.0.0.1:{port}": "n0"},
        topic="t", group="g", seed=1, seconds_max=5,
    )  # fmt: skip


@pytest.fixture
def _stopped_soon(monkeypatch):
    async def until_stopped(_seconds, _report, done):
        await asyncio.wait([asyncio.ensure_future(done.wait())], timeout=0.2)
        return True

    monkeypatch.setattr(hostile, "until_stopped", until_stopped)


@pytest.mark.usefixtures("_stopped_soon")
def test_frames_that_nobody_took_are_not_counted(tmp_path, capsys):
    (port,) = take_ports(1)
    asyncio.run(hostile.main(spec_of(tmp_path, port)))
    ((_, _, row),) = read_recording(tmp_path / "raw.jsonl")
    assert sum(number for name, number in row["value"].items() if name != "crowd") == 0
    assert json.loads(capsys.readouterr().out)["done"]


def test_frame_that_left_counts():
    async def body():
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            return await hostile.throw(f"127.0.0.1:{port}", b"x")

    assert asyncio.run(body())


@pytest.mark.usefixtures("_stopped_soon")
def test_attack_that_ends_by_itself_is_an_error_of_the_run(tmp_path, monkeypatch):
    async def attack(*_):
        raise ValueError("no frame")

    monkeypatch.setattr(hostile, "attack", attack)
    with pytest.raises(ValueError, match="no frame"):
        asyncio.run(hostile.main(spec_of(tmp_path, 1)))
