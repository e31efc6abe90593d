"""Who listens where clients are: order of sends and polls, and ends of queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sim.oracles.beyond import Beyond, Ends
from sim.oracles.polls import Polls, PullOrder
from sim.oracles.same_key import SameKey
from sim.oracles.sent_order import SentOrder
from sim.oracles.wire import Listeners

if TYPE_CHECKING:
    from ledgermq.client import MessageQueue
    from sim.oracles.base import Findings
    from sim.oracles.wire import Listener


class Known(Ends, Protocol):
    """What is known of the logs of brokers, whatever clients are told."""

    def name_of(self, address: str) -> str:
        """Return the name of the brokers at an address."""
        ...

    def is_there(self, queue: MessageQueue, offset: int, tags: str) -> bool:
        """Tell whether a queue has something at an offset, of the tags of a subscription."""
        ...


class ClientEnds:
    """Judges what clients ask and are told, against what is known.

    Args:
        others: who listens there as well.
    """

    def __init__(self, findings: Findings, known: Known, *others: Listener) -> None:
        self.sent = SentOrder(findings, known.name_of)
        self.beyond = Beyond(findings, known)
        self.polls = Polls(findings, known.is_there)
        self.listener = Listeners(
            *others, self.sent, self.beyond, PullOrder(findings), SameKey(findings)
        )
