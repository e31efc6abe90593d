"""What the producer says of a send, against what passed on its own connections.

A send is known by the keys of its messages. Success: the last word of the network is an
acknowledgement of that message, with the queue, the offset and the id that the library hands on.
A send to a chosen queue asks for that queue each time, however it ends.
Failure that is certain: each request that left was refused, and no answer is missing. No request
leaves that the library does not count. Nothing here asks the library what it has tried.
Source: docs/architecture.md (client); spec/proof.md 1; spec/wire.md 2.2, 3.3.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import msgspec

from chaos.history.outcome import UNKNOWN_REMARK, is_definite
from ledgermq.client import MessageQueue, Outcome, SendFailed, SendResult, SendStatus
from sim.oracles.base import Findings, Violation, guarded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgermq.client import Attempt, Message, Producer, QueueSelector
    from ledgermq.client.links import Link
    from ledgermq.client.send_codec import Outgoing, SendTarget
    from sim.oracles.wire import Said, Tap

SENDS: Final = frozenset({10, 310, 320})
CHOSEN: Final = "A20 another queue than was chosen"
SHARDED: Final = b"__SHARDINGKEY"
"""A property of what goes to the queue of its key."""
AVOIDED: Final = "A46 tried again where it failed"
SHARED: Final = "A46 one id for two messages"
LATE: Final = "A46 a send outlives its time"
LATE_MS: Final = 300
EARLY: Final = "A46 a send given up too early"
COUNTED_CODES: Final = frozenset({1, 16, 17, 204, 205})
"""Answers after which a send is tried again, as often as the producer is set to."""
COUNTED_ERRORS: Final = frozenset({"ConnectionLost", "RequestTimeout"})
"""Likewise without an answer."""
WAITED_CODES: Final = frozenset({14})
"""Answers after which it is tried again as long as there is time."""
WAITED_ERRORS: Final = frozenset({"ConnectFailed", "NoRoute", "NameServersUnreachable"})
BUSY_CODE: Final = 2
"""One or the other: it may say that nothing was stored."""
KEPT_CODES: Final = frozenset({2, 3, 13})
"""Back-pressure, and refusals of a batch: another broker need not be asked."""
ATTEMPTS_MAX: Final = 100
"""Beyond so many, a library may put alike ones together."""
_keys: Final = re.compile(rb"KEYS(?:\x01|\\u0001)(\d+)").findall


class Try(msgspec.Struct, gc=False):
    """One request with a message in it."""

    address: str
    queue_id: int
    at: int
    """Which of the messages of the request it is."""
    code: int | None = None
    """Of the answer, None as long as there is none."""
    remark: str = ""
    place: tuple[int, int] = (-1, -1)
    ids: Sequence[str] = ()


class Library:
    """Listens at the clients' end of their connections to brokers; a `wire.Listener`."""

    name = "A46 the library says what is not so"

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self._tries: dict[str, list[Try]] = defaultdict(list)
        self._chosen: dict[str, MessageQueue] = {}
        """By key: where its user wants a message to be."""
        self._names: dict[str, str] = {}
        """By address: the broker that was asked there."""
        self._ids: dict[str, str] = {}
        """By the id that a message was told to have, its keys."""

    def possible(self, key: int) -> int | None:
        """Return how many requests may have stored a message; None if it is not known here."""
        tries = self._tries.get(str(key))
        return None if tries is None else sum(not _is_refused(one) for one in tries)

    # On the network

    def on_request(self, tap: Tap, request: Said) -> None:
        """A client asks a broker."""
        if request.code not in SENDS:
            return
        found = _keys(request.frame)
        request.note = []
        for at, key in enumerate(found):
            one = Try(f"{tap.other}:{tap.end.remote[1]}", request.number("e"), at)
            text = key.decode()
            self._tries[text].append(one)
            request.note.append(one)
            chosen = self._chosen.get(text)
            if chosen is not None and chosen.queue_id != one.queue_id:
                self._report(f"{text} was sent to {chosen}, a request says {one.queue_id}", CHOSEN)

    def on_answer(self, tap: Tap, request: Said, answer: Said) -> None:
        """A broker has answered."""
        del tap
        for one in request.note or ():
            one.code, one.remark = answer.code, answer.remark
            one.place = (answer.number("queueId"), answer.number("queueOffset") + one.at)
            one.ids = answer.text("msgId").split(",")

    def on_stray(self, tap: Tap, answer: Said) -> None:
        """What comes too late, or twice, is the broker's affair."""

    # At the library

    def follow(self, producer: Producer) -> None:
        """Judge what a producer says from now on."""
        send, send_batch = producer.send, producer.send_batch

        async def checked(
            message: Message,
            queue: MessageQueue | QueueSelector | None = None,
            timeout_ms: int | None = None,
        ) -> SendResult:
            chosen = None if callable(queue) else queue
            queue = self._noting(queue, [message.keys]) if callable(queue) else queue
            sending = self._check(send(message, queue, timeout_ms), [message.keys], chosen)
            return await self._in_time(producer, sending, timeout_ms)

        async def checked_batch(
            messages: Sequence[Message],
            queue: MessageQueue | QueueSelector | None = None,
            timeout_ms: int | None = None,
        ) -> SendResult:
            keys = [message.keys for message in messages]
            chosen = None if callable(queue) else queue
            sending = self._check(send_batch(messages, queue, timeout_ms), keys, chosen)
            return await self._in_time(producer, sending, timeout_ms)

        producer.attempt = self._watched(producer)  # type: ignore[method-assign]  # likewise
        producer.send = checked  # type: ignore[method-assign]  # to listen to it
        producer.send_batch = checked_batch  # type: ignore[method-assign]  # likewise

    def _noting(self, selector: QueueSelector, keys: Sequence[str]) -> QueueSelector:
        """Return a selector whose first choice is the queue that was asked for."""

        def choose(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
            found = selector(queues, message)
            for key in keys:
                self._chosen.setdefault(_first(key), found)
            return found

        return choose

    def _watched(self, producer: Producer) -> Any:  # noqa: ANN401  # as the producer has it
        """Return what attempts a send, judged: not where it failed, if there is another broker."""
        attempt, names = producer.attempt, self._names

        async def watched(
            link: Link, target: SendTarget, outgoing: Outgoing, t_limit_ns: int,
            earlier: tuple[Attempt, ...],
        ) -> SendResult:  # fmt: skip
            name = names[link.addr] = target.broker_name
            last = earlier[-1] if earlier else None
            others = {one.broker_name for one in producer._topics[outgoing.topic].all} - {name}
            is_again = last is not None and names.get(last.broker_addr) == name
            if is_again and others and last is not None and last.code not in KEPT_CODES:
                found = _keys(outgoing.properties_json) or _keys(outgoing.body)
                keys = {key.decode() for key in found}
                is_free = not self._chosen.keys() & keys and SHARDED not in outgoing.properties_json
                if keys and is_free:
                    text = (
                        f"{sorted(keys)} is tried at {name} again, and {sorted(others)} are there"
                    )
                    self._report(text, AVOIDED)
            return await attempt(link, target, outgoing, t_limit_ns, earlier)

        return watched

    async def _in_time(
        self, producer: Producer, sending: Any, timeout_ms: int | None  # noqa: ANN401  # likewise
    ) -> SendResult:  # fmt: skip
        """Judge that a send ends, however it does, within what it was given for all attempts."""
        clock, limit_ms = producer.clock, timeout_ms or producer.config.send_timeout_ms
        t_start_ms, failed = clock.monotonic_ms(), None
        try:
            result: SendResult = await sending
        except SendFailed as error:
            failed = error
            raise
        finally:
            left_ms = limit_ms - clock.monotonic_ms() + t_start_ms
            if producer._instance.running:
                if left_ms < -LATE_MS:
                    text = f"{producer.client_id}: a send ends after {limit_ms - left_ms} ms"
                    self._report(f"{text}, its timeout is {limit_ms}", LATE)
                elif left_ms > LATE_MS and failed is not None:
                    self._check_given_up(producer, failed, left_ms)
        return result

    async def _check(
        self, sending: Any, keys: Sequence[str], queue: MessageQueue | None  # noqa: ANN401  # a private kind
    ) -> SendResult:  # fmt: skip
        if queue is not None:
            self._chosen.update(dict.fromkeys(map(_first, keys), queue))
        try:
            result: SendResult = await sending
        except SendFailed as error:
            self.on_failed(keys, error)
            raise
        self.on_result(keys, queue, result)
        return result

    @guarded
    def on_result(
        self, keys: Sequence[str], queue: MessageQueue | None, result: SendResult
    ) -> None:  # fmt: skip
        """A send has succeeded, as the library says."""
        queue = queue or self._chosen.get(_first(keys[0]))
        if queue is not None and result.queue != queue:
            text = f"{keys} was sent to {queue}, and is told to be in {result.queue}"
            self._report(text, CHOSEN)
        self._check_ids(keys, result.msg_id.split(","))
        told_ids = result.offset_msg_id.split(",")
        for number, key in enumerate(keys):
            tries = self._tries.get(_first(key))
            if tries is None:
                continue
            self._check_attempts(key, tries, len(result.attempts))
            place = (result.queue.queue_id, result.queue_offset + number)
            ends = [one for one in tries if one.code == int(result.status) and one.place == place]
            if not ends or result.status not in set(SendStatus):
                self._report(f"{key} is told to lie at {place}, the brokers said {tries}")
                return
            heard = ends[-1].ids
            at = ends[-1].at
            heard_id = heard[at] if at < len(heard) else ""
            told_id = told_ids[number] if number < len(told_ids) else told_ids[0]
            if told_id != heard_id:
                self._report(f"{key} is told to have the id {told_id}, the broker said {heard_id}")

    @guarded
    def on_failed(self, keys: Sequence[str], error: SendFailed) -> None:
        """A send has failed, as the library says."""
        for key in keys:
            tries = self._tries.get(_first(key))
            if tries is None:
                continue
            self._check_attempts(key, tries, len(error.attempts))
            if error.outcome is Outcome.FAILED and not all(map(_is_refused, tries)):
                self._report(f"{key} is told to be stored nowhere, the brokers said {tries}")

    def _check_given_up(self, producer: Producer, error: SendFailed, left_ms: int) -> None:
        """A send failed before its time was up: it was tried again as often as it is to be."""
        counted = sum(_may_count(one) for one in error.attempts)
        if not error.attempts or counted > producer.config.retry_times:
            return
        last = error.attempts[-1]
        if _may_count(last) or last.code in WAITED_CODES or last.error_class in WAITED_ERRORS:
            text = f"{producer.client_id}: a send is given up {left_ms} ms before its time is up"
            self._report(f"{text}, after {error.attempts}", EARLY)

    def _check_ids(self, keys: Sequence[str], told: Sequence[str]) -> None:
        """Each message has an id of its own: by it a message is found, and known for the same."""
        if len(told) != len(keys):
            self._report(f"{len(keys)} messages are told to have the ids {told}")
        for key, one in zip(keys, told, strict=False):
            if self._ids.setdefault(one, key) != key:
                self._report(f"{key} and {self._ids[one]} have the id {one}", SHARED)

    def _check_attempts(self, key: str, tries: Sequence[Try], told: int) -> None:
        if told < min(len(tries), ATTEMPTS_MAX):
            self._report(f"{key} was tried {told} times, it says; {len(tries)} requests left")

    def _report(self, text: str, name: str = "") -> None:
        self.findings.report(Violation(name or self.name, text))


def _is_refused(one: Try) -> bool:
    """Tell whether nothing was stored: so says this project's broker, too, that takes no more."""
    if one.code == BUSY_CODE and UNKNOWN_REMARK not in one.remark:
        return True
    return one.code is not None and is_definite(one.code, one.remark)


def _may_count(one: Attempt) -> bool:
    """Tell whether an attempt may be one of those that a producer makes so many of."""
    if one.code == BUSY_CODE:
        return True
    return one.code in COUNTED_CODES or one.error_class in COUNTED_ERRORS


def _first(keys: str) -> str:
    return keys.split(" ", 1)[0]
