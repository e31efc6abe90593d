"""SEND_MESSAGE (310, 10) and SEND_BATCH_MESSAGE (320): from the frame to the acknowledgement.

The hot path of the broker. ``handle`` is a plain function: no task, no future, no logging. It looks
the topic up, rewrites the properties and hands the message to the store with a callback; the store
calls it back once a majority holds the message, and the callback writes the answer from a template.
All answers of one turn of the loop leave each connection with one system call. A large message
waits before the log while others are on their way in it (`broker.sends.room`).

What it may contain is decided first (`broker.sends.door`), so that nothing is created, appended or
made to wait for a send that is refused.

A send to a missing topic takes the slow path: it is parked, the topic is created through the
replicated log and registered with the name servers, then the frame is handled again. Later sends
to the topic wait behind it until then. A parked send whose connection has closed is stored all the
same, as by RocketMQ, where it is under way in a thread of its own.
Source: spec/wire.md 3.3, 4.6; RocketMQ SendMessageProcessor 4.9.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from broker.answers import (
    PUT_ANSWERS,
    WritableConnection,
    write_answer,
    write_command,
)
from broker.hosts import PeerConnection, packed_peer
from broker.sends.room import SMALL_BYTES
from broker.sends.rules import BATCH_LIMITS, MESSAGE_LIMITS, Refused
from broker.state.topic_config import FORBIDDEN_TOPICS, topic_name_error, topic_text
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.headers import (
    DEFAULT_REGION,
    SendHeader,
    SendResponseEncoder,
    decode_send_header,
    region_fields,
)
from ledgermq.remoting.transport.requests import ServedBy, serves
from ledgermq.remoting.transport.room import NoRoom
from ledgermq.runtime.tasks import attempt
from store.layout import HALF_TOPIC_BYTES, SCHEDULE_TOPIC_BYTES
from store.results import STORED, PutBatch, PutMessage, PutStatus

if TYPE_CHECKING:
    from collections import defaultdict
    from collections.abc import Mapping

    from broker.sends.door import Door
    from broker.sends.room import LogRoom
    from broker.state.topic_config import TopicEntry
    from ledgermq.remoting.protocol.frame import Frame
    from ledgermq.runtime.rng import Rng
    from store.results import BatchCallback, PutCallback

_ONEWAY: Final = 2
HALF_TOPIC: Final = HALF_TOPIC_BYTES.decode()
_WAITING: Final = {
    HALF_TOPIC_BYTES: HALF_TOPIC,
    SCHEDULE_TOPIC_BYTES: SCHEDULE_TOPIC_BYTES.decode(),
}
"""Topics in which messages wait: they count in their own when they come there."""
_FAILED: Final = (
    ResponseCode.SYSTEM_ERROR,
    "the send failed by an error of the broker after it had waited for its topic, outcome unknown",
)

Resume = Callable[[tuple[int, str] | None], None]
"""Called with None when the topic exists, else with the answer that refuses the send."""


class SendConnection(WritableConnection, PeerConnection, Protocol):
    """What sends need of a connection."""


class SendStore(Protocol):
    """What sends need of the store."""

    @property
    def writable(self) -> bool:
        """Whether this replica takes messages."""

    def put(self, message: PutMessage, done: PutCallback) -> None:
        """Store one message."""

    def put_batch(self, batch: PutBatch, done: BatchCallback) -> None:
        """Store messages with consecutive queue offsets."""


class TopicMaker(Protocol):
    """Creates topics on behalf of sends, and knows where retries go."""

    @property
    def parked(self) -> Mapping[str, object]:
        """Topics whose sends wait; always the same, read at every send."""

    def direct_retry(self, header: SendHeader) -> tuple[int, str] | None:
        """Change a retry that is a dead letter, or return the refusal of the send."""

    def wait_behind(self, topic: str, resume: Resume, size_bytes: int) -> tuple[int, str] | None:
        """Call ``resume`` behind the sends that wait, or return the refusal of the send."""

    def topic_for_send(
        self, topic: str, default_topic: str, queues: int, resume: Resume, size_bytes: int
    ) -> tuple[int, str] | None:
        """Create a missing topic and call ``resume``, or return the refusal of the send."""


class SendProcessor:
    """Answers sends of one broker.

    Args:
        topics: topic entries by name; read at every send.
        store: where messages go.
        maker: creates missing topics.
        door: says what a send may contain.
        rng: picks the queue of sends that leave it open.
        store_host: packed address of this broker, the first part of message ids.
        region, trace_on: are told in each answer.
        puts: stored messages by topic, which are added to.
        on_half: is told of each half that is stored, and where it lies in the log.
        room: where large messages wait for those before them.
    """

    def __init__(  # noqa: PLR0913 - the wiring of the hot path; each is one collaborator
        self,
        *,
        topics: Mapping[str, TopicEntry],
        store: SendStore,
        maker: TopicMaker,
        door: Door,
        rng: Rng,
        store_host: bytes,
        puts: defaultdict[str, int],
        on_half: Callable[[int, PutMessage], None],
        room: LogRoom,
        region: str = DEFAULT_REGION,
        trace_on: bool = True,
    ) -> None:
        self._topics = topics
        self._store = store
        self._maker = maker
        self._parked = maker.parked
        self._resuming = False
        self._puts = puts
        self._on_half = on_half
        self._room = room
        self._door = door
        self._read = door.read
        self._rng = rng
        self._encode = SendResponseEncoder(region, trace_on=trace_on).encode
        self._fields = region_fields(region, trace_on=trace_on)
        self._id_head = store_host.hex().upper()
        self._next_id_head = "," + self._id_head
        self._message_id = self._id_head + "%016X"

    @serves(
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_MESSAGE,
        what="send a message",
        header=SendHeader,
        limits=MESSAGE_LIMITS,
        hot=True,
        served_by=ServedBy.LEADER_BY_ITSELF,
    )
    def handle(self, connection: SendConnection, frame: Frame) -> None:
        """Take a SEND_MESSAGE or SEND_MESSAGE_V2 frame. Errors: `NoRoom`."""
        if len(frame.body) + len(frame.header) > SMALL_BYTES:
            self._check_room()
        opaque, flag, _, header = decode_send_header(frame)
        if header.batch:
            self._handle_batch(connection, frame, opaque, flag, header)
            return
        topic = self._topics.get(header.topic)
        queue_id = header.queue_id
        parked = self._parked
        if (
            topic is None
            or topic.is_special
            or not 0 <= queue_id < topic.queues
            or (parked and header.topic in parked)
        ):
            picked = self._settle_queue(connection, frame, opaque, flag, header)
            if picked is None:
                return
            topic, queue_id = picked
        body = frame.body
        try:
            sys_flag, properties = self._read(header, body)
        except Refused as refused:
            self._refuse(connection, frame, opaque, flag, refused.answer)
            return
        name = topic.name
        message = PutMessage(
            topic.name_bytes,
            queue_id,
            header.flag,
            sys_flag | topic.system_flag,
            header.born_timestamp,
            packed_peer(connection),
            header.reconsume_times or 0,
            0,
            properties.text,
            body,
            properties.tags_code,
        )
        if properties.delay_level or properties.transactional:
            try:
                message = self._door.put_by(message, properties)
            except Refused as refused:
                self._refuse(connection, frame, opaque, flag, refused.answer)
                return
            name = _WAITING.get(message.topic, name)
        done = (
            partial(self._count, name)
            if flag & _ONEWAY
            else partial(self._answer, connection, opaque, frame.serialize_type, name, queue_id)
        )
        if name is HALF_TOPIC:
            done = partial(self._keep_half, message, done)
        self._store.put(message, done)

    @serves(
        RequestCode.SEND_BATCH_MESSAGE,
        what="send a batch ([what it promises](#what-a-batch-promises))",
        header=SendHeader,
        limits=BATCH_LIMITS,
        hot=True,
        served_by=ServedBy.LEADER_BY_ITSELF,
    )
    def handle_batch(self, connection: SendConnection, frame: Frame) -> None:
        """Take a SEND_BATCH_MESSAGE frame. Errors: `NoRoom`."""
        if len(frame.body) + len(frame.header) > SMALL_BYTES:
            self._check_room()
        opaque, flag, _, header = decode_send_header(frame)
        header.batch = True
        self._handle_batch(connection, frame, opaque, flag, header)

    def _answer(  # noqa: PLR0913, PLR0917 - three from the store, the rest bound when the frame came
        self,
        connection: SendConnection,
        opaque: int,
        serialize_type: int,
        topic: str,
        queue_id: int,
        status: PutStatus,
        queue_offset: int,
        physical_offset: int,
    ) -> None:
        """Acknowledge one message; the store's completion callback."""
        if status is PutStatus.OK:
            self._puts[topic] += 1
            connection.write(
                self._encode(
                    opaque,
                    serialize_type,
                    self._message_id % physical_offset,
                    queue_id,
                    queue_offset,
                )
            )
        else:
            if status in STORED:
                self._puts[topic] += 1
            place = (self._message_id % physical_offset, queue_id, queue_offset)
            self._answer_failure(connection, serialize_type, opaque, status, place)

    def _handle_batch(
        self, connection: SendConnection, frame: Frame, opaque: int, flag: int, header: SendHeader
    ) -> None:
        topic = self._topics.get(header.topic)
        queue_id = header.queue_id
        is_known = topic is not None and not topic.is_special and 0 <= queue_id < topic.queues
        is_free = self._store.writable and header.topic not in self._parked
        if topic is None or not is_known or not is_free:
            picked = self._settle_queue(connection, frame, opaque, flag, header)
            if picked is None:
                return
            topic, queue_id = picked
        try:
            sys_flag, columns = self._door.read_batch(header, frame.body)
        except Refused as refused:
            self._refuse(connection, frame, opaque, flag, refused.answer)
            return
        self._store.put_batch(
            PutBatch(
                topic.name_bytes,
                queue_id,
                sys_flag | topic.system_flag,
                header.born_timestamp,
                packed_peer(connection),
                header.reconsume_times or 0,
                *columns,
            ),
            partial(self._count_batch, topic.name)
            if flag & _ONEWAY
            else partial(
                self._answer_batch, connection, opaque, frame.serialize_type, topic.name, queue_id
            ),
        )

    def _answer_batch(  # noqa: PLR0913, PLR0917 - as _answer
        self,
        connection: SendConnection,
        opaque: int,
        serialize_type: int,
        topic: str,
        queue_id: int,
        status: PutStatus,
        queue_offset: int,
        physical_offsets: list[int],
    ) -> None:
        digits = struct.pack(f">{len(physical_offsets)}q", *physical_offsets).hex(",", 8).upper()
        ids = self._id_head + digits.replace(",", self._next_id_head) if digits else ""
        if status.is_stored:
            self._puts[topic] += len(physical_offsets)
        if status is not PutStatus.OK:
            place = (ids, queue_id, queue_offset)
            self._answer_failure(connection, serialize_type, opaque, status, place)
            return
        connection.write(self._encode(opaque, serialize_type, ids, queue_id, queue_offset))

    def _keep_half(
        self,
        half: PutMessage,
        done: PutCallback,
        status: PutStatus,
        queue_offset: int,
        physical_offset: int,
    ) -> None:
        """Completion of a half: its commit is near."""
        if status.is_stored:
            self._on_half(physical_offset, half)
        done(status, queue_offset, physical_offset)

    def _count(self, topic: str, status: PutStatus, _queue_offset: int, _physical: int) -> None:
        """Completion of a oneway send: nobody waits."""
        if status.is_stored:
            self._puts[topic] += 1

    def _count_batch(
        self, topic: str, status: PutStatus, _queue_offset: int, physical_offsets: list[int]
    ) -> None:
        """Completion of a oneway batch: nobody waits."""
        if status.is_stored:
            self._puts[topic] += len(physical_offsets)

    def _check_room(self) -> None:
        """Have a large frame wait while there is no room; one that waited for its topic has it."""
        if not self._resuming and not self._room.is_free():
            raise NoRoom(self._room)

    def _settle_queue(
        self, connection: SendConnection, frame: Frame, opaque: int, flag: int, header: SendHeader
    ) -> tuple[TopicEntry, int] | None:
        """Run the checks of spec/wire.md 3.3; None if the send was answered or parked."""
        answer = self._topic_refusal(header.topic) or self._maker.direct_retry(header)
        topic = self._topics.get(header.topic)
        if answer is None and not self._resuming:
            is_parked = header.topic in self._parked
            if is_parked or topic is None:
                answer = self._park(connection, frame, opaque, flag, header)
                if answer is None:
                    return None
        if answer is None and topic is None:
            answer = ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist"
        if answer is None and topic is not None:
            if header.queue_id < topic.queues and (header.queue_id >= 0 or topic.write_queues):
                queue_id = header.queue_id
                if queue_id < 0:
                    queue_id = self._rng.randint(0, topic.write_queues - 1)
                return topic, queue_id
            host, port = connection.remote[:2]
            answer = (
                ResponseCode.SYSTEM_ERROR,
                f"request queueId[{header.queue_id}] is illegal, {topic_text(topic.config)} "
                f"Producer: {host}:{port}",
            )
        assert answer is not None, header
        self._refuse(connection, frame, opaque, flag, answer)
        return None

    def _park(
        self, connection: SendConnection, frame: Frame, opaque: int, flag: int, header: SendHeader
    ) -> tuple[int, str] | None:
        """Have a send wait for its topic, or return its refusal."""
        try:
            (self._door.read_batch if header.batch else self._door.read)(header, frame.body)
        except Refused as refused:
            return refused.answer
        take = self.handle_batch if header.batch else self.handle
        resume = partial(self._resume, connection, frame, (opaque, flag), take)
        size_bytes = len(frame.header) + len(frame.body)
        if header.topic in self._parked:
            return self._maker.wait_behind(header.topic, resume, size_bytes)
        return self._maker.topic_for_send(
            header.topic,
            header.default_topic,
            header.default_topic_queue_nums,
            resume,
            size_bytes,
        )

    def _topic_refusal(self, topic: str) -> tuple[int, str] | None:
        if not self._store.writable:
            return PUT_ANSWERS[PutStatus.NOT_LEADER]
        entry = self._topics.get(topic)
        if topic in FORBIDDEN_TOPICS or (entry is not None and entry.forbidden):
            return (
                ResponseCode.NO_PERMISSION,
                f"Sending message to topic[{topic}] is forbidden.",
            )
        error = topic_name_error(topic)
        return None if error is None else (ResponseCode.SYSTEM_ERROR, error)

    def _resume(
        self,
        connection: SendConnection,
        frame: Frame,
        asked: tuple[int, int],
        take: Callable[[SendConnection, Frame], None],
        answer: tuple[int, str] | None,
    ) -> None:
        """Go on with a parked send: its topic exists now, or ``answer`` says why not."""
        if answer is None:
            self._resuming = True
            if not attempt("parked send", partial(take, connection, frame)):
                answer = _FAILED
            self._resuming = False
        if answer is not None:
            self._refuse(connection, frame, *asked, answer)

    def _refuse(
        self,
        connection: SendConnection,
        frame: Frame,
        opaque: int,
        flag: int,
        answer: tuple[int, str | None],
    ) -> None:
        if not flag & _ONEWAY:
            write_answer(connection, frame, opaque, answer, self._fields)

    def _answer_failure(
        self,
        connection: SendConnection,
        serialize_type: int,
        opaque: int,
        status: PutStatus,
        place: tuple[str, int, int],
    ) -> None:
        """Answer a put that did not end well; where a stored message lies is told all the same."""
        fields = self._fields
        if status in STORED:
            message_id, queue_id, queue_offset = place
            fields = {
                **fields,
                "msgId": message_id,
                "queueId": str(queue_id),
                "queueOffset": str(queue_offset),
            }
        write_command(connection, serialize_type, opaque, PUT_ANSWERS[status], fields)
