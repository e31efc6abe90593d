"""The command line: help that explains itself, one-line errors, exit codes."""

import os
import re
import subprocess
import sys

import pytest
import typer

from chaos import needs
from chaos.demo import parser as demo_parser
from chaos.samples import SAMPLES
from cli.main import VERDICT_COMMANDS, app, run
from cli.runs import Backend, Cluster, Flush, Mode, Report, StopOn, Workload

COMMANDS = [
    [], ["namesrv"], ["broker"], ["produce"], ["consume"], ["demo"], ["check"], ["doctor"],
    ["import"], ["export"], ["version"],
    ["admin"], ["admin", "raftStatus"], ["admin", "clusterList"],
    ["admin", "topicList"], ["admin", "topicStatus"], ["admin", "consumerProgress"],
    ["admin", "resetOffsetByTime"], ["admin", "brokerStatus"],
    ["admin", "topicRoute"], ["admin", "transferLeader"],
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


def test_sample_clusters_are_those_of_the_walk_and_need_containers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert {one.value for one in Cluster} == set(SAMPLES)
    assert run(["demo", "--no-spark", "--cluster", "2m-2s-sync"]) != 0
    assert "--backend docker" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [["--no-spark"], ["--seed", "7"], ["--mode", "controller"], ["--report", "always"]],
    ids=lambda options: options[0],
)
def test_a_walk_through_a_sample_cluster_refuses_the_options_of_a_run(
    options: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    walked: list[str] = []
    monkeypatch.setattr("chaos.samples.main", lambda name: walked.append(name) or 0)
    walk = ["demo", "--backend", "docker", "--cluster", "2m-2s-sync"]
    assert run([*walk, *options]) == 254
    assert options[0] in capsys.readouterr().err
    assert not walked
    assert run(walk) == 0
    assert walked == ["2m-2s-sync"]


def test_a_demo_takes_what_its_package_takes() -> None:
    """Options are declared twice: here with their help, in `chaos.demo` with their limits."""
    theirs = {
        option: action.choices
        for action in demo_parser("demo")._actions
        for option in action.option_strings
        if option.startswith("--") and option not in {"--help", "--run-dir"}
    }
    command = typer.main.get_command(app)
    assert isinstance(command, typer.core.TyperGroup)
    ours = {option for one in command.commands["demo"].params for option in one.opts}
    assert ours - {"--help", "--cluster"} == theirs.keys(), "--cluster is of chaos.samples"
    words = {"--backend": Backend, "--flush": Flush, "--mode": Mode, "--workload": Workload}
    words |= {"--report": Report, "--stop-on": StopOn}
    for option, choices in theirs.items():
        assert {str(one) for one in words.get(option, ())} == set(choices or ()), option


@pytest.mark.parametrize("word", ["version", "--version", "-V"])
def test_version_names_the_protocol(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([word]) == 0
    assert re.match(r"ledgermq \d+\.\d+\.\d+ \(RocketMQ remoting protocol", capsys.readouterr().out)


def test_a_broker_starts_from_settings_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As docs/replication.md starts brokers that controllers give their roles."""
    told: list[list[str]] = []
    monkeypatch.setattr("broker.__main__.main", lambda words: told.append(words) or 0)
    assert run(["broker", "-n", "h:1", "-p", "brokerName=a"]) == 0
    assert run(["broker", "-c", "b.conf"]) == 0
    assert told == [["-p", "brokerName=a", "-n", "h:1"], ["-c", "b.conf"]]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nonsense"], 2, "No such command 'nonsense'"),
        (["broker"], 2, "Missing option '-c'"),
        (["broker", "-c", "n0.conf", "-p", "brokerRole"], 2, "'brokerRole' is not KEY=VALUE"),
        (["admin", "deleteSubGroup", "-g", "bad group!", "-n", "127.0.0.1:1"], 2, "bad group!"),
        (["namesrv", "-p", "70000"], 2, "'--port'"),
        (["namesrv", "-p", "nonsense"], 2, "neither a port nor KEY=VALUE"),
        (["namesrv", "-p", "²"], 2, "neither a port nor KEY=VALUE"),
        (["admin", "topicList", "-n", "h:²"], 2, "'h:²' is not HOST:PORT"),
        (["admin", "topicList", "-n", "h:" + "9" * 5_000], 2, "is not HOST:PORT"),
        (["admin", "resetOffsetByTime", "-g", "g", "-t", "t", "-s", "²"], 2, "'²' is neither"),
        (["sim", "--seeds", "1..²"], 254, "is not of the form A..B"),
        (["sim", "--seeds", f"1..{1 << 63}"], 254, "is not of the form A..B"),
        (["produce", "-t", "t", "-n", "nowhere", "x"], 2, "'nowhere' is not HOST:PORT"),
        (["demo", "--backend", "moon"], 254, "moon"),
        (["demo", "--no-such-option"], 254, "--no-such-option"),
        (["demo", "--break", "no-such-bug"], 254, "ack-before-quorum"),
        (["chaos", "campaign", "--break", "no-such-bug"], 254, "ack-before-quorum"),
        (["chaos", "run", "demo", "--no-spark", "--break=no-such-bug"], 254, "ack-before-quorum"),
        (["check", "no/such/run"], 254, "no/such/run is not a directory"),
        (["fuzz", "--frames", "many"], 2, "'--frames'"),
        (["fuzz", "--minutes", "-1"], 2, "'--minutes'"),
        (["fuzz", "--flush", "x"], 2, "'--flush': 'x' is not one of"),
        (["sim", "--seeds", "9..3"], 254, "A not above B"),
        (["sim", "--seed", "1", "--seeds", "1..2"], 254, "--seeds: not together with --seed"),
        (["admin", "--cert", "x.crt", "remove", "--id", "n0"], 2, "both are needed"),
        (["admin", "addLearner", "--id", "x", "--address", "h:1"], 2, "the last one a digit"),
        (["admin", "addLearner", "--id", "n-3", "--address", "h:1"], 2, "letters, digits and _"),
        (["admin", "addLearner", "--id", "n3", "--address", "h"], 2, "--address: 'h' is not"),
        (["admin", "getSyncStateSet", "-a", "h"], 2, "--controllers: 'h' is not HOST:PORT"),
        (["admin", "cleanBrokerMetadata", "-a", "h:1", "-n", "a", "-b", "x"], 2, "2;3"),
        (["admin", "updateTopic", "-t", "a b", "-n", "127.0.0.1:1"], 2, "topic 'a b'"),
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


@pytest.mark.parametrize("option", [["--rounds", "0"], ["--rounds", "-1"], ["--seconds", "60"]])
def test_a_scenario_refuses_what_it_would_not_do(option, capsys) -> None:
    assert run(["chaos", "run", "failover", "--no-spark", *option]) == 254
    assert f"{option[0]} " in capsys.readouterr().err


def commands() -> list[list[str]]:
    """Return every command there is, as the words that name it."""
    found = []

    def walk(command: object, words: list[str]) -> None:
        for name, inner in getattr(command, "commands", {}).items():
            walk(inner, [*words, name])
        if not hasattr(command, "commands"):
            found.append(words)

    walk(typer.main.get_command(app), [])
    return found


def test_every_wrong_option_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    everything = commands()
    assert len(everything) > 30
    for words in everything:
        if words in (["chaos"], ["bench"]):  # they parse their own
            continue
        expected = 254 if words[0] in VERDICT_COMMANDS else 2
        assert run([*words, "--no-such-option"]) == expected, words
        assert "--no-such-option" in capsys.readouterr().err


def test_a_part_of_a_suite_needs_the_suite(capsys) -> None:
    assert run(["bench", "--part", "sql"]) == 2
    assert "--part needs --store, --kinds or --pairs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code"), [(["chaos"], 254), (["chaos", "walk"], 254), (["bench", "--walk"], 2)]
)
def test_commands_that_parse_their_own_options_use_the_same_codes(words, code, capsys) -> None:
    assert run(words) == code
    assert "usage" in "".join(capsys.readouterr())


@pytest.mark.parametrize("words", [["run"], ["check"], ["diff"], ["replay"], ["list"], []])
def test_every_part_of_the_suite_has_help(words, capsys) -> None:
    assert run(["chaos", *words, "--help"]) == 0
    assert "usage: ledgermq chaos" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [([], "name a command"), (["walk"], "called 'walk'"), (["check"], "check takes what stands")],
)
def test_a_part_that_is_misused_is_said_to_be(words, said, capsys) -> None:
    assert run(["chaos", *words]) == 254
    assert said in capsys.readouterr().out


def test_a_shell_can_complete_commands() -> None:
    environment = {
        **os.environ, "_LEDGERMQ_COMPLETE": "complete_bash",
        "COMP_WORDS": "ledgermq con", "COMP_CWORD": "1",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-P", "-m", "cli"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["consume"], done


@pytest.mark.parametrize(
    ("words", "code", "extra"),
    [
        (["demo"], 255, "chaos,spark"),
        (["demo", "--no-spark"], 255, "chaos"),
        (["check", "."], 255, "chaos,spark"),
        (["chaos", "run", "baseline"], 255, "chaos,spark"),
        (["fuzz"], 255, "chaos"),
    ],
)
def test_a_missing_extra_is_one_line_with_what_to_install(
    words: list[str], code: int, extra: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(needs, "find_spec", lambda _name: None)
    assert run(words) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert f"pip install 'ledgermq[{extra}]'" in captured.err


def test_a_module_that_an_extra_brings_is_never_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'pyarrow.lib'", name="pyarrow.lib")

    monkeypatch.setattr("cli.doctor.PROBES", (absent,))
    assert run(["doctor"]) == 1
    assert "not installed: pyarrow; run: pip install 'ledgermq[chaos]'" in capsys.readouterr().err


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
