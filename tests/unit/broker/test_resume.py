"""A half that was put aside is opened anew by an administrator (323)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from broker.processor.resume import ResumeProcessor
from broker.sends.copy_budget import CopyBudget
from broker.transactions.takeover import HALF_TOPIC
from ledgermq.remoting.protocol.message import decode_record
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.results import PutStatus
from tests.unit.broker.fakes import FakeConnection, free_room, request
from tests.unit.broker.transactions import CHECK_MAX, INTERVAL_MS, PARK_TOPIC, Replica


def resume(leader: Replica, named: str) -> tuple[int, str | None]:
    """Ask for a half to be opened anew; return the answer."""
    budget = CopyBudget(lambda: 0)
    processor = ResumeProcessor(
        leader.world.store,  # type: ignore[arg-type]
        leader.service.let_in,
        budget,
        free_room(),
    )

    async def ask() -> tuple[int, str | None]:
        connection = FakeConnection()
        asked = asyncio.ensure_future(processor.handle(connection, request(323, msgId=named)))
        for _ in range(5):
            await asyncio.sleep(0)
        leader.commit()
        answer = await asked
        return answer.code, answer.remark

    return asyncio.run(ask())


def parked(leader: Replica) -> str:
    """Have a half put aside; return the offset message id of its copy."""
    leader.lead()
    leader.connect()
    leader.send()
    leader.wait(INTERVAL_MS * (CHECK_MAX + 1))
    assert leader.rows == []
    return next(one for one in leader.records if one.topic == PARK_TOPIC).offset_message_id()


def test_a_half_that_was_put_aside_can_be_committed_after_all() -> None:
    leader = Replica().begin()
    named = parked(leader)
    producer = leader.connect(number=2)
    assert resume(leader, named) == (0, None)
    (half,) = leader.rows
    assert (half.asked, producer.sent) == (0, [])
    leader.wait(INTERVAL_MS * 2)
    (question, *_) = producer.sent
    asked = decode_record(question.body)
    assert (asked.topic, asked.queue_id, asked.body) == ("orders", 2, b"pay")
    answers = leader.end(half)
    leader.commit()
    assert [one.code for one in answers] == [0]
    assert leader.copies() == [half.physical]
    assert leader.rows == []


def test_one_that_nobody_knows_the_end_of_is_put_aside_once_more() -> None:
    leader = Replica().begin()
    assert resume(leader, parked(leader)) == (0, None)
    (half,) = leader.rows
    leader.wait(INTERVAL_MS * (CHECK_MAX + 2))
    assert leader.rows == []
    assert leader.copies(PARK_TOPIC)[1:] == [half.physical]


def other_halves_resumed() -> list[int]:
    """Ask for what was not put aside, and for what is no message; return the codes."""
    leader = Replica().begin()
    parked(leader)
    (half,) = [one for one in leader.records if one.topic == HALF_TOPIC]
    names = [half.offset_message_id(), half.offset_message_id()[:-2], "x", "AB" * 16, ""]
    return [resume(leader, named)[0] for named in names]


def test_only_what_was_put_aside_is_opened_anew() -> None:
    assert other_halves_resumed() == [1] * 5
    with planted(BY_TESTS["any-half-resumed"]):
        assert other_halves_resumed() == [0, 1, 1, 1, 1]


def test_a_half_that_is_stored_late_is_not_asked_for_once_more() -> None:
    """A master whose slave is late says so of a message that is in its log: no second half."""
    leader = Replica().begin()
    named = parked(leader)
    late = SimpleNamespace(put=lambda _half, done: done(PutStatus.SLAVE_TIMEOUT, 1, 1))
    processor = ResumeProcessor(
        SimpleNamespace(reader=leader.world.store.reader, writer=late),  # type: ignore[arg-type]
        leader.service.let_in,
        CopyBudget(lambda: 0),
        free_room(),
    )
    answer = asyncio.run(processor.handle(FakeConnection(), request(323, msgId=named)))
    assert answer.code == 0


def test_who_leads_no_more_opens_nothing() -> None:
    leader = Replica().begin()
    named = parked(leader)
    leader.world.node.follow(truncate=False)
    assert resume(leader, named)[0] == 14
