"""Doctor: what it understands of the machine, and that it never claims more than it found."""

import json
import socket

import pytest

from cli import doctor
from cli.main import run


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


def test_json_lists_every_probe(capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["doctor", "--json"])
    findings = json.loads(capsys.readouterr().out)
    assert len(findings) == len(doctor.PROBES)
    missing = [finding for finding in findings if finding["state"] == "missing"]
    assert code == (2 if missing else 0)
    assert all(finding["consequence"] for finding in findings if finding["state"] != "ok")
