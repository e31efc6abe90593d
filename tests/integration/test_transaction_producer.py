"""Transactions of our client against real brokers: every answer, lost leaders, lost producers."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from ledgermq.client import (
    ClientConfig,
    ConsumeContext,
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    HalfMessage,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    RemotingError,
    TransactionOptions,
    TransactionProducer,
    TransactionState,
)
from tests.integration.broker_cluster import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

TOPIC = "decided"
TIMES = {"transaction_timeout_ms": 300, "transaction_check_interval_ms": 300}
OPTIONS = ConsumeOptions(
    consume_from=ConsumeFrom.FIRST_OFFSET, suspend_ms=1_000, pull_timeout_ms=5_000
)
AT_ONCE = TransactionOptions(check_immunity_s=0)
COMMIT, ROLLBACK, UNKNOWN = (
    TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN,
)  # fmt: skip


class Database:
    """What local transactions wrote, for all producers of the group; `checks` counts questions."""

    def __init__(self) -> None:
        self.rows: dict[str, TransactionState] = {}
        self.checks: Counter[str] = Counter()
        self.before: Callable[[], Awaitable[None]] | None = None

    async def execute(self, message: HalfMessage, said: TransactionState) -> TransactionState:
        """Write how it ends, by the body, and say what the sender wants to be said."""
        ends = ROLLBACK if message.body.startswith(b"no") else COMMIT
        self.rows[message.transaction_id] = ends
        if self.before is not None:
            before, self.before = self.before, None
            await before()
        return said

    def check(self, message: MessageExt) -> TransactionState:
        """Look it up; the first answer is that it is not known yet."""
        key = message.message_id()
        self.checks[key] += 1
        return self.rows.get(key, ROLLBACK) if self.checks[key] > 1 else UNKNOWN


def with_short_times(group: Cluster) -> None:
    group.settings = dict(TIMES)


def config_of(group: Cluster, name: str) -> ClientConfig:
    return ClientConfig(
        namesrv_addrs=(group.config(0).namesrv_addr,), group=name, rebalance_ms=500,
        persist_offset_ms=200, leader_check_ms=200, send_timeout_ms=10_000,
    )  # fmt: skip


@contextlib.asynccontextmanager
async def consumed(group: Cluster) -> AsyncIterator[Counter[bytes]]:
    """Consume the topic meanwhile; yields how often each body came."""
    seen: Counter[bytes] = Counter()

    def listen(messages: list[MessageExt], _context: ConsumeContext) -> ConsumeStatus:
        seen.update(message.body for message in messages)
        return ConsumeStatus.CONSUME_SUCCESS

    consumer = PushConsumer(config_of(group, "readers"), listen, OPTIONS)
    consumer.subscribe(TOPIC)
    async with consumer:
        yield seen


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(40):
        while not holds():
            await asyncio.sleep(0.05)


async def prepare(group: Cluster) -> None:
    await group.leader()
    async with Producer(config_of(group, "preparing")) as producer, asyncio.timeout(20):
        while True:
            with contextlib.suppress(RemotingError):
                await producer.create_topic(TOPIC, 2)
                return
            await asyncio.sleep(0.1)


def test_consumers_get_what_is_committed_however_that_came_to_be_known(tmp_path: Path) -> None:
    async def body() -> None:
        database = Database()
        async with cluster(tmp_path, 1, prepare=with_short_times) as group:
            await prepare(group)
            config = config_of(group, "deciding")
            async with (
                TransactionProducer(config, database, AT_ONCE) as producer,
                consumed(group) as seen,
            ):
                for number in range(10):
                    yes, no = b"yes-%d" % number, b"no-%d" % number
                    for text, said in ((yes, COMMIT), (no, ROLLBACK)):
                        result = await producer.send_in_transaction(Message(TOPIC, text), said)
                        assert (result.state, result.told) == (said, True)
                for text in (b"yes-later", b"no-later"):
                    await producer.send_in_transaction(Message(TOPIC, text), UNKNOWN)
                await until(lambda: len(seen) == 11 and len(database.checks) == 2)
                await until(lambda: min(database.checks.values()) == 2)
                await asyncio.sleep(1)
            assert set(seen) == {b"yes-later", *(b"yes-%d" % number for number in range(10))}
            assert set(database.checks.values()) == {2}
            assert producer.checks.dropped == 0

    asyncio.run(body())


def test_nobody_is_asked_while_a_local_transaction_runs(tmp_path: Path) -> None:
    """Not even another producer, whose listener finds nothing yet and would roll back."""

    class Slow(Database):
        async def execute(self, message: HalfMessage, said: TransactionState) -> TransactionState:
            await asyncio.sleep(1.5)
            return await super().execute(message, said)

        def check(self, message: MessageExt) -> TransactionState:
            self.checks[message.message_id()] += 1
            return self.rows.get(message.message_id(), ROLLBACK)

    async def body() -> None:
        database = Slow()
        options = TransactionOptions(execute_timeout_ms=2_000)
        async with cluster(tmp_path, 1, prepare=with_short_times) as group:
            await prepare(group)
            config = config_of(group, "deciding")
            async with (
                TransactionProducer(config, database, options) as producer,
                TransactionProducer(config, database, options) as other,
                consumed(group) as seen,
            ):
                await other.send(Message(TOPIC, b"plain"))
                for text in (b"yes-1", b"yes-2"):
                    result = await producer.send_in_transaction(Message(TOPIC, text), COMMIT)
                    assert (result.state, result.told) == (COMMIT, True)
                await until(lambda: len(seen) == 3)
            assert not database.checks

    asyncio.run(body())


def test_another_producer_of_the_group_answers_for_one_that_is_gone(tmp_path: Path) -> None:
    async def body() -> None:
        database = Database()
        async with cluster(tmp_path, 1, prepare=with_short_times) as group:
            await prepare(group)
            config = config_of(group, "deciding")
            async with consumed(group) as seen:
                async with TransactionProducer(config, database, AT_ONCE) as gone:
                    await gone.send_in_transaction(Message(TOPIC, b"yes"), UNKNOWN)
                    await gone.send_in_transaction(Message(TOPIC, b"no"), UNKNOWN)
                async with TransactionProducer(config, database) as other:
                    await other.send(Message(TOPIC, b"plain"))
                    await until(lambda: {b"yes", b"plain"} <= set(seen))
                    await until(lambda: len(database.checks) == 2)
                    await asyncio.sleep(0.7)
            assert set(seen) == {b"yes", b"plain"}

    asyncio.run(body())


@pytest.mark.parametrize("said", [COMMIT, ROLLBACK])
def test_a_leader_that_is_lost_before_the_decision_changes_nothing(
    tmp_path: Path, said: TransactionState
) -> None:
    async def body() -> None:
        database = Database()
        async with cluster(tmp_path, 3, prepare=with_short_times) as group:
            await prepare(group)
            options = TransactionOptions(execute_timeout_ms=20_000, check_immunity_s=0)
            config = config_of(group, "deciding")
            async with (
                TransactionProducer(config, database, options) as producer,
                consumed(group) as seen,
            ):

                async def lose_the_leader() -> None:
                    await group.stop(await group.leader())

                database.before = lose_the_leader
                text = b"yes" if said is COMMIT else b"no"
                result = await producer.send_in_transaction(Message(TOPIC, text), said)
                assert result.state is said
                after = await producer.send_in_transaction(Message(TOPIC, b"yes-after"), COMMIT)
                assert after.told
                expected = {b"yes-after", b"yes"} if said is COMMIT else {b"yes-after"}
                await until(lambda: expected <= set(seen))
                await until(lambda: result.told or bool(database.checks))
                await asyncio.sleep(1)
            assert set(seen) == expected

    asyncio.run(body())
