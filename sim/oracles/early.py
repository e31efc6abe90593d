"""Who is told that his change of state was made finds it made: it is in the tables by then.

Committed is not enough. A leader whose dispatch is behind has not applied it yet, and whoever asks
next, maybe over another connection, is told that there is no such topic, or gets the same lock.
Source: docs/storage.md; spec/wire.md 3.7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sim.oracles.base import Violation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sim.oracles.replica import Replica
    from sim.oracles.wire import Said

NAME: Final = "A39 told before it is applied"


class Early:
    """Judges answers to changes of state, at the end of the event of the answer."""

    def on_topic(self, replica: Replica, request: Said) -> None:
        """A topic was told to be made. Errors: `Violation`."""
        topic = request.text("topic")
        if replica.controller.tables.topics.get(topic) is None:
            _fail(replica, f"says that {topic} is made, and does not know it")

    def on_lock(
        self, replica: Replica, client: str, group: str, given: Iterable[dict[str, Any]]
    ) -> None:
        """Locks were granted. Errors: `Violation`."""
        leases = replica.controller.tables.locks._leases
        for queue in given:
            key = (group, queue["topic"], queue["queueId"])
            lease = leases.get(key)
            if lease is None or lease.client_id != client:
                _fail(replica, f"says that {client} has {key}; it knows of {lease}")


def _fail(replica: Replica, text: str) -> None:
    raise Violation(NAME, f"{replica.name} {text}", node=replica.name)
