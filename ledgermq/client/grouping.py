"""Groups of concurrent sends: what starts in one turn of the loop leaves as one request.

Nothing waits for more to come. The first ordinary send of a turn opens a group for its topic, later
sends of the same turn join it, and at the end of the turn each group leaves: several messages as a
batch (320), a single one as an ordinary send (310). A group that has reached a limit leaves at once
and the next send opens another, for the next queue. Who sends one message at a time pays nothing
for it: without a send under way, and after a turn with one send, the next one opens no group.

A group is tried once. If that fails, each member goes on alone (`ledgermq.client.delivery`), with
what became of the group as its first attempt. Source: RocketMQ 5's ProduceAccumulator has the idea,
with a wait; batches: spec/wire.md 4.6.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

import msgspec

from ledgermq.client.config import ClientConfig
from ledgermq.client.links import Link
from ledgermq.client.message import Attempt, Message, SendResult
from ledgermq.client.send_codec import (
    ELEMENT_BYTES_MAX,
    SendTarget,
    decode_acknowledgement,
    encode_attributes,
    encode_send,
    prepare_single,
    render_group,
)
from ledgermq.client.validation import PROPERTIES_BYTES_MAX
from ledgermq.remoting.protocol.errors import (
    RemoteProtocolError,
    RemotingError,
    RequestCodeNotSupported,
)
from ledgermq.remoting.protocol.frame import Frame
from ledgermq.remoting.protocol.unique_id import UniqueIdGenerator
from ledgermq.runtime.clock import Clock

ATTRIBUTES_BYTES_MAX = PROPERTIES_BYTES_MAX - ELEMENT_BYTES_MAX
"""Messages with more go alone, where the exact limit is checked."""

Place = tuple[SendTarget, Link]
"""A queue and the connection to its leader."""


class GroupFailed:
    """What a member gets instead of a result: the one attempt that its group made."""

    __slots__ = ("error", "group", "message", "msg_id")

    def __init__(self, group: "Group", message: Message, msg_id: str, error: RemotingError) -> None:
        self.group = group
        self.message = message
        self.msg_id = msg_id
        self.error = error


Ending = SendResult | GroupFailed
Member = tuple["asyncio.Future[Ending]", Message, bytes]
"""The waiting caller, its message, and the message's properties behind the unique key."""


class GroupingProducer(Protocol):
    """The producer, as its groups see it."""

    config: ClientConfig
    clock: Clock

    def maybe_place(self, topic: str) -> Place | None:
        """Return the topic's next place if a batch can be sent there without waiting."""
        ...


class Group:
    """Messages that leave together."""

    __slots__ = (
        "_clock", "_ended", "born_ms", "ids", "link", "members", "size_bytes", "t_start_ns",
        "target", "timeout_ms",
    )  # fmt: skip

    def __init__(self, place: Place, timeout_ms: int, clock: Clock) -> None:
        self.target, self.link = place
        self.timeout_ms = timeout_ms
        self._clock = clock
        self._ended = False
        self.members: list[Member] = []
        self.size_bytes = 0
        self.ids: list[str] = []
        self.born_ms = 0
        self.t_start_ns = 0

    def leave(self, unique_ids: UniqueIdGenerator) -> None:
        """Send the request, without members that were cancelled; its answer ends the others."""
        self.members = members = [member for member in self.members if not member[0].done()]
        self.born_ms = born_ms = self._clock.wall_ms()
        self.t_start_ns = self._clock.monotonic_ns()
        self.ids = ids = unique_ids.take(born_ms, len(members))
        if not members:
            return
        if len(members) == 1:
            message = members[0][1]
            size = len(message.body)
            outgoing = prepare_single(message, ids[0], born_ms, max_bytes=size, compress_over=0)
        else:
            messages = [(message, attributes) for _, message, attributes in members]
            outgoing = render_group(self.target.queue.topic, messages, ids, born_ms)
        link = self.link
        connection = link.connection
        opaque = connection.next_opaque()
        header = encode_send(self.target, outgoing, opaque, 0)
        if not link.pending:
            link.t_progress_ns = self.t_start_ns
        link.pending += 1
        connection.submit_request(self, opaque, self.timeout_ms, header, outgoing.body)

    # The connection's receiver of the answer:

    def done(self) -> bool:
        """Return whether the members have got their endings."""
        return self._ended

    def set_result(self, frame: Frame, /) -> None:
        """Give each member its result, or the refusal of all."""
        self.link.t_progress_ns = self._clock.monotonic_ns()
        try:
            results = self._results(frame, self.link.t_progress_ns)
        except RemotingError as error:
            if isinstance(error, RequestCodeNotSupported) and len(self.members) > 1:
                self.link.takes_batches = False
            self.set_exception(error)
        else:
            self._end(results)

    def set_exception(self, error: RemotingError, /) -> None:
        """Tell each member that the attempt has failed."""
        self._end(
            [
                GroupFailed(self, message, msg_id, error)
                for (_, message, _), msg_id in zip(self.members, self.ids, strict=True)
            ]
        )

    def _end(self, endings: Sequence[Ending]) -> None:
        self._ended = True
        self.link.pending -= 1
        for (future, _, _), ending in zip(self.members, endings, strict=True):
            if not future.done():
                future.set_result(ending)

    def _results(self, frame: Frame, t_end_ns: int) -> list[SendResult]:
        """Return the members' results; raises `RemotingError`."""
        status, stored = decode_acknowledgement(frame)
        stored_ids = stored.msg_id.split(",")
        count = len(self.members)
        if len(stored_ids) == 1:
            stored_ids *= count
        elif len(stored_ids) != count:
            raise RemoteProtocolError(f"{len(stored_ids)} ids for a batch of {count}")
        attempts = (Attempt(self.link.addr, self.t_start_ns, t_end_ns, int(status), "", None),)
        queue = self.target.queue
        if stored.queue_id != queue.queue_id:
            queue = queue._replace(queue_id=stored.queue_id)
        return [
            SendResult(status, msg_id, stored_id, queue, offset, attempts, stored.region)
            for offset, (msg_id, stored_id) in enumerate(
                zip(self.ids, stored_ids, strict=True), stored.queue_offset
            )
        ]


class Grouper:
    """The groups of one producer that have not left yet."""

    def __init__(
        self,
        producer: GroupingProducer,
        unique_ids: UniqueIdGenerator,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        config = producer.config
        self._producer = producer
        self._unique_ids = unique_ids
        self._loop = loop
        self._messages_max = config.auto_batch_messages_max
        self._bytes_max = min(config.auto_batch_bytes_max, config.max_message_bytes)
        self._body_max = config.compress_over_bytes or config.max_message_bytes
        self._timeout_ms = config.send_timeout_ms
        self._groups: dict[str | tuple[str, int], Group] = {}
        self._leaving = False
        self.crowded = False
        """Whether the last group had several members."""

    def join(
        self, message: Message, timeout_ms: int | None
    ) -> "asyncio.Future[SendResult | GroupFailed] | None":
        """Make ``message`` leave at the end of this turn; None if it has to go alone, at once.

        Alone goes what a batch must not hold (delayed messages, those for a retry topic), what is
        to be compressed, what is larger than a group may be, anything malformed, and everything
        while no queue of the topic can be sent to without waiting. All members have the same
        budget of time. Cancelling the future is allowed. Errors: ``InvalidMessage``.
        """
        body = message.body
        if type(body) is not bytes or not 0 < len(body) <= self._body_max or message.delay_level:
            return None
        attributes = b""
        if message.tags or message.keys or message.properties or message.flag:
            attributes = encode_attributes(message).encode()
            message = _as_it_is(message)
        size_bytes = len(body) + len(attributes) + ELEMENT_BYTES_MAX
        if size_bytes > self._bytes_max or len(attributes) > ATTRIBUTES_BYTES_MAX:
            return None
        key = message.topic if timeout_ms is None else (message.topic, timeout_ms)
        group = self._groups.get(key)
        if group is not None and group.size_bytes + size_bytes > self._bytes_max:
            self._leave(self._groups.pop(key))
            group = None
        if group is None:
            place = self._producer.maybe_place(message.topic)
            if place is None:
                return None
            if timeout_ms is None:
                timeout_ms = self._timeout_ms
            group = self._groups[key] = Group(place, timeout_ms, self._producer.clock)
            if not self._leaving:
                self._leaving = True
                self._loop.call_soon(self._leave_all)
        future: asyncio.Future[Ending] = self._loop.create_future()
        group.members.append((future, message, attributes))
        group.size_bytes += size_bytes
        if len(group.members) >= self._messages_max:
            self._leave(self._groups.pop(key))
        return future

    def _leave_all(self) -> None:
        self._leaving = False
        groups, self._groups = self._groups, {}
        for group in groups.values():
            self._leave(group)

    def _leave(self, group: Group) -> None:
        self.crowded = len(group.members) > 1
        group.leave(self._unique_ids)


def _as_it_is(message: Message) -> Message:
    """Return a message whose sender cannot change it before it leaves, or is sent again."""
    if not message.properties:
        return message
    return msgspec.structs.replace(message, properties=dict(message.properties))
