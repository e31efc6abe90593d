"""A producer that sends long lists, and messages without waiting for an answer.

A list is cut into batches that are small enough, each of which is acknowledged by itself; of a send
that nobody answers is known that it was made at most once. What is told of a list is all that was
to be sent: what is acknowledged, what failed, and what was not tried any more.
Source: docs/client.md; RocketMQ MessageBatch, DefaultMQProducer.sendOneway.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any, Final

from chaos.history.payload import encode_body, make_key
from ledgermq.client import BatchFailed, Producer, RemotingError, SendResult, SendStatus
from sim.workload import TOPIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgermq.client import ClientConfig
    from sim.context import Host
    from sim.record import Row
    from sim.validators import Validators

PID: Final = 2_000
LIVES_BITS: Final = 24
"""Numbers of the operations of one life of its machine."""
KEYS_PER_LIST: Final = 32
BATCH_BYTES: Final = 4_000
"""So much fits into one batch: a list becomes several."""
BODY_BYTES: Final = (64, 400, 1_500)
RETRY_S: Final = 0.2
NAME: Final = "A46 the library says what is not so"


class Lists:
    """One such producer."""

    def __init__(self, config: ClientConfig, machine: Host, validators: Validators) -> None:
        config = dataclasses.replace(config, max_message_bytes=BATCH_BYTES)
        self.producer = Producer(config, clock=machine.clock, rng=machine.rng.split("lists"))
        self._validators = validators
        self._record = validators.record
        self._tag = bytes.fromhex(self._record.tag)
        self._number = machine.incarnation << LIVES_BITS

    def _sending(self, sizes: Sequence[int]) -> tuple[list[Row], list[Any]]:
        """Note a send; return its rows, and the messages."""
        self._number += 1
        keys = [make_key(PID, self._number * KEYS_PER_LIST + at) for at in range(len(sizes))]
        bodies = [
            (key, encode_body(self._tag, key, size)) for key, size in zip(keys, sizes, strict=True)
        ]
        messages = [self._validators.message(TOPIC, key, body) for key, body in bodies]
        return self._record.sending(self._number, TOPIC, bodies), messages

    async def send_all(self, rng: Any) -> None:  # noqa: ANN401  # a stream
        """Send a list, and see what is told of each of its messages."""
        count = rng.split("count").randint(1, KEYS_PER_LIST - 1)
        sizes = [rng.split(f"size{at}").choice(BODY_BYTES) for at in range(count)]
        rows, messages = self._sending(sizes)
        results: Sequence[SendResult]
        failed = unsent = 0
        try:
            results = await self.producer.send_all(messages)
        except BatchFailed as error:
            results, failed, unsent = error.results, len(error.messages), error.unsent
        except RemotingError:
            return  # how much of it was in the first batch is not told
        at = 0
        for result in results:
            at += self._acknowledged(rows[at:], result)
        if at + failed + unsent != count:
            text = f"of a list of {count} it names {at}, {failed} and {unsent}"
            self._validators.report(NAME, text)
        if unsent:
            self._record.sent(rows[count - unsent :], "fail", possible=0)
        self._record.count("lists")

    def _acknowledged(self, rows: Sequence[Row], result: SendResult) -> int:
        """Note and judge one batch; return how many messages it had."""
        count = len(result.msg_id.split(","))
        queue, offset = result.queue, result.queue_offset
        is_ok = result.status is SendStatus.SEND_OK
        for number, row in enumerate(rows[:count]):
            columns = {"queue_id": queue.queue_id, "queue_offset": offset + number}
            self._record.sent(
                [row], "ok" if is_ok else "info", attempts=len(result.attempts),
                broker=queue.broker_name, **columns,
            )  # fmt: skip
        if is_ok:
            keys = [row["msg_key"] for row in rows[:count]]
            validator = self._validators.of(queue)
            validator.on_acknowledged((queue.topic, queue.queue_id), offset, keys)
        return count

    async def send_oneway(self) -> int:
        """Send one message that nobody answers; return its key."""
        rows, messages = self._sending([BODY_BYTES[0]])
        try:
            await self.producer.send_oneway(messages[0])
        except RemotingError:
            self._record.sent(rows, "fail", possible=0)
        else:
            self._record.sent(rows, "info", possible=1)
            self._record.count("oneway_sends")
        key: int = rows[0]["msg_key"]
        return key

    async def send_until_there(self) -> None:
        """With everything healed, what nobody answers comes to be in a log all the same."""
        sent: list[int] = []
        while not any(self._validators.is_there(key) for key in sent):
            sent.append(await self.send_oneway())
            await asyncio.sleep(RETRY_S)
