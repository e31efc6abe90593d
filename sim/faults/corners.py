"""Moments that are rare by chance, and brought about on purpose in some plans.

A member is added while what it is sent is lost, or while the leader's disk has no room for the
entry that says so; a broker outside the group is killed, or stopped, while its disk is full. Each
is drawn from a stream of its own, behind everything else. Pure. Source: spec/proof.md 2, 4.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.faults.plan import FaultEvent, FaultKind, Options, Package, Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.faults.plan import Value
    from sim.rng import SplitRng

CORNERS: Final = "corners"
"""The stream that they are drawn from."""
MEMBERS_P: Final = 0.5
"""How probable they are where members come and go."""
ALONE_P: Final = 0.3
"""Likewise where something happens to a broker outside the group."""
FIRST_MS: Final = 1_500
EARLY_MS: Final = 4_000
"""By then there is still a broker to be added, mostly."""
LAST_MS: Final = 1_000
"""None comes so late that nothing follows."""
ALONE_HOST: Final = "b0"
HOW: Final[tuple[dict[str, Value], ...]] = (
    {"held_back": 1}, {"no_room": 1}, {"no_room": 1}, {"held_back": 1, "no_room": 1},
)  # fmt: skip


def with_corners(
    rng: SplitRng, events: list[FaultEvent], options: Options, on: Sequence[Package]
) -> list[FaultEvent]:
    """Return the events of a plan, and these among them."""
    more: list[FaultEvent] = []
    if Package.MEMBERS in on and rng.split("members").chance(MEMBERS_P):
        more.append(_add(rng.split("add"), options))
    if Package.ALONE in on and rng.split("alone").chance(ALONE_P):
        more += _full_and_killed(rng.split("full"), options)
    return sorted(events + more, key=lambda one: (one.at_ms, one.package.value, one.seed))


def _add(rng: SplitRng, options: Options) -> FaultEvent:
    """Return an order to add a member that does not go as it should."""
    at_ms = rng.split("at").randint(FIRST_MS, EARLY_MS)
    return FaultEvent(
        at_ms=at_ms,
        kind=FaultKind.ADD,
        package=Package.MEMBERS,
        target=Role.LEADER,
        for_ms=min(rng.split("patience").choice((3_500, 6_000)), options.safety_ms - at_ms),
        seed=_seed(rng),
        params=dict(rng.split("how").choice(HOW)),
    )


def _full_and_killed(rng: SplitRng, options: Options) -> list[FaultEvent]:
    """Return a disk without room, and the end of the process in the midst of that."""
    at_ms = _time(rng, options)
    wait_ms = rng.split("wait").randint(50, 800)
    kind = rng.split("kind").choice((FaultKind.CRASH, FaultKind.CRASH, FaultKind.STOP))
    full = FaultEvent(
        at_ms=at_ms,
        kind=FaultKind.DISK_FULL,
        package=Package.ALONE,
        target=ALONE_HOST,
        for_ms=min(wait_ms + rng.split("hold").randint(100, 600), options.safety_ms - at_ms),
        seed=_seed(rng),
        params={"free_bytes": rng.split("room").choice((0, 4_096, 8_192))},
    )
    ends = FaultEvent(
        at_ms=at_ms + wait_ms,
        kind=kind,
        package=Package.ALONE,
        target=ALONE_HOST,
        for_ms=rng.split("down").choice((50, 400)),
        seed=_seed(rng.split("end")),
    )
    return [full, ends]


def _time(rng: SplitRng, options: Options) -> int:
    """Return when something begins: early enough that its end can be seen."""
    last_ms = max(FIRST_MS, min(options.safety_ms, 14_000) - LAST_MS)
    return rng.split("at").randint(FIRST_MS, last_ms)


def _seed(rng: SplitRng) -> int:
    return rng.split("seed").randint(0, (1 << 31) - 1)
