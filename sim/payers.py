"""Clients that send in transactions: they commit, roll back, or do not know, and are lost at times.

What was decided is kept in the harness, as a user's own store would keep it, and survives the
process: any other member of the group can tell it when a broker asks.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from chaos.history.payload import decode_body, encode_body, make_key
from ledgermq.client import (
    RemotingError,
    SendFailed,
    TransactionOptions,
    TransactionProducer,
    TransactionState,
)
from sim.client_app import is_stored_nowhere, possible_of
from sim.oracles.transactions import HALF_TOPIC, End, Transactions
from sim.workload import FEW_QUEUES, KEYS_PER_OP, PAY_TOPIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgermq.client import ClientConfig, HalfMessage, MessageExt
    from sim.context import Host
    from sim.faults.traffic import Transactional
    from sim.record import Row
    from sim.validators import Validators
    from sim.workload import Op

MS_PER_S: Final = 1000
RETRY_S: Final = 0.2
WORK_MS_MAX: Final = 400
SLOW_P: Final = 0.25
"""How many local transactions take longer, where some do."""
AMID: Final = "A23 a listener is asked amid its local transaction"
PID_FIRST: Final = 1_000
"""Producers of transactions have numbers of their own."""
POINTS: Final = 1_000
STATES: Final = {End.COMMIT: TransactionState.COMMIT, End.ROLLBACK: TransactionState.ROLLBACK}


class LocalFailed(Exception):  # noqa: N818 - said by a local transaction, which has failed
    """Raised by a listener of the simulation."""


class PayApp:
    """One host with one producer of transactions, which is its own listener."""

    def __init__(
        self, name: str, config: ClientConfig, machine: Host, validators: Validators,
        settings: Transactional, oracle: Transactions,
    ) -> None:  # fmt: skip
        self.name = name
        self._pid = PID_FIRST + int(name[1:])
        self._config = config
        self._machine = machine
        self._validators = validators
        self._settings = settings
        self._oracle = oracle
        self._left = 1
        self._executing: set[int] = set()
        """Keys whose local transactions run in this process."""
        self.slow_ms = 0
        """How long local transactions take at most, where some take long."""
        self.raise_p = 0.0
        """How often it raises where it is asked, or has decided."""
        self._asked = 0
        self._rng = machine.rng.split(f"life{machine.incarnation}")

    @property
    def is_busy(self) -> bool:
        """Whether it has operations under way, or to begin."""
        return self._left > 0

    async def run(self, operations: Sequence[Op]) -> None:
        """Carry out operations at their times."""
        self._left = len(operations)
        # Java's producers ask for no immunity: brokers ask while local transactions run.
        options = TransactionOptions(check_immunity_s=self._settings.immunity_s)
        producer = TransactionProducer(
            self._config, self, options,
            clock=self._machine.clock, rng=self._rng.split("producer"),
        )  # fmt: skip
        await producer.start()
        while True:
            try:
                await producer.create_topic(PAY_TOPIC, FEW_QUEUES)
                break
            except RemotingError:
                await asyncio.sleep(RETRY_S)
        await asyncio.gather(*(self._perform(producer, op) for op in operations))
        await asyncio.get_running_loop().create_future()

    async def _perform(self, producer: TransactionProducer, op: Op) -> None:
        wait_ms = op.at_ms - self._machine.clock.monotonic_ms()
        await asyncio.sleep(max(0, wait_ms) / MS_PER_S)
        try:
            await self._pay(producer, op)
        finally:
            self._left -= 1

    async def _pay(self, producer: TransactionProducer, op: Op) -> None:
        record, validators = self._validators.record, self._validators
        key = make_key(self._pid, op.number * KEYS_PER_OP)
        body = encode_body(bytes.fromhex(record.tag), key, op.size_bytes)
        rows = record.sending(op.number, PAY_TOPIC, [(key, body)])
        rows[0]["lies_in"] = HALF_TOPIC
        message = validators.message(PAY_TOPIC, key, body)
        try:
            result = await producer.send_in_transaction(message)
        except RemotingError as error:
            self._refused(rows, error)
            return
        if result.state is TransactionState.ROLLBACK:
            self._oracle.decide(key, End.ROLLBACK)  # also where the half is on too few disks
        ok = int(result.status) == 0
        record.sent(
            rows, "ok" if ok else "info", queue_id=result.queue.queue_id,
            queue_offset=result.queue_offset, attempts=len(result.attempts),
            possible=possible_of(result.attempts), err_code=None if ok else int(result.status),
            broker=result.queue.broker_name,
        )  # fmt: skip
        record.count(f"transactions_{result.state.name.lower()}")
        if ok and validators.is_known(result.queue):
            # It was told some time ago: a broker alone may have lost it since, as it may.
            validator = validators.of(result.queue)
            validator.on_acknowledged((HALF_TOPIC, 0), result.queue_offset, [key])

    def _refused(self, rows: list[Row], error: RemotingError) -> None:
        attempts = error.attempts if isinstance(error, SendFailed) else ()
        self._validators.record.sent(
            rows, "fail" if is_stored_nowhere(error) else "info",
            err_code=attempts[-1].code if attempts else None, attempts=max(1, len(attempts)),
            possible=possible_of(attempts),
        )  # fmt: skip

    # The listener

    async def execute(self, message: HalfMessage, arg: object) -> TransactionState:
        """Run a local transaction: it commits, rolls back, fails, or takes a decision untold."""
        del arg
        key = _key_of(message.body)
        point = self._point(key)
        self._executing.add(key)
        try:
            await asyncio.sleep(self._work_ms(key) / MS_PER_S)
        finally:
            self._executing.discard(key)
        if self._is_unknown(key):
            return TransactionState.UNKNOWN
        end = End.ROLLBACK if point < self._settings.rollback_p else End.COMMIT
        end = self._oracle.decide(key, end)  # who asked before may have had it rolled back
        self._maybe_raise(f"raises in {key}")
        told = self._rng.point(f"told{key}")
        if told < self._settings.untold_p / 2:
            raise LocalFailed(self.name)
        return TransactionState.UNKNOWN if told < self._settings.untold_p else STATES[end]

    async def check(self, message: MessageExt) -> TransactionState:
        """Say how a transaction has ended; one that nobody knows of has not, and never will."""
        key = _key_of(message.content())
        self._validators.record.count("transactions_asked")
        if key in self._executing:
            self._validators.report(AMID, f"{self.name} still runs the transaction of {key}")
        self._asked += 1
        self._maybe_raise(f"raises at {self._asked}")
        if self._is_unknown(key):
            return TransactionState.UNKNOWN
        return STATES[self._oracle.decide(key, End.ROLLBACK)]

    def _maybe_raise(self, where: str) -> None:
        """Raise at times, as where the database is away for a moment. Errors: `LocalFailed`."""
        if self.raise_p and self._rng.point(where) < self.raise_p:
            self._validators.record.count("transactions_raised")
            raise LocalFailed(self.name)

    def _work_ms(self, key: int) -> float:
        """Return how long a local transaction runs."""
        if self.slow_ms and self._rng.point(f"slow{key}") < SLOW_P:
            return self._rng.point(f"how slow{key}") * self.slow_ms
        return self._point(key) * WORK_MS_MAX

    def _is_unknown(self, key: int) -> bool:
        """Tell whether nobody ever knows how a transaction ended."""
        return key * 40_503 % POINTS < self._settings.never_p * POINTS

    @staticmethod
    def _point(key: int) -> float:
        return key * 2_654_435_761 % POINTS / POINTS


def _key_of(body: bytes) -> int:
    payload = decode_body(body)
    assert payload is not None
    return payload.msg_key
