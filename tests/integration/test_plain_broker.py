"""A broker on its own as a process: one owner, one directory, what it refuses and how."""

from __future__ import annotations

import asyncio
import json
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.integration.broker_cluster import free_ports
from tests.integration.plain_broker import plain
from tests.integration.test_broker_process import TIMEOUT_S, refused, settings, start, wait_for

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path


def alone(directory: Path, **more: object) -> dict[str, object]:
    """Return the settings of a broker on its own."""
    values = settings(directory) | {"brokerName": "alone", "listenPort": free_ports(1)[0]}
    for name in ("enableDLegerCommitLog", "dLegerGroup", "dLegerSelfId", "dLegerPeers"):
        del values[name]
    return values | more


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, object]]]:
    values = alone(tmp_path)
    process = start(tmp_path, values)
    try:
        wait_for(process, "event=broker_started")
        yield process, values
    finally:
        process.kill()
        process.communicate(timeout=TIMEOUT_S)


def test_a_second_process_is_refused_with_what_to_do(
    tmp_path: Path, running: tuple[subprocess.Popen[str], dict[str, object]]
) -> None:
    complaint = refused(tmp_path, alone(tmp_path))
    for words in ("storePathRootDir=", str(tmp_path / "store"), "in use", "Stop that broker"):
        assert words in complaint
    assert running[0].poll() is None


def test_abort_is_there_while_it_runs_and_after_a_crash_only(
    tmp_path: Path, running: tuple[subprocess.Popen[str], dict[str, object]]
) -> None:
    process, values = running
    store = tmp_path / "store"
    assert (store / "abort").exists()
    process.kill()
    process.communicate(timeout=TIMEOUT_S)
    assert (store / "abort").exists()
    again = start(tmp_path, values)
    wait_for(again, "event=broker_started")
    again.terminate()
    _, errors = again.communicate(timeout=TIMEOUT_S)
    assert again.returncode == 0, errors
    assert "ERROR" not in errors
    assert not (store / "abort").exists()
    assert (store / "checkpoint").stat().st_size == 4096
    assert "ledgerIndex" in json.loads((store / "config/topics.json").read_text())


def test_the_log_of_a_former_group_of_one_is_not_passed_over(tmp_path: Path) -> None:
    peer = free_ports(1)[0]
    group = {
        "enableDLegerCommitLog": "true", "dLegerGroup": "alone", "dLegerSelfId": "n0",
        "dLegerPeers": f"n0-127.0.0.1:{peer}",
    }  # fmt: skip
    member = start(tmp_path, alone(tmp_path, **group))
    wait_for(member, "writable=True")
    member.terminate()
    member.communicate(timeout=TIMEOUT_S)
    complaint = refused(tmp_path, alone(tmp_path))
    for words in (
        "dledger-n0",
        "dLegerGroup=alone",
        "dLegerSelfId=n0",
        "the dLegerPeers",
        "never fewer",
    ):
        assert words in complaint
    assert not (tmp_path / "store/commitlog").exists()
    assert not (tmp_path / "store/abort").exists()


def test_a_member_of_a_group_does_not_pass_over_a_plain_log(
    tmp_path: Path, running: tuple[subprocess.Popen[str], dict[str, object]]
) -> None:
    process, _ = running
    process.terminate()
    process.communicate(timeout=TIMEOUT_S)
    log = tmp_path / "store/commitlog"
    shutil.rmtree(log)
    log.mkdir()
    (log / "00000000000000000000").write_bytes(bytes(1 << 20))
    complaint = refused(tmp_path, settings(tmp_path))
    assert "commitlog" in complaint
    assert "enableDLegerCommitLog=false" in complaint
    assert not (tmp_path / "store/dledger-n0").exists()


@pytest.mark.parametrize(
    ("settings_of_role", "complaint"),
    [
        ({"brokerRole": "SLAVE"}, "brokerId of a slave must be above 0"),
        ({"brokerRole": "SLAVE", "brokerId": 1}, "namesrvAddr or haMasterAddress is needed"),
        ({"brokerRole": "ASYNC_MASTER", "brokerId": 1}, "brokerId=1: a master has brokerId=0"),
        ({"brokerRole": "MASTER"}, "one of ASYNC_MASTER, SYNC_MASTER, SLAVE"),
        ({"brokerRole": "SYNC_MASTER", "haSendHeartbeatInterval": 30_000}, "haHousekeeping"),
    ],
)
def test_a_role_that_cannot_be_is_refused(
    tmp_path: Path, settings_of_role: dict[str, object], complaint: str
) -> None:
    values = alone(tmp_path, **settings_of_role)
    if settings_of_role.get("brokerId") == 1 and len(settings_of_role) == 2:
        values["namesrvAddr"] = ""
    assert complaint in refused(tmp_path, values)
    assert not (tmp_path / "store").exists()


def test_queue_files_of_another_size_are_refused_and_left_alone(
    tmp_path: Path, running: tuple[subprocess.Popen[str], dict[str, object]]
) -> None:
    process, values = running
    process.terminate()
    process.communicate(timeout=TIMEOUT_S)
    store = tmp_path / "store"
    queue = store / "consumequeue/t/0"
    queue.mkdir(parents=True)
    (queue / "00000000000000000000").write_bytes(bytes(4000))
    (store / "consumequeue.checkpoint").unlink()
    complaint = refused(tmp_path, values)
    assert "has 4000 bytes, mappedFileSizeConsumeQueue says 6000000" in complaint
    assert (queue / "00000000000000000000").stat().st_size == 4000
    assert not (store / "abort").exists()


def test_what_only_a_group_can_do_is_answered_with_the_reason(tmp_path: Path) -> None:
    async def main() -> None:
        async with plain(tmp_path / "store") as broker:
            await broker.send("T", 0, b"x")
            for code, fields in (
                (29_002, {"op": "remove", "node": "n1"}),
                (29_003, {"target": "n1"}),
                (29_004, {}),
            ):
                answer = await broker.ask(code, **fields)
                assert answer.code == 1
                assert "no Raft group" in str(answer.remark)
            status = json.loads((await broker.ask(29_001)).body)
            assert (status["mode"], status["role"], status["node"]) == ("plain", "LEADER", "b")
            assert status["applied"] == status["commit"] == status["last_index"]
            index = json.loads((await broker.ask(29_005)).body)
            assert index["index"] == index["applied"] == status["applied"]

    asyncio.run(main())


def test_a_time_without_boundary_is_answered_with_the_nearest_message_as_rocketmq_4_9_does(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with plain(tmp_path / "store") as broker:
            for _ in range(3):
                await broker.send("T", 0, b"x")
                await asyncio.sleep(0.01)
            first, *_, last = await broker.read_all("T", 0)
            for stored, boundary, expected in (
                (last.store_timestamp + 1, None, 2),
                (last.store_timestamp + 1, "LOWER", 3),
                (last.store_timestamp + 1, "UPPER", 2),
                (first.store_timestamp + 1, None, 0),
                (first.store_timestamp + 1, "LOWER", 1),
                (first.store_timestamp - 1, None, 0),
            ):
                fields = {} if boundary is None else {"boundaryType": boundary}
                found = await broker.offset(29, topic="T", queueId=0, timestamp=stored, **fields)
                assert found == expected, (stored, boundary)

    asyncio.run(main())
