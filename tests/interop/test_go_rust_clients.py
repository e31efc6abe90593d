"""The published Go and Rust clients against our group: each kind of message, and a leader kill.

Each is driven by a small program of ours that says the same lines. Their libraries come from the
languages' registries; where there is no compiler, or no registry, the tests are skipped and say so.
The clients poll their routes every 30 s: they find a new leader then.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.cluster import Cluster
from tests.interop.program import Program
from tests.interop.servers import OURS, SETTINGS, Server, topic_of

if TYPE_CHECKING:
    from collections.abc import Iterator

BUILD_S, SENT_S, GOT_S = 900, 120, 90
pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(BUILD_S + 300)]

ROOT = Path(__file__).resolve().parents[2]
COUNT = 20
PATIENT = (*SETTINGS, "transactionCheckMax=100")
"""Questions to a group that has not found the new leader count, and it may take 30 s to find it."""
EARLY_MS = -100  # the broker counts from when it stored the message, a moment before its answer


@dataclass(frozen=True)
class Driver:
    """The program that drives the client of one language."""

    language: str
    built: Path


@pytest.fixture(scope="module", params=["go", "rust"])
def driver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Driver:
    language: str = request.param
    folder = tmp_path_factory.mktemp(language)
    if language == "go":
        built = folder / "driver"
        command = ["go", "build", "-o", str(built), "."]
    else:  # 360 crates: what was built once is used again
        target = ROOT / "build" / "rust"
        built = target / "debug" / "driver"
        command = ["cargo", "build", "--target-dir", str(target)]
    if shutil.which(command[0]) is None:
        pytest.skip(f"interop with the {language} client skipped: no {command[0]} on the path")
    sources = folder / "sources"
    shutil.copytree(Path(__file__).parent / language, sources)
    done = subprocess.run(
        command, cwd=sources, capture_output=True, text=True, timeout=BUILD_S, check=False
    )
    is_ours = "main." in done.stderr  # an error in our program, not the net
    assert not done.returncode or not is_ours, done.stderr
    if done.returncode:
        pytest.skip(f"interop with the {language} client skipped: {done.stderr.strip()[-300:]}")
    return Driver(language, built)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("both") / "cluster"
    with Cluster(home, replicas=3, sync_flush=False, settings=SETTINGS) as running:
        running.leader()
        yield running


def start(driver: Driver, cluster: Cluster, kind: str, home: Path) -> Program:
    """Start the driver on a topic of its own; its client keeps its files below ``home``."""
    server = Server(OURS, cluster.namesrv_addr)
    topic = asyncio.run(topic_of(server, f"{driver.language}_{kind}"))
    command = [str(driver.built), kind, cluster.namesrv_addr, topic, str(COUNT)]
    return Program(command, home / f"{kind}.log", {**os.environ, "HOME": str(home)})


def got(program: Program) -> Counter[str]:
    return Counter(program.firsts("GOT"))


def played(program: Program, wanted: set[str]) -> None:
    """Let both halves be sent, and wait for what is to come; nothing else may."""
    program.wait_for(lambda: "HALF" in program.lines, SENT_S, "first half")
    program.go_on()
    program.wait_for(lambda: "SENT" in program.lines, SENT_S, "second half")
    program.wait_for(lambda: wanted <= set(got(program)), GOT_S, "delivery")
    assert program.words("ERR") == []
    assert set(got(program)) == wanted


def names(kind: str, numbers: range | list[int] = range(COUNT)) -> set[str]:
    return {f"{kind}-{number}" for number in numbers}


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [("plain", range(COUNT)), ("tags", range(1, COUNT, 2)), ("sql", range(10, COUNT))],
)
def test_the_client_gets_what_it_selects(
    driver: Driver, cluster: Cluster, tmp_path: Path, kind: str, numbers: range
) -> None:
    with start(driver, cluster, kind, tmp_path) as program:
        played(program, names(kind, numbers))
    assert max(got(program).values()) == 1


def test_the_client_consumes_in_order(driver: Driver, cluster: Cluster, tmp_path: Path) -> None:
    with start(driver, cluster, "orderly", tmp_path) as program:
        played(program, names("orderly"))
    numbers = [int(body.partition("-")[2]) for body in program.firsts("GOT")]
    for key in range(5):
        assert [one for one in numbers if one % 5 == key] == list(range(key, COUNT, 5))
    queues = {int(words[0].partition("-")[2]) % 5: words[1] for words in program.words("ACK")}
    for words in program.words("ACK"):
        assert words[1] == queues[int(words[0].partition("-")[2]) % 5]


def test_delayed_messages_of_the_client_are_not_early(
    driver: Driver, cluster: Cluster, tmp_path: Path
) -> None:
    with start(driver, cluster, "delay", tmp_path) as program:
        played(program, names("delay"))
    sent = {words[0]: int(words[2]) for words in program.words("ACK")}
    for words in program.words("GOT"):
        delay_ms = 1_000 if int(words[0].partition("-")[2]) % 2 == 0 else 5_000
        assert int(words[3]) - sent[words[0]] >= delay_ms + EARLY_MS, words


def test_messages_that_the_client_fails_come_again(
    driver: Driver, cluster: Cluster, tmp_path: Path
) -> None:
    with start(driver, cluster, "retry", tmp_path) as program:
        played(program, names("retry"))
        program.wait_for(lambda: min(got(program).values()) == 2, GOT_S, "second delivery")
    times = Counter((words[0], words[2]) for words in program.words("GOT"))
    assert times == {(body, n): 1 for body in names("retry") for n in ("0", "1")}


@pytest.mark.parametrize("driver", ["go"], indirect=True)
def test_requests_of_the_go_client_get_replies_without_a_body_too(
    driver: Driver, cluster: Cluster, tmp_path: Path
) -> None:
    """Its CreateReplyMessage leaves the body out; the program sets that of every second one."""
    with start(driver, cluster, "ask", tmp_path) as program:
        played(program, names("ask"))
        assert {words[0]: words[1] for words in program.words("REPLY")} == {
            f"ask-{i}": f"re:ask-{i}" if i % 2 == 0 else "" for i in range(COUNT)
        }


COMMITTED = [number for number in range(COUNT) if number % 5 in {0, 1, 3}]


def test_transactions_of_the_client_end_as_it_says(
    driver: Driver, cluster: Cluster, tmp_path: Path
) -> None:
    with start(driver, cluster, "transact", tmp_path) as program:
        played(program, names("transact", COMMITTED))
    assert {"transact-3", "transact-4"} <= set(program.firsts("CHECK"))
    assert max(got(program).values()) == 1


@pytest.mark.parametrize(("kind", "numbers"), [("plain", range(COUNT)), ("transact", COMMITTED)])
def test_the_client_gets_over_a_leader_kill(
    driver: Driver, tmp_path: Path, kind: str, numbers: range | list[int]
) -> None:
    home = tmp_path / "cluster"
    with Cluster(home, replicas=3, sync_flush=False, settings=PATIENT) as cluster:
        leader = cluster.leader()
        with start(driver, cluster, kind, tmp_path) as program:
            program.wait_for(lambda: "HALF" in program.lines, SENT_S, "first half")
            cluster.kill(leader)
            program.go_on()
            program.wait_for(lambda: "SENT" in program.lines, SENT_S, "second half")
            wanted = names(kind, numbers)
            program.wait_for(lambda: wanted <= set(got(program)), GOT_S, "delivery")
    assert set(got(program)) == wanted
