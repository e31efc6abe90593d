"""All planted bugs by name. Each says what it breaks and who had it (``python -m mutants --list``).

What detects each of them, and after how many seeds, is measured: docs/simulation.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mutants.access import ACCESS
from mutants.admin import ADMIN
from mutants.afresh import AFRESH
from mutants.attacked import ATTACKED
from mutants.blind import BLIND
from mutants.bounds import BOUNDS
from mutants.classic import CLASSIC
from mutants.clients import CLIENTS
from mutants.consumption import CONSUMPTION
from mutants.controller import CONTROLLER
from mutants.corners import CORNERS
from mutants.counted import COUNTED
from mutants.cuts import CUTS, REFUSED_AND_HELD
from mutants.delays import DELAYS
from mutants.dimensions import DIMENSIONS
from mutants.door import DOOR
from mutants.durability import DURABILITY
from mutants.edges import EDGES
from mutants.elections import ELECTIONS
from mutants.everyday import EVERYDAY
from mutants.excuses import EXCUSES
from mutants.fairness import FAIRNESS
from mutants.filters import FILTERS
from mutants.fitful import FITFUL
from mutants.further import FURTHER
from mutants.groups import GROUPS
from mutants.guarded import GUARDED
from mutants.harness import HARNESS
from mutants.hints import HINTS
from mutants.hostile import HOSTILE
from mutants.images import IMAGES
from mutants.inflated import INFLATED
from mutants.insistence import INSISTENCE
from mutants.kinds import KINDS
from mutants.kinds_further import KINDS_FURTHER
from mutants.lapses import LAPSES
from mutants.late import LATE
from mutants.leftovers import LEFTOVERS
from mutants.log_and_store import LOG_AND_STORE
from mutants.master_slave import MASTER_SLAVE, PACED, SYNCED
from mutants.measured import MEASURED, MEASURED_BY_TESTS
from mutants.midway import MIDWAY
from mutants.misjudged import MISJUDGED
from mutants.missed import MISSED
from mutants.moments import MOMENTS
from mutants.namesrv import NAMESRV
from mutants.neglected import NEGLECTED
from mutants.nothing_comes import NOTHING_COMES
from mutants.otherwise import OTHERWISE, OTHERWISE_COPIED
from mutants.outlived import OUTLIVED
from mutants.outside import OUTSIDE
from mutants.overseen import OVERSEEN
from mutants.oversights import OVERLOOKED, OVERSIGHTS
from mutants.peers import PEERS
from mutants.places import OF_ONE_ALONE, PLACES
from mutants.pressed import PRESSED
from mutants.product import PRODUCT_BUGS
from mutants.records import RECORDS
from mutants.replication import REPLICATION
from mutants.replies import REPLIES
from mutants.retries import RETRIES
from mutants.reviewed import REVIEWED
from mutants.roles import ROLES
from mutants.servers import SERVERS
from mutants.services import SERVICES
from mutants.serving import SERVING
from mutants.skilled import SKILLED
from mutants.slaves import SLAVES
from mutants.slices import SLICES
from mutants.stalls import STALLS
from mutants.starts import STARTS
from mutants.state import STATE
from mutants.streams import STREAMS
from mutants.switch import SWITCH
from mutants.tools import TOOLS
from mutants.traces import TRACES
from mutants.transactions import TRANSACTIONS
from mutants.transactions_client import TRANSACTIONS_CLIENT
from mutants.twice import KEPT, TICKS, TICKS_BY_TESTS
from mutants.unheard import UNHEARD
from mutants.unwatched import UNWATCHED
from mutants.wire import WIRE
from mutants.withheld import WITHHELD
from mutants.worn import WORN

if TYPE_CHECKING:
    from mutants.planting import Mutant

RARE: Final = frozenset({
    "cut-configuration-kept", "equal-tail-deleted", "hung-disk-not-noticed",
    "removed-leader-counts-itself", "stale-acknowledgement-counted",
    "stale-vote-counted",
})  # fmt: skip
"""What some plan showed once, and no plan that has been tried since the draws changed."""

UNSHOWN: Final = frozenset({
    "closed-by-an-older-connection", "conflict-within-a-span",
    "lateness-of-what-was-refused", "leaving-told-to-nobody", "name-server-that-forgot-us",
    "older-term-takes-the-route", "queues-begin-as-before-the-trim",
    "registration-tried-once", "renewed-though-given-back", "shared-entry-before-the-log",
    "silent-for-ever",
    "slow-client-unheard", "trim-takes-the-next-term",
})  # fmt: skip
"""What the plans should show that are drawn now, and the few that were tried have not."""

SHOWN: Final = frozenset({
    "client-broadcast-is-shared", "client-failed-though-stored", "client-ok-without-answer",
    "client-orderly-retry-skips", "client-retried-on-another-queue",
    "client-revoked-queue-pulled", "client-sets-host-bits", "client-tx-failed-listener-commits",
    "copy-unknown-to-followers", "delivery-a-level-early", "delivery-known-to-its-leader",
    "given-away-and-handed-out", "half-unknown-to-followers", "local-offsets-not-written",
    "no-retries-is-no-limit",
    "offset-put-during-a-write-lost", "offsets-of-nothing",
    "older-route-believed", "questions-not-counted",
    "questions-of-another-term-awaited", "queue-end-one-short", "refused-amid-a-hand-over",
    "renewal-of-no-locks", "reply-to-a-connection-that-is-gone", "retry-forgets-its-topic",
    "retry-never-dead",
    "selected-anew-for-each-try", "stamps-fall-as-a-clock-leaps",
    "untaken-queue-without-locks",
})  # fmt: skip
"""Of the bugs that tests find: those that the simulator finds as well."""

_BY_TESTS: Final = (
    *ADMIN,
    *ATTACKED,
    *BOUNDS,
    *CLASSIC,
    *CLIENTS,
    *CONSUMPTION,
    *CONTROLLER,
    *DELAYS,
    *DOOR,
    *FAIRNESS,
    *FILTERS,
    *HINTS,
    *HOSTILE,
    *IMAGES,
    *INFLATED,
    *LAPSES,
    *LATE,
    *LEFTOVERS,
    *LOG_AND_STORE,
    *MASTER_SLAVE,
    *MEASURED_BY_TESTS,
    *MIDWAY,
    *MISSED,
    *MOMENTS,
    *NAMESRV,
    *REFUSED_AND_HELD,
    *NOTHING_COMES,
    *OF_ONE_ALONE,
    *OTHERWISE_COPIED,
    *OVERLOOKED,
    *PACED,
    *PEERS,
    *ACCESS,
    *RECORDS,
    *REPLIES,
    *RETRIES,
    *REVIEWED,
    *ROLES,
    *SERVERS,
    *SERVICES,
    *SLAVES,
    *STALLS,
    *STARTS,
    *STATE,
    *STREAMS,
    *SWITCH,
    *SYNCED,
    *TRANSACTIONS,
    *TRACES,
    *TRANSACTIONS_CLIENT,
    *TOOLS,
    *KEPT,
    *TICKS_BY_TESTS,
    *WIRE,
)
_SIMULATED: Final = (
    *ELECTIONS,
    *REPLICATION,
    *GROUPS,
    *MEASURED,
    *DURABILITY,
    *PRODUCT_BUGS,
    *SERVING,
    *SLICES,
    *BLIND,
    *DIMENSIONS,
    *CORNERS,
    *OUTSIDE,
    *FURTHER,
    *UNWATCHED,
    *OVERSIGHTS,
    *OVERSEEN,
    *NEGLECTED,
    *EDGES,
    *KINDS,
    *AFRESH,
    *KINDS_FURTHER,
    *PLACES,
    *OUTLIVED,
    *COUNTED,
    *UNHEARD,
    *INSISTENCE,
    *WORN,
    *EVERYDAY,
    *FITFUL,
    *SKILLED,
    *PRESSED,
    *GUARDED,
    *CUTS,
    *OTHERWISE,
    *TICKS,
    *(mutant for mutant in _BY_TESTS if mutant.name in SHOWN),
)

MUTANTS: Final[dict[str, Mutant]] = {
    mutant.name: mutant for mutant in _SIMULATED if mutant.name not in RARE | UNSHOWN
}
"""What the simulator finds."""

BY_TESTS: Final[dict[str, Mutant]] = {
    mutant.name: mutant
    for mutant in (
        *(mutant for mutant in _SIMULATED if mutant.name in RARE | UNSHOWN),
        *(mutant for mutant in _BY_TESTS if mutant.name not in SHOWN),
    )
}
"""What a test finds that plants it; the simulator cannot show it, or only on a seed not known."""

ALL: Final[dict[str, Mutant]] = {**MUTANTS, **BY_TESTS}

HARNESS_BUGS: Final[dict[str, Mutant]] = {
    mutant.name: mutant for mutant in (*HARNESS, *WITHHELD, *EXCUSES, *MISJUDGED)
}
"""Bugs of what runs and judges brokers: their tests plant them, ``demo --break`` has none."""
