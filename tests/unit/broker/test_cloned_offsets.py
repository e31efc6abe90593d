"""314 while the leadership goes: what was dropped is not told as copied."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import msgspec
import pytest

from broker.limits import WALKS_MAX
from broker.processor.other_groups import OtherGroupsProcessor
from broker.state.consumer_offset import ConsumerOffsetTable
from broker.stats.walks import Walks
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.runtime.clock import SystemClock
from mutants.patches import BY_TESTS
from mutants.planting import planted

CLONE = RemotingCommand(
    314, ext_fields={"srcGroup": "from", "destGroup": "to", "offline": "true", "topic": "T"}
)
QUEUES = 4


def processor(offsets, connected=None):
    """Answer for one topic; ``connected`` says to what connected groups subscribe."""
    topic = SimpleNamespace(queues=QUEUES)
    live = {
        name: SimpleNamespace(subscriptions=dict.fromkeys(topics))
        for name, topics in (connected or {}).items()
    }
    store = SimpleNamespace(min_offset=lambda _topic, _queue_id: 0)
    tables = SimpleNamespace(
        offsets=offsets, commits=offsets, topics={"T": topic},
        groups=SimpleNamespace(get=lambda _name: object()),
        consumers=SimpleNamespace(get=live.get),
    )  # fmt: skip
    return OtherGroupsProcessor(tables, store, Walks(SystemClock()), lambda _group: True)


def source():
    offsets = ConsumerOffsetTable()
    for queue_id in range(QUEUES):
        offsets.commit("from", "T", queue_id, 7)
    apply(offsets)
    return offsets


def apply(offsets) -> None:
    for payload in offsets.take_proposals(None):
        offsets.apply(payload)


def answer_after(happens) -> tuple[int, str | None]:
    """Return the answer of a leader to which something happens once it has taken the offsets."""

    async def run():
        offsets = source()
        asked = asyncio.ensure_future(processor(offsets).handle_clone(None, CLONE))
        while offsets.pending_offset("T@to", QUEUES - 1) is None:
            await asyncio.sleep(0)
        happens(offsets)
        answer = await asked
        return answer.code, answer.remark

    return asyncio.run(run())


def dropped_is_not_told_as_copied() -> bool:
    code, remark = answer_after(lambda offsets: offsets.drop_pending())
    return code == 1 and "outcome unknown" in (remark or "")


def test_what_was_applied_is_told_and_what_was_dropped_is_not():
    assert answer_after(apply) == (0, None)
    assert dropped_is_not_told_as_copied()


def test_nothing_more_is_taken_once_the_leadership_is_lost():
    """It would be pending on a follower, and proposed whenever that leads again."""
    offsets = source()

    def drop_at_the_second(group, topic, queue_id, offset, commit=offsets.commit):
        if queue_id == 1:
            offsets.drop_pending()
        return commit(group, topic, queue_id, offset)

    found = processor(offsets)
    found._tables.commits = SimpleNamespace(commit=drop_at_the_second)
    assert asyncio.run(found.handle_clone(None, CLONE)).code == 1
    assert offsets.pending_offset("T@to", QUEUES - 1) is None


def copied_before_its_turn() -> int | None:
    """Lose the leadership while a copy waits for its turn; return what is pending then."""

    async def run():
        offsets = source()
        found = processor(offsets)
        found._walks.running = WALKS_MAX
        asked = asyncio.ensure_future(found.handle_clone(None, CLONE))
        await asyncio.sleep(0)
        assert found._walks.waiting == 1
        offsets.drop_pending()
        found._walks._end()
        answer = await asked
        assert (answer.code, "leader" in answer.remark) == (1, True)
        return offsets.pending_offset("T@to", 0)

    return asyncio.run(run())


def test_nothing_is_taken_where_the_leadership_is_lost_before_its_turn():
    assert copied_before_its_turn() is None
    with planted(BY_TESTS["copied-behind-the-term"]):
        assert copied_before_its_turn() is not None


def test_the_planted_bug_is_found():
    with planted(BY_TESTS["told-as-copied-when-dropped"]):
        assert not dropped_is_not_told_as_copied()


@pytest.mark.parametrize(
    ("connected", "is_copied"),
    [
        ({}, True),
        ({"from": ["T"], "to": ["U"]}, True),
        ({"from": [], "to": ["U"]}, True),
        ({"to": ["U"]}, True),
        ({"from": ["U"]}, False),
        ({"from": ["U"], "to": ["T"]}, False),
    ],
)
def test_what_the_source_no_longer_subscribes_to_is_not_copied(
    connected: dict[str, list[str]], is_copied: bool
) -> None:
    """As 4.9.7 answered; it asks the source, not the target, and only one that is connected."""
    fields = {"srcGroup": "from", "destGroup": "to", "offline": "false", "topic": "T"}

    async def run() -> bool:
        offsets = source()
        command = RemotingCommand(314, ext_fields=fields)
        asked = asyncio.ensure_future(processor(offsets, connected).handle_clone(None, command))
        while not asked.done():
            await asyncio.sleep(0)
            apply(offsets)
        assert (await asked).code == 0
        return offsets.query("to", "T", 0) == 7

    assert asyncio.run(run()) is is_copied


@pytest.mark.parametrize(("own", "told"), [(5, 5), (7, 7), (9, 7), (-1, 7), (-5, 7)])
def test_a_group_without_an_offset_is_behind_nobody(own: int, told: int) -> None:
    """A negative offset is none, as 4.9.7 answered 308."""
    offsets = source()
    offsets.commit("other", "T", 0, own)
    fields = {"topic": "T", "compareGroup": "other"}
    command = RemotingCommand(308, ext_fields=fields)
    answer = asyncio.run(processor(offsets).handle_correction(None, command))
    assert msgspec.json.decode(answer.body)["correctionOffsets"]["0"] == told
