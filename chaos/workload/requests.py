"""Who wants replies, and who gives them.

A request is a send like any other: the record has how it ended, as a hook hears it. Beside it
stands what the reply said and what it had to say, which follows from the request: its bytes, begun
otherwise, so that in the logs nobody takes the one for the other. At the end, when all is quiet,
half of the requests at least get their replies.
"""

import asyncio
from typing import Any, Final, Self

from chaos.history.payload import MAGIC, body_hash, decode_body
from chaos.record import Recorder
from ledgermq.client import (
    ClientConfig,
    Hook,
    Message,
    MessageExt,
    NoReply,
    Producer,
    RemotingError,
    SendFailed,
    Sending,
    SendResult,
)
from ledgermq.runtime.clock import Clock

REPLY_WITHIN_S: Final = 6.0
"""How long the requests of the end may wait for replies."""
LAST_REQUESTS: Final = 10
"""So many of them are enough to judge: the first ones, since those without replies end last."""
LOOK_EVERY_S: Final = 0.05
REPLY_MAGIC: Final = b"LMQR"
"""With what a reply begins, in place of what messages begin with."""


class UnansweredError(Exception):
    """A request has no reply, and nobody knows what became of its send."""


class Endings(Hook):
    """How sends of single messages ended, by their keys."""

    def __init__(self) -> None:
        self._ended: dict[str, Sending] = {}

    def after_send(self, sending: Sending) -> None:
        """Keep it until somebody takes it."""
        self._ended[sending.messages[0].keys] = sending

    def take(self, keys: str) -> Sending | None:
        """Return how a send ended, None if it did not; it is kept no longer."""
        return self._ended.pop(keys, None)


class Asker:
    """Sends requests with one producer and writes down what the replies say."""

    def __init__(
        self, name: str, producer: Producer, endings: Endings, recorder: Recorder, clock: Clock
    ) -> None:
        self.replied = 0
        self._name = name
        self._producer = producer
        self._endings = endings
        self._recorder = recorder
        self._clock = clock
        self._made: list[bool | None] = []
        """Of each request whether it got a reply; None: it has not ended."""

    async def send(self, message: Message, timeout_ms: int) -> SendResult:
        """Send a request and return how its send ended, with a reply or without.

        Errors: `UnansweredError`, and those of a send.
        """
        number, reply = len(self._made), None
        self._made.append(None)
        try:
            reply = await self._producer.request(message, timeout_ms)
        except NoReply:
            pass
        finally:
            sending = self._endings.take(message.keys)
            self._made[number] = reply is not None
        if reply is not None:
            self._heard(message, reply)
        if sending is None or not isinstance(sending.error, SendFailed | None):
            raise UnansweredError
        if sending.error is not None:
            raise sending.error
        assert sending.result is not None
        return sending.result

    def _heard(self, request: Message, reply: MessageExt) -> None:
        self.replied += 1
        expected, told = wanted(bytes(request.body)), reply.content() or b""
        self._write(request.keys, words_of(expected), words_of(told))

    async def end(self) -> None:
        """Wait for the next requests to end; write down whether half of them got replies.

        Where nobody makes any request more, there is nothing to write down.
        """
        before = len(self._made)
        for _ in range(round(REPLY_WITHIN_S / LOOK_EVERY_S)):
            asked = self._made[before : before + LAST_REQUESTS]
            ended = [one for one in asked if one is not None]
            if len(ended) == LAST_REQUESTS:
                break
            await asyncio.sleep(LOOK_EVERY_S)
        if ended:
            told = "half or more" if 2 * sum(ended) >= len(ended) else f"{sum(ended)}"
            subject = f"{self._name}, {len(ended)} requests, now that all is quiet"
            self._write(subject, "half or more", told)

    def _write(self, subject: str, expected: str, told: str | None) -> None:
        row: dict[str, Any] = {"kind": "reply", "subject": subject, "expected": expected}
        self._recorder.write("answers", row | {"told": told, "t": self._clock.monotonic_ns()})


class Replier:
    """Replies to what wants a reply, with a producer of its own."""

    def __init__(self, config: ClientConfig) -> None:
        self.failed = 0
        self._producer = Producer(config)

    async def __aenter__(self) -> Self:
        await self._producer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._producer.stop()

    async def reply(self, messages: list[MessageExt]) -> None:
        """Reply to each; one whose asker is gone, or waits no longer, is counted."""
        ours = [one for one in messages if decode_body(one.content() or b"") is not None]
        ended = await asyncio.gather(
            *(self._producer.reply(one, wanted(one.content() or b"")) for one in ours),
            return_exceptions=True,
        )
        for one in ended:
            if isinstance(one, BaseException):
                if not isinstance(one, RemotingError):
                    raise one
                self.failed += 1


def wanted(request: bytes) -> bytes:
    """Return what is to be replied to a request of ours. Errors: ValueError for any other."""
    if decode_body(request) is None:
        raise ValueError("a request of somebody else")
    return REPLY_MAGIC + request[len(REPLY_MAGIC) :]


def words_of(reply: bytes) -> str:
    """Return a reply as the record has it: the key that it names, and its fingerprint."""
    is_one = reply.startswith(REPLY_MAGIC)
    payload = decode_body(MAGIC + reply[len(MAGIC) :]) if is_one else None
    return f"{'nobody' if payload is None else payload.msg_key} {body_hash(reply)}"
