"""A queue that changes hands: who claims it is told of the member that holds it still."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker.fair_share import FairShare
from broker.groups.claims import ClaimedQueue, Claims
from broker.groups.client_registry import Client
from ledgermq.remoting.protocol.errors import InvalidHeader
from ledgermq.remoting.protocol.headers import Claim
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.broker.fakes import FakeConnection, frame, request
from tests.unit.broker.test_processors import QUEUE, Bench

if TYPE_CHECKING:
    from collections.abc import Mapping

FIRST, SECOND = FakeConnection(1), FakeConnection(2)


@pytest.fixture
def bench() -> Bench:
    """Return a broker with two members of one group."""
    made = Bench()
    made.beat(FIRST, "first")
    made.beat(SECOND, "second")
    return made


def ask(bench: Bench, connection: FakeConnection, claim: str | None, **more: object) -> str | None:
    """Ask for an offset; return who is said to hold the queue."""
    fields = QUEUE | {"setZeroIfNotFound": "false"} | more
    if claim is not None:
        fields["claim"] = claim
    answer = bench.offset.handle_query(connection, request(14, **fields))
    assert answer is not None
    told: Mapping[str, str] = answer.ext_fields or {}
    return told.get("heldBy")


def commit(bench: Bench, connection: FakeConnection, offset: int, claim: str | None) -> int:
    """Commit an offset; return the code of the answer."""
    more = {} if claim is None else {"claim": claim}
    bench.offset.handle_update(connection, frame(15, commitOffset=offset, **QUEUE, **more))
    bench.work()
    return connection.answers[-1].code


def test_who_claims_a_queue_that_another_member_holds_is_told_of_it(bench: Bench) -> None:
    assert ask(bench, FIRST, "ifFree") is None
    assert ask(bench, SECOND, "ifFree") == "first"
    assert ask(bench, FIRST, "ifFree") is None
    assert ask(bench, SECOND, "ifFree", queueId=1) is None


def test_what_the_holder_commits_last_is_told_with_the_queue(bench: Bench) -> None:
    ask(bench, FIRST, "ifFree")
    assert commit(bench, FIRST, 7, "none") == 0
    answer = bench.offset.handle_query(SECOND, request(14, claim="ifFree", **QUEUE))
    assert answer is not None
    assert answer.ext_fields == {"offset": "7"}
    assert ask(bench, FIRST, "ifFree") == "second"


def test_who_has_nothing_to_commit_lets_go_with_a_question(bench: Bench) -> None:
    ask(bench, FIRST, "ifFree")
    assert ask(bench, SECOND, "none") is None
    assert ask(bench, SECOND, "ifFree") == "first"
    assert ask(bench, FIRST, "none") is None
    assert ask(bench, SECOND, "ifFree") is None


def test_a_commit_claims_anew_after_a_change_of_leader_but_takes_nothing(bench: Bench) -> None:
    assert commit(bench, FIRST, 3, "ifFree") == 0
    assert ask(bench, SECOND, "ifFree") == "first"
    assert commit(bench, SECOND, 3, "ifFree") == 0
    assert ask(bench, SECOND, "ifFree") == "first"


def test_who_has_waited_long_enough_takes_the_queue(bench: Bench) -> None:
    ask(bench, FIRST, "ifFree")
    assert ask(bench, SECOND, "anyway") is None
    assert ask(bench, FIRST, "none") is None
    assert ask(bench, FIRST, "ifFree") == "second"


def test_claims_end_with_the_membership(bench: Bench) -> None:
    ask(bench, FIRST, "ifFree")
    bench.tables.consumers.close(FIRST.id)
    assert len(bench.tables.consumers.claims) == 0
    assert ask(bench, SECOND, "ifFree") is None
    bench.beat(SECOND, "renamed")
    assert len(bench.tables.consumers.claims) == 0


def test_a_client_on_a_new_connection_does_not_wait_for_itself(bench: Bench) -> None:
    ask(bench, FIRST, "ifFree")
    again = FakeConnection(3)
    bench.beat(again, "first")
    assert ask(bench, again, "ifFree") is None
    bench.tables.consumers.close(FIRST.id)
    assert ask(bench, SECOND, "ifFree") == "first"


def test_only_members_claim_and_only_queues_that_are_there(bench: Bench) -> None:
    stranger = FakeConnection(9)
    assert ask(bench, stranger, "ifFree") is None
    assert ask(bench, stranger, "none") is None
    for where in ({"queueId": 4}, {"queueId": -1}, {"topic": "unknown"}):
        ask(bench, FIRST, "ifFree", **where)
    assert len(bench.tables.consumers.claims) == 0


def test_who_claims_nothing_is_told_of_nobody(bench: Bench) -> None:
    ask(bench, FIRST, "ifFree")
    assert ask(bench, SECOND, None) is None
    assert commit(bench, SECOND, 5, None) == 0
    assert ask(bench, SECOND, "ifFree") == "first"


def test_an_unknown_claim_is_refused(bench: Bench) -> None:
    with pytest.raises(InvalidHeader, match="claim"):
        ask(bench, FIRST, "perhaps")


def test_claims_without_room_are_not_kept_and_hinder_nobody() -> None:
    claims = Claims()
    claims._room = FairShare(8)
    greedy = Client(FIRST, "first", 0, 407, 0, holder="10.0.0.1")
    other = Client(SECOND, "second", 0, 407, 0, holder="10.0.0.2")
    queues = [ClaimedQueue("g", "T", number) for number in range(4)]
    assert [claims.take(queue, greedy, anyway=False) for queue in queues] == [None] * 4
    assert len(claims) == 1
    assert claims.take(queues[0], other, anyway=False) is greedy
    assert claims.take(queues[1], other, anyway=False) is None
    claims.end_all("g", greedy)
    claims.end_all("g", other)
    assert (len(claims), claims._room.used, claims._of) == (0, 0, {})


def test_the_names_of_claims_are_those_of_the_wire() -> None:
    assert [claim.value for claim in Claim] == ["ifFree", "anyway", "none"]


def test_a_broker_that_names_no_holder_is_found_out(bench: Bench) -> None:
    with planted(BY_TESTS["holder-of-a-queue-not-named"]):
        ask(bench, FIRST, "ifFree")
        assert ask(bench, SECOND, "ifFree") is None


def test_a_claim_that_outlives_its_member_is_found_out(bench: Bench) -> None:
    with planted(BY_TESTS["claim-of-one-gone-kept"]):
        ask(bench, FIRST, "ifFree")
        bench.tables.consumers.close(FIRST.id)
        assert ask(bench, SECOND, "ifFree") == "first"
