"""Builds the access control of one broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.access.door import AccessDoor, Around
from broker.access.file import AccessFile
from broker.delays.service import SCHEDULE_TOPIC
from broker.transactions.takeover import HALF_TOPIC
from dledger.errors import DamagedEntry
from ledgermq.remoting.protocol.properties import REAL_TOPIC, parse_properties
from store.layout import CorruptRecord, read_record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker.cluster.guard import Guard
    from broker.config import BrokerConfig
    from broker.core import Core
    from broker.groups.client_registry import ClientConnection
    from ledgermq.remoting.transport.connection import HotHandler
    from ledgermq.remoting.transport.dispatch import Handler
    from ledgermq.remoting.transport.requests import Requests
    from ledgermq.runtime.clock import Clock
    from ledgermq.runtime.disk import Disk
    from store.read.reader import Reader

_ON_THE_WAY = frozenset({SCHEDULE_TOPIC, HALF_TOPIC})


class Access:
    """Access control as the settings have it: `file` is None where it is off.

    Whose roles change hands its ``file`` from one to the next.
    """

    def __init__(self, core: Core, file: AccessFile | None = None) -> None:
        self._core = core
        self.file = file
        self._door: AccessDoor | None = None
        if file is None and core.config.acl_enable:
            self.file = access_file(core.config, core.machine.disk, core.clock)

    def load(self) -> None:
        """Read the file. Errors: `FatalError`."""
        if self.file is not None:
            self.file.begin()

    def tend(self) -> None:
        """Read it again whenever it has changed."""
        if self.file is not None:
            self._core.tasks.spawn("access", self.file.watch())

    def handlers(
        self, requests: Requests, guard: Guard
    ) -> tuple[Mapping[int, Handler], Mapping[int, HotHandler]]:
        """Return what a server is to call: the handlers themselves where access control is off."""
        file = self.file
        if file is None:
            return requests.commands, requests.hot
        around = Around(
            rules=lambda: file.rules,
            guard=guard,
            topic_at=topic_finder(self._core.store.reader),
            clock=self._core.clock,
        )
        door = self._door = AccessDoor(around, requests.declarations)
        return door.commands(requests.commands), door.hot(requests.hot)

    def may_hear(self, connection: ClientConnection, topic: str) -> bool:
        """See `AccessDoor.may_hear`; anybody may where access control is off."""
        return self._door is None or self._door.may_hear(connection, topic)


def access_file(config: BrokerConfig, disk: Disk, clock: Clock) -> AccessFile | None:
    """Return the access file of a broker, not read yet; None where access control is off."""
    return AccessFile(config.acl_file, disk, clock) if config.acl_enable else None


def topic_finder(reader: Reader) -> Callable[[int], str | None]:
    """Return what tells the topic of the message at a place in the log, None if there is none.

    Of a message that waits for its time or its transaction, it is the topic that it is for.
    """

    def topic_at(position: int) -> str | None:
        try:
            record = reader.message_at(position)
            if record is None:
                return None
            fields = read_record(record)
        except (DamagedEntry, CorruptRecord):
            return None
        topic = fields[5].decode("utf-8", "replace")
        if topic in _ON_THE_WAY:
            return parse_properties(fields[6]).get(REAL_TOPIC, topic)
        return topic

    return topic_at
