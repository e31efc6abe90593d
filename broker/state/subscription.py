"""Subscription groups: their flags, what exists at start, how a missing one is made.

A state machine fed by the replicated log, as ``topic_config``. Knows neither the log nor the disk.
Source: spec/wire.md 3.5, 3.9 (200, 201); spec/disk.md 5.6; RocketMQ SubscriptionGroupManager.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from broker.limits import GROUPS_MAX
from broker.state.kinds import StateKind
from broker.state.table import LargeTable
from broker.table_text import documents_of, text_in_steps
from ledgermq.remoting.protocol.bodies import DataVersion, decode_file
from ledgermq.remoting.protocol.limits import GROUP_LENGTH_MAX, Int32, Int64

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

    from broker.state.table import Exchange, Gauge, Text

SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
SYSTEM_GROUPS = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
)
_NAME = re.compile(r"[%|a-zA-Z0-9_-]+\Z")


class SubscriptionGroupConfig(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Settings of one consumer group, with RocketMQ's defaults."""

    broker_id: Int64 = 0
    consume_broadcast_enable: bool = True
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    group_name: str
    notify_consumer_ids_changed_enable: bool = True
    retry_max_times: Int32 = 16
    retry_queue_nums: Int32 = 1
    which_broker_when_consume_slowly: Int64 = 1


class GroupChange(msgspec.Struct, frozen=True, rename="camel"):
    """A replicated change: the new settings and the leader's wall time of it."""

    config: SubscriptionGroupConfig
    timestamp: Int64


class GroupRemoval(msgspec.Struct, frozen=True, rename="camel"):
    """A replicated removal, and the leader's wall time of it."""

    group: str
    timestamp: Int64


class _Snapshot(msgspec.Struct, rename="camel"):
    data_version: DataVersion
    subscription_group_table: dict[str, SubscriptionGroupConfig]


def group_name_is_valid(group: str) -> bool:
    """Tell whether a group of this name may be created."""
    return len(group) <= GROUP_LENGTH_MAX and _NAME.match(group) is not None


class SubscriptionGroupTable(LargeTable):
    """All consumer groups that have settings, by name."""

    file = "subscriptionGroup.json"

    def __init__(self, timestamp: int, *, auto_create: bool = True) -> None:
        self.data_version = DataVersion(timestamp=timestamp, counter=0)
        self._auto_create = auto_create
        self._groups = _system_groups()

    def __len__(self) -> int:
        return len(self._groups)

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """Return the settings of a group that has some."""
        return self._groups.get(group)

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """Return the settings a request of this group runs under.

        A group without settings gets the defaults where it may be created; the caller then has them
        replicated. None: the group does not exist and may not be created.
        """
        config = self._groups.get(group)
        if config is not None:
            return config
        allowed = self._auto_create or group.startswith(SYSTEM_GROUP_PREFIX)
        if not allowed or len(self._groups) >= GROUPS_MAX or not group_name_is_valid(group):
            return None
        return SubscriptionGroupConfig(group_name=group)

    def appliers(self) -> Mapping[str, Callable[[bytes], object]]:
        """See `ReplicatedTable`."""
        return {StateKind.GROUP: self.apply, StateKind.FORGET_GROUP: self.apply_removal}

    def gauges(self) -> Iterable[Gauge]:
        """See `ReplicatedTable`."""
        yield GROUPS_MAX, self.__len__

    @property
    def full(self) -> bool:
        """Whether no further group may be created."""
        return len(self._groups) >= GROUPS_MAX

    def configs(self) -> list[SubscriptionGroupConfig]:
        """Return the settings of all groups."""
        return list(self._groups.values())

    def apply(self, payload: bytes) -> str:
        """Apply a replicated change and return the group's name."""
        change = msgspec.json.decode(payload, type=GroupChange)
        self._groups[change.config.group_name] = change.config
        self.data_version = DataVersion(
            timestamp=change.timestamp, counter=self.data_version.counter + 1
        )
        return change.config.group_name

    def apply_removal(self, payload: bytes) -> None:
        """Apply a replicated removal; groups of the system stay."""
        removal = msgspec.json.decode(payload, type=GroupRemoval)
        if removal.group not in SYSTEM_GROUPS:
            self._groups.pop(removal.group, None)
        self.data_version = DataVersion(
            timestamp=removal.timestamp, counter=self.data_version.counter + 1
        )

    def snapshot_steps(self) -> Iterator[bytes]:
        """Return the parts of config/subscriptionGroup.json as it is now."""
        version = self.data_version
        rows = self._groups.copy().items()
        return text_in_steps(lambda part: _Snapshot(version, dict(part)), rows)

    def restore_steps(self, data: Text) -> Generator[None, None, Exchange]:
        """See `ReplicatedTable`; system groups that a snapshot lacks have their defaults."""
        version = self.data_version
        groups = _system_groups()
        for number, document in enumerate(documents_of(data)):
            if number:
                yield
            part = decode_file(document, _Snapshot)
            version = part.data_version
            groups.update(part.subscription_group_table)
        return partial(self._replace, version, groups)

    def _replace(
        self, version: DataVersion, groups: dict[str, SubscriptionGroupConfig]
    ) -> dict[str, SubscriptionGroupConfig]:
        former, self._groups = self._groups, groups
        self.data_version = version
        return former


def _system_groups() -> dict[str, SubscriptionGroupConfig]:
    return {name: SubscriptionGroupConfig(group_name=name) for name in SYSTEM_GROUPS}
