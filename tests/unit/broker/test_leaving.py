"""What becomes of the locks of an orderly consumer that leaves its group."""

from __future__ import annotations

import asyncio
import json

import msgspec
import pytest

from broker.state.queue_lock import LEFT_MAX
from broker.state.subscription import GroupChange, SubscriptionGroupConfig
from ledgermq.remoting.protocol.codes import LanguageCode
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.broker.fakes import FakeConnection, frame, request
from tests.unit.broker.test_processors import Bench, granted, lock_request

LEFT_MS, AGAIN_MS = 1_000, 2_000


def join(
    bench: Bench,
    number: int,
    language: LanguageCode = LanguageCode.JAVA,
    client_id: str = "",
) -> FakeConnection:
    """Have a client say that it is in the group."""
    connection = FakeConnection(number)
    say(bench, connection, language, client_id)
    bench.work()
    return connection


def say(
    bench: Bench,
    connection: FakeConnection,
    language: LanguageCode = LanguageCode.JAVA,
    client_id: str = "",
) -> None:
    """Send its heartbeat; a group that is new is not made before the bench works."""
    group = {
        "groupName": "g", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [],
    }  # fmt: skip
    name = client_id or f"c{connection.id}"
    body = {"clientID": name, "producerDataSet": [], "consumerDataSet": [group]}
    heartbeat = frame(34, json.dumps(body).encode())
    heartbeat.header = heartbeat.header.replace(b"JAVA", language.name.encode())
    bench.client.handle_heartbeat(connection, heartbeat)


def leave(bench: Bench, connection: FakeConnection) -> None:
    """Have a client leave the group, a while after it has locked."""
    bench.clock.now_ms += LEFT_MS
    farewell = request(35, clientID=f"c{connection.id}", consumerGroup="g")
    assert bench.client.handle_unregister(connection, farewell).code == 0


def ask(bench: Bench, client_id: str) -> int:
    """Ask for the lock; return how many queues are granted."""
    return granted(asyncio.run(bench.lock.handle_lock(None, lock_request(41, client_id))))


def granted_behind(language: LanguageCode) -> int:
    """Return what another member gets once one has left that held the lock."""
    bench = Bench()
    first, _ = join(bench, 1, language), join(bench, 2)
    assert ask(bench, "c1") == 1
    assert ask(bench, "c2") == 0
    leave(bench, first)
    return ask(bench, "c2")


def granted_once_it_is_back() -> int:
    """Return what another member gets while one holds the lock that was away before.

    Its heartbeat has not come here yet.
    """
    bench = Bench()
    first = join(bench, 1)
    assert ask(bench, "c1") == 1
    leave(bench, first)
    bench.clock.now_ms += AGAIN_MS
    assert ask(bench, "c1") == 1
    return ask(bench, "c2")


def granted_once_it_is_back_before_it_left(*numbers: int) -> int:
    """Return what another member gets while one holds the lock whose leaving was late.

    This replica applies the lock, and hears then of the leaving, on the first connection, and of
    the return, on the second one.
    """
    bench = Bench()
    first = join(bench, 1)
    assert ask(bench, "c1") == 1
    events = {0: lambda: leave(bench, first), 1: lambda: join(bench, 3, client_id="c1")}
    for number in numbers:
        events[number]()
    return ask(bench, "c2")


@pytest.mark.parametrize("language", [LanguageCode.JAVA, LanguageCode.CPP])
def test_a_client_that_has_left_holds_no_queue_whose_release_was_lost(
    language: LanguageCode,
) -> None:
    assert granted_behind(language) == 1


@pytest.mark.parametrize("language", [LanguageCode.PYTHON, LanguageCode.GO, LanguageCode.RUST])
def test_a_client_that_releases_nothing_keeps_what_its_listener_still_has(
    language: LanguageCode,
) -> None:
    """Go's left without a release before 2.1.2, with its listener at work."""
    assert granted_behind(language) == 0


def test_a_client_that_comes_back_holds_what_it_locks_then() -> None:
    assert granted_once_it_is_back() == 0


def test_a_client_that_was_back_before_its_leaving_was_heard_holds_what_it_has() -> None:
    assert granted_once_it_is_back_before_it_left(0) == 1
    assert granted_once_it_is_back_before_it_left(0, 1) == 0
    assert granted_once_it_is_back_before_it_left(1, 0) == 0


def test_a_connection_of_before_that_broke_unseen_keeps_nothing() -> None:
    bench = Bench()
    join(bench, 1)
    again = join(bench, 3, client_id="c1")
    assert ask(bench, "c1") == 1
    leave(bench, again)
    assert ask(bench, "c2") == 1


def test_only_a_member_leaves() -> None:
    bench = Bench()
    join(bench, 1)
    assert ask(bench, "c1") == 1
    leave(bench, FakeConnection(2))
    assert ask(bench, "c2") == 0


def test_a_lost_connection_frees_nothing() -> None:
    bench = Bench()
    first = join(bench, 1)
    assert ask(bench, "c1") == 1
    bench.clock.now_ms += LEFT_MS
    bench.client.on_close(first)
    assert ask(bench, "c2") == 0


def test_only_some_of_those_that_left_are_remembered() -> None:
    bench = Bench()
    assert ask(bench, "c0") == 1
    for number in range(LEFT_MAX + 1):
        bench.tables.locks.leave("g", f"c{number}", LEFT_MS)
        bench.tables.locks.leave("another", f"c{number}", LEFT_MS)
    assert len(bench.tables.locks._left) == LEFT_MAX
    assert ask(bench, "c1") == 0


def test_planted_bugs_of_leaving_are_found_here() -> None:
    with planted(BY_TESTS["leaving-frees-what-is-in-hand"]):
        assert granted_behind(LanguageCode.PYTHON) == 1
    with planted(BY_TESTS["once-left-for-ever"]):
        assert granted_once_it_is_back() == 1
    with planted(BY_TESTS["left-though-it-is-back"]):
        assert granted_once_it_is_back_before_it_left(0, 1) == 1
    with planted(BY_TESTS["late-leaving-frees-what-is-held-again"]):
        assert granted_once_it_is_back_before_it_left(1, 0) == 1


def members_of_a_new_group(steps: str) -> list[str]:
    """Return who is in a group once it is made: + joins meanwhile, - leaves."""
    bench, connection = Bench(), FakeConnection(1)
    for step in steps:
        if step == "+":
            say(bench, connection)
        else:
            leave(bench, connection)
    bench.work()
    assert [answer.code for answer in connection.answers] == [0] * steps.count("+")
    assert bench.tables.groups.get("g") is not None
    return bench.tables.consumers.client_ids("g")


@pytest.mark.parametrize(
    ("steps", "members"), [("+", ["c1"]), ("+-", []), ("+-+", ["c1"]), ("++-", []), ("-+", ["c1"])]
)
def test_who_leaves_a_group_that_is_being_made_is_no_member_of_it(
    steps: str, members: list[str]
) -> None:
    assert members_of_a_new_group(steps) == members


def test_a_planted_member_that_has_left_before_it_was_one_is_noticed() -> None:
    with planted(BY_TESTS["left-before-it-was-in"]):
        assert members_of_a_new_group("+-") == ["c1"]


def test_members_of_a_quiet_group_are_told_of_one_that_is_lost() -> None:
    """As RocketMQ's: what says that they are not told is asked for joining and leaving alone."""
    bench = Bench()
    first, second, third = (join(bench, number) for number in (1, 2, 3))
    groups = bench.tables.groups
    quiet = SubscriptionGroupConfig(group_name="g", notify_consumer_ids_changed_enable=False)
    groups.apply(msgspec.json.encode(GroupChange(quiet, 1)))
    first.sent.clear()
    leave(bench, second)
    join(bench, 4)
    assert first.sent == []
    bench.client.on_close(third)
    assert [command.code for command in first.sent] == [40]
    assert bench.tables.consumers.client_ids("g") == ["c1", "c4"]
