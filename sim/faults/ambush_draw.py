"""Ambushes of a plan, see `sim.faults.ambush`: one after the other, each over a stretch of the run.

Each is drawn from a stream of its own, behind everything else. Some plans have others besides that
wait for messages or for steps of disks in the place of the code; these have a stream of their own,
too. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from msgspec import structs

from sim.faults.plan import FaultKind, Package
from sim.faults.planned import fault, is_story
from sim.lookout import DISK, FRAMES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.faults.plan import FaultEvent, Options, Value, Workload
    from sim.rng import SplitRng

AMBUSHES: Final = "ambushes"
"""The stream that they are drawn from."""
POINTS: Final = "ambushes beside the code"
"""Likewise of those that wait for messages and disks."""
POINTS_SHARE: Final = 0.12
SWITCH_SHARE: Final = 0.3
"""Of plans of controllers that have no story, which are few."""
FULL_P: Final = 0.3
"""How probable it is that a disk is full where a step of it was waited for."""
LOG_FULL_P: Final = 0.7
"""And that in a group the log alone has no room."""
WITH_LOGS: Final = ("brokers", "alone")
SHARE: Final = 0.2
"""How many plans have some."""
ALONE_P: Final = 0.5
"""How probable it is, where there are some, that little else happens."""
KEPT: Final = (Package.BEHIND, Package.ALONE, Package.MEMBERS, Package.CLIENTS, Package.FAR)
FIRST_MS: Final = 1_200
LAST_MS: Final = 1_000
"""None is laid so late that nothing follows."""
USUAL_MS: Final = 13_000
SEEN_MAX: Final = (2, 5, 20, 100)
"""How often a point may have been seen before something happens there."""
CHANCES: Final = (1.0, 0.3, 0.05)
"""How probable it is that it closes at such a point."""
FILES: Final = (1.0, 0.5, 0.2)
"""What part of the product's files counts."""
AFTER_MS: Final = (0.0, 0.0, 0.2, 1.0, 5.0, 30.0)
HOLDS_MS: Final = (30, 150, 400, 1_500)

_BROKERS: Final = {"crash": 3.0, "power": 1.5, "cut": 2.0, "deaf": 1.0, "pause": 1.5}
_CLIENTS: Final = {"client crash": 1.0, "leave": 1.0, "client cut": 1.0, "reset": 1.0}
_NAMESRVS: Final = {"namesrv crash": 1.0, "namesrv pause": 1.0}
_ALONE: Final = {"crash": 2.0, "power": 1.0, "pause": 1.0}

Among = Mapping[str, tuple[float, Mapping[str, float]]]
"""Whose points count, how often, and what happens to them."""
OF_GROUP: Final[Among] = {
    "brokers": (6.0, {**_BROKERS, "lead": 1.5, "trim": 0.7}),
    "clients": (3.0, _CLIENTS),
    "namesrvs": (0.5, _NAMESRVS),
    "alone": (1.5, _ALONE),
}
OF_ALONE: Final[Among] = {"alone": (6.0, _ALONE), "clients": (3.0, _CLIENTS)}
OF_PAIR: Final[Among] = {
    "brokers": (6.0, _BROKERS), "clients": (2.0, _CLIENTS), "namesrvs": (0.5, _NAMESRVS),
}  # fmt: skip
OF_SWITCH: Final[Among] = {
    "brokers": (6.0, _BROKERS), "clients": (1.0, _CLIENTS), "namesrvs": (4.0, _NAMESRVS),
}  # fmt: skip
LEADER_P: Final = 0.3
"""How probable it is that what is seen of clients happens to the leader of the brokers instead."""
TO_LEADER: Final = ("crash", "cut", "pause")


def has_ambushes(rng: SplitRng, share: float = SHARE) -> bool:
    """Tell whether the plan of a seed has some; ``rng``: the stream that they are drawn from."""
    return rng.split("on").chance(share)


def with_ambushes(
    rng: SplitRng, events: Sequence[FaultEvent], options: Options, workload: Workload
) -> list[FaultEvent]:
    """Return the events of a plan about a group, and ambushes among them in a part of the plans.

    Args:
        rng: their stream.
        events: what else happens; half of those plans keep little of it, unless it is a story.
        options: of the run.
        workload: says so, and whether logs are dropped at any time.
    """
    if not has_ambushes(rng):
        return list(events)
    kept = [*events]
    if not is_story(workload) and rng.split("alone").chance(ALONE_P):
        kept = [one for one in events if one.package in KEPT]
    among = dict(OF_GROUP)
    if not options.alone:
        del among["alone"]
    more = ambushes(rng, options, among)
    if workload.compact_p == 0:
        more = [one for one in more if one.params["does"] != "trim"]
    return sorted([*kept, *more], key=lambda one: (one.at_ms, one.package.value, one.seed))


def ambushes(
    rng: SplitRng, options: Options, among: Among, first_ms: int = FIRST_MS
) -> list[FaultEvent]:
    """Return ambushes one after the other, from a time (ms) on."""
    events: list[FaultEvent] = []
    at_ms, end_ms = first_ms, min(options.safety_ms, first_ms + USUAL_MS) - LAST_MS
    while at_ms < end_ms:
        stream = rng.split(f"ambush{len(events)}")
        for_ms = stream.split("over").choice((300, 800, 2_000))
        params = _params(stream, among, has_leader="lead" in among.get("brokers", (0, {}))[1])
        events.append(fault(stream, options, (at_ms, for_ms), FaultKind.AMBUSH, "all", params))
        at_ms += for_ms + stream.split("pause").randint(0, 600)
    return events


def with_points(
    rng: SplitRng,
    events: Sequence[FaultEvent],
    options: Options,
    among: Among,
    workload: Workload | None = None,
    first_ms: int = FIRST_MS,
) -> list[FaultEvent]:
    """Return the events of a plan, and in some plans ambushes at messages and disks among them.

    Args:
        rng: their stream.
        events: what else happens; half of those plans keep little of it, unless it is a story.
        options: of the run.
        among: whose points count.
        workload: of a plan about a group; None for others, which keep everything.
        first_ms: none is laid before.
    """
    if not rng.split("on").chance(SWITCH_SHARE if among is OF_SWITCH else POINTS_SHARE):
        return list(events)
    kept = [*events]
    if workload is not None and not is_story(workload) and rng.split("alone").chance(ALONE_P):
        kept = [one for one in events if one.package in KEPT]
    among = {who: share for who, share in among.items() if who != "alone" or options.alone}
    more = [
        _beside_code(rng.split(f"points{number}"), one, is_group=workload is not None)
        for number, one in enumerate(ambushes(rng, options, among, first_ms))
        if one.params["does"] != "trim"
    ]
    return sorted([*kept, *more], key=lambda one: (one.at_ms, one.package.value, one.seed))


def _beside_code(rng: SplitRng, ambush: FaultEvent, *, is_group: bool) -> FaultEvent:
    """Return an ambush that waits for a message, or for a step of a disk."""
    params = {**ambush.params, "points": rng.split("points").choice((FRAMES, DISK))}
    if (
        params["points"] == DISK
        and params["among"] in WITH_LOGS
        and rng.split("full").chance(FULL_P)
    ):
        params["does"] = "full"
    if is_group and params["does"] == "full" and rng.split("log").chance(LOG_FULL_P):
        params["does"] = "log full"
    return structs.replace(ambush, params=params)


def _params(rng: SplitRng, among: Among, *, has_leader: bool) -> dict[str, Value]:
    who = rng.split("among").weighted(list(among), [share for share, _ in among.values()])
    does = among[who][1]
    params: dict[str, Value] = {
        "among": who,
        "does": rng.split("does").weighted(list(does), list(does.values())),
        "seen_max": rng.split("seen").choice(SEEN_MAX),
        "chance": rng.split("chance").choice(CHANCES),
        "files": rng.split("files").choice(FILES),
        "after_ms": rng.split("after").choice(AFTER_MS),
        "hold_ms": rng.split("hold").choice(HOLDS_MS),
    }
    if who == "clients" and has_leader and rng.split("leader").chance(LEADER_P):
        params["does"] = rng.split("to leader").choice(TO_LEADER)
        params["victim"] = "leader"
    return params
