"""What the answer to one put raises is told and survived; what the log's own work raises is not."""

import asyncio

import pytest

from ledgermq.runtime.errors import FatalError
from ledgermq.runtime.tasks import SERVING
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.results import PutStatus
from store.write.uncommitted import OwnMessage, OwnState, Uncommitted
from tests.unit.store.fakes import FakeNode, World, batch_of, message


def fail(*_result):
    raise AssertionError("of an answer")


def answers_of_the_others(put):
    """Return what was answered around a put whose answer raises, and what the loop was told."""
    told = []

    async def run():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context))
        world = World().begin()
        world.node.lead()
        world.put("before")
        put(world.store)
        world.put("after")
        world.node.commit()
        world.turns()
        assert world.fatal == []
        assert world.applied_index == world.node.end_index
        return [(name, status) for name, status, *_ in world.take_answers()]

    return asyncio.run(run()), told


PUTS = {
    "one": lambda store: store.writer.put(message(), fail),
    "batch": lambda store: store.writer.put_batch(batch_of([message(), message()]), fail),
    "state": lambda store: store.writer.propose_state("TOPIC", b"{}", fail),
}


@pytest.mark.parametrize("put", PUTS.values(), ids=PUTS)
def test_an_answer_that_raises_blocks_no_other(put):
    answers, told = answers_of_the_others(put)
    assert answers == [("before", PutStatus.OK), ("after", PutStatus.OK)]
    assert [(SERVING in one, str(one["exception"])) for one in told] == [(True, "of an answer")]


def test_without_that_dispatching_breaks():
    with planted(BY_TESTS["answer-breaks-dispatch"]), pytest.raises(AssertionError):
        answers_of_the_others(PUTS["one"])


def test_puts_that_lose_the_leadership_are_all_answered():
    async def run():
        told = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        world = World().begin()
        world.node.lead()
        world.store.writer.put(message(), fail)
        world.store.writer.propose_state("TOPIC", b"{}", fail)
        world.put("after")
        world.node.follow(truncate=False)
        assert [(name, status) for name, status, *_ in world.take_answers()] == [
            ("after", PutStatus.UNKNOWN)
        ]
        assert len(told) == 2

    asyncio.run(run())


def broken(*_args):
    raise AssertionError("of the log")


def put_that_breaks_the_log(kind):
    node = FakeNode()
    node.append = node.append_batch = broken
    world = World(node=node).begin()
    node.lead()
    PUTS[kind](world.store)


@pytest.mark.parametrize("kind", PUTS)
def test_a_broken_invariant_of_the_log_is_fatal(kind):
    with pytest.raises(FatalError, match="of the log"):
        put_that_breaks_the_log(kind)


def test_without_that_it_would_be_the_failure_of_one_request():
    with planted(BY_TESTS["invariant-of-the-log-is-answered"]), pytest.raises(AssertionError):
        put_that_breaks_the_log("one")


@pytest.mark.parametrize("kind", ["one", "batch"])
def test_content_that_trips_a_put_leaves_the_log_as_it_was(kind, monkeypatch):
    world = World(delay_levels_ms=(1000,)).begin()
    world.node.lead()
    last = world.node.end_index
    odd = message(topic="SCHEDULE_TOPIC_XXXX")
    monkeypatch.setattr("store.write.commit_log.delivery_code", broken)
    with pytest.raises(FatalError):
        world.store.writer.put_batch(
            batch_of([odd, odd]), fail
        ) if kind == "batch" else world.store.writer.put(odd, fail)
    assert world.node.end_index == last
    world.put()
    world.node.commit()
    assert [(status, offset) for _, status, offset, _ in world.take_answers()] == [
        (PutStatus.OK, 0)
    ]


def test_what_a_snapshot_stands_for_is_answered_and_forgotten():
    """A record that is committed, and that a snapshot jumps over, is never applied here."""
    uncommitted, heard = Uncommitted(48), []
    for physical in (100, 300):
        uncommitted.add_state(OwnState(physical, 50, "k", b"", heard.append))
    uncommitted.acknowledge(400)
    assert heard == []
    uncommitted.forget_before(200)
    assert heard == [PutStatus.UNKNOWN]
    assert uncommitted.take_state(100) is None
    assert uncommitted.take_state(300) is not None


def own_message(physical, heard):
    return OwnMessage(
        physical, None, 0, 10, 0, (b"", b"", 0, 0, 0), lambda *what: heard.append(what)
    )


def expire(uncommitted, now_ms):
    uncommitted.expire(now_ms, 1_000, PutStatus.QUORUM_TIMEOUT)


def test_what_was_answered_late_is_not_gone_through_at_each_tick(monkeypatch):
    """With 64 MiB of small messages waiting, that took all of a broker's time."""
    uncommitted, heard, asked = Uncommitted(0), [], []
    for number in range(100):
        uncommitted.add(own_message(10 * number, heard))
    expire(uncommitted, 0)
    uncommitted.add(own_message(1_000, heard))
    answer = OwnMessage.answer
    monkeypatch.setattr(
        OwnMessage, "answer", lambda own, status: asked.append(own) or answer(own, status)
    )
    for now_ms in range(1_000, 2_000, 100):
        expire(uncommitted, now_ms)
    assert len(heard) == len(asked) == 100
    expire(uncommitted, 2_000)
    assert len(heard) == len(asked) == 101


@pytest.mark.parametrize("given_up", [True, False])
def test_what_comes_to_the_place_of_what_was_answered_late_is_late_in_its_turn(given_up):
    uncommitted, heard = Uncommitted(0), []
    uncommitted.add(own_message(0, heard))
    uncommitted.add(own_message(10, heard))
    expire(uncommitted, 0)
    expire(uncommitted, 1_000)
    assert len(heard) == 2
    if given_up:
        uncommitted.abandon()
    else:
        uncommitted.forget_from(10)
    uncommitted.add(own_message(10, heard))
    expire(uncommitted, 1_100)
    assert len(heard) == 2
    expire(uncommitted, 2_100)
    assert len(heard) == 3
