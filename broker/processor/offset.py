"""Consumer offsets: UPDATE_CONSUMER_OFFSET (15, hot) and QUERY_CONSUMER_OFFSET (14).

Of a Raft group, offsets belong to the leader: any other replica refuses an update with 14. A slave
of a master takes what consumers commit there while their master is gone
(`broker.state.own_offsets`). A query that a replica
of a group without authority cannot answer with an offset is left to time out: clients take every
error code for "no offset" and then may skip to the end of the queue, but a timeout makes them ask
again. A slave answers as a master does, by what it has been told: RocketMQ's clients close a
connection whose answer does not come, and their group with it would not get on at all.

An offset is kept of a group that exists or may be created, in a queue that exists; RocketMQ 5
refuses the others with the same codes, 4.9 keeps them for ever. Its value may be any, as there.
Source: spec/wire.md 3.7; RocketMQ ConsumerManageProcessor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from broker.answers import PUT_ANSWERS, WritableConnection, shown, write_command
from broker.groups.claims import ClaimedQueue
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import FLAG_ONEWAY, RemotingCommand, make_response
from ledgermq.remoting.protocol.headers import (
    HELD_BY_FIELD,
    STORED_FIELD,
    Claim,
    QueryOffsetHeader,
    UpdateOffsetHeader,
    decode_header,
    decode_update_offset_header,
)
from ledgermq.remoting.transport.requests import ServedBy, serves
from store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.state.subscription import SubscriptionGroupConfig
    from broker.tables import Tables
    from ledgermq.remoting.protocol.frame import Frame
    from store.read.reader import Reader

    Answer = tuple[int, str | None]

_FULL: Final = (ResponseCode.SYSTEM_BUSY, "the table of consumer offsets is full")
_TOO_MANY_NEW: Final = (ResponseCode.SYSTEM_BUSY, "too many new consumer groups, try again later")
_OK: Final = (ResponseCode.SUCCESS, None)
_NOT_FOUND: Final = "Not found, maybe this group consumer boot first"


class OffsetStore(Protocol):
    """What offsets need of the store."""

    @property
    def reader(self) -> Reader:
        """Reads messages."""

    @property
    def readable(self) -> bool:
        """Whether it leads, or is a slave that serves reads."""


class MemberConnection(WritableConnection, Protocol):
    """What offsets need of a connection: it may be that of a member."""

    @property
    def id(self) -> int:
        """Number of the connection, never used again."""


class OffsetProcessor:
    """Answers offset requests of one broker.

    Args:
        on_new_group: has a group created that a request used with default settings; False if there
            are too many new ones.
    """

    def __init__(
        self,
        tables: Tables,
        store: OffsetStore,
        on_new_group: Callable[[SubscriptionGroupConfig], bool],
    ) -> None:
        self._topics = tables.topics.entries
        self._groups = tables.groups
        self._consumers = tables.consumers
        self._offsets = tables.offsets
        self._commits = tables.commits
        self._store = store
        self._on_new_group = on_new_group

    @serves(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        what="commit a consumer offset; any int64",
        header=UpdateOffsetHeader,
        hot=True,
        served_by=ServedBy.READABLE_BY_ITSELF,
    )
    def handle_update(self, connection: MemberConnection, frame: Frame) -> None:
        """Take an UPDATE_CONSUMER_OFFSET frame; usually oneway."""
        opaque, flag, _, header = decode_update_offset_header(frame)
        if not self._store.readable:
            answer: Answer = PUT_ANSWERS[PutStatus.NOT_LEADER]
        else:
            answer = self._refusal(header) or self._commit(header)
            if header.claim is not None:
                self._claim(header, connection.id)
        if not flag & FLAG_ONEWAY:
            write_command(connection, frame.serialize_type, opaque, answer, {})

    @serves(
        RequestCode.QUERY_CONSUMER_OFFSET,
        what="ask for a consumer offset",
        header=QueryOffsetHeader,
    )
    def handle_query(
        self, connection: MemberConnection, request: RemotingCommand
    ) -> RemotingCommand | None:
        """Take a QUERY_CONSUMER_OFFSET request."""
        header = decode_header(request, QueryOffsetHeader)
        held_by = self._claim(header, connection.id)
        answer = self._answer(header, request)
        if answer is not None and held_by:
            answer.ext_fields = {**(answer.ext_fields or {}), HELD_BY_FIELD: held_by}
        return answer

    def _answer(
        self, header: QueryOffsetHeader, request: RemotingCommand
    ) -> RemotingCommand | None:
        topic, queue_id = header.topic, header.queue_id
        offset = self._offsets.query(header.consumer_group, topic, queue_id)
        if offset is None or offset < 0:  # a negative one is none, says RocketMQ
            if not self._store.readable:
                return None
            if not self._begins_at_zero(header):
                return make_response(request, ResponseCode.QUERY_NOT_FOUND, _NOT_FOUND, {})
            offset = 0
        fields = {"offset": str(offset)}
        if header.set_zero_if_not_found is False and not offset:
            fields[STORED_FIELD] = "true"
        return make_response(request, ResponseCode.SUCCESS, None, fields)

    def _claim(self, header: QueryOffsetHeader | UpdateOffsetHeader, connection_id: int) -> str:
        """Take what a member claims; returns who holds the queue, where it has to wait for it."""
        if header.claim is None:
            return ""
        queue = ClaimedQueue(header.consumer_group, header.topic, header.queue_id)
        if header.claim is Claim.NONE:
            self._consumers.end_claim(queue, connection_id)
            return ""
        entry = self._topics.get(queue.topic)
        if entry is None or not 0 <= queue.queue_id < entry.queues:
            return ""
        anyway = header.claim is Claim.ANYWAY
        return self._consumers.claim(queue, connection_id, anyway=anyway)

    def _commit(self, header: UpdateOffsetHeader) -> Answer:
        group, topic = header.consumer_group, header.topic
        is_kept = self._commits.commit(group, topic, header.queue_id, header.commit_offset)
        return _OK if is_kept else _FULL

    def _begins_at_zero(self, header: QueryOffsetHeader) -> bool:
        """Tell whether a group without an offset is told 0, wherever it wants to begin.

        RocketMQ's clients ask so, and one that wants to begin at the end still gets all of a queue
        that is young: it may have been created for it. Clients of RocketMQ 5 and ours can say that
        they want to know.
        """
        if header.set_zero_if_not_found is False:
            return False
        return self._store.reader.begins_recently(header.topic, header.queue_id)

    def _refusal(self, header: UpdateOffsetHeader) -> Answer | None:
        """Return why an offset is not kept, or None."""
        topic, queue_id, group = header.topic, header.queue_id, header.consumer_group
        entry = self._topics.get(topic)
        if entry is None:
            return ResponseCode.TOPIC_NOT_EXIST, f"Topic {shown(topic)} not exist!"
        if not 0 <= queue_id < entry.queues:
            return (
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{queue_id}] is illegal, topic:[{topic}] has {entry.queues} queues",
            )
        if self._groups.get(group) is None:
            found = self._groups.find(group)
            if found is None:
                return (
                    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                    f"Group {shown(group)} not exist!",
                )
            if not self._on_new_group(found):
                return _TOO_MANY_NEW
        return None
