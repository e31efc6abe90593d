"""A consumer that is polled: by a caller who comes again, goes elsewhere, or commits by himself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from chaos.history.payload import body_hash, decode_body
from ledgermq.client import ConsumeFrom, LitePullConsumer, LitePullOptions
from sim.oracles.further import Polling
from sim.oracles.moving import Moving
from sim.workload import TOPIC

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from ledgermq.client import ClientConfig, MessageExt, MessageQueue
    from ledgermq.remoting.protocol.headers import Claim
    from sim.faults.further import Further
    from sim.oracles.further import Further as Judge
    from sim.validators import Validators

POLL_GROUP: Final = "pollers"
POLL_S: Final = 0.5
COMMIT_MS: Final = 300
SEEK_BACK_MAX: Final = 12
ONE_P: Final = 0.5
"""How often a commit is of one queue alone, where several are held."""
PAUSE_ENDS_P: Final = 0.3
"""How probable it is that a queue that is paused goes on at a poll."""


class Poller:
    """One consumer, and who polls it.

    Args:
        chance: the clock of its machine, and a stream.
        topic: which is polled.
    """

    def __init__(
        self, config: ClientConfig, settings: Further, validators: Validators, judge: Judge,
        chance: tuple[Any, Any], topic: str = TOPIC,
    ) -> None:  # fmt: skip
        self._settings = settings
        self._validators = validators
        options = LitePullOptions(
            auto_commit=not settings.manual,
            auto_commit_interval_ms=COMMIT_MS,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            pull_batch_count=settings.pull_count,
        )
        clock, rng = chance
        self._findings = judge.findings
        self._judge = judging = Polling(config.instance_name, judge)
        self.consumer = LitePullConsumer(
            config, options, observer=_Observer(judging), clock=clock, rng=rng
        )
        self.consumer.subscribe(topic)
        self._told: dict[tuple[str, MessageQueue], int] = {}
        """What a broker has said last of where a queue begins, ends, or was at a time."""
        self._positions: dict[MessageQueue, int] = {}
        self._paused: MessageQueue | None = None
        self._listen()

    def _listen(self) -> None:
        """Have what the consumer does judged."""
        consumer, judging = self.consumer, self._judge
        assignment, api = consumer.assignment, consumer.api
        hold, move, commit = assignment._hold, assignment.move, api.commit_offset

        def held(queue: MessageQueue, offset: int) -> Any:  # noqa: ANN401  # as it is there
            one = hold(queue, offset)
            jump = one.puller._on_illegal_offset

            async def jumped(result: Any) -> None:  # noqa: ANN401  # likewise
                await jump(result)
                judging.on_taken(queue)

            one.puller._on_illegal_offset = jumped  # type: ignore[method-assign]  # to listen
            return one

        def moved(offsets: Mapping[MessageQueue, int]) -> None:
            for queue in offsets:
                judging.on_moved(queue, None)
            move(offsets)

        async def committed(
            addr: str, queue: MessageQueue, offset: int, claim: Claim | None = None
        ) -> None:
            # Two brokers may have a queue of that number: what is of the other one is not told.
            judging.on_commit(queue, offset, is_known=self._validators.is_known(queue))
            await commit(addr, queue, offset, claim)

        def listen_to(name: str) -> None:
            ask = getattr(api, name)

            async def asked(addr: str, queue: MessageQueue, *more: Any) -> int:  # noqa: ANN401  # likewise
                told: int = await ask(addr, queue, *more)
                self._told[name, queue] = told
                return told

            setattr(api, name, asked)

        for name in ("min_offset", "max_offset", "search_offset"):
            listen_to(name)

        assignment._hold = held  # type: ignore[method-assign]  # to listen to it
        assignment.move = moved  # type: ignore[method-assign]  # likewise
        api.commit_offset = committed  # type: ignore[method-assign]  # likewise
        Moving(consumer, self._findings)

    async def step(self, rng: Any) -> None:  # noqa: ANN401  # a stream
        """Go elsewhere at times, poll, and commit at times."""
        settings, consumer = self._settings, self.consumer
        if self._positions and rng.split("seek").chance(settings.seek_p):
            queue = rng.split("queue").choice(sorted(self._positions))
            offset = max(0, self._positions[queue] - rng.split("back").randint(0, SEEK_BACK_MAX))
            self._judge.on_moved(queue, None)  # what was given out is void as soon as it begins
            if rng.split("elsewhere").chance(settings.elsewhere_p):
                offset = await self._seek_elsewhere(rng.split("where"), queue)
            else:
                await consumer.seek(queue, offset)
            self._judge.on_moved(queue, offset)
            self._validators.record.count("seeks")
        self._pause(rng.split("pause"))
        self._judge.on_done()
        messages = await consumer.poll(POLL_S, rng.split("count").choice(settings.poll_counts))
        self._take(messages)
        if settings.manual and rng.split("commit").chance(0.5):
            await self._commit(rng.split("one"))

    async def _commit(self, rng: Any) -> None:  # noqa: ANN401  # likewise
        """Commit all that was given out, or what was of one queue, and that alone."""
        consumer, judge = self.consumer, self._judge
        held = consumer.assigned_queues
        given = judge.given_of(held)
        if len(given) > 1 and rng.split("on").chance(ONE_P):
            queue = rng.split("queue").choice(sorted(given))
            judge.on_done(queue)
            await consumer.commit({queue: given[queue]})
            held = [queue]
        else:
            judge.on_done()
            await consumer.commit()
        judge.on_committed([one for one in held if one in consumer.assigned_queues])

    async def _seek_elsewhere(self, rng: Any, queue: MessageQueue) -> int:  # noqa: ANN401  # likewise
        """Go to the beginning, the end or a time of a queue; return where that is.

        What a broker says of it is judged on the wire.
        """
        consumer = self.consumer
        place = (queue.topic, queue.queue_id)
        wanted_ms = self._validators.of(queue).choose_time(place, rng.split("time").randint(0, 999))
        seeks: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            ("min_offset", lambda: consumer.seek_to_begin(queue)),
            ("max_offset", lambda: consumer.seek_to_end(queue)),
        ]
        if wanted_ms is not None:
            time_ms = wanted_ms
            seeks.append(("search_offset", lambda: consumer.seek_to_timestamp(queue, time_ms)))
        what, seek = rng.split("which").choice(seeks)
        self._told.pop((what, queue), None)
        await seek()
        told = self._told.get((what, queue))
        at = consumer.position(queue)
        if told != at:
            self._judge.on_elsewhere(queue, f"{what} is {told}", at)
        return at

    async def stop(self) -> None:
        """End in good order: what was given out is committed, if anybody takes it."""
        consumer = self.consumer
        commit, clock = consumer.assignment.commit_now, consumer.clock
        failed: list[bool] = []

        async def noted() -> Any:  # noqa: ANN401  # as it is there
            errors = await commit()
            failed.append(bool(errors))
            return errors

        consumer.assignment.commit_now = noted  # type: ignore[method-assign]  # to listen to it
        held = consumer.assigned_queues
        self._judge.on_done()
        began_ms = clock.monotonic_ms()
        await consumer.stop()
        is_slow = clock.monotonic_ms() - began_ms >= consumer.config.request_timeout_ms
        if not self._settings.manual and not is_slow and failed == [False]:
            self._judge.on_stopped(held)
        self._validators.record.count("pollers_stopped")

    def _pause(self, rng: Any) -> None:  # noqa: ANN401  # a stream
        """Pause a queue at times, and let it go on some polls later."""
        if self._paused is not None:
            if rng.split("end").chance(PAUSE_ENDS_P):
                self.resume()
        elif self._positions and rng.split("on").chance(self._settings.pause_p):
            self._paused = rng.split("queue").choice(sorted(self._positions))
            self.consumer.pause([self._paused])
            self._judge.on_paused(self._paused)
            self._validators.record.count("pauses")

    def resume(self) -> None:
        """Let the queue that is paused go on."""
        if self._paused is not None:
            self.consumer.resume([self._paused])
        self._paused = None
        self._judge.on_paused(None)

    def _take(self, messages: Sequence[MessageExt]) -> None:
        given: list[tuple[MessageQueue, int]] = []
        by_place = {(q.topic, q.queue_id): q for q in self.consumer.assigned_queues}
        for message in messages:
            place = (message.topic, message.queue_id)
            queue = by_place.get(place)
            if queue is None or not self._validators.is_of(message, queue):
                continue  # it is not held any more, or another broker's
            validator = self._validators.of(queue)
            body = message.content()
            payload = decode_body(body)
            key = None if payload is None else payload.msg_key
            validator.on_delivered(place, message.queue_offset, key, body_hash(body))
            self._positions[queue] = message.queue_offset + 1
            given.append((queue, message.queue_offset))
        self._judge.on_given(given)
        self._validators.record.count("polled", len(messages))


class _Observer:
    """Hears when queues are taken anew."""

    def __init__(self, judging: Polling) -> None:
        self._judging = judging

    def on_assignment(self, topic: str, queues: Sequence[MessageQueue]) -> None:
        """Which queues are held says nothing here."""

    def on_commit(
        self, queue: MessageQueue, offset: int, ok: bool, t_start_ns: int, t_end_ns: int  # noqa: FBT001  # as the protocol has it
    ) -> None:  # fmt: skip
        """What a broker answers to a commit says nothing here."""

    def on_fetch(self, queue: MessageQueue, offset: int, t_start_ns: int, t_end_ns: int) -> None:
        """A queue is taken anew: it goes on wherever the group has come to."""
        del offset, t_start_ns, t_end_ns
        self._judging.on_taken(queue)
