"""Two processes, one store: the second one is refused, whatever kind of broker it is."""

import fcntl

import pytest

from tests.integration.test_broker_process import TIMEOUT_S, refused, settings, start, wait_for

PLAIN = {"enableDLegerCommitLog": "false"}


@pytest.mark.parametrize(
    ("first", "second"),
    [({}, {}), (PLAIN, PLAIN), ({}, PLAIN), (PLAIN, {})],
    ids=["raft-raft", "plain-plain", "raft-plain", "plain-raft"],
)
def test_a_second_process_is_refused_and_touches_nothing(tmp_path, first, second):
    process = start(tmp_path, settings(tmp_path) | first)
    try:
        wait_for(process, "event=broker_started")
        store = tmp_path / "store"
        before = {path for path in store.rglob("*") if path.suffix != ".tmp"}
        complaint = refused(tmp_path, settings(tmp_path) | second)
        assert str(store) in complaint
        assert process.poll() is None
        assert before <= set(store.rglob("*"))
        process.terminate()
        _, errors = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, errors
    finally:
        process.kill()
        process.communicate(timeout=TIMEOUT_S)


def test_a_member_holds_the_lock_that_rocketmq_looks_at(tmp_path):
    process = start(tmp_path, settings(tmp_path))
    lock = tmp_path / "store/lock"
    try:
        wait_for(process, "event=broker_started")
        with lock.open("r+b") as file, pytest.raises(OSError, match="unavailable"):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)  # FileChannel.tryLock(0, 1, false)
        process.terminate()
        _, errors = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, errors
    finally:
        process.kill()
        process.communicate(timeout=TIMEOUT_S)
    with lock.open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
        complaint = refused(tmp_path, settings(tmp_path))
    assert f"storePathRootDir={tmp_path}/store is in use" in complaint
