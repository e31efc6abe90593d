"""How many consumer groups clients may have created by using them.

Each address has a stock of groups that it may begin to use at once, and gets one more every second;
so a fleet that starts is served, and a flood is not. Requests that do not tell of a client as a
heartbeat does, pulls and commits, share one stock of the whole broker.
Source: RocketMQ SubscriptionGroupManager, which creates whatever is named, without a bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.limits import NEW_GROUPS_MAX, NEW_GROUPS_OF_ADDRESS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.state.subscription import SubscriptionGroupConfig
    from ledgermq.runtime.clock import Clock

ADDRESSES_MAX: Final = 4_096
ADDRESS_REFILL_MS: Final = 1_000
BROKER_REFILL_MS: Final = 100


class Stock:
    """What is left of a number that fills up again by one every ``refill_ms``."""

    __slots__ = ("_full", "_refill_ms", "_since_ms", "left")

    def __init__(self, full: int, refill_ms: int, now_ms: int) -> None:
        self._full = full
        self._refill_ms = refill_ms
        self._since_ms = now_ms
        self.left = full

    def take(self, now_ms: int) -> bool:
        """Take one, if one is left."""
        more = (now_ms - self._since_ms) // self._refill_ms
        self._since_ms += more * self._refill_ms
        self.left = min(self._full, self.left + more)
        if self.left == 0:
            return False
        self.left -= 1
        return True


class NewGroups:
    """Lets groups be created, as far as the stocks go.

    Args:
        create: has a group created, without waiting.
        is_being_created: tells of a group's name whether that is under way.
    """

    def __init__(
        self,
        create: Callable[[SubscriptionGroupConfig], object],
        is_being_created: Callable[[str], bool],
        clock: Clock,
    ) -> None:
        self._create = create
        self._is_being_created = is_being_created
        self._clock = clock
        self._of_broker = Stock(NEW_GROUPS_MAX, BROKER_REFILL_MS, clock.monotonic_ms())
        self._of_address: dict[str, Stock] = {}

    def for_request(self, config: SubscriptionGroupConfig) -> bool:
        """Have a group created that a request used with default settings; False if it may not.

        It counts once: a creation that takes long sees many requests of its group.
        """
        if self._is_being_created(config.group_name):
            return True
        if not self._of_broker.take(self._clock.monotonic_ms()):
            return False
        self._create(config)
        return True

    def admit(self, address: str) -> bool:
        """Tell whether a client of this address may have one more group created."""
        now_ms = self._clock.monotonic_ms()
        stock = self._of_address.pop(address, None)
        if stock is None:
            if len(self._of_address) >= ADDRESSES_MAX:
                del self._of_address[next(iter(self._of_address))]
            stock = Stock(NEW_GROUPS_OF_ADDRESS_MAX, ADDRESS_REFILL_MS, now_ms)
        self._of_address[address] = stock  # the one that asked last stands last
        return stock.take(now_ms)
