"""Which part of the log is of which master's epoch: GET_BROKER_EPOCH_CACHE (1007) of RocketMQ 5.

Answered by brokers that have their role from controllers, master and slave alike; ``mqadmin
getBrokerEpoch`` asks for it. An epoch ends where the next one begins; the last one has no end.
Source: AdminBrokerProcessor.getBrokerEpochCache, EpochEntryCache of RocketMQ 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand, make_response
from ledgermq.remoting.transport.requests import serves
from store.limits import EPOCHS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.ha.switch.epochs import Epochs

_NO_END: Final = 2**63 - 1


class EpochEntry(msgspec.Struct, rename="camel"):
    """One epoch, as RocketMQ 5 writes it."""

    epoch: int
    start_offset: int
    end_offset: int


class EpochCache(msgspec.Struct, rename="camel"):
    """The body of the answer."""

    cluster_name: str
    broker_name: str
    broker_id: int
    epoch_list: list[EpochEntry]
    max_offset: int


class EpochProcessor:
    """Tells the epochs of one log.

    Args:
        names: of the cluster and of the broker.
        own_id: id of this replica, as controllers gave it.
        look: returns the epochs, and where the log ends.
    """

    def __init__(
        self, names: tuple[str, str], own_id: int, look: Callable[[], tuple[Epochs, int]]
    ) -> None:
        self._names = names
        self._own_id = own_id
        self._look = look

    @serves(
        RequestCode.GET_BROKER_EPOCH_CACHE,
        what="which part of the log is of which epoch",
        limits=(EPOCHS_MAX,),
    )
    def handle(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take GET_BROKER_EPOCH_CACHE."""
        epochs, end = self._look()
        ends = [*(one.start for one in epochs[1:]), _NO_END]
        entries = [
            EpochEntry(one.epoch, one.start, stop) for one, stop in zip(epochs, ends, strict=False)
        ]
        body = msgspec.json.encode(EpochCache(*self._names, self._own_id, entries, end))
        return make_response(request, ResponseCode.SUCCESS, body=body)
