"""Consumer groups and their settings: 200, 201, 207, 352.

A change is answered when it is replicated and applied, as one of a topic (17). A group that is
removed while it has members comes back with their next heartbeat, with default settings, as in
RocketMQ.
Source: spec/wire.md 3.9; RocketMQ AdminBrokerProcessor.updateAndCreateSubscriptionGroup 4.9.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from broker.answers import SLAVE_REMARK, put_failure, shown
from broker.limits import ANSWER_BYTES_MAX, GROUPS_MAX, TOPIC_QUEUES_MAX, WALKS_WAITING_MAX
from broker.state.subscription import (
    SYSTEM_GROUPS,
    SubscriptionGroupConfig,
    group_name_is_valid,
)
from broker.stats.pages import Page, PageHeader
from ledgermq.remoting.protocol.administration import (
    DeleteGroupHeader,
    GroupConfigBody,
    GroupHeader,
    GroupTableBody,
)
from ledgermq.remoting.protocol.bodies import decode_body, encode_body
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand, make_response
from ledgermq.remoting.protocol.headers import decode_header
from ledgermq.remoting.protocol.limits import GROUP_LENGTH_MAX
from ledgermq.remoting.transport.requests import Permission, ServedBy, serves
from store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from broker.sends.creation import Creator
    from broker.state.subscription import SubscriptionGroupTable
    from broker.stats.pages import Part
    from broker.stats.walks import Walks

_FULL: Final = "the table of consumer groups is full"
_RETRIES_MIN: Final = -1
"""As RocketMQ's consumers: as often as it is usual."""
GROUPS_PER_STEP: Final = 64
"""The table has more groups than an answer has rows."""


class GroupsProcessor:
    """Answers administration of the consumer groups of one broker.

    ``forget`` has all offsets of a group removed through the log.
    """

    def __init__(
        self,
        groups: SubscriptionGroupTable,
        creator: Creator,
        is_writable: Callable[[], bool],
        walks: Walks,
        forget: Callable[[str], Awaitable[PutStatus]],
    ) -> None:
        self._groups = groups
        self._creator = creator
        self._is_writable = is_writable
        self._walks = walks
        self._forget = forget

    @serves(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        what="create or change a consumer group",
        limits=(GROUP_LENGTH_MAX, GROUPS_MAX, TOPIC_QUEUES_MAX),
        served_by=ServedBy.LEADER_BY_ITSELF,
        permission=Permission.SETTINGS,
    )
    async def handle_update(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200)."""
        if not self._is_writable():
            return make_response(request, ResponseCode.SYSTEM_ERROR, SLAVE_REMARK)
        wanted = decode_body(request.body, GroupConfigBody)
        error = _refusal(wanted)
        if error is not None:
            return make_response(request, ResponseCode.SYSTEM_ERROR, error)
        if self._groups.full and self._groups.get(wanted.group_name) is None:
            return make_response(request, ResponseCode.SYSTEM_BUSY, _FULL)
        status = await self._creator.change_group(
            SubscriptionGroupConfig(**msgspec.structs.asdict(wanted))
        )
        if status is not PutStatus.OK:
            return put_failure(request, status)
        return make_response(request, ResponseCode.SUCCESS)

    @serves(
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        what="settings of all consumer groups; `fromRow` and its answer `nextRow` are ours",
        header=PageHeader,
        limits=(ANSWER_BYTES_MAX, WALKS_WAITING_MAX),
    )
    async def handle_all(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201)."""
        version, page = self._groups.data_version, Page(decode_header(request, PageHeader))

        def body(members: list[bytes]) -> bytes:
            table = msgspec.Raw(b"{" + b",".join(members) + b"}")
            return encode_body(GroupTableBody(data_version=version, subscription_group_table=table))

        members = page.texts(self._members(page.first))
        return page.answered(await self._walks.answer(request, members, body))

    @serves(
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
        what="settings of a consumer group",
        header=GroupHeader,
    )
    def handle_one(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take GET_SUBSCRIPTIONGROUP_CONFIG (352), of RocketMQ 5's tools."""
        name = decode_header(request, GroupHeader).group
        config = self._groups.get(name)
        if config is None:
            remark = f"No group in this broker. group: {shown(name)}"
            return make_response(request, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        return make_response(request, ResponseCode.SUCCESS, body=encode_body(config))

    @serves(
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        what="remove the settings of a consumer group",
        header=DeleteGroupHeader,
        served_by=ServedBy.LEADER_BY_ITSELF,
        permission=Permission.ADMINISTRATION,
    )
    async def handle_delete(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take DELETE_SUBSCRIPTIONGROUP (207)."""
        if not self._is_writable():
            return make_response(request, ResponseCode.SYSTEM_ERROR, SLAVE_REMARK)
        header = decode_header(request, DeleteGroupHeader)
        name = header.group_name
        if name in SYSTEM_GROUPS:
            remark = f"The group[{shown(name)}] is one of the system."
            return make_response(request, ResponseCode.SYSTEM_ERROR, remark)
        status = PutStatus.OK
        if self._groups.get(name) is not None:
            status = await self._creator.remove_group(name)
        if status is PutStatus.OK and (header.remove_offset or header.clean_offset):
            status = await self._forget(name)
        if status is not PutStatus.OK:
            return put_failure(request, status)
        return make_response(request, ResponseCode.SUCCESS)

    def _members(self, first: int) -> Iterator[Part]:
        """Return members of the table, some at each step."""
        configs = islice(self._groups.configs(), first, None)
        while some := list(islice(configs, GROUPS_PER_STEP)):
            yield len(some), b",".join(map(_member, some))


def _member(config: SubscriptionGroupConfig) -> bytes:
    return msgspec.json.encode(config.group_name) + b":" + encode_body(config)


def _refusal(wanted: GroupConfigBody) -> str | None:
    """Return why a group may not have these settings, or None."""
    if not group_name_is_valid(wanted.group_name):
        return f"the name of the consumer group is illegal: {shown(wanted.group_name)}"
    if not 0 <= wanted.retry_queue_nums <= TOPIC_QUEUES_MAX:
        return f"retryQueueNums={wanted.retry_queue_nums}: 0 to {TOPIC_QUEUES_MAX} is expected"
    for name, number in (
        ("brokerId", wanted.broker_id),
        ("whichBrokerWhenConsumeSlowly", wanted.which_broker_when_consume_slowly),
    ):
        if number < 0:
            return f"{name}={number}: 0 or more is expected"
    if wanted.retry_max_times < _RETRIES_MIN:
        return f"retryMaxTimes={wanted.retry_max_times}: {_RETRIES_MIN} or more is expected"
    return None
