"""Recordings and the tables made of them."""

import errno
import json
import os

import pytest

from chaos.convert import collect, convert, read_table, write_table
from chaos.history.payload import make_key
from chaos.record import DamagedRecording, Recorder, read_recording
from chaos.run import convert_interrupted
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted


def event(f: str, type_: str, t: int, op_id: int = 0, **value: object) -> dict[str, object]:
    return {
        "worker": 1, "process": 1, "role": "producer", "type": type_, "f": f, "op_id": op_id,
        "t_mono_ns": t, "value": value,
    }  # fmt: skip


def invoke(key: int, t: int, op_id: int) -> dict[str, object]:
    value = {"msg_key": key, "topic": "t", "body_hash": 5, "body_len": 200}
    return event("send", "invoke", t, op_id, **value)


def phase(name: str, t: int) -> dict[str, object]:
    return event("phase", "info", t, name=name) | {"role": "harness"}


def test_lines_come_back_in_order(tmp_path):
    path = tmp_path / "raw" / "a.jsonl"
    with Recorder(path) as recorder:
        recorder.write("events", {"a": 1})
        recorder.write("acks", {"b": 1 << 62})
        assert [line[0] for line in read_recording(path)] == [0, 1], "written before close"
    assert list(read_recording(path)) == [(0, "events", {"a": 1}), (1, "acks", {"b": 1 << 62})]


def test_rows_that_belong_together_are_lines_like_others(tmp_path):
    path = tmp_path / "a.jsonl"
    with Recorder(path) as recorder:
        recorder.write_all("acks", [{"a": 1}, {"a": 2}])
        recorder.write_all("acks", [])
        recorder.write("acks", {"a": 3})
    assert [line[::2] for line in read_recording(path)] == [(at, {"a": at + 1}) for at in range(3)]


def test_torn_last_line_is_left_out(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'[0,"events",{}]\n[1,"eve')
    assert len(list(read_recording(path))) == 1


@pytest.mark.parametrize("text", [b'[0,"events",{}]\n[2,"events",{}]\n', b'oops\n[1,"e",{}]\n'])
def test_hole_and_garbage_are_named(tmp_path, text):
    path = tmp_path / "a.jsonl"
    path.write_bytes(text)
    with pytest.raises(DamagedRecording, match=r"a\.jsonl:[12]"):
        list(read_recording(path))


def test_recording_never_overwrites(tmp_path):
    Recorder(tmp_path / "a.jsonl").close()
    with pytest.raises(FileExistsError):
        Recorder(tmp_path / "a.jsonl")


def record(run, name, rows):
    with Recorder(run / "raw" / f"{name}.jsonl") as recorder:
        for table, row in rows:
            recorder.write(table, row)


def test_sends_are_joined_and_one_without_completion_is_info(tmp_path):
    done, open_ = make_key(3, 0), make_key(3, 1)
    answer = event("send", "ok", 30, 1, msg_key=done, queue_id=2, queue_offset=7, attempts=[{}, {}])
    record(tmp_path, "harness", [("events", phase("main", 5))])
    rows = [("events", invoke(done, 10, 1)), ("events", invoke(open_, 20, 2)), ("events", answer)]
    record(tmp_path, "producer-0", rows)
    sends = {row["msg_key"]: row for row in collect(tmp_path, "r")["sends"]}
    first, second = sends[done], sends[open_]
    assert (first["outcome"], first["queue_id"], first["queue_offset"]) == ("ok", 2, 7)
    assert (first["attempts"], first["t_inv"], first["t_cmp"]) == (2, 10, 30)
    assert (first["pid"], first["seq"], first["phase"]) == (3, 0, "main")
    assert (second["outcome"], second["t_cmp"]) == ("info", None)


def test_events_are_merged_by_time_and_numbered_densely(tmp_path):
    record(tmp_path, "b", [("events", phase("warmup", 1)), ("events", phase("main", 15))])
    record(tmp_path, "a", [("events", invoke(1, 10, 1)), ("events", invoke(2, 20, 2))])
    events = collect(tmp_path, "r")["events"]
    assert [row["idx"] for row in events] == [0, 1, 2, 3]
    assert [row["t_mono_ns"] for row in events] == [1, 10, 15, 20]
    assert [row["phase"] for row in events] == ["warmup", "warmup", "main", "main"]


def test_last_word_about_a_fault_counts(tmp_path):
    states = ["planned", "active", "healed"]
    rows = [("faults", {"fault_id": "1-kill", "kind": "kill", "status": s}) for s in states]
    record(tmp_path, "harness", rows)
    assert [row["status"] for row in collect(tmp_path, "r")["faults"]] == ["healed"]


def test_tables_can_be_read_back(tmp_path):
    witness = {"probe": "p", "before": 1.0, "during": 0.0, "after": None, "effective": True}
    fault = {"fault_id": "f", "kind": "cut", "targets": ["n0", "n1"], "witness": witness}
    fault["spec"] = {"targets": ["leader"]}
    record(tmp_path, "harness", [("faults", fault), ("events", invoke(1, 10, 1))])
    convert(tmp_path, {"run_id": "r", "scenario": "s", "t0_wall": 1_700_000_000_000_000})
    row = read_table(tmp_path, "faults")[0]
    assert (row["targets"], row["witness"], row["spec"]) == (
        ["n0", "n1"], witness, '{"targets": ["leader"]}',
    )  # fmt: skip
    assert read_table(tmp_path, "sends")[0]["outcome"] == "info"
    assert read_table(tmp_path, "runs")[0]["t0_wall"].year == 2023
    assert read_table(tmp_path, "drain") == []


def test_batch_has_a_row_a_message_side_by_side(tmp_path):
    members = [{"msg_key": make_key(3, n), "body_hash": n, "body_len": 28} for n in range(3)]
    sent = event("send", "invoke", 10, 1, topic="t", **members[0], members=members)
    answer = event("send", "ok", 30, 1, msg_key=make_key(3, 0), queue_id=2, queue_offset=7)
    record(tmp_path, "producer-0", [("events", sent), ("events", answer)])
    sends = collect(tmp_path, "r")["sends"]
    assert [row["msg_key"] for row in sends] == [member["msg_key"] for member in members]
    assert [row["queue_offset"] for row in sends] == [7, 8, 9]
    assert {(row["kind"], row["outcome"], row["queue_id"]) for row in sends} == {("batch", "ok", 2)}


def test_attempts_that_stored_nothing_explain_no_copies(tmp_path):
    attempts = [{"stored": False}, {"stored": True}, {"stored": False}, {"stored": True}]
    answer = event("send", "ok", 30, 1, queue_id=2, queue_offset=7, attempts=attempts)
    record(tmp_path, "producer-0", [("events", invoke(1, 10, 1)), ("events", answer)])
    assert collect(tmp_path, "r")["sends"][0]["attempts"] == 2


@pytest.mark.parametrize("written", [None, 7], ids=["no room", "some room"])
def test_nothing_is_recorded_behind_what_could_not_be_recorded(tmp_path, monkeypatch, written):
    """The numbers of the lines that came later would be dense, and the hole not seen."""
    path = tmp_path / "a.jsonl"
    real = os.write

    def write(fd, text):
        if written is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, text[:written])

    recorder = Recorder(path)
    recorder.write("events", {"a": 1})
    with monkeypatch.context() as full:
        full.setattr(os, "write", write)
        with pytest.raises(OSError, match=r"short write|No space"):
            recorder.write("deliveries", {"a": 2})
    with pytest.raises(OSError, match="the recording ended early"):
        recorder.write_all("deliveries", [{"a": 3}, {"a": 4}])
    assert [line[2] for line in read_recording(path)] == [{"a": 1}]
    with pytest.raises(OSError, match="the recording ended early"), recorder:
        pass  # whoever caught the error and went on to its end


def test_record_that_goes_on_behind_a_hole_shows_none(tmp_path, monkeypatch):
    def no_room(_fd, _text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "a.jsonl"
    with planted(HARNESS_BUGS["record-goes-on-behind-a-hole"]), Recorder(path) as recorder:
        with monkeypatch.context() as full:
            full.setattr(os, "write", no_room)
            with pytest.raises(OSError, match="No space"):
                recorder.write("deliveries", {"a": 1})
        recorder.write("deliveries", {"a": 2})
    assert list(read_recording(path)) == [(0, "deliveries", {"a": 2})]


def test_tables_are_made_again_if_the_harness_died_while_it_made_them(tmp_path):
    """The log of processes is a table before the others are."""
    record(tmp_path, "harness", [("events", phase("main", 5))])
    record(tmp_path, "producer-0", [("events", invoke(make_key(3, 0), 10, 1))])
    about = {"run_id": "r", "scenario": "s", "seed": 1, "backend": "local", "plan": {}}
    about |= {"t0_wall_us": 1_700_000_000_000_000, "contract": {}}
    (tmp_path / "run.json").write_text(json.dumps(about))
    write_table(tmp_path, "node_log", [])
    convert_interrupted(tmp_path)
    assert len(read_table(tmp_path, "sends")) == 1
    made = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    convert_interrupted(tmp_path)
    assert made == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}


def test_table_that_was_not_finished_is_none(tmp_path, monkeypatch):
    def torn(_table, path, **_settings):
        path.write_bytes(b"PAR1")
        raise KeyboardInterrupt

    monkeypatch.setattr("pyarrow.parquet.write_table", torn)
    with pytest.raises(KeyboardInterrupt):
        write_table(tmp_path, "sends", [])
    assert read_table(tmp_path, "sends") == []
