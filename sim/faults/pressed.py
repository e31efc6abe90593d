"""Brokers that are pressed: disks that others fill, hand-overs in vain, clocks days ahead.

A disk goes above the ratios at which a broker makes room, or refuses, without ever being full, and
falls again. Somebody who is to lead does not, and the leader goes on, with what was refused
meanwhile; it is killed some time later. A broker begins with a clock that is days ahead. Most plans
have none of this. It is drawn from a stream of its own, behind everything else, so that plans
without it are as they were. Pure. Source: spec/disk.md 5.8; docs/raft.md; spec/proof.md D5, T1, C2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import structs

from sim.faults.budget import within_budget
from sim.faults.plan import FaultEvent, FaultKind, Options, Package, Role
from sim.faults.planned import fault, is_story
from sim.faults.press import Pressed
from sim.faults.skilled import Skilled

if TYPE_CHECKING:
    from sim.faults.plan import Value, Workload
    from sim.rng import SplitRng

PRESSED: Final = "brokers under pressure"
"""The stream that it is drawn from."""
PRESSED_P: Final = 0.15
PART_P: Final = 0.6
AHEAD_P: Final = 0.25
WAITING: Final = (
    "delayed", "retrying", "orderly", "transactional", "everyday", "further", "strain",
)  # fmt: skip
"""Kinds of messages, and clients, that wait for times, or have batches that are large."""
ALONE_P: Final = 0.6
"""How probable it is that little else happens."""
KEPT: Final = (Package.BEHIND, Package.ALONE, Package.HALF_OPEN)
ONCE_MS: Final = 150
"""How often some group commits once, where leaders hand over in vain."""
FIRST_MS: Final = 2_000
LAST_MS: Final = 2_500
"""None comes so late that nothing follows."""
USUAL_MS: Final = 14_000
USED: Final = (0.8, 0.88, 0.93, 0.97)
"""Above the ratios at which what is old goes, at which all does, and at which sends are refused."""
DAYS_MS: Final = (3 * 86_400_000, 40 * 86_400_000)
SEGMENT_BYTES: Final = 16_384
BODY_MAX: Final = 1_024
"""Larger ones do not fit into so small segments."""
RETENTION_MS: Final = (1_500, 4_000)


def draw_pressed(
    rng: SplitRng, options: Options, workload: Workload, *, is_behind: bool
) -> tuple[Options, Workload]:
    """Return settings and workload of a plan, and what its brokers are pressed by.

    Where a clock is ahead segments are small and go by age, and nothing waits for a time: it would
    wait for days. None is where somebody is to be behind (``is_behind``): logs go otherwise there.
    """
    if options.alone or workload.skilled or not rng.split("on").chance(PRESSED_P):
        return options, workload
    waits = any((workload.delayed, workload.retrying, workload.orderly, workload.transactional))
    is_ahead = rng.split("ahead").chance(AHEAD_P) and not is_behind
    pressed = Pressed(
        crowded=rng.split("crowded").chance(PART_P),
        forcibly=rng.split("forcibly").chance(0.3) and not waits,
        in_vain=rng.split("in vain").chance(PART_P),
        ahead_ms=rng.split("how far").choice(DAYS_MS) if is_ahead else 0,
    )
    if pressed.ahead_ms:
        options = structs.replace(
            options, segment_bytes=SEGMENT_BYTES, retention_by="hour", tell_clock_ms=0,
            retention_ms=rng.split("age").choice(RETENTION_MS),
        )  # fmt: skip
        workload = structs.replace(
            workload, compact_p=0.0, term_compact_p=0.0, expire_p=0.0,
            body_max=min(workload.body_max, BODY_MAX), **dict.fromkeys(WAITING),
        )  # fmt: skip
    if pressed.in_vain:
        workload = structs.replace(workload, skilled=Skilled(every_ms=ONCE_MS, once=True))
    return options, structs.replace(workload, pressed=pressed)


def with_pressing(
    rng: SplitRng, events: list[FaultEvent], options: Options, workload: Workload
) -> list[FaultEvent]:
    """Return the events of a plan, and these among them where its brokers are pressed."""
    pressed = workload.pressed
    if pressed is None:
        return events
    if not is_story(workload) and rng.split("alone").chance(ALONE_P):
        events = [one for one in events if one.package in KEPT]
    more: list[FaultEvent] = []
    if pressed.crowded:
        more += _crowded(rng.split("crowded"), options)
    if pressed.in_vain:
        more += _in_vain(rng.split("in vain"), options)
    if pressed.ahead_ms:
        more += _ahead(rng.split("ahead"), options, pressed.ahead_ms)
    events = sorted(events + more, key=lambda one: (one.at_ms, one.package.value, one.seed))
    return events if options.overkill else within_budget(events, options)


def _crowded(rng: SplitRng, options: Options) -> list[FaultEvent]:
    """Return disks that others fill, up to some ratio or up to the end, and that have room then."""
    events = []
    for number in range(rng.split("times").randint(1, 4)):
        stream = rng.split(f"time{number}")
        what: dict[str, Value] = {"used": stream.split("used").choice(USED)}
        hold_ms = stream.split("hold").choice((2_000, 3_000))
        if stream.split("full").chance(0.35):
            what, hold_ms = {"free_bytes": 0}, stream.split("short").choice((150, 500, 1_200))
        target = stream.split("role").choice((Role.LEADER, Role.LEADER, Role.ALL, Role.FOLLOWER))
        times = (_time(stream, options), hold_ms)
        events.append(fault(stream, options, times, FaultKind.DISK_FULL, target, what))
    return events


def _in_vain(rng: SplitRng, options: Options) -> list[FaultEvent]:
    """Return hand-overs to somebody who does not take over, and the end of who leads on."""
    events: list[FaultEvent] = []
    at_ms = _time(rng, options)
    for number in range(rng.split("times").randint(1, 2)):
        stream = rng.split(f"time{number}")
        if events and at_ms + LAST_MS > options.safety_ms:
            break
        away_ms = stream.split("away").choice((1_500, 3_000))
        how = stream.split("how").choice((FaultKind.PAUSE, FaultKind.ISOLATE, FaultKind.CRASH))
        events.append(fault(stream, options, (at_ms, away_ms), how, Role.FOLLOWER_0))
        for again in range(stream.split("asked").randint(1, 3)):
            asked = stream.split(f"asked{again}")
            asked_ms = at_ms + 20 + again * 600 + asked.split("at").randint(0, 300)
            times = (asked_ms, 300)
            events.append(fault(asked, options, times, FaultKind.TRANSFER, Role.FOLLOWER_0))
        at_ms += away_ms + stream.split("on").choice((500, 4_500))
        end = stream.split("end").choice((FaultKind.CRASH, FaultKind.ISOLATE, FaultKind.TRANSFER))
        target = Role.FOLLOWER if end is FaultKind.TRANSFER else Role.LEADER
        events.append(fault(stream.split("then"), options, (at_ms, 1_500), end, target))
        at_ms += 2_500
    return events


def _ahead(rng: SplitRng, options: Options, ahead_ms: int) -> list[FaultEvent]:
    """Return a follower that is killed, and begins again with a clock that is days ahead."""
    at_ms = max(_time(rng, options), FIRST_MS + 1_500)
    down_ms, for_ms = rng.split("down").choice((100, 400)), rng.split("for").randint(1_200, 2_500)
    target = rng.split("role").choice((Role.FOLLOWER_0, Role.FOLLOWER_1))
    ahead: dict[str, Value] = {"ms": ahead_ms, "back": 1}
    return [
        fault(rng.split("end"), options, (at_ms, down_ms), FaultKind.CRASH, target),
        fault(
            rng.split("set"), options, (at_ms + 20, down_ms + for_ms), FaultKind.CLOCK_JUMP,
            target, ahead,
        ),
    ]  # fmt: skip


def _time(rng: SplitRng, options: Options) -> int:
    """Return when something begins: early enough that what follows can be seen."""
    last_ms = min(options.safety_ms, USUAL_MS) - LAST_MS
    return rng.split("at").randint(FIRST_MS, max(FIRST_MS, last_ms))
