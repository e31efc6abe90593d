"""``ledgermq produce``, ``consume`` and ``admin`` as processes, against a real broker process."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.cluster import GROUP as BROKER
from bench.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


class Shell:
    """Runs the command against one broker."""

    def __init__(self, cluster: Cluster) -> None:
        self.address = f"127.0.0.1:{cluster.ports[0]}"
        self.env = {**os.environ, "NAMESRV_ADDR": cluster.namesrv_addr, "COLUMNS": "200"}

    def begin(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "cli", *words], cwd=ROOT, env=self.env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, *words: str, lines: str = "") -> tuple[int, str, str]:
        process = self.begin(*words)
        out, err = process.communicate(lines, timeout=60)
        return process.returncode, out, err

    def well(self, *words: str, lines: str = "") -> str:
        code, out, err = self.run(*words, lines=lines)
        assert code == 0, (words, out, err)
        return out

    def says_in_time(self, words: str, *command: str) -> None:
        """Run what fails with these words; with more time if there was too little to find out."""
        for seconds in ("2", "8", "32"):
            code, _, err = self.run(*command, "--seconds", seconds)
            if code != 1 or words in err:
                break
        assert (code, words in err) == (1, True), err


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    home = tmp_path_factory.mktemp("cli")
    with Cluster(home, replicas=1, sync_flush=False) as cluster:
        yield Shell(cluster)


def test_lines_go_out_with_all_their_marks_and_come_in_as_json(shell: Shell) -> None:
    sent = shell.well(
        "produce", "-t", "marks", "--tag", "red", "--key", "k1 k2", "--property", "region=eu",
        "--property", "note=a=b", "--shard", "one", "--json", lines="first\nsecond\n",
    )  # fmt: skip
    rows = [json.loads(line) for line in sent.splitlines()]
    assert len({row["queueId"] for row in rows}) == 1
    assert [row["queueOffset"] for row in rows] == [0, 1]
    shell.well("produce", "-t", "marks", "--property", "region=us", "third")
    taken = shell.well(
        "consume", "-t", "marks", "-g", "g1", "--sql", "region = 'eu'", "--count", "2",
        "--seconds", "20", "--json", "--orderly",
    )  # fmt: skip
    found = [json.loads(line) for line in taken.splitlines()]
    assert [row["msgId"] for row in found] == [row["msgId"] for row in rows]
    properties = found[0]["properties"]
    assert (properties["TAGS"], properties["KEYS"], properties["note"]) == ("red", "k1 k2", "a=b")
    assert found[0]["brokerName"] == BROKER


def test_lines_of_any_bytes_go_out_as_they_are(shell: Shell) -> None:
    lines = b"latin \xe9\r\nutf-8 \xc3\xa9\n\xff"
    command = [sys.executable, "-m", "cli", "produce", "-t", "bytes", "--shard", "one"]
    for locale in ({}, {"LC_ALL": "C"}, {"PYTHONUTF8": "1"}):
        subprocess.run(
            command, cwd=ROOT, env=shell.env | locale, input=lines, timeout=60, check=True
        )
    subprocess.run([*command, b"\xfe"], cwd=ROOT, env=shell.env, timeout=60, check=True)
    taken = shell.well(
        "consume", "-t", "bytes", "-g", "g1", "--count", "10", "--seconds", "20", "--json",
        "--orderly",
    )  # fmt: skip
    bodies = [base64.b64decode(json.loads(line)["bodyBase64"]) for line in taken.splitlines()]
    assert bodies == [b"latin \xe9", b"utf-8 \xc3\xa9", b"\xff"] * 3 + [b"\xfe"]


def test_what_is_beyond_the_count_is_left_to_the_next_call(shell: Shell) -> None:
    sent = [f"n{number}" for number in range(40)]
    shell.well("produce", "-t", "beyond", "--shard", "one", lines="\n".join(sent) + "\n")
    take = ("consume", "-t", "beyond", "-g", "beyond", "--seconds", "20", "--count")
    first = [line.split()[-1] for line in shell.well(*take, "3").splitlines()]
    second = [line.split()[-1] for line in shell.well(*take, "37").splitlines()]
    assert (first, second) == (sent[:3], sent[3:])
    orderly = ("consume", "-t", "beyond", "-g", "beyond-orderly", "--orderly", "--seconds", "20")
    first = [line.split()[-1] for line in shell.well(*orderly, "--count", "3").splitlines()]
    second = [line.split()[-1] for line in shell.well(*orderly, "--count", "37").splitlines()]
    assert (first, second) == (sent[:3], sent[3:])
    broadcast = shell.run(*take[:4], "cast", "--broadcast", "--seconds", "20", "--count", "3")
    assert len(broadcast[1].splitlines()) == 3
    assert "dropped" not in broadcast[2]


def test_a_new_group_begins_where_it_is_told(shell: Shell) -> None:
    shell.well("produce", "-t", "begin", "--shard", "one", "old")
    time.sleep(1.1)
    between_ms = str(int(time.time() * 1000))
    time.sleep(0.1)
    shell.well("produce", "-t", "begin", "--shard", "one", "new")
    how = ("consume", "-t", "begin", "--count", "1", "--seconds", "20")
    assert shell.well(*how, "-g", "from-first").split()[-1] == "old"
    assert shell.well(*how, "-g", "from-time", "--from", between_ms).split()[-1] == "new"
    last = ("consume", "-t", "begin", "-g", "from-last", "--from", "last", "--count", "1")
    shell.says_in_time("0 of 1 messages of begin came in", *last)


def test_the_pace_and_the_progress_are_told(shell: Shell) -> None:
    begin = time.monotonic()
    code, out, err = shell.run(
        "produce", "-t", "paced", "x", "--count", "30", "--rate", "15", "--progress"
    )
    assert time.monotonic() - begin >= 1.9
    assert (code, len(out.splitlines())) == (0, 30)
    assert "30 sent in" in err.splitlines()[-1]
    assert "a second now" in err


def test_transactions_end_as_the_option_says(shell: Shell) -> None:
    for ending in ("commit", "rollback", "unknown"):
        how = ("--transaction", ending, "--shard", "one", ending)
        assert shell.well("produce", "-t", "halves", *how).split()[-1] == ending
    take = ("consume", "-t", "halves", "-g", "halves", "--count", "1", "--seconds")
    assert [line.split()[-1] for line in shell.well(*take, "20").splitlines()] == ["commit"]
    code, out, err = shell.run(*take, "4")
    assert (code, out) == (1, ""), err


@pytest.mark.parametrize("words", [["produce", "-t", "ended"], ["consume", "-t", "ended"]])
def test_an_interruption_ends_with_the_count(shell: Shell, words: list[str]) -> None:
    shell.well("produce", "-t", "ended", "x")
    process = shell.begin(*words)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("line\n")
    process.stdin.flush()
    assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130, err
    counted = "1 sent" if words[0] == "produce" else "messages came"
    assert "ledgermq: interrupted: " in err
    assert counted in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "words",
    [
        ["produce", "-t", "t", "--property", "nonsense", "x"],
        ["produce", "-t", "t", "--property", "KEYS=x", "x"],
        ["produce", "-t", "t", "--delay", "19", "x"],
        ["produce", "-t", "t", "--rate", "-1", "x"],
        ["produce", "-t", "t", "--transaction", "perhaps", "x"],
        ["produce", "-t", "no topic", "x"],
        ["consume", "-t", "t", "--from", "yesterday"],
        ["consume", "-t", "t", "--sql", "a > 1", "--tag", "x"],
        ["admin", "resetOffsetByTime", "-g", "g", "-t", "t", "-s", "yesterday"],
        ["admin", "topicStatus", "-t", "no topic"],
    ],
)
def test_wrong_usage_ends_with_two(shell: Shell, words: list[str]) -> None:
    code, out, err = shell.run(*words)
    assert (code, out, err.count("\n")) == (2, "", 1), err


def test_consume_says_why_it_ends(shell: Shell) -> None:
    words = "topic nobody-knows can not be consumed"
    shell.says_in_time(words, "consume", "-t", "nobody-knows")
    shell.well("produce", "-t", "why", "x")
    code, _, err = shell.run("consume", "-t", "why", "--sql", "price > > 3", "-g", "why")
    assert (code, err.count("line 1, column")) == (1, 1), err
    words = "no answer from 127.0.0.1:1: cannot connect"
    shell.says_in_time(words, "consume", "-t", "why", "-n", "127.0.0.1:1")


def test_groups_and_brokers_are_seen_and_moved(shell: Shell) -> None:
    shell.well("admin", "updateTopic", "-t", "moved", "-w", "2")
    shell.well("produce", "-t", "moved", "x", "--count", "4")
    take = ("consume", "-t", "moved", "-g", "movers", "--count", "4", "--seconds", "20")
    shell.well(*take)
    rows = json.loads(
        shell.well("admin", "consumerProgress", "-g", "movers", "-t", "moved", "--json")
    )
    assert [row["diff"] for row in rows] == [0, 0]
    for words in (("-g", "never-was"), ("-g", "never-was", "-t", "moved")):
        code, out, err = shell.run("admin", "consumerProgress", *words)
        assert (code, out) == (1, "")
        assert "no broker that leads knows group never-was" in err
    assert "maxOffset" in shell.well("admin", "topicStatus", "-t", "moved")
    shell.well("admin", "resetOffsetByTime", "-g", "movers", "-t", "moved", "-s", "0")
    shell.well("admin", "cloneGroupOffset", "-s", "movers", "-d", "cloned", "-t", "moved")
    assert len(shell.well(*take).splitlines()) == 4
    code, _, err = shell.run("admin", "consumerConnection", "-g", "movers")
    assert (code, "nobody of group movers is connected" in err) == (1, True)
    assert "brokerVersionDesc" in shell.well("admin", "brokerStatus", "-b", shell.address)
    assert "brokerName" in shell.well("admin", "getBrokerConfig", "-b", shell.address)
    code, _, err = shell.run("admin", "topicStatus", "-t", "nobody-knows")
    assert (code, err.count("\n")) == (1, 1)
