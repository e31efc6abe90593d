"""Who wants replies, and who gives them.

A request is a send like any other: the record has how it ended, as a hook hears it. Beside it
stands what the reply said and what it had to say, which follows from the request: its key, in a
body one byte longer. At the end, when all is quiet, one more request is owed a reply.
"""

import asyncio
from typing import Any, Final, Self

from chaos.history.payload import body_hash, decode_body, encode_body
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
"""How long the last request of all may wait for a reply, with those that are sent meanwhile."""
LOOK_EVERY_S: Final = 0.05
MORE_BYTES: Final = 1
"""So much longer than its request is a reply: nobody takes the one for the other."""


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
        self._last_replied_ns = 0
        """When the latest request was made that has its reply."""

    async def send(self, message: Message, timeout_ms: int) -> SendResult:
        """Send a request and return how its send ended, with a reply or without.

        Errors: `UnansweredError`, and those of a send.
        """
        begun_ns = self._clock.monotonic_ns()
        try:
            reply = await self._producer.request(message, timeout_ms)
        except NoReply:
            pass
        else:
            self._heard(message, reply)
            self._last_replied_ns = max(self._last_replied_ns, begun_ns)
        finally:
            sending = self._endings.take(message.keys)
        if sending is None or not isinstance(sending.error, SendFailed | None):
            raise UnansweredError
        if sending.error is not None:
            raise sending.error
        assert sending.result is not None
        return sending.result

    def _heard(self, request: Message, reply: MessageExt) -> None:
        self.replied += 1
        self._write(
            request.keys, words_of(wanted(bytes(request.body))), words_of(reply.content() or b"")
        )

    async def end(self) -> None:
        """Wait until a request that is made from now on has its reply; write down whether."""
        begun_ns = self._clock.monotonic_ns()
        for _ in range(round(REPLY_WITHIN_S / LOOK_EVERY_S)):
            if self._last_replied_ns >= begun_ns:
                break
            await asyncio.sleep(LOOK_EVERY_S)
        told = "a reply" if self._last_replied_ns >= begun_ns else None
        self._write(f"{self._name}, now that all is quiet", "a reply", told)

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
    payload = decode_body(request)
    if payload is None:
        raise ValueError("a request of somebody else")
    tag = bytes.fromhex(payload.run_tag)
    return encode_body(tag, payload.msg_key, len(request) + MORE_BYTES)


def words_of(body: bytes) -> str:
    """Return a body as the record has it: the key that it names, and its fingerprint."""
    payload = decode_body(body)
    return f"{'nobody' if payload is None else payload.msg_key} {body_hash(body)}"
