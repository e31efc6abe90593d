"""Two processes, one store: the second one is refused, whatever kind of broker it is."""

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
