"""Who may change the settings of topics where a key is set."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mutants.patches import ALL
from mutants.planting import planted
from tests.unit.broker.fakes import FakeConnection
from tests.unit.broker.test_guard import KEY
from tests.unit.broker.test_processors import Bench, topic_request

if TYPE_CHECKING:
    from ledgermq.remoting.protocol.command import RemotingCommand


def with_a_key(*requests: RemotingCommand) -> list[int]:
    """Return the codes of the answers of a broker that has a key, to somebody who has not."""
    bench = Bench(shared_key=KEY)
    connection = FakeConnection()
    return [asyncio.run(bench.admin.handle_update_topic(connection, one)).code for one in requests]


MORE = ({"topic": "new"}, {"readQueueNums": 9, "writeQueueNums": 9}, {})
LESS = (
    {"perm": 4}, {"readQueueNums": 0}, {"writeQueueNums": 3}, {"order": "true"},
    {"topic": "%RETRY%g", "perm": 4}, {"topic": "%DLQ%g"},
)  # fmt: skip


def test_who_has_no_key_takes_nothing_away_from_others() -> None:
    assert with_a_key(*(topic_request(**fields) for fields in MORE[:1] + MORE[2:])) == [0, 0]
    assert with_a_key(topic_request(**MORE[1])) == [0]
    assert with_a_key(*(topic_request(**fields) for fields in LESS)) == [16] * len(LESS)


def test_planted_settings_that_anybody_changes_are_found_here() -> None:
    with planted(ALL["settings-are-anybody-s"]):
        assert with_a_key(*(topic_request(**fields) for fields in LESS)) == [0] * len(LESS)
