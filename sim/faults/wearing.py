"""What happens to brokers that are worn, see `sim.faults.worn`: the events of such a plan.

Each kind is drawn from a stream of its own, behind everything else. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import structs

from sim.faults.budget import within_budget
from sim.faults.plan import FaultEvent, FaultKind, Options, Package, Role
from sim.faults.planned import fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.faults.plan import Value, Workload
    from sim.rng import SplitRng

WEARING: Final = "wearing"
"""The stream that it is drawn from."""
FIRST_MS: Final = 2_000
LAST_MS: Final = 1_500
"""None comes so late that nothing follows."""
LEARNER_P: Final = 0.6
"""How probable it is, where members change, that a leader is cut off with a learner."""
ALONE_P: Final = 0.5
"""How probable it is that little else happens: a start forgets what a process was told."""
KEPT: Final = (Package.BEHIND, Package.ALONE, Package.HALF_OPEN)
USUAL_MS: Final = 14_000
SCHEDULED: Final = "*/consumequeue/SCHEDULE_TOPIC_XXXX/*"
TOP_BIT: Final = 128
"""What is flipped in a text of ASCII is seen."""
WIDTHS: Final = ((60, 250), (5, 20))
"""Bytes that a narrow link passes in a millisecond, between brokers and to who reads."""
NO_ROOM: Final[tuple[dict[str, Value], ...]] = (
    {"glob": "*/snapshot*"}, {"glob": "*/snapshot*"}, {"glob": "*/consumequeue*"},
    {"free_bytes": 0}, {"free_bytes": 4_096},
)  # fmt: skip
"""For what a follower has no room that takes a snapshot."""


def with_wearing(
    rng: SplitRng, events: list[FaultEvent], options: Options, workload: Workload
) -> list[FaultEvent]:
    """Return the events of a plan, and these among them where its brokers are worn."""
    if workload.worn is None:
        return events
    if rng.split("alone").chance(ALONE_P):
        events = [one for one in events if one.package in KEPT]
    if any(one.package is Package.BEHIND for one in events):
        events = [*events, *_away(rng.split("away"), options)]
    more = _without_room(rng.split("no room"), events, options)
    for name, (share, kind) in KINDS.items():
        if rng.split(name).split("on").chance(share):
            more += kind(rng.split(name), options)
    if options.spares and rng.split("learner").split("on").chance(LEARNER_P):
        more += _with_a_learner(rng.split("learner"), options)
    if workload.delayed is not None and rng.split("scheduled").split("on").chance(0.5):
        more += _spoilt(rng.split("scheduled"), options, SCHEDULED, {})
    events = sorted(events + more, key=lambda one: (one.at_ms, one.package.value, one.seed))
    return events if options.overkill else within_budget(events, options)


def _without_room(rng: SplitRng, events: list[FaultEvent], options: Options) -> list[FaultEvent]:
    """Return disks that are full when somebody who was away comes back and needs a snapshot."""
    more = []
    for number, one in enumerate(events):
        stream = rng.split(f"back{number}")
        if one.package is Package.BEHIND and stream.split("on").chance(0.7):
            at_ms = one.end_ms + stream.split("at").randint(-300, 100)
            times = (at_ms, stream.split("hold").choice((300, 800, 2_000)))
            full = dict(stream.split("what").choice(NO_ROOM))
            more.append(fault(stream, options, times, FaultKind.DISK_FULL, Role.MOST_BEHIND, full))
    return more


def _away(rng: SplitRng, options: Options) -> list[FaultEvent]:
    """Return somebody more who is away for long, and back early enough for what follows."""
    times = (rng.split("at").randint(FIRST_MS, 3_500), rng.split("hold").randint(2_000, 3_000))
    away = fault(rng, options, times, FaultKind.CRASH, Role.FOLLOWER)
    return [structs.replace(away, package=Package.BEHIND)]


def _all_hang(rng: SplitRng, options: Options) -> list[FaultEvent]:
    """Return disks that hang, each broker's once, one after the other."""
    hold_ms = rng.split("hold").choice((1_400, 2_200))
    step_ms = hold_ms + rng.split("between").choice((-500, 300))
    first_ms = max(FIRST_MS, _last(options) - options.brokers * step_ms)
    how: dict[str, Value] = {"op": "sync", "glob": "*/data/*"}
    return [
        fault(
            rng.split(f"disk{number}"), options, (first_ms + number * step_ms, hold_ms),
            FaultKind.HUNG_DISK, f"n{number}", how,
        )
        for number in range(options.brokers)
    ]  # fmt: skip


def _tables(rng: SplitRng, options: Options) -> list[FaultEvent]:
    """Return damage to saved tables, which is met by the next start."""
    events = []
    for number in range(rng.split("times").randint(1, 3)):
        stream = rng.split(f"time{number}")
        params: dict[str, Value] = {"mask": TOP_BIT}
        events += _spoilt(stream, options, "*/config/*.json", params)
    return events


def _spoilt(
    rng: SplitRng, options: Options, glob: str, params: dict[str, Value]
) -> list[FaultEvent]:
    """Return damage to what a broker has made of its log, while it is down."""
    times = (_time(rng, options), rng.split("down").choice((50, 400, 1_500)))
    target = rng.split("role").choice((Role.LEADER, Role.FOLLOWER, Role.RANDOM))
    what: dict[str, Value] = {"glob": glob, "bytes": rng.split("bytes").choice((1, 3)), **params}
    return [fault(rng, options, times, FaultKind.SPOIL, target, what)]


def _narrow(rng: SplitRng, options: Options) -> list[FaultEvent]:
    """Return links that let little pass, between brokers, or to somebody who reads."""
    times = (_time(rng, options), rng.split("hold").choice((1_500, 4_000, 8_000)))
    target = rng.split("role").choice((Role.LEADER, Role.FOLLOWER, Role.MOST_BEHIND, Role.CONSUMER))
    how: dict[str, Value] = {
        "base_ms": rng.split("base").choice((1, 20)), "spread_ms": 0, "loss": 0.0,
        "bytes_per_ms": rng.split("width").choice(WIDTHS[target == Role.CONSUMER]),
    }  # fmt: skip
    return [fault(rng, options, times, FaultKind.DELAY, target, how)]


def _rot(rng: SplitRng, options: Options) -> list[FaultEvent]:
    """Return damage to much of the log of a leader while one of those who could help is away."""
    at_ms = _time(rng, options)
    away_ms = rng.split("away").choice((2_000, 5_000))
    how: dict[str, Value] = {"glob": "*/data/*", "bytes": rng.split("bytes").choice((3, 12))}
    helper = rng.split("helper").choice((Role.FOLLOWER_0, Role.FOLLOWER_1))
    return [
        fault(rng.split("rot"), options, (at_ms, 100), FaultKind.BIT_ROT, Role.LEADER, how),
        fault(rng.split("gone"), options, (at_ms + 20, away_ms), FaultKind.CRASH, helper),
    ]


def _with_a_learner(rng: SplitRng, options: Options) -> list[FaultEvent]:
    """Return somebody who learns for long, and a leader that is cut off with one of the others."""
    held: dict[str, Value] = {"held_back": 1}
    asked = rng.split("asked").randint(300, FIRST_MS)
    events = [fault(rng.split("add"), options, (asked, 8_000), FaultKind.ADD, Role.LEADER, held)]
    away_ms = 3 * options.tick_ms * options.election_ticks_max
    for number in range(3):
        stream = rng.split(f"cut{number}")
        times = (FIRST_MS + number * (away_ms + 800), away_ms)
        events.append(fault(stream, options, times, FaultKind.HALVES, Role.LEADER))
    return events


KINDS: Final[dict[str, tuple[float, Callable[[SplitRng, Options], list[FaultEvent]]]]] = {
    "hangs": (0.35, _all_hang),
    "tables": (0.5, _tables),
    "narrow": (0.4, _narrow),
    "rot": (0.3, _rot),
}
"""How likely each is, where there are any."""


def _last(options: Options) -> int:
    return min(options.safety_ms, USUAL_MS) - LAST_MS


def _time(rng: SplitRng, options: Options) -> int:
    """Return when something begins: early enough that its end can be seen."""
    return rng.split("at").randint(FIRST_MS, max(FIRST_MS, _last(options)))
