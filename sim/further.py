"""A client that does what the others do not: it polls, filters, asks about queues, asks others.

One step after the other, each chosen by chance, until the faults are over; at last somebody must
reply to it. What comes of it is judged by `sim.oracles.further`, and on the wire.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ledgermq.client import (
    ConsumeContext,
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    Message,
    MessageExt,
    MessageQueue,
    NoReply,
    Producer,
    PullConsumer,
    PullStatus,
    PushConsumer,
    RemotingError,
    SendResult,
    Sql92,
)
from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.command import RemotingCommand
from sim.lists import Lists
from sim.oracles.further import FILTERS, reply_to
from sim.polling import POLL_GROUP, Poller
from sim.validators import GROUP_NAME
from sim.workload import TOPIC

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ledgermq.client import ClientConfig
    from sim.context import Host
    from sim.faults.further import Further
    from sim.oracles.further import Further as Judge
    from sim.validators import Validators

MS_PER_S: Final = 1000
RETRY_S: Final = 0.2
ASK_TOPIC: Final = "questions"
ASK_GROUP: Final = "repliers"
ASK_MS: Final = 4_000
PATIENCE_MS: Final = (ASK_MS, ASK_MS, 150)
"""How long somebody waits for a reply: at times it comes too late."""
ASKED_AT_ONCE: Final = 3
NEW_TOPIC_STEPS: Final = 8
"""Topics are made so many times more rarely than other steps are taken."""
ASIDE_GROUP: Final = "aside"
"""Of what is read and committed by the way."""
COUNTS: Final = (1, 3, 16)
BOUNDARIES: Final = ("", "", "LOWER", "UPPER")
AROUND_MS: Final = 3
RESET_TIMES: Final = (0, 0, -1)


class Task(NamedTuple):
    """What it does, who judges it, and until when there are faults."""

    settings: Further
    judge: Judge
    until_ms: int
    forth_again: bool = False
    """Whether an offset that was set back is set forth again."""


class FurtherApp:
    """One host with such clients."""

    def __init__(
        self, name: str, config: ClientConfig, machine: Host, validators: Validators, task: Task
    ) -> None:  # fmt: skip
        self.name = name
        self.is_busy = True
        self._config = config
        self._machine = machine
        self._validators = validators
        self._settings, self._judge, self._until_ms, self._forth_again = task
        self._rng = machine.rng.split(f"life{machine.incarnation}")
        self._asked = 0
        self._replied = 0
        self._made = 0
        self._lives = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Poll, and do one of the other things after the other beside it."""
        await self._start()
        await asyncio.gather(
            self._go_on("poll", self._poll),
            self._go_on("step", None),
            self._go_on("new topic", self._send_to_new, NEW_TOPIC_STEPS),
        )
        self._poller.resume()
        await asyncio.gather(*self._tasks)
        if self._settings.oneway_p:
            await self._lists.send_until_there()
        for asker in self._askers:  # with everything healed, each gets its reply
            self._replied = 0
            while not self._replied:
                await asyncio.sleep(RETRY_S)
                await self._request_one(asker)
            self._judge.on_all_ended(asker.client_id, asker._requests.waiting)
        self.is_busy = False
        await asyncio.get_running_loop().create_future()

    async def _go_on(
        self, name: str, action: Callable[[Any], Awaitable[None]] | None, slower: int = 1
    ) -> None:
        """Take steps, of one kind or of any, until the faults are over."""
        clock, steps = self._machine.clock, 0
        while clock.monotonic_ms() < self._until_ms:
            steps += 1
            rng = self._rng.split(f"{name}{steps}")
            await asyncio.sleep(rng.exponential(slower * self._settings.every_ms) / MS_PER_S)
            try:
                await (action or self._choose(rng))(rng)
            except (RemotingError, ValueError):  # the latter of a queue that is held no more
                self._validators.record.count("client_errors")

    def _choose(self, rng: Any) -> Callable[[Any], Awaitable[None]]:  # noqa: ANN401  # a stream
        one = self._settings
        actions = {
            self._filter: one.filter_p,
            self._ask: one.ask_p,
            self._request: one.request_p,
            self._reset: one.reset_p,
            self._set_back: one.back_p,
            self._send_list: one.list_p,
            self._send_oneway: one.oneway_p,
        }
        chosen: Callable[[Any], Awaitable[None]] = rng.split("what").weighted(
            list(actions), list(actions.values())
        )
        return chosen

    async def _start(self) -> None:
        clock, rng = self._machine.clock, self._rng
        self._puller = PullConsumer(
            self._named(ASIDE_GROUP, "aside"), clock=clock, rng=rng.split("pull")
        )
        self._askers = [
            Producer(self._named("askers", f"ask{at}"), clock=clock, rng=rng.split(f"ask{at}"))
            for at in range(2)
        ]
        options = ConsumeOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
        replier = PushConsumer(
            self._named(ASK_GROUP, "reply"), self._reply, options, clock=clock,
            rng=rng.split("reply"),
        )  # fmt: skip
        replier.subscribe(ASK_TOPIC)
        self._poller = poller = self._new_poller()
        self._lists = Lists(self._named("lists", "lists"), self._machine, self._validators)
        for one in (self._puller, *self._askers, replier, poller.consumer, self._lists.producer):
            await one.start()
        await self._make_topic()

    def _new_poller(self) -> Poller:
        self._lives += 1
        name = "poll" if self._lives == 1 else f"poll{self._lives}"
        return Poller(
            self._named(POLL_GROUP, name), self._settings, self._validators, self._judge,
            (self._machine.clock, self._rng.split(name)),
        )  # fmt: skip

    def _named(self, group: str, instance: str) -> ClientConfig:
        name = f"{self._config.instance_name}-{instance}"
        return dataclasses.replace(self._config, group=group, instance_name=name)

    async def _make_topic(self) -> None:
        asker = self._askers[0]
        while True:
            try:
                await asker.create_topic(ASK_TOPIC, 1)
                if await asker.fetch_publish_queues(ASK_TOPIC):
                    return
            except RemotingError:
                self._validators.record.count("client_errors")
            await asyncio.sleep(RETRY_S)

    # Steps

    async def _poll(self, rng: Any) -> None:  # noqa: ANN401  # a stream
        await self._poller.step(rng)
        polls = self._settings.life_polls
        if polls and rng.split("life").chance(1 / polls):
            await self._poller.stop()
            self._poller = self._new_poller()
            await self._poller.consumer.start()

    async def _send_list(self, rng: Any) -> None:  # noqa: ANN401  # likewise
        await self._lists.send_all(rng)

    async def _send_oneway(self, _rng: Any) -> None:  # noqa: ANN401  # likewise
        await self._lists.send_oneway()

    async def _queue(self, rng: Any) -> MessageQueue:  # noqa: ANN401  # likewise
        queues = await self._puller.fetch_subscribe_queues(TOPIC)
        known = [one for one in queues if self._validators.is_known(one)]
        queue: MessageQueue = rng.split("queue").choice(known or queues)
        return queue

    async def _filter(self, rng: Any) -> None:  # noqa: ANN401  # likewise
        """Read with a filter over properties, from anywhere."""
        queue = await self._queue(rng)
        end = await self._puller.max_offset(queue)
        offset = rng.split("from").randint(0, max(0, end - 1))
        number = rng.split("filter").randint(0, len(FILTERS) - 1)
        result = await self._puller.pull(
            queue, Sql92(FILTERS[number][0]), offset=offset,
            max_count=rng.split("count").choice(COUNTS),
        )  # fmt: skip
        if result.status not in {PullStatus.FOUND, PullStatus.NO_MATCHED_MESSAGE}:
            return
        if not self._validators.is_known(queue):
            return
        passed = range(max(offset, result.min_offset), result.next_offset)
        got = {message.queue_offset for message in result.messages}
        self._judge.on_filtered((queue.topic, queue.queue_id), passed, number, got)
        self._validators.record.count("filtered")

    async def _ask(self, rng: Any) -> None:  # noqa: ANN401  # likewise
        """Ask where messages of a queue lie, and where it was at a time; judged on the wire."""
        queue = await self._queue(rng)
        place = (queue.topic, queue.queue_id)
        fields = {"topic": queue.topic, "queueId": str(queue.queue_id)}
        await self._request_of(queue, RequestCode.GET_EARLIEST_MSG_STORETIME, fields)
        end = await self._puller.max_offset(queue)
        index = rng.split("index").randint(0, max(0, end - 1))
        units = {"index": str(index), "count": "8"}
        await self._request_of(queue, RequestCode.QUERY_CONSUME_QUEUE, fields | units)
        stored_ms = self._validators.of(queue).choose_time(place, rng.split("time").randint(0, 999))
        if stored_ms is None:
            return
        wanted = stored_ms + rng.split("around").randint(-AROUND_MS, AROUND_MS)
        extra = {"timestamp": str(wanted)}
        boundary = rng.split("boundary").choice(BOUNDARIES)
        if boundary:
            extra["boundaryType"] = boundary
        await self._request_of(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields | extra)
        self._validators.record.count("asked")

    async def _reset(self, rng: Any) -> None:  # noqa: ANN401  # likewise
        """Have the group that polls go on at the beginning or at the end."""
        queue = await self._queue(rng)
        fields = {
            "topic": TOPIC, "group": POLL_GROUP,
            "timestamp": str(rng.split("time").choice(RESET_TIMES)),
            "isForce": rng.split("force").choice(("true", "false")),
        }  # fmt: skip
        await self._request_of(queue, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
        self._validators.record.count("resets")

    async def _set_back(self, rng: Any) -> None:  # noqa: ANN401  # likewise
        """Commit an offset, and a smaller one a moment later."""
        queue = await self._queue(rng)
        end = await self._puller.max_offset(queue)
        first = rng.split("first").randint(0, end)
        offsets = [first, rng.split("second").randint(0, first)]
        if self._forth_again:
            offsets.append(first)
        for offset in offsets:
            place = (queue.topic, queue.queue_id)
            self._validators.of(queue).on_offered(place, offset)
            await self._puller.commit_offset(queue, offset)
            await asyncio.sleep(rng.split("wait").choice((0.0, 0.3, 1.5)))
        self._validators.record.count("set_back")

    async def _send_to_new(self, rng: Any) -> None:  # noqa: ANN401  # likewise
        """Send several messages at once to a queue of a topic that is not there yet."""
        self._made += 1
        topic = f"{self.name}-{self._machine.incarnation}-{self._made}"
        queue, sender = MessageQueue(topic, GROUP_NAME, 0), rng.split("sender").choice(self._askers)
        count = 2 + rng.split("count").randint(0, ASKED_AT_ONCE)
        sends = [sender.send(Message(topic, b"new %d" % at), queue) for at in range(count)]
        ended = await asyncio.gather(*sends, return_exceptions=True)
        self._validators.record.count(
            "new_topics", any(isinstance(one, SendResult) for one in ended)
        )

    async def _request(self, rng: Any) -> None:  # noqa: ANN401  # likewise
        """Send messages that want a reply, and let the replies come."""
        self._tasks = {task for task in self._tasks if not task.done()}
        if len(self._tasks) > ASKED_AT_ONCE:
            return
        loop = asyncio.get_running_loop()
        asker = rng.split("asker").choice(self._askers)
        count = 1 + rng.split("count").randint(0, ASKED_AT_ONCE - 1)
        timeout_ms = rng.split("patience").choice(PATIENCE_MS)
        self._tasks |= {
            loop.create_task(self._request_one(asker, timeout_ms)) for _ in range(count)
        }

    async def _request_one(self, asker: Producer, timeout_ms: int = ASK_MS) -> None:
        self._asked += 1
        body = f"{self.name} asks {self._asked}".encode()
        try:
            reply = await asker.request(Message(ASK_TOPIC, body), timeout_ms)
        except (NoReply, RemotingError):
            self._validators.record.count("unreplied")
            return
        self._replied += 1
        self._judge.on_replied(body, bytes(reply.body))
        self._validators.record.count("replied")

    async def _reply(
        self, messages: list[MessageExt], _context: ConsumeContext
    ) -> ConsumeStatus:  # fmt: skip
        for message in messages:
            body = bytes(message.content())
            slow_ms = self._rng.point(f"slow{body!r}") * self._settings.slow_ms
            await asyncio.sleep(slow_ms / MS_PER_S)
            try:
                await self._askers[0].reply(message, reply_to(body))
            except RemotingError:
                self._validators.record.count("client_errors")
        return ConsumeStatus.CONSUME_SUCCESS

    async def _request_of(
        self, queue: MessageQueue, code: RequestCode, fields: dict[str, str]
    ) -> RemotingCommand:  # fmt: skip
        puller = self._puller
        addr = puller._leaders.master(queue)
        command = RemotingCommand(code=code, ext_fields=fields)
        return await puller._instance.client.request(addr, command, ASK_MS)
