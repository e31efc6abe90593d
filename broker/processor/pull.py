"""PULL_MESSAGE (11) with long polling: from the frame to the stored bytes.

A hot handler: a plain function that answers with views of the mapped log, no copy per message. A
pull that finds nothing new is held and run again when its queue gets a message or its time is up; a
run that was woken answers whatever it finds. Messages that a held pull's filter refuses do not wake
it.

Of a group only a writable leader answers pulls: RocketMQ would answer 20 from a replica, on which a
client with an old route spins; 14 makes it wait and look for the leader. A slave answers, too, up
to what it has dispatched. It keeps no offset that comes with a pull, and corrects none: what it
does not have its master may have given out, so such a pull finds nothing and waits.
Source: spec/wire.md 3.5, 7.2, 7.3; RocketMQ PullMessageProcessor 4.9, PullRequestHoldService.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from broker.answers import DAMAGED, LOST, PUT_ANSWERS, WritableConnection, failed, write_command
from broker.groups.client_registry import BROADCASTING, Subscription
from broker.pulls.filters import SQL92, TAG_TYPES, Filters, no_filter
from broker.pulls.long_polling import HeldPull
from broker.pulls.wake_up import WORK_MAX
from broker.state.topic_config import PERM_READ
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.headers import (
    PullHeader,
    decode_pull_header,
    encode_pull_response_head,
)
from ledgermq.remoting.protocol.hosts import party_of
from ledgermq.remoting.transport.requests import ServedBy, serves
from ledgermq.runtime.tasks import attempt, report_serving_failure
from store.results import GetStatus, PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker.groups.client_registry import ConsumerRegistry
    from broker.pulls.long_polling import HoldTable
    from broker.state.consumer_offset import ConsumerOffsetTable
    from broker.state.subscription import SubscriptionGroupConfig, SubscriptionGroupTable
    from broker.state.topic_config import TopicEntry
    from broker.stats.counts import TrafficCounts
    from ledgermq.remoting.protocol.frame import Frame
    from ledgermq.runtime.clock import Clock
    from store.read.reader import Reader
    from store.results import GetResult, Wanted

FLAG_COMMIT: Final = 1
FLAG_SUSPEND: Final = 2
FLAG_SUBSCRIPTION: Final = 4

#: Longest time a pull is held, whatever it asks for.
SUSPEND_MS_MAX: Final = 60_000
#: Held pulls that are answered in one turn of the loop.
SLICE: Final = 64
#: Bytes of an answer, and messages looked at for it, that are as much work as one pull more.
WORK_BYTES: Final = 64 * 1024
WORK_MESSAGES: Final = 64
SLOW_REMARK: Final = "the connection does not take the answers to earlier pulls"

_ANSWERS: Final[dict[GetStatus, int]] = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.DAMAGED: DAMAGED[0],
    GetStatus.LOST: LOST[0],
}
_REMARKS: Final = {GetStatus.DAMAGED: DAMAGED[1], GetStatus.LOST: LOST[1]}
"""Where it is not the name of the status."""
#: No queue yet, or an empty one: 19 for a pull from its beginning, 21 for any other.
_EMPTY: Final = frozenset({GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE})

_PARSE_FAILED: Final = (
    ResponseCode.SUBSCRIPTION_PARSE_FAILED,
    "parse the consumer's subscription failed",
)
_NO_FILTER_DATA: Final = (
    ResponseCode.FILTER_DATA_NOT_EXIST,
    "The broker's consumer filter data is not exist!Your expression may be wrong!",
)
_FORBIDDEN: Final = (ResponseCode.NO_PERMISSION, "no permission: it was taken since this was asked")


class PullConnection(WritableConnection, Protocol):
    """What pulls need of a connection."""

    @property
    def id(self) -> int:
        """Number of the connection."""

    @property
    def remote(self) -> tuple[str, int]:
        """Address of the peer."""

    @property
    def slow(self) -> bool:
        """Whether so much waits to be sent that it shall get no more."""


class PullStore(Protocol):
    """What pulls need of the store."""

    @property
    def reader(self) -> Reader:
        """Reads messages."""

    @property
    def readable(self) -> bool:
        """Whether this replica answers reads."""


class PullProcessor:
    """Answers pulls of one broker and keeps those that wait.

    ``on_moved`` is told of each pull answered 21, with the offset that it was told to go on at.
    ``counts`` is added to: messages handed out, by topic and group, and looks into queues.
    """

    def __init__(  # noqa: PLR0913 - the wiring of the hot path; each is one collaborator
        self,
        *,
        topics: Mapping[str, TopicEntry],
        groups: SubscriptionGroupTable,
        consumers: ConsumerRegistry,
        offsets: ConsumerOffsetTable,
        store: PullStore,
        held: HoldTable,
        clock: Clock,
        on_new_group: Callable[[SubscriptionGroupConfig], object],
        on_moved: Callable[[HeldPull, int], None],
        counts: TrafficCounts,
        max_bytes: int = 262_144,
        max_count: int = 32,
        slave_read_enable: bool = False,
        is_slave: bool = False,
        enable_property_filter: bool = True,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._offsets = offsets
        self._store = store
        self._held = held
        self._clock = clock
        self._on_new_group = on_new_group
        self._on_moved = on_moved
        self._gets = counts.gets
        self._pulls = counts.pulls
        self._max_bytes = max_bytes
        self._max_count = max_count
        self._slave_read_enable = slave_read_enable
        self._is_slave = is_slave
        self._filters = Filters()
        self._enable_property_filter = enable_property_filter

    @serves(
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        what="pull; held while there is nothing (`sysFlag` 2)",
        header=PullHeader,
        hot=True,
        served_by=ServedBy.READABLE_BY_ITSELF,
    )
    def handle(self, connection: PullConnection, frame: Frame) -> None:
        """Take a PULL_MESSAGE frame."""
        opaque, _, _, header = decode_pull_header(frame)
        wanted = self._check(header, connection) or self._wanted(header)
        if isinstance(wanted, tuple):
            write_command(connection, frame.serialize_type, opaque, wanted, {})
            return
        suspend_ms = header.suspend_timeout_millis if header.sys_flag & FLAG_SUSPEND else 0
        pull = HeldPull(
            connection,
            opaque,
            frame.serialize_type,
            header.topic,
            header.queue_id,
            header.queue_offset,
            min(max(header.max_msg_nums, 1), self._max_count),
            wanted,
            self._clock.monotonic_ms() + min(suspend_ms, SUSPEND_MS_MAX) if suspend_ms > 0 else 0,
            self._suggestions(header.consumer_group) if self._slave_read_enable else (0, 0),
            header.consumer_group,
            party_of(connection.remote[0]),
            None
            if header.sys_flag & FLAG_SUBSCRIPTION
            else self._consumers.subscription(header.consumer_group, header.topic),
            header.queue_offset,
        )
        if header.sys_flag & FLAG_COMMIT and not self._is_slave:
            self._offsets.commit(
                header.consumer_group, header.topic, header.queue_id, header.commit_offset
            )
        if not self._run(pull, may_hold=suspend_ms > 0):
            self._run(pull, may_hold=False)

    def wake(self, topic: str, queue_id: int, max_offset: int, work: int = WORK_MAX) -> int:
        """Run pulls that wait for a queue, which now ends at ``max_offset``.

        Returns how much of the allowed ``work`` is left, see `broker.pulls.wake_up`; 0: more may
        wait.
        """
        while work > 0:
            woken = self._held.arrived(topic, queue_id, max_offset, min(work, SLICE))
            if not woken:
                return work
            work -= len(woken)
            for pull in woken:
                if not pull.connection.closed:
                    work -= self._serve(pull, self._rerun)
        return 0

    def expire(self, now_ms: int) -> None:
        """Answer pulls whose time is up, a slice of them; `HoldSweep` comes again for the rest."""
        for pull in self._held.expire(now_ms, SLICE):
            if not pull.connection.closed:
                self._serve(pull, self._run_last)

    def release(self) -> bool:
        """Send waiting clients to the new leader, a slice of them; False if none are left."""
        for pull in self._held.drain(SLICE):
            if not pull.connection.closed:
                self._send_away(pull)
        return len(self._held) > 0

    def _send_away(self, pull: HeldPull) -> None:
        _tell(pull, PUT_ANSWERS[PutStatus.NOT_LEADER])

    def on_close(self, connection_id: int) -> None:
        """Forget the pulls of a connection that is gone."""
        self._held.close(connection_id)

    def _serve(self, pull: HeldPull, run: Callable[[HeldPull], int]) -> int:
        """Run a held pull; return the work beyond one. What it raises is its own failure.

        A deposed leader needs several turns to send all away; meanwhile it reads for nobody.
        """
        if not self._store.readable:
            self._send_away(pull)
            return 0
        group, topic = self._groups.get(pull.group), self._topics.get(pull.topic)
        if (group and not group.consume_enable) or (topic and not topic.readable):
            _tell(pull, _FORBIDDEN)
            return 0
        try:
            if self._is_outdated(pull):
                self._answer(pull, _as_asked(pull, self._read(pull)))
                return 0
            return run(pull)
        except Exception as error:  # noqa: BLE001 - one request's, told and answered
            what, answer = f"a held pull of group {pull.group}", failed(error)
            report_serving_failure(what, error)
            attempt(what, partial(_tell, pull, answer))  # those behind it have their turn
            return 0

    def _is_outdated(self, pull: HeldPull) -> bool:
        """Tell whether its group wants something else of the topic by now.

        Such a pull was to pass over what the group wants now. It goes on where it began, as its
        client knows it: RocketMQ runs a held pull anew, by the subscription that counts then.
        """
        then: Subscription | None = pull.subscription
        now = None if then is None else self._consumers.subscription(pull.group, pull.topic)
        return then is not None and now is not None and not now.wants_as(then)

    def _run_last(self, pull: HeldPull) -> int:
        self._run(pull, may_hold=False)
        return 0

    def _rerun(self, pull: HeldPull) -> int:
        """Run a woken pull; one whose filter refuses all there is goes back to waiting.

        A read looks at so many messages only. Where it has not come to the end, what the filter
        wants may lie behind and no further message need come to wake the pull: it is answered 20,
        and the client asks on from there.
        """
        result = self._read(pull)
        seen = max(result.next_offset - pull.offset, 0)
        work = result.size_bytes // WORK_BYTES + seen // WORK_MESSAGES
        seen_all = result.next_offset >= result.max_offset
        if result.status is GetStatus.NO_MATCHED_MESSAGE and pull.wanted is not None and seen_all:
            pull.offset = result.next_offset
            if self._held.hold(pull):
                return work
        self._answer(pull, result)
        return work

    def _run(self, pull: HeldPull, *, may_hold: bool) -> bool:
        """Read and answer, or hold; False if it should be held and the table is full."""
        result = self._read(pull)
        if may_hold and self._code(pull, result) == ResponseCode.PULL_NOT_FOUND:
            return self._held.hold(pull)
        self._answer(pull, result)
        return True

    def _read(self, pull: HeldPull) -> GetResult:
        result = self._store.reader.get(
            pull.topic, pull.queue_id, pull.offset, pull.max_count, self._max_bytes, pull.wanted
        )
        if result.status is GetStatus.FOUND:
            self._pulls.found += 1
        else:
            self._pulls.missed += 1
        return _passed_over(result, is_slave=self._is_slave)

    def _code(self, pull: HeldPull, result: GetResult) -> int:
        if result.status in _EMPTY:
            code: int = (
                ResponseCode.PULL_OFFSET_MOVED if pull.offset else ResponseCode.PULL_NOT_FOUND
            )
        else:
            code = _ANSWERS[result.status]
        if code == ResponseCode.PULL_OFFSET_MOVED and self._is_slave:
            return ResponseCode.PULL_NOT_FOUND
        return code

    def _answer(self, pull: HeldPull, result: GetResult) -> None:
        code = self._code(pull, result)
        if self._is_slave and code == ResponseCode.PULL_NOT_FOUND:
            result = _left_in_place(pull, result)
        buffers = result.buffers if code == ResponseCode.SUCCESS else []
        if buffers and pull.connection.slow:
            # It does not read what it has asked for before: it gets no data, and asks again.
            self._answer_slow(pull, result)
            return
        pull.connection.write(
            encode_pull_response_head(
                pull.opaque,
                pull.serialize_type,
                code,
                _REMARKS.get(result.status, result.status.name),
                result.next_offset,
                result.min_offset,
                result.max_offset,
                result.size_bytes if buffers else 0,
                pull.suggestions[result.is_far_behind],
            ),
            *buffers,
        )
        if buffers:
            self._gets[pull.topic, pull.group] += result.count
        elif code == ResponseCode.PULL_OFFSET_MOVED:
            self._on_moved(pull, result.next_offset)

    def _answer_slow(self, pull: HeldPull, result: GetResult) -> None:
        pull.connection.write(
            encode_pull_response_head(
                pull.opaque,
                pull.serialize_type,
                ResponseCode.PULL_NOT_FOUND,
                SLOW_REMARK,
                pull.offset,
                result.min_offset,
                result.max_offset,
                0,
                pull.suggestions[0],
            )
        )

    def _check(self, header: PullHeader, connection: PullConnection) -> tuple[int, str] | None:
        """Return the answer to a pull that may not be run (spec/wire.md 3.5, in its order)."""
        if not self._store.readable:
            return PUT_ANSWERS[PutStatus.NOT_LEADER]
        group = self._groups.get(header.consumer_group) or self._new_group(header.consumer_group)
        if group is None:
            return (
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{header.consumer_group}] does not exist",
            )
        if not group.consume_enable:
            return (
                ResponseCode.NO_PERMISSION,
                f"subscription group no permission, {header.consumer_group}",
            )
        topic = self._topics.get(header.topic)
        if topic is None:
            return (
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{header.topic}] not exist, apply first please!",
            )
        if not topic.readable:
            remark = f"the topic[{header.topic}] pulling message is forbidden"
            if topic.config.perm & PERM_READ:
                remark = "pulling message from this broker is forbidden"
            return ResponseCode.NO_PERMISSION, remark
        if not 0 <= header.queue_id < topic.read_queues:
            host, port = connection.remote[:2]
            return (
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queues}] consumer:[/{host}:{port}]",
            )
        return None

    def _suggestions(self, group_name: str) -> tuple[int, int]:
        """Return the broker id to ask next, and the one for consumers that are far behind."""
        group = self._groups.get(group_name) or self._groups.find(group_name)
        if group is None:
            return 0, 0
        return group.broker_id, group.which_broker_when_consume_slowly

    def _new_group(self, name: str) -> SubscriptionGroupConfig | None:
        group = self._groups.find(name)
        if group is not None:
            self._on_new_group(group)
        return group

    def _wanted(self, header: PullHeader) -> Wanted | tuple[int, str]:
        """Return what the pull wants, or the answer that refuses it."""
        if header.sys_flag & FLAG_SUBSCRIPTION:
            return self._filter(header.expression_type, header.subscription, _PARSE_FAILED)
        subscription = self._subscription(header)
        if not isinstance(subscription, Subscription):
            return subscription
        if subscription.expression_type in TAG_TYPES:
            return subscription.codes
        return self._filter(subscription.expression_type, subscription.expression, _NO_FILTER_DATA)

    def _filter(
        self, kind: str | None, expression: str | None, refusal: tuple[int, str]
    ) -> Wanted | tuple[int, str]:
        """Return the filter of an expression, or ``refusal`` if it is none."""
        try:
            if kind in TAG_TYPES:
                return self._filters.by_tags(expression)
            if kind == SQL92 and self._enable_property_filter:
                return self._filters.by_sql(expression or "")
        except ValueError as error:
            return refusal[0], f"{refusal[1]}: {error}" if kind == SQL92 else refusal[1]
        return no_filter(kind)

    def _subscription(self, header: PullHeader) -> Subscription | tuple[int, str]:
        """Return what the group wants of the topic by its heartbeats, or the refusing answer."""
        group = self._consumers.get(header.consumer_group)
        if group is None:
            return (
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                "the consumer's group info not exist",
            )
        if group.traits.message_model == BROADCASTING:
            config = self._groups.get(header.consumer_group)
            if config is not None and not config.consume_broadcast_enable:
                return (
                    ResponseCode.NO_PERMISSION,
                    f"the consumer group[{header.consumer_group}] can not consume by broadcast way",
                )
        subscription = group.subscriptions.get(header.topic)
        if subscription is None:
            return (
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                "the consumer's subscription not exist",
            )
        if subscription.version < header.sub_version:
            return (
                ResponseCode.SUBSCRIPTION_NOT_LATEST,
                "the consumer's subscription not latest",
            )
        return subscription


def _tell(pull: HeldPull, answer: tuple[int, str | None]) -> None:
    write_command(pull.connection, pull.serialize_type, pull.opaque, answer, {})


def _as_asked(pull: HeldPull, result: GetResult) -> GetResult:
    """Return an empty result that has a held pull asked again, from where it was asked."""
    return msgspec.structs.replace(
        result, status=GetStatus.NO_MATCHED_MESSAGE, next_offset=pull.asked_offset
    )


def _passed_over(result: GetResult, *, is_slave: bool) -> GetResult:
    """Return where a consumer goes on that asks for a message which nobody repairs: behind it.

    At a slave it stays: the master has written that message, and may have it still.
    """
    if result.status is not GetStatus.LOST:
        return result
    if is_slave:
        return msgspec.structs.replace(result, status=GetStatus.DAMAGED)
    return msgspec.structs.replace(result, next_offset=result.next_offset + 1)


def _left_in_place(pull: HeldPull, result: GetResult) -> GetResult:
    """Return an empty result that leaves a consumer where it is: it may know of more than this."""
    if result.status is GetStatus.OFFSET_FOUND_NULL:
        return result  # Behind it lies what this broker has.
    return msgspec.structs.replace(result, next_offset=pull.offset)
