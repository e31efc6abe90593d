"""What a plan may have of each kind of message: delayed, given back, in order, to every member.

Each is None in a plan that has none. Pure: values and their JSON. Source: spec/proof.md 3.3.
"""

from typing import Annotated, Final, Literal, TypedDict

import msgspec
from msgspec import structs

from sim.rng import SplitRng

Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]

TRAFFIC: Final = "kinds of topics"
"""The stream that these are drawn from."""
TRAFFIC_P: Final = 0.6
"""How probable it is that a plan without a broker outside the group has any of them."""
PAYMENTS: Final = "payments drawn"
"""The stream of transactions."""
PAYMENTS_P: Final = 0.35
"""How probable they are in such a plan."""
KIND_P: Final = 0.45
"""How probable each one is then."""
DROPS_P: Final = 0.3
"""How many of the plans in which messages wait drop logs as others do."""
LEVELS: Final = ("1s 2s 1s 2s 3s", "1s 1s 1s 1s 1s 1s", "2s 5s 1s 1s 2s", "1s 3s")
ASKED_AGAIN_P: Final = 0.5
"""How many of the plans with transactions have leaders that lose their place while they ask."""
SHARES: Final = (0.3, 0.8)
REFUSED: Final = (0.0, 0.0, 0.3, 1.0)
USUAL_MEMBERS: Final = 2


class Delayed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Messages that wait."""

    share: float = 0.2
    """For each other operation."""


class Membership(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the members of a group do beside consuming; milliseconds, 0 for never."""

    members: Positive = USUAL_MEMBERS
    """Each has a host of its own."""
    churn_ms: Count = 0
    """The last member leaves and comes again after so long, again and again."""
    crash_ms: Count = 0
    """The first member is killed and started again, likewise."""
    pause_ms: Count = 0
    """Members pause and go on, likewise."""
    batch: Positive = 1
    """Messages of a listener's call."""
    slow_ms: Count = 0
    """Some calls take so long: longer than a member that leaves waits for them."""


class Retrying(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Messages whose listeners fail."""

    share: float = 0.2
    """Of messages, for each other operation."""
    group: Membership = Membership()
    fail_p: float = 0.3
    """How often a listener fails."""
    never_p: float = 0.1
    """How many messages no listener ever takes: they end as dead letters."""
    times_max: Count = 2
    """Deliveries after the first one."""
    chosen_p: float = 0.2
    """How often a listener that fails says itself how long to wait, or gives the message up."""
    refused_p: float = 0.0
    """How often a broker does not take back what is given back: the member sends a copy itself."""


class Orderly(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Messages of one key, one after the other, consumed in that order."""

    share: float = 0.2
    """Likewise."""
    group: Membership = Membership()
    queues: Positive = 2
    keys: Positive = 3
    fail_p: float = 0.05
    times_max: int = -1
    """Tries after the first one, behind which a message is a dead letter; -1: without end."""
    refused_p: float = 0.0
    """How often a broker does not take a dead letter: the member sends it itself."""


class Broadcast(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A group of which each member gets every message."""

    group: Membership = Membership()
    start: Literal["first", "last"] = "first"
    fail_p: float = 0.05


class Transactional(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Messages that are sent in transactions, by producers of a group of their own."""

    share: float = 0.2
    group: Membership = Membership()
    rollback_p: float = 0.3
    untold_p: float = 0.3
    """How often a local transaction does not say how it ended, or fails: brokers ask."""
    never_p: float = 0.1
    """How many transactions nobody ever knows the end of: they are parked."""
    check_ms: Positive = 1_000
    """How often brokers ask, and how old a half is then."""
    check_max: Positive = 3
    immunity_s: Count = 0
    """How long nobody is to be asked, as producers say themselves; 0: they do not."""
    asked_again: bool = False
    """Whether leaders lose their place while they ask, and get it back."""


class Traffic(TypedDict):
    """All of them."""

    delayed: Delayed | None
    retrying: Retrying | None
    orderly: Orderly | None
    broadcast: Broadcast | None
    transactional: Transactional | None


def draw_traffic(rng: SplitRng, safety_ms: int) -> Traffic:
    """Return what a plan has of each kind; each draws from a stream of its own."""
    kind_p = KIND_P if rng.split("any").chance(TRAFFIC_P) else 0.0
    streams = {kind: rng.split(kind) for kind in Traffic.__annotations__}
    streams["transactional"] = rng.split(PAYMENTS)
    is_on = {kind: stream.split("on").chance(kind_p) for kind, stream in streams.items()}
    is_on["transactional"] = streams["transactional"].split("on").chance(min(kind_p, PAYMENTS_P))
    return Traffic(
        delayed=_delayed(streams["delayed"]) if is_on["delayed"] else None,
        retrying=_retrying(streams["retrying"], safety_ms) if is_on["retrying"] else None,
        orderly=_orderly(streams["orderly"], safety_ms) if is_on["orderly"] else None,
        broadcast=_broadcast(streams["broadcast"], safety_ms) if is_on["broadcast"] else None,
        transactional=_transactional(streams["transactional"], safety_ms)
        if is_on["transactional"]
        else None,
    )


def _delayed(rng: SplitRng) -> Delayed:
    return Delayed(share=rng.split("share").choice(SHARES))


def _membership(rng: SplitRng, safety_ms: int) -> Membership:
    return Membership(
        members=rng.split("members").randint(1, 3),
        churn_ms=rng.split("churn").choice((0, safety_ms // 5, safety_ms // 3)),
        crash_ms=rng.split("crash").choice((0, 0, safety_ms // 3, safety_ms // 2)),
        pause_ms=rng.split("pause").choice((0, 0, 400, 2_000)),
        batch=rng.split("batch").choice((1, 1, 4)),
        slow_ms=rng.split("slow").choice((0, 0, 0, 2_500)),
    )


def _retrying(rng: SplitRng, safety_ms: int) -> Retrying:
    return Retrying(
        share=rng.split("share").choice(SHARES),
        group=_membership(rng.split("group"), safety_ms),
        fail_p=rng.split("fails").choice((0.1, 0.3, 0.6)),
        never_p=rng.split("never").choice((0.0, 0.2)),
        times_max=rng.split("times").randint(1, 3) if rng.split("only once").chance(0.8) else 0,
        chosen_p=rng.split("chosen").choice((0.0, 0.3)),
        refused_p=rng.split("not taken back").choice(REFUSED),
    )


def _orderly(rng: SplitRng, safety_ms: int) -> Orderly:
    return Orderly(
        share=rng.split("share").choice(SHARES),
        group=_membership(rng.split("group"), safety_ms),
        queues=rng.split("queues").choice((1, 2, 3)),
        keys=rng.split("keys").randint(1, 6),
        fail_p=rng.split("fails").choice((0.0, 0.1, 0.3)),
        times_max=rng.split("times").choice((-1, -1, 0, 2)),
        refused_p=rng.split("not taken back").choice(REFUSED),
    )


def _broadcast(rng: SplitRng, safety_ms: int) -> Broadcast:
    return Broadcast(
        group=_membership(rng.split("group"), safety_ms),
        start=rng.split("start").choice(("first", "last")),
        fail_p=rng.split("fails").choice((0.0, 0.1)),
    )


def _transactional(rng: SplitRng, safety_ms: int) -> Transactional:
    drawn = Transactional(
        share=rng.split("share").choice(SHARES),
        group=_membership(rng.split("group"), safety_ms),
        rollback_p=rng.split("rollbacks").choice((0.2, 0.5)),
        untold_p=rng.split("untold").choice((0.0, 0.3, 0.8)),
        never_p=rng.split("never").choice((0.0, 0.2)),
        check_ms=rng.split("checks").choice((500, 1_500)),
        check_max=rng.split("most").choice((1, 3)),
        immunity_s=rng.split("immunity").choice((0, 0, 1, 2)),
    )
    if not rng.split("asked again").chance(ASKED_AGAIN_P):
        return drawn
    # Somebody is to be asked at any time.
    return structs.replace(drawn, share=max(SHARES), untold_p=0.8, check_ms=500, asked_again=True)
