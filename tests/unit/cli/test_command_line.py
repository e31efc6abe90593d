"""The command line: help that explains itself, one-line errors, exit codes."""

import re

import pytest

from cli.main import run

COMMANDS = [
    [], ["namesrv"], ["broker"], ["produce"], ["consume"], ["demo"], ["check"], ["doctor"],
    ["version"], ["admin"], ["admin", "raftStatus"], ["admin", "clusterList"],
    ["admin", "topicList"], ["admin", "topicRoute"], ["admin", "transferLeader"],
    ["admin", "raftEvents"], ["certs"], ["certs", "init"],
    ["certs", "node"], ["certs", "admin"], ["certs", "key"], ["certs", "show"], ["store"],
    ["store", "verify"], ["store", "dump"], ["store", "stat"],
    ["store", "rebuild"],
]  # fmt: skip


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "Usage: ledgermq" in shown
    if command:
        assert "Example: ledgermq" in shown


def test_version_names_the_protocol(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["version"]) == 0
    assert re.match(r"ledgermq \d+\.\d+\.\d+ \(RocketMQ remoting protocol", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nonsense"], 2, "No such command 'nonsense'"),
        (["broker"], 2, "Missing option '-c'"),
        (["namesrv", "-p", "70000"], 2, "'--port'"),
        (["namesrv", "-p", "nonsense"], 2, "neither a port nor KEY=VALUE"),
        (["produce", "-t", "t", "-n", "nowhere", "x"], 2, "'nowhere' is not HOST:PORT"),
        (["demo", "--backend", "moon"], 254, "moon"),
        (["demo", "--no-such-option"], 254, "--no-such-option"),
        (["demo", "--break", "no-such-bug"], 254, "ack-before-quorum"),
        (["check", "no/such/run"], 254, "no/such/run is not a directory"),
    ],
)
def test_wrong_usage_is_one_line_with_what_to_do(
    arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("ledgermq: ")
    assert said in captured.err
    assert "--help" in captured.err


def test_group_without_subcommand_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["admin"]) == 2
    assert "clusterList" in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    "words", [["namesrv"], ["broker", "-c", "CONF"]], ids=["namesrv", "broker"]
)
def test_settings_on_the_command_line_are_checked_as_those_of_the_file(words, tmp_path, capsys):
    conf = tmp_path / "broker.conf"
    conf.write_text("")
    given = [str(conf) if word == "CONF" else word for word in words]
    assert run([*given, "-p", "listenport=1"]) == 2
    assert "unknown key listenport=1: did you mean listenPort?" in capsys.readouterr().err
