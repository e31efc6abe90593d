"""Who is told that his change of state was made finds it made: it is in the tables by then.

Committed is not enough. A leader whose dispatch is behind has not applied it yet, and whoever asks
next, maybe over another connection, is told that there is no such topic, or gets the same lock.
Judged are the answers to topics and locks, and whoever in a broker has a record of state written,
of any kind. Source: docs/storage.md; spec/wire.md 3.7.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from sim.oracles.base import Violation
from store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sim.oracles.replica import Replica
    from sim.oracles.wire import Said
    from store.write.uncommitted import OwnState

NAME: Final = "A39 told before it is applied"


class Early:
    """Judges answers to changes of state, at the end of the event of the answer."""

    def on_boot(self, replica: Replica) -> None:
        """Listen to who has records of state written."""
        uncommitted = replica.controller.store.writer._commit_log.uncommitted
        add = uncommitted.add_state

        def added(state: OwnState) -> None:
            done = state.done

            def told(status: PutStatus) -> None:
                if status is PutStatus.OK:
                    replica.deferred.append(partial(_check_applied, replica, state))
                if done is not None:
                    done(status)

            state.done = told
            add(state)

        uncommitted.add_state = added  # type: ignore[method-assign]  # to listen to it

    def on_topic(self, replica: Replica, request: Said) -> None:
        """A topic was told to be made. Errors: `Violation`."""
        topic = request.text("topic")
        if replica.controller.tables.topics.get(topic) is None:
            _fail(replica, f"says that {topic} is made, and does not know it")

    def on_lock(self, replica: Replica, client: str, given: Iterable[tuple[str, str, int]]) -> None:
        """Locks were granted of queues of groups. Errors: `Violation`."""
        leases = replica.controller.tables.locks._leases
        for key in sorted(given):
            lease = leases.get(key)
            if lease is None or lease.client_id != client:
                _fail(replica, f"says that {client} has {key}; it knows of {lease}")


def _check_applied(replica: Replica, own: OwnState) -> None:
    """Look whether a record that was told to be made is dispatched here. Errors: `Violation`."""
    end = replica.dispatcher.applied_end
    if own.physical >= end:
        _fail(replica, f"says that {own.kind} at {own.physical} is made, and is at {end}")


def _fail(replica: Replica, text: str) -> None:
    raise Violation(NAME, f"{replica.name} {text}", node=replica.name)
