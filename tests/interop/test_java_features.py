"""What applications do with the published Java clients 4.9.7 and 5.3.3, and a leader kill amid it.

Each program of tests/interop/java sends the first half of its messages; then the leader is killed,
and the group, the client and what is under way must get over it. What was acknowledged is judged by
the rules of its kind: delayed, retried, in order, to everybody, in a transaction, and so on.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import pytest

from bench import java
from bench.cluster import Cluster
from bench.processes import LOOPBACK
from tests.interop.java_program import HALF_S, REST_S, JavaProgram

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.slow]

IPV6 = "::1"
COUNT = 40
EARLY_MS = -1  # clocks of one machine, in whole milliseconds
SETTINGS = ["transactionTimeOut=1000", "transactionCheckInterval=1000"]


def runs(main: str, *hosts: str) -> pytest.MarkDecorator:
    """Say which Java program a test judges, and on which addresses the brokers listen."""
    ways = [(main, host) for host in hosts or (LOOPBACK,)]
    names = [f"{main}-IPv{6 if ':' in host else 4}" for _, host in ways]
    return pytest.mark.parametrize("program", ways, indirect=True, ids=names)


@pytest.fixture(scope="module", params=["4.9.7", "5.3.3"])
def tools(request: pytest.FixtureRequest) -> java.JavaTools:
    try:
        return java.prepare(request.param)
    except java.JavaUnavailableError as error:
        pytest.skip(f"interop with the Java client {request.param} skipped: {error}")


@pytest.fixture
def program(
    request: pytest.FixtureRequest, tools: java.JavaTools, tmp_path: Path
) -> Iterator[JavaProgram]:
    """Run the class that the test names; kill the leader after its first half."""
    main, host = request.param
    home = tmp_path / "cluster"
    with Cluster(home, replicas=3, sync_flush=False, settings=SETTINGS, host=host) as cluster:
        leader = cluster.leader()
        arguments = [cluster.namesrv_addr, f"{main.lower()}_topic", str(COUNT)]
        with JavaProgram(tools, f"ledgermq.{main}", arguments, tmp_path / "java.log") as running:
            running.wait_for(lambda: "HALF" in running.lines, HALF_S, "first half")
            cluster.kill(leader)
            running.go_on()
            running.wait_for(lambda: "SENT" in running.lines, REST_S, "second half")
            assert cluster.leader() != leader
            assert running.words("ERR") == []
            yield running


def all_of(program: JavaProgram, who: str) -> None:
    """Wait until ``who`` got all that was acknowledged."""
    program.wait_for(
        lambda: set(program.firsts("ACK")) <= {w[1] for w in program.words("GOT") if w[0] == who},
        REST_S,
        f"delivery of everything to {who}",
    )


@runs("Styles")
def test_batches_asynchronous_and_oneway_sends_come_all(
    program: JavaProgram, request: pytest.FixtureRequest
) -> None:
    all_of(program, "c")
    kinds = Counter(body.split("-")[0] for body in program.firsts("ACK"))
    assert kinds == {"styles": 1, "batch": 3 * COUNT, "async": COUNT, "oneway": COUNT}
    came = defaultdict(set)
    for words in program.words("GOT"):
        came[words[1]].add(words[4])
    for stem, ids in program.words("IDS"):
        told = ids.split(",")
        assert len(set(told)) == 3
        if "5.3.3" in request.node.name:  # It gives the batch an id, behind those of its messages.
            assert set.intersection(*(came[f"{stem}{place}"] for place in range(3)))
        else:
            assert all(one in came[f"{stem}{place}"] for place, one in enumerate(told)), ids


@runs("Delay")
def test_delayed_messages_come_all_and_not_early(program: JavaProgram) -> None:
    all_of(program, "c")
    lateness = [int(words[4]) for words in program.words("GOT")]
    assert len(program.firsts("ACK")) == 1 + COUNT
    assert min(lateness) >= EARLY_MS, lateness


@runs("Retry")
def test_failed_messages_come_again_or_become_dead_letters(program: JavaProgram) -> None:
    odd = {f"retry-{i}" for i in range(1, COUNT, 2)}
    even = {"retry-first"} | {f"retry-{i}" for i in range(0, COUNT, 2)}

    def attempts(kind: set[str]) -> dict[str, set[int]]:
        seen = defaultdict(set)
        for who, body, _, times, _ in program.words("GOT"):
            if who == "c" and body in kind:
                seen[body].add(int(times))
        return seen

    def dead() -> set[str]:
        return {words[1] for words in program.words("GOT") if words[0] == "dead"}

    program.wait_for(lambda: odd <= dead(), REST_S, "dead letters")
    program.wait_for(
        lambda: all(attempts(even)[body] >= {0, 1} for body in even), REST_S, "second attempts"
    )
    assert dead() == odd
    assert all(attempts(odd)[body] == {0, 1, 2} for body in odd), attempts(odd)
    assert {words[4] for words in program.words("GOT")} == {"retry_topic"}


@runs("Orderly")
def test_messages_of_a_key_come_in_order(program: JavaProgram) -> None:
    all_of_both(program)
    newest: dict[str, int] = {}
    for _, body, *_ in program.words("GOT"):
        key, _, number = body.partition(":")
        if not number:
            continue
        before = newest.get(key, -1)
        # What comes again comes again in order; what is new comes after all before it.
        assert int(number) <= before + 8 if before >= 0 else int(number) == int(key), program.words(
            "GOT"
        )
        newest[key] = max(before, int(number))
    assert {words[0] for words in program.words("GOT")} == {"a", "b"}


def all_of_both(program: JavaProgram) -> None:
    """Wait until the members got all that was acknowledged, between them."""
    program.wait_for(
        lambda: set(program.firsts("ACK")) <= {words[1] for words in program.words("GOT")},
        REST_S,
        "delivery of everything",
    )


@runs("Broadcast")
def test_each_member_of_a_broadcast_gets_everything(program: JavaProgram) -> None:
    all_of(program, "a")
    all_of(program, "b")


@runs("Transact", LOOPBACK, IPV6)
def test_committed_transactions_come_once_and_others_never(program: JavaProgram) -> None:
    assert len(program.firsts("ACK")) == 1 + COUNT
    wanted = {f"transact-{i}" for i in range(COUNT) if i % 5 in {0, 1, 3}} | {"transact-first"}
    program.wait_for(
        lambda: wanted <= {words[1] for words in program.words("GOT")}, REST_S, "transactions"
    )
    asked = Counter(program.firsts("CHECK"))
    got = Counter((words[1], words[2], words[4]) for words in program.words("GOT"))
    assert {body for body, _, _ in got} == wanted
    assert len(got) == len(wanted), "a transaction has two copies"
    assert all(asked[f"transact-{i}"] >= 2 for i in range(3, COUNT, 5)), asked
    assert all(asked[f"transact-{i}"] >= 1 for i in range(4, COUNT, 5)), asked


@runs("Ask", LOOPBACK, IPV6)
def test_a_request_gets_its_reply(program: JavaProgram) -> None:
    replies = dict(tuple(words[:2]) for words in program.words("REPLY"))
    assert replies == {f"ask-{i}": f"re:ask-{i}" for i in range(COUNT)}


@runs("LitePull")
def test_the_lite_pull_consumer_polls_everything(program: JavaProgram) -> None:
    all_of(program, "c")


@runs("Pull")
def test_queues_are_pulled_by_hand_and_offsets_kept(program: JavaProgram) -> None:
    all_of(program, "c")
    offsets = Counter((words[2], words[4]) for words in program.words("GOT"))
    assert max(offsets.values()) == 1, "a queue was pulled twice from one offset"
    assert program.words("ILLEGAL") == []
    program.finish()
    assert program.firsts("COMMITTED") == program.firsts("END") == [str(1 + COUNT)]


@runs("Filter")
def test_members_get_what_their_tags_and_expressions_select(program: JavaProgram) -> None:
    wanted = {
        "tags": {i for i in range(COUNT) if i % 3 != 1},
        "sql": {i for i in range(10, 30) if i % 2 == 1 or i % 3 == 1},
    }

    def got(who: str) -> set[str]:
        return {words[1] for words in program.words("GOT") if words[0] == who}

    for who, numbers in wanted.items():
        bodies = {f"filter-{i}" for i in numbers}
        program.wait_for(lambda: bodies <= got(who), REST_S, f"what {who} selects")  # noqa: B023 - waited for here
    assert {who: got(who) for who in wanted} == {
        who: {f"filter-{i}" for i in numbers} for who, numbers in wanted.items()
    }


@runs("Manage", LOOPBACK, IPV6)
def test_the_admin_client_sees_and_moves_topics_groups_and_members(program: JavaProgram) -> None:
    told = {(when, name): answer for when, name, answer, *_ in program.words("CASE")}
    assert told == dict.fromkeys(told, "right"), program.words("CASE")
    both = {
        "create", "consumed", "stored", "progress", "lag", "members", "running", "stack", "status",
        "by-key", "by-offset-id", "by-unique-id", "direct", "direct-came", "reset", "came-again",
        "progress-again",
    }  # fmt: skip
    assert {name for when, name in told if when == "before"} == both
    idle = {"nobody", "reset-idle", "progress-idle", "came-to-another"}
    assert {name for when, name in told if when == "after"} == both | idle


@runs("Rebalance")
def test_three_members_share_the_queues_and_two_take_over(program: JavaProgram) -> None:
    all_of_both(program)

    def shared(members: int) -> bool:
        """Say whether so many members held all queues between them, each by one, for 2 s."""
        rows = [words[1:] for words in program.words("OWN") if words[0] == str(members)]
        for row in rows[-4:]:
            held = [queue for name in row for queue in name.split("=")[1].strip("[]").split(",")]
            if sorted(held) != [str(queue) for queue in range(4)]:
                return False
        return len(rows) >= 4

    program.wait_for(lambda: shared(2), 60, "a share for each of two members")
    assert shared(3), program.words("OWN")


@runs("Trace")
def test_sends_and_consumptions_leave_their_trace(
    program: JavaProgram, request: pytest.FixtureRequest
) -> None:
    all_of(program, "c")
    ids = {words[1] for words in program.words("ID")[: COUNT // 2]}
    traces = program.words("TRACE")
    kinds = [("Pub", 5), ("SubBefore", 5), ("SubAfter", 2)]
    # 5.3.3 traces consumption only of messages that name a region: brokers of 4.9 store none.
    for kind, field in kinds if "4.9.7" in request.node.name else kinds[:1]:
        assert ids <= {words[field] for words in traces if words[0] == kind}, (kind, traces[:9])
