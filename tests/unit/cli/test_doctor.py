"""Doctor: what it understands of the machine, and that it never claims more than it found."""

import json
import socket
from pathlib import Path

import pytest
import typer

from cli import doctor
from cli.main import run
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_202"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("command not found", None),
        ("", None),
    ],
)
def test_java_versions_of_all_ages_are_read(text: str, major: int | None) -> None:
    assert doctor.java_major(text) == major


def test_a_port_in_use_is_seen() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        assert not doctor.port_free(server.getsockname()[1])


def test_a_met_need_has_no_consequence() -> None:
    assert doctor.need("x", True, "found", "bad luck").consequence == ""
    assert doctor.need("x", False, "found", "bad luck").consequence == "bad luck"


def test_modules_are_imported_and_not_only_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "halfway.py").write_text("import no_such_module\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = doctor._modules("x", ["json", "halfway"], "ledgermq[chaos]")
    assert found.state is doctor.State.MISSING
    assert found.found == "halfway ModuleNotFoundError No module named 'no_such_module'"
    assert found.consequence == "run: make setup"
    monkeypatch.chdir(tmp_path)
    assert doctor._modules("x", ["halfway"], "ledgermq[chaos]").consequence == (
        "run: pip install 'ledgermq[chaos]'"
    )
    assert doctor._modules("x", ["json"], "ledgermq").state is doctor.State.OK
    with planted(HARNESS_BUGS["doctor-looks-only"]):
        looked = doctor._modules("x", ["json", "halfway"], "ledgermq[chaos]")
    assert looked.state is doctor.State.OK


def test_spark_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "missing", lambda _extra: ["distutils"])
    found = doctor.spark_job()
    assert found.state is doctor.State.MISSING
    assert found.found == "not tried without distutils"
    monkeypatch.setattr(doctor, "missing", lambda _extra: [])
    monkeypatch.setattr(doctor, "_try", lambda *_: (False, ["x", "no JVM"]))
    assert doctor.spark_job().found == "no JVM"


@pytest.mark.spark
@pytest.mark.slow
def test_spark_runs_a_job_here() -> None:
    found = doctor.spark_job()
    assert found.state is doctor.State.OK, found
    assert "calls Python" in found.found


def test_the_disk_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "synced in" in doctor.disk().found
    assert list(tmp_path.iterdir()) == []

    def broken() -> float:
        raise OSError("Input/output error")

    monkeypatch.setattr(doctor, "_sync_ms", broken)
    assert doctor.disk().state is doctor.State.MISSING


def test_json_lists_every_probe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "_try", lambda *_: (True, []))  # Spark takes its time
    code = run(["doctor", "--json"])
    findings = json.loads(capsys.readouterr().out)
    assert len(findings) == len(doctor.PROBES)
    missing = [finding for finding in findings if finding["state"] == "missing"]
    assert code == (2 if missing else 0)
    assert all(finding["consequence"] for finding in findings if finding["state"] != "ok")


def test_without_a_compiler_it_is_said_which_faults_and_scenarios_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "compiler", lambda: None)
    faults, left = doctor.c_compiler(), doctor.scenarios()
    assert faults.state is left.state is doctor.State.DOWNGRADED
    for kind in ("eio", "full", "slow", "hang", "clock_jump", "clock_strobe", "clock_drift"):
        assert kind in faults.consequence
    for name in ("a-disk-that-fails", "a-leader-whose-disk-hangs", "wall-clocks-that-jump"):
        assert name in left.consequence
    assert "starved-leader" not in left.consequence
    with planted(HARNESS_BUGS["doctor-forgets-scenarios"]):
        assert doctor.scenarios().state is doctor.State.OK
    monkeypatch.setattr(doctor, "compiler", lambda: "/usr/bin/cc")
    assert doctor.scenarios().state is doctor.State.OK


def test_a_busy_machine_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.os, "getloadavg", lambda: (99.0, 0.0, 0.0))
    assert doctor.cores().state is doctor.State.DOWNGRADED
    assert "load 99.0" in doctor.cores().found


def test_clocks_are_compared() -> None:
    assert "ms late at most" in doctor.clocks().found


def test_the_chaos_suite_has_a_doctor_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "CHAOS_PROBES", (doctor.cores, doctor.scenarios))
    assert run(["chaos", "doctor", "--json"]) == 0
    names = [one["name"] for one in json.loads(capsys.readouterr().out)]
    assert names == ["two cores, mostly idle", "scenarios whose faults take effect"]


def test_words_in_brackets_are_printed_and_not_read(capsys: pytest.CaptureFixture[str]) -> None:
    hint = "run: pip install 'ledgermq[chaos,spark]'"
    with pytest.raises(typer.Exit):
        doctor.examine([lambda: doctor.need("x", False, "no /opt/[/b]/java", hint)], as_json=False)
    told = " ".join(capsys.readouterr().out.split())
    assert "'ledgermq[chaos,spark]'" in told
    assert "/opt/[/b]/java" in told


def test_what_is_no_text_ends_no_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nprintf 'version \"17\" \\351\\n' >&2\n")
    java.chmod(0o700)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert doctor.jvm().state is doctor.State.OK
    assert doctor._try([str(java)]) == (True, [])


def test_directory_that_is_gone_has_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert doctor.disk().state is doctor.State.MISSING
