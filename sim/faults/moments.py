"""Moments in which something of before is still there, brought about on purpose in some plans.

Who leads again after others have led, with what it held then; a hand-over to somebody who is not
there, and one behind it; somebody who is to lead, asked for or preferred, and never hears of it; a
change of the members that nobody but a leader who is cut off has; no room as messages come due; a
process that is killed while its disk is full; a clock that runs ahead twice; connections to name
servers of which one end is gone before the other one; a start soon after a snapshot was installed.
Each is drawn from a stream of its own, behind everything else. Pure. Source: spec/proof.md 2, 4.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import structs

from sim.faults.budget import within_budget
from sim.faults.plan import FaultEvent, FaultKind, Options, Package, Role
from sim.faults.planned import fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.faults.plan import Value
    from sim.rng import SplitRng

MOMENTS: Final = "moments"
"""The stream that they are drawn from."""
BEGUN_AGAIN: Final = "starts behind snapshots"
"""That of starts soon after a snapshot was installed."""
LATE_HAND_OVERS: Final = "late hand-overs"
"""That of leaders that hear late of who takes over."""
FIRST_MS: Final = 1_500
LAST_MS: Final = 3_000
"""None comes so late that nothing follows."""
USUAL_MS: Final = 14_000
ALONE_P: Final = 0.6
"""How probable it is that nothing else happens."""
DEAF_P: Final = 0.6
"""How probable it is where a leader is preferred."""
UNHEARD_P: Final = 0.25
"""How probable it is that whoever is to lead does not hear of it."""
LOST_CHANGE_P: Final = 0.6
"""How probable it is where members change."""
NO_ROOM_P: Final = 0.6
"""How probable it is where messages wait, or are halves."""
OFTEN_P: Final = 0.25
"""How probable it is, where somebody is to need a snapshot, that one needs several."""
LATE_P: Final = 0.06
"""How probable it is that a leader hears late of its successor."""
ASKED_AGAIN: Final = "led and asked again"
"""The stream of leaders that lose their place while they ask, and get it back."""
AWAY_MAX: Final = 4
BACK_P: Final = 0.3
"""How probable it is that all begin anew soon after somebody who was away has come back."""
INSISTS_MS: Final = 2_500
"""How long an operator tries to hand leadership over."""


def with_moments(
    rng: SplitRng, events: list[FaultEvent], options: Options, *, copies: bool = False
) -> list[FaultEvent]:
    """Return the events of a plan, and these among them; in most plans these alone.

    ``copies``: whether brokers copy messages themselves: some wait, or are halves.

    What else happens would mostly come between: another broker leads, or the process begins anew.
    But who is to be behind is away all the same.
    """
    weights = {name: weight for name, (weight, _) in KINDS.items()}
    more: list[FaultEvent] = []
    for number in range(rng.split("count").choice((1, 2, 3))):
        stream = rng.split(f"moment{number}")
        name = stream.split("kind").weighted(list(weights), list(weights.values()))
        more += KINDS[name][1](stream, options)
        del weights[name]
    if options.preferred and rng.split("deaf").chance(DEAF_P):
        more += _deaf_successor(rng.split("deaf successor"), options)
    if copies and rng.split("no room").chance(NO_ROOM_P):
        more += _full_now_and_then(rng.split("full now and then"), options)
    if rng.split("unheard").chance(UNHEARD_P):
        more += _unheard_transfer(rng.split("unheard transfer"), options)
    if options.spares and rng.split("change").chance(LOST_CHANGE_P):
        more += _lost_change(rng.split("lost change"), options)
    if rng.split("alone").chance(ALONE_P):
        events = [one for one in events if one.package is Package.BEHIND]
    return sorted(events + more, key=_order)


def with_starts(rng: SplitRng, events: list[FaultEvent], options: Options) -> list[FaultEvent]:
    """Return the events, and starts of all soon after somebody who was away has come back.

    What it had is replaced by a snapshot then.
    """
    is_behind = any(one.package is Package.BEHIND for one in events)
    if is_behind and rng.split("often").chance(OFTEN_P):
        events = _away_often(rng.split("away often"), options)
    more: list[FaultEvent] = []
    for number, one in enumerate(events):
        stream = rng.split(f"back{number}")
        if one.package is Package.BEHIND and stream.split("on").chance(BACK_P):
            back_ms = one.at_ms + one.for_ms + stream.split("wait").randint(300, 2_500)
            times = (back_ms, stream.split("down").choice((50, 400)))
            how: dict[str, Value] = {"gracefully": stream.split("how").choice((0, 1, 1))}
            more.append(fault(stream, options, times, FaultKind.RESTART_ALL, Role.ALL, how))
    return sorted(events + more, key=_order) if more else events


def with_late_hand_overs(
    rng: SplitRng, events: list[FaultEvent], options: Options
) -> list[FaultEvent]:
    """Return the events, and a hand-over of which the leader hears late, in some plans.

    What others tell it of the next term may come before it is asked for its vote, or behind.
    """
    if not rng.split("on").chance(LATE_P):
        return events
    more: list[FaultEvent] = []
    for number in range(rng.split("times").randint(1, 3)):
        stream = rng.split(f"time{number}")
        at_ms = _time(stream, options)
        slow: dict[str, Value] = {
            "base_ms": stream.split("base").choice((5, 20, 60)),
            "spread_ms": stream.split("spread").choice((40, 150)), "loss": 0.0,
        }  # fmt: skip
        times = (at_ms + stream.split("later").randint(50, 400), 800)
        target = stream.split("target").choice((Role.FOLLOWER_0, Role.FOLLOWER_1))
        more += [
            fault(
                stream.split("slow"), options, (at_ms, 2_000), FaultKind.DELAY, Role.LEADER, slow
            ),
            fault(stream.split("asked"), options, times, FaultKind.TRANSFER, target),
        ]
    return sorted(events + more, key=_order)


def with_asked_again(
    rng: SplitRng, events: list[FaultEvent], options: Options, check_ms: int
) -> list[FaultEvent]:
    """Return the events, and leaders that lead no more while they ask, and lead again.

    What a leader has put into its log as it asks is not committed: nobody gets it, or nobody hears
    that others have it. Nothing that it knew of that is true when it leads again.
    """
    more: list[FaultEvent] = []
    at_ms = _time(rng, options)
    for number in range(rng.split("times").randint(1, 2)):
        stream = rng.split(f"time{number}")
        longest_ms = options.tick_ms * options.election_ticks_max
        # Somebody is due to be asked meanwhile.
        away_ms = max(check_ms, int(longest_ms * stream.split("away").choice((1.5, 2.0, 3.0))))
        if more and at_ms + away_ms + LAST_MS > options.safety_ms:
            break
        if stream.split("lost").chance(0.5):
            lost: dict[str, Value] = {"messages": "appends", "side": "from", "probability": 1.0}
            times = (at_ms - check_ms, check_ms)
            more.append(
                fault(stream.split("drop"), options, times, FaultKind.DROP, Role.LEADER, lost)
            )
        cut, back = stream.split("cut"), stream.split("back")
        times = (at_ms, away_ms)
        more.append(fault(cut, options, times, FaultKind.ISOLATE, Role.LEADER))
        at_ms += away_ms + stream.split("wait").choice((20, 100, 500))
        times = (at_ms, INSISTS_MS)
        more.append(fault(back, options, times, FaultKind.TRANSFER, Role.EX_LEADER))
        at_ms += INSISTS_MS + stream.split("pause").randint(0, 800)
    if rng.split("alone").chance(ALONE_P):
        events = [one for one in events if one.package is Package.BEHIND]
    return sorted(events + more, key=_order)


def _away_often(rng: SplitRng, options: Options) -> list[FaultEvent]:
    """Return a follower that is away and comes back, again and again, in place of other faults.

    One leader sends it one snapshot after the other.
    """
    events: list[FaultEvent] = []
    at_ms = rng.split("at").randint(FIRST_MS, FIRST_MS + 500)
    while len(events) < AWAY_MAX and at_ms + LAST_MS < options.safety_ms:
        stream = rng.split(f"away{len(events)}")
        kind = stream.split("kind").choice((FaultKind.CRASH, FaultKind.ISOLATE, FaultKind.WIPE))
        away_ms = stream.split("hold").randint(2_000, 2_600)
        one = fault(stream, options, (at_ms, away_ms), kind, Role.FOLLOWER_0)
        events.append(structs.replace(one, package=Package.BEHIND))
        at_ms += away_ms + stream.split("back").randint(1_000, 2_000)
    return within_budget(events, options)


def _order(event: FaultEvent) -> tuple[int, str, int]:
    return event.at_ms, event.package.value, event.seed


def _leads_again(rng: SplitRng, options: Options) -> list[FaultEvent]:
    """Return a leader that is cut off from the others, not from its clients, and leads again."""
    events: list[FaultEvent] = []
    at_ms = _time(rng, options)
    for number in range(rng.split("times").choice((1, 2, 2))):
        stream = rng.split(f"time{number}")
        # So long that the others elect, mostly; so short that they have not passed it by far.
        longest_ms = options.tick_ms * options.election_ticks_max
        away_ms = int(longest_ms * stream.split("away").choice((1.2, 1.5, 2.0, 3.0)))
        if events and at_ms + away_ms + LAST_MS > options.safety_ms:
            break
        if stream.split("partly").chance(0.5):
            some: dict[str, Value] = {"messages": "appends", "side": "from", "probability": 0.5}
            lossy_ms = 400
            events.append(fault(
                stream.split("lossy"), options, (at_ms - lossy_ms, lossy_ms), FaultKind.DROP,
                Role.LEADER, some,
            ))  # fmt: skip
        events.append(fault(
            stream.split("cut"), options, (at_ms, away_ms), FaultKind.ISOLATE, Role.LEADER
        ))  # fmt: skip
        at_ms += away_ms + stream.split("wait").choice((20, 20, 100, 500))
        events.append(fault(
            stream.split("back"), options, (at_ms, INSISTS_MS), FaultKind.TRANSFER, Role.EX_LEADER
        ))  # fmt: skip
        at_ms += INSISTS_MS + stream.split("pause").randint(0, 800)
    return events


def _lost_transfer(rng: SplitRng, options: Options) -> list[FaultEvent]:
    """Return a hand-over to somebody who stands still, and one to somebody who does not."""
    at_ms = _time(rng, options)
    held_ms = rng.split("held").randint(1_000, 2_500)
    how = rng.split("how").choice((FaultKind.PAUSE, FaultKind.ISOLATE))
    return [
        fault(rng.split("held"), options, (at_ms, held_ms), how, Role.FOLLOWER_0),
        fault(
            rng.split("first"), options, (at_ms + 20, 300), FaultKind.TRANSFER, Role.FOLLOWER_0
        ),
        fault(
            rng.split("next"), options, (at_ms + held_ms, INSISTS_MS), FaultKind.TRANSFER,
            rng.split("to").choice((Role.FOLLOWER_0, Role.FOLLOWER_1)),
        ),
    ]  # fmt: skip


def _deaf_successor(rng: SplitRng, options: Options) -> list[FaultEvent]:
    """Return the end of the preferred leader, which comes back and does not hear its wishes."""
    at_ms = _time(rng, options)
    unheard: dict[str, Value] = {"messages": "transfers", "side": "to", "probability": 1.0}
    down_ms = rng.split("down").choice((50, 400))
    deaf_ms = rng.split("deaf").randint(4_000, 8_000)
    return [
        fault(rng.split("end"), options, (at_ms, down_ms), FaultKind.CRASH, options.preferred),
        fault(
            rng.split("drop"), options, (at_ms, deaf_ms), FaultKind.DROP, options.preferred,
            unheard,
        ),
    ]  # fmt: skip


def _unheard_transfer(rng: SplitRng, options: Options) -> list[FaultEvent]:
    """Return a hand-over to somebody who has the log and does not hear that it may lead."""
    at_ms = _time(rng, options)
    unheard: dict[str, Value] = {"messages": "transfers", "side": "to", "probability": 1.0}
    target = rng.split("target").choice((Role.FOLLOWER_0, Role.FOLLOWER_1))
    deaf_ms = rng.split("deaf").randint(4_000, 8_000)
    times = (at_ms + rng.split("later").randint(20, 200), 300)
    return [
        fault(rng.split("drop"), options, (at_ms, deaf_ms), FaultKind.DROP, target, unheard),
        fault(rng.split("asked"), options, times, FaultKind.TRANSFER, target),
    ]


def _lost_change(rng: SplitRng, options: Options) -> list[FaultEvent]:
    """Return a member that joins, and one that is to leave while the leader is cut off.

    Or the others get neither this change nor what is behind it, until the leader is cut off.
    """
    joins_ms = rng.split("joins").randint(300, 800)
    at_ms = joins_ms + rng.split("later").randint(2_500, 4_000)
    away_ms = int(options.tick_ms * options.election_ticks_max * rng.split("away").choice((2, 3)))
    asked_ms = at_ms + rng.split("asked").randint(5, 150)
    events = [
        fault(rng.split("add"), options, (joins_ms, 2_500), FaultKind.ADD, Role.RANDOM),
        fault(rng.split("gone"), options, (asked_ms, 50), FaultKind.REMOVE, Role.FOLLOWER),
    ]
    if rng.split("unheard").chance(0.5):
        unheard: dict[str, Value] = {"messages": "changes", "side": "from", "probability": 1.0}
        cut_ms = asked_ms + rng.split("known").randint(20, 300)
        times = (at_ms, cut_ms + away_ms - at_ms)
        events.append(
            fault(rng.split("drop"), options, times, FaultKind.DROP, Role.LEADER, unheard)
        )
        at_ms = cut_ms
    cut = fault(rng.split("cut"), options, (at_ms, away_ms), FaultKind.ISOLATE, Role.LEADER)
    return [*events, cut]


def _full_now_and_then(rng: SplitRng, options: Options) -> list[FaultEvent]:
    """Return a leader's disk that has no room for what comes due, or ends, again and again."""
    events: list[FaultEvent] = []
    for number in range(rng.split("times").randint(3, 7)):
        stream = rng.split(f"time{number}")
        times = (_time(stream, options), stream.split("hold").randint(60, 400))
        room: dict[str, Value] = {"free_bytes": stream.split("room").choice((0, 700, 2_000))}
        events.append(fault(stream, options, times, FaultKind.DISK_FULL, Role.LEADER, room))
    return events


def _full_and_killed(rng: SplitRng, options: Options) -> list[FaultEvent]:
    """Return disks without room, and the end of who writes to them in the midst of that."""
    at_ms = _time(rng, options)
    wait_ms = rng.split("wait").randint(30, 600)
    room: dict[str, Value] = {"free_bytes": rng.split("room").choice((0, 700, 4_096, 8_192))}
    is_all = rng.split("all").chance(0.5)
    target = Role.ALL if is_all else Role.LEADER
    hold_ms = wait_ms + rng.split("hold").randint(100, 600)
    events = [
        fault(rng.split("full"), options, (at_ms, hold_ms), FaultKind.DISK_FULL, target, room)
    ]
    kind = FaultKind.RESTART_ALL if is_all else FaultKind.CRASH
    how: dict[str, Value] = {"gracefully": 0} if is_all else {}
    down_ms = rng.split("down").choice((50, 400))
    events.append(fault(rng.split("end"), options, (at_ms + wait_ms, down_ms), kind, target, how))
    return events


def _queues_full(rng: SplitRng, options: Options) -> list[FaultEvent]:
    """Return disks without room for queues, of which there may be others than those of the log."""
    times = (_time(rng, options), rng.split("hold").randint(800, 2_500))
    target = rng.split("role").choice((Role.LEADER, Role.LEADER, Role.ALL))
    where: dict[str, Value] = {"glob": "*/consumequeue/*"}
    return [fault(rng, options, times, FaultKind.DISK_FULL, target, where)]


def _ahead_twice(rng: SplitRng, options: Options) -> list[FaultEvent]:
    """Return a clock that is set forward, and once more: what is believed of it is used up."""
    at_ms = _time(rng, options)
    back: dict[str, Value] = {"ms": rng.split("by").choice((30_000, 45_000, 58_000))}
    more: dict[str, Value] = {"ms": rng.split("more").choice((30_000, 45_000, 58_000))}
    wait_ms = rng.split("wait").randint(300, 1_500)
    return [
        fault(rng.split("one"), options, (at_ms, 6_000), FaultKind.CLOCK_JUMP, Role.LEADER, back),
        fault(
            rng.split("two"), options, (at_ms + wait_ms, 4_000), FaultKind.CLOCK_JUMP, Role.LEADER,
            more,
        ),
    ]  # fmt: skip


def _closed_late(rng: SplitRng, options: Options) -> list[FaultEvent]:
    """Return connections to name servers that end there when the next ones are made."""
    count = rng.split("count").randint(1, 3)
    events = []
    for number in range(count):
        stream = rng.split(f"one{number}")
        params: dict[str, Value] = {
            "which": "all", "late_ms": stream.split("late").choice((900, 2_000, 4_000))
        }  # fmt: skip
        times = (_time(stream, options), 0)
        target = stream.split("role").choice((Role.LEADER, Role.LEADER, Role.FOLLOWER))
        events.append(fault(stream, options, times, FaultKind.NAMESRV_RESET, target, params))
        if stream.split("moved").chance(0.6):  # who leads, and who does no more, registers anew
            moved = (times[0] + stream.split("wait").randint(50, 400), 800)
            events.append(fault(
                stream.split("move"), options, moved, FaultKind.TRANSFER, Role.FOLLOWER
            ))  # fmt: skip
    return events


def _slow_registry(rng: SplitRng, options: Options) -> list[FaultEvent]:
    """Return registrations that take long: much changes meanwhile."""
    params: dict[str, Value] = {
        "which": "all", "base_ms": rng.split("base").choice((150, 400)), "loss": 0.0
    }  # fmt: skip
    times = (_time(rng, options), rng.split("hold").randint(2_000, 5_000))
    return [fault(rng, options, times, FaultKind.NAMESRV_DELAY, Role.LEADER, params)]


KINDS: Final[
    dict[str, tuple[float, Callable[[SplitRng, Options], list[FaultEvent]]]]
] = {
    "leads again": (4, _leads_again),
    "lost transfer": (1, _lost_transfer),
    "full and killed": (2, _full_and_killed),
    "queues full": (3, _queues_full),
    "ahead twice": (1, _ahead_twice),
    "closed late": (2, _closed_late),
    "slow registry": (1.5, _slow_registry),
}  # fmt: skip
"""How likely each is, where there are any."""


def _time(rng: SplitRng, options: Options) -> int:
    """Return when something begins: early enough that its end can be seen."""
    last_ms = max(FIRST_MS, min(options.safety_ms, USUAL_MS) - LAST_MS)
    return rng.split("at").randint(FIRST_MS, last_ms)
