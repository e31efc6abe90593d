"""What a producer does beside its sends: it leaves links that stall, and polls for new topics.

It knows routes and links, and no send.
"""

import logging
from typing import TYPE_CHECKING, Final

from ledgermq.remoting.protocol.errors import RemotingError

if TYPE_CHECKING:
    from ledgermq.client.instance import ClientInstance
    from ledgermq.client.links import Links
    from ledgermq.runtime.clock import Clock

_log = logging.getLogger(__name__)

PROVISIONAL_POLL_MS: Final = 1_000
"""How often the producer polls routes of topics that a send was to create."""
STALL_LOOK_MS_MAX: Final = 100
"""The longest time between two looks for links that stall."""


class Upkeep:
    """The background work of one producer."""

    def __init__(
        self, instance: "ClientInstance", links: "Links", clock: "Clock", stall_ms: int
    ) -> None:
        self._instance = instance
        self._routes = instance.routes
        self._links = links
        self._clock = clock
        self._stall_ms = stall_ms

    def start(self) -> None:
        """Begin; it ends with the background work of the instance."""
        background = self._instance.background
        look_ms = max(1, min(self._stall_ms // 2, STALL_LOOK_MS_MAX))
        background.every(look_ms, self._leave_stalled, "stalls", self._stall_free_ms)
        background.every(PROVISIONAL_POLL_MS, self._poll_provisional, "new-topics")

    def _stall_free_ms(self) -> float:
        return self._links.stall_free_ms(self._clock.monotonic_ns(), self._stall_ms)

    async def _leave_stalled(self) -> None:
        """Close links that owe answers if the leader is elsewhere now; see ``stall_ms``."""
        for link in self._links.stalled(self._clock.monotonic_ns(), self._stall_ms):
            await self._instance.refresh_broker(link.broker_name, link.addr)
            if self._routes.master(link.broker_name) not in {None, link.addr}:
                link.connection.abort("the leader is elsewhere")

    async def _poll_provisional(self) -> None:
        """Look whether topics that a send was to create exist now."""
        for topic in self._routes.topics:
            route = self._routes.peek(topic)
            if route is not None and route.provisional:
                try:
                    await self._routes.refresh(topic)
                except RemotingError as error:  # Nobody may know it; others may exist by now.
                    _log.debug("topic=%s event=no_route error=%s", topic, error)
