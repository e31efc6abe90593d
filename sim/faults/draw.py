"""From a seed to a plan: settings of the run, which faults it has, and when.

Swarm testing: each seed has its own few packages of faults, at its own rates. Each package draws
from a stream of its own and each event from another, so that no event depends on another one. At
last, what would exceed the contract is left out (`sim.faults.budget`), unless it is asked for.
Pure. Source: TigerBeetle VOPR; spec/proof.md 4.4.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import structs

from sim.faults.ambush_draw import AMBUSHES, OF_GROUP, POINTS, with_ambushes, with_points
from sim.faults.budget import within_budget
from sim.faults.corners import CORNERS, with_corners
from sim.faults.edges import BUSY_OVER, EDGES, draw_edges
from sim.faults.far import FAR_CLIENTS, draw_far_clients
from sim.faults.further import FURTHER, draw_further
from sim.faults.guarded import GUARDED, draw_guarded
from sim.faults.habits import with_habits
from sim.faults.moments import (
    ASKED_AGAIN,
    BEGUN_AGAIN,
    LATE_HAND_OVERS,
    MOMENTS,
    with_asked_again,
    with_late_hand_overs,
    with_moments,
    with_starts,
)
from sim.faults.plan import FaultEvent, FaultKind, LateGroup, Options, Package, Plan, Workload
from sim.faults.planned import FIRST_MS, QUIET_MS, from_recipe
from sim.faults.pressed import PRESSED, with_pressing
from sim.faults.recipes import RECIPES, STOPPED
from sim.faults.seldom import SELDOM, draw_seldom
from sim.faults.small import STREAM, draw_small
from sim.faults.strain import STRAIN, draw_strain
from sim.faults.traffic import DROPS_P, LEVELS, TRAFFIC, draw_traffic
from sim.faults.unwilling import UNWILLING, draw_unwilling
from sim.faults.wearing import WEARING, with_wearing
from sim.faults.worn import WORN, draw_worn
from sim.kinds import TAGS_ASKED, Odd
from sim.rng import SplitRng

BASELINE_P: Final = 0.03
"""Seeds without any fault."""
PACKAGE_P: Final = 0.3
"""How probable it is that a package is on."""
EVENTS_MAX: Final = 50
BEHIND_P: Final = 0.2
"""Seeds in which some replica needs a snapshot."""
BEHIND_SEGMENT_BYTES: Final = (8 * 1024, 16 * 1024)
"""So small that logs are dropped at many places, at the first entry of a term as well."""
BEHIND_BODY_MAX: Final = 1_024
"""In the smaller ones."""
BEHIND_CHECKPOINT_MS: Final = 300
BEHIND_COMPACT_P: Final = 0.3
DERIVED_P: Final = 0.1
"""Seeds in which queue files are damaged."""
HUGE_P: Final = 0.03
"""Seeds in which polite clients send bodies of up to a mebibyte."""
HUGE_BODY_MAX: Final = 1_000_000
HUGE_SEGMENT_BYTES: Final = 4 << 20
HUGE_RATE_PER_S: Final = 2.0
EXTRA: Final = (
    Package.ALONE, Package.DERIVED, Package.BEHIND, Package.FAR, Package.CLASSIC, Package.SWITCH,
    Package.HALF_OPEN, Package.AMBUSH,
)  # fmt: skip
"""Packages that are on beside the seed's own choice."""
HALF_OPEN: Final = "half-open connections"
"""The stream of connections of clients that end at one end alone."""
HALF_OPEN_P: Final = 0.08
"""How probable they are."""
HALF_OPEN_FURTHER_P: Final = 0.5
"""Where clients ask each other: they are told what they wait for over such connections."""
PREFERRED_P: Final = 0.15
"""How probable it is that one broker is to lead whenever it can."""
AT_ONCE_P: Final = 0.1
"""How many groups have followers that ask for votes at almost the same moment."""
PEER_KEY_P: Final = 0.5
ALONE_FAULTS_P: Final = 0.8
"""How probable it is that something happens to a broker outside the group."""
ODD_P: Final = 0.15
"""How probable it is that one kind of odd clients is there."""
ODD_KINDS: Final = tuple(Odd)
"""Those that default plans have."""
LONG_MS: Final = 60_000
"""A run that is longer outlasts leases, and is quiet."""
USUAL_MS: Final = 14_000
"""A run that is longer has no more faults than one of this length."""
LONG_RATE_PER_S: Final = 0.8
ORDERLY_LIVENESS_MS: Final = 200_000
"""A member that is killed keeps its locks until they run out, anew where the leader has changed."""
SLOW_LIVENESS_MS: Final = 300_000
"""Where much is read a few messages at a time, or waits for clocks."""
FAR_APART_MS: Final = 60_000
"""What was stamped by a clock so far ahead waits until the others have come there."""
STARTS: Final = ("first", "last", "timestamp")


def draw(seed: int, *, overkill: bool = False, packages: Sequence[Package] | None = None) -> Plan:
    """Return the plan of a seed.

    Args:
        seed: of everything.
        overkill: also draw what may exceed the contract.
        packages: those that are on; None for the seed's own choice.
    """
    rng = SplitRng(seed).split("plan")
    on = _choose_packages(rng.split("packages")) if packages is None else tuple(packages)
    if packages is None and rng.split("gone").chance(BEHIND_P):
        on = (*on, Package.BEHIND)
    if packages is None and rng.split("files").chance(DERIVED_P):
        on = (*on, Package.DERIVED)
    options = _draw_options(rng.split("options"), overkill=overkill, on=on)
    if options.alone and packages is None and rng.split("alone").chance(ALONE_FAULTS_P):
        on = (*on, Package.ALONE)
    events, far = list[FaultEvent](), list[FaultEvent]()
    for package in on:
        events += draw_package(rng.split(package.value), package, options)
    events.sort(key=lambda event: (event.at_ms, event.package.value, event.seed))
    if not overkill:
        events = within_budget(events, options)
    workload = _draw_workload(rng.split("workload"), options, on=on)
    if Package.BEHIND not in on and packages is None and rng.split("large bodies").chance(HUGE_P):
        options = structs.replace(options, segment_bytes=HUGE_SEGMENT_BYTES)
        workload = _with_huge_bodies(workload)
    if packages is None and not options.alone:
        options, workload = _with_traffic(
            rng.split(TRAFFIC), options, workload, is_behind=Package.BEHIND in on
        )
    if packages is None:
        workload = structs.replace(
            workload,
            further=draw_further(rng.split(FURTHER)),
            strain=draw_strain(rng.split(STRAIN), options.segment_bytes),
        )
        edges = draw_edges(rng.split(EDGES), is_busy=_is_busy(workload))
        small = draw_small(rng.split(STREAM))
        is_in_order = workload.orderly is not None
        seldom = draw_seldom(rng.split(SELDOM), is_in_order=is_in_order)
        workload = structs.replace(workload, edges=edges, small=small, seldom=seldom)
        unwilling = draw_unwilling(rng.split(UNWILLING), has_members=_has_members(workload))
        workload = structs.replace(workload, unwilling=unwilling)
        workload = _with_worn(rng.split(WORN), workload, is_behind=Package.BEHIND in on)
        events = _with_more(rng, workload, events, options, on=on)
        options, workload, events = with_habits(rng, options, workload, events)
        guarded = draw_guarded(rng.split(GUARDED), has_odd=bool(workload.odd))
        workload = structs.replace(workload, guarded=guarded)
        far = draw_far_clients(rng.split(FAR_CLIENTS), workload, options.safety_ms)
        if _takes_long(options, workload) or _waits_for_a_clock(workload, events):
            options = structs.replace(options, liveness_ms=SLOW_LIVENESS_MS)
        events = with_wearing(rng.split(WEARING), events[:EVENTS_MAX], options, workload)
        events = with_pressing(rng.split(PRESSED).split("events"), events, options, workload)
        events = with_ambushes(rng.split(AMBUSHES), events, options, workload)
        events = with_points(rng.split(POINTS), events, options, OF_GROUP, workload)
    else:
        events = events[:EVENTS_MAX]
    return Plan(seed=seed, options=options, workload=workload, events=(*far, *events))


def _with_more(
    rng: SplitRng,
    workload: Workload,
    events: list[FaultEvent],
    options: Options,
    *,
    on: Sequence[Package],
) -> list[FaultEvent]:
    """Return the events of a plan, and those among them that have a stream of their own."""
    events = _with_stops(rng.split("more stops"), workload, events, options)
    events = with_corners(rng.split(CORNERS), events, options, on)
    events = with_starts(rng.split(BEGUN_AGAIN), events, options)
    events = with_late_hand_overs(rng.split(LATE_HAND_OVERS), events, options)
    if workload.edges is not None and workload.edges.moments:
        copies = workload.delayed is not None or workload.transactional is not None
        events = with_moments(rng.split(MOMENTS), events, options, copies=copies)
    asked = workload.transactional
    if asked is not None and asked.asked_again:
        stream = rng.split(ASKED_AGAIN)
        events = with_asked_again(stream, events, options, asked.check_ms)
    return _with_half_open(rng.split(HALF_OPEN), workload, events, options)


def _with_worn(rng: SplitRng, workload: Workload, *, is_behind: bool) -> Workload:
    """Return a workload at brokers that are worn, in some plans that are not special otherwise."""
    if workload.strain or workload.edges or workload.unwilling:
        return workload
    worn = draw_worn(rng, body_max=workload.body_max, is_behind=is_behind)
    return structs.replace(workload, worn=worn)


def _with_half_open(
    rng: SplitRng, workload: Workload, events: list[FaultEvent], options: Options
) -> list[FaultEvent]:
    """Return the events of a plan, and connections of clients that end at one end alone."""
    often = HALF_OPEN_P if workload.further is None else HALF_OPEN_FURTHER_P
    if not rng.split("on").chance(often):
        return events
    events = events + draw_package(rng.split("events"), Package.HALF_OPEN, options)
    return sorted(events, key=lambda event: (event.at_ms, event.package.value, event.seed))


def _with_traffic(
    rng: SplitRng, options: Options, workload: Workload, *, is_behind: bool
) -> tuple[Options, Workload]:
    """Return the same with some kinds of messages more, in a share of the plans.

    What waits in a log that is dropped is gone: where messages wait, logs are dropped in few plans
    but in those that are about it.
    """
    kinds = draw_traffic(rng, options.safety_ms)
    workload = structs.replace(workload, **kinds)
    if workload.orderly is not None:
        options = structs.replace(options, liveness_ms=ORDERLY_LIVENESS_MS)
    if not any((workload.delayed, workload.retrying, workload.transactional)):
        return options, workload
    options = structs.replace(options, delay_levels=rng.split("levels").choice(LEVELS))
    if not is_behind and not rng.split("drops").chance(DROPS_P):
        options = structs.replace(options, retention_ms=0)
        workload = structs.replace(workload, compact_p=0.0, term_compact_p=0.0, expire_p=0.0)
    return options, workload


def _has_members(workload: Workload) -> bool:
    """Tell whether groups consume, and nothing but faults has them wait already."""
    consumes = any((workload.late, workload.retrying, workload.orderly))
    return consumes and workload.strain is None and workload.edges is None


def _is_busy(workload: Workload) -> bool:
    """Tell whether tens of messages come at once, again and again."""
    strain = workload.strain
    waits = strain is not None and strain.due_at_once > BUSY_OVER
    return workload.burst_max > BUSY_OVER or waits or Odd.BATCH in workload.odd


def _takes_long(options: Options, workload: Workload) -> bool:
    """Tell whether there may be much to do in the end.

    Large batches are read a few messages at a time, or what waits has stamps far ahead.
    """
    strain = workload.strain
    reads_few = strain is not None and bool(strain.count_max or strain.units_max)
    waits = any((workload.delayed, workload.retrying, workload.transactional))
    is_far = options.clock_spread_ms > FAR_APART_MS
    return (reads_few and Odd.BATCH in workload.odd) or (waits and is_far)


def _waits_for_a_clock(workload: Workload, events: list[FaultEvent]) -> bool:
    """Tell whether what waits may be stamped by a clock far ahead, or listeners leave it there."""
    waits = any((workload.delayed, workload.retrying, workload.transactional))
    jumps = [one for one in events if one.kind is FaultKind.CLOCK_JUMP]
    ahead = sum(one.number("ms") > 0 for one in jumps)
    return waits and ahead > (0 if workload.fitful else 1 if workload.edges else len(jumps))


def _with_stops(
    rng: SplitRng, workload: Workload, events: list[FaultEvent], options: Options
) -> list[FaultEvent]:
    """Return the events of a plan, and brokers that end in good order among them."""
    every_ms = 0 if workload.strain is None else workload.strain.stop_every_ms
    at_ms, number = float(FIRST_MS), 0
    while every_ms:
        stream = rng.split(f"stop{number}")
        at_ms += stream.split("at").exponential(every_ms)
        if at_ms >= min(options.safety_ms, USUAL_MS) - QUIET_MS:
            break
        events.append(from_recipe(STOPPED, Package.CRASH, int(at_ms), stream, options))
        number += 1
    return sorted(events, key=lambda event: (event.at_ms, event.package.value, event.seed))


def _with_huge_bodies(workload: Workload) -> Workload:
    """Return a workload of few large messages: none of them alone, not as a burst of hundreds."""
    return structs.replace(
        workload,
        body_max=HUGE_BODY_MAX,
        rate_per_s=min(HUGE_RATE_PER_S, workload.rate_per_s),
        batch_p=0.0,
        burst_p=0.0,
    )


def _choose_packages(rng: SplitRng) -> tuple[Package, ...]:
    if rng.split("baseline").chance(BASELINE_P):
        return ()
    drawn = [one for one in Package if one not in EXTRA]
    on = tuple(one for one in drawn if rng.split(one.value).chance(PACKAGE_P))
    return on or (rng.split("only").choice(drawn),)


def _draw_options(rng: SplitRng, *, overkill: bool, on: Sequence[Package]) -> Options:
    """Draw the settings; a setting's stream is its own, too."""
    has_members = Package.MEMBERS in on
    tell_ms = rng.split("tell clock").choice((0, 0, 500))
    heartbeat, low, high = rng.split("ticks").choice(((2, 10, 20), (1, 8, 14), (3, 14, 30)))
    if rng.split("all at once").chance(AT_ONCE_P):
        high = low + 1
    drawn = Options(
        brokers=rng.split("brokers").weighted((3, 5), (0.85, 0.15)),
        spares=1 if has_members else 0,
        namesrvs=rng.split("namesrvs").weighted((1, 2), (0.7, 0.3)),
        flush_disk_type=rng.split("flush").choice(("ASYNC_FLUSH", "SYNC_FLUSH")),
        heartbeat_ticks=heartbeat,
        election_ticks_min=low,
        election_ticks_max=high,
        segment_bytes=rng.split("segments").choice((16, 64, 128, 256)) * 1024,
        queue_file_bytes=rng.split("queue files").choice((400, 2_000, 20_000)),
        safety_ms=rng.split("safety").weighted(
            (8_000, 10_000, 14_000, 75_000), (0.32, 0.32, 0.32, 0.04)
        ),
        alone=rng.split("alone").weighted(("", "plain", "single"), (0.6, 0.3, 0.1)),
        alone_flush=rng.split("alone flush").choice(("ASYNC_FLUSH", "SYNC_FLUSH")),
        checkpoint_ms=rng.split("checkpoints").choice((300, 1_500, 5_000)),
        clock_spread_ms=rng.split("clocks").choice(
            (0, 300, 20_000, 90_000) if tell_ms else (0, 0, 0, 300, 20_000)
        ),
        tell_clock_ms=tell_ms,
        span_bytes=rng.split("spans").weighted(
            (1 << 20, 16_384, 4_096, 1_024), (0.4, 0.2, 0.2, 0.2)
        ),
        inflight_spans=rng.split("inflight").weighted((128, 8, 2), (0.7, 0.15, 0.15)),
        retention_by=rng.split("retention by").weighted(("hour", "request"), (0.6, 0.4)),
        alone_retention_ms=rng.split("alone retention").weighted(
            (0, 1_000, 3_000), (0.3, 0.4, 0.3)
        ),
        retention_ms=rng.split("retention").weighted((0, 1_500, 4_000), (0.8, 0.1, 0.1)),
        preferred="n0" if rng.split("preferred").chance(PREFERRED_P) else "",
        peer_key=rng.split("peer key").chance(PEER_KEY_P),
        overkill=overkill,
    )
    if Package.BEHIND not in on:
        return drawn
    return structs.replace(
        drawn,
        segment_bytes=rng.split("behind segments").choice(BEHIND_SEGMENT_BYTES),
        checkpoint_ms=BEHIND_CHECKPOINT_MS,
        retention_ms=0,
    )


def _draw_workload(rng: SplitRng, options: Options, *, on: Sequence[Package]) -> Workload:
    is_long = options.safety_ms > LONG_MS
    rate = rng.split("rate").choice((5.0, 10.0, 20.0))
    compact = 0.0 if options.retention_ms else rng.split("compact").choice((0.03, 0.03, 0.15))
    if Package.BEHIND in on:
        compact = BEHIND_COMPACT_P
    bodies = rng.split("bodies").weighted((128, 1024, 8192, 65_536), (0.32, 0.32, 0.32, 0.04))
    if options.segment_bytes <= min(BEHIND_SEGMENT_BYTES):
        bodies = min(bodies, BEHIND_BODY_MAX)
    terms = 0.0 if options.retention_ms else rng.split("terms").choice((0.0, 0.0, 0.3, 1.0))
    if Package.BEHIND in on:
        terms = rng.split("terms").choice((0.3, 1.0))
    return Workload(
        rate_per_s=LONG_RATE_PER_S if is_long else rate,
        producers=rng.split("producers").randint(1, 3),
        consumers=rng.split("consumers").randint(1, 3),
        queues=rng.split("queues").choice((1, 4, 8)),
        ordered_queues=rng.split("ordered").choice((0, 1, 1, 3)),
        batch_p=rng.split("batches").choice((0.0, 0.1, 0.4)),
        burst_p=rng.split("bursts").choice((0.0, 0.1, 0.3)),
        search_p=rng.split("searches").choice((0.0, 0.0, 0.05)),
        lock_p=rng.split("locks").choice((0.0, 0.0, 0.05)),
        cancel_p=rng.split("cancels").choice((0.0, 0.0, 0.05)),
        query_p=rng.split("queries").choice((0.0, 0.05, 0.1)),
        grow_p=rng.split("grow").weighted((0.0, 0.02), (0.88, 0.12)),
        compact_p=compact,
        burst_max=rng.split("burst max").weighted((8, 40, 200), (0.7, 0.22, 0.08)),
        tags=rng.split("tags").chance(0.6),
        rich=rng.split("rich").chance(0.5),
        compress_over=rng.split("compress").choice((0, 0, 200)),
        fail_p=rng.split("fails").choice((0.0, 0.0, 0.03)),
        suspend_ms=rng.split("suspend").choice(((0,), (0,), (0, 200, 3_000), (1_000, 15_000))),
        pull_counts=rng.split("pull counts").choice(((16,), (1, 32), (3, 64))),
        seek_p=rng.split("seeks").choice((0.0, 0.1, 0.3)),
        late=_draw_late(rng.split("late"), options),
        body_max=bodies,
        term_compact_p=terms,
        expire_p=0.05 if options.retention_by == "request" else 0.0,
        commit_on_pull=rng.split("commits").chance(0.5),
        oneway_p=rng.split("oneway").choice((0.0, 0.5)),
        odd=_draw_odd(rng.split("odd"), options),
    )


def _draw_late(rng: SplitRng, options: Options) -> tuple[LateGroup, ...]:
    """Return the groups of consumers that come later: none in most plans."""
    count = rng.split("count").weighted((0, 1, 2), (0.6, 0.25, 0.15))
    return tuple(_draw_group(rng.split(f"group{number}"), options) for number in range(count))


def _draw_group(rng: SplitRng, options: Options) -> LateGroup:
    return LateGroup(
        start=rng.split("start").choice(STARTS),
        at_ms=rng.split("at").randint(0, options.safety_ms * 2 // 3),
        tags=rng.split("tags").choice(TAGS_ASKED),
        members=rng.split("members").randint(1, 3),
        churn_ms=rng.split("churn").choice((0, 0, 1_500, 6_000)),
        suspend_ms=rng.split("suspend").choice((0, 500, 15_000, 25_000)),
        pull_count=rng.split("pulls").choice((1, 8, 32)),
        commit_on_pull=rng.split("commits").chance(0.5),
        cache_bytes=rng.split("cache").choice((0, 0, 600)),
    )


def _draw_odd(rng: SplitRng, options: Options) -> dict[Odd, float]:
    """Return the kinds of odd operations that a seed has, and how often each comes.

    Members that share no key believe whoever speaks like one of them; docs/security.md says so.
    """
    return {
        kind: rng.split(f"{kind.value} share").choice((0.01, 0.03, 0.1))
        for kind in ODD_KINDS
        if rng.split(kind.value).chance(ODD_P) and (kind is not Odd.PEER or options.peer_key)
    }


def draw_package(rng: SplitRng, package: Package, options: Options) -> list[FaultEvent]:
    """Return the events of a package: a mean interval is drawn, then one event after the other."""
    stretch = max(1.0, options.safety_ms / USUAL_MS)
    interval_ms = rng.split("interval").choice((800, 1_500, 3_000, 6_000)) * stretch
    recipes = RECIPES[package]
    weights = [recipe.weight for recipe in recipes]
    events: list[FaultEvent] = []
    at_ms = float(FIRST_MS)
    number = 0
    while True:
        stream = rng.split(f"event{number}")
        at_ms += stream.split("at").exponential(interval_ms)
        if at_ms >= options.safety_ms - QUIET_MS:
            return events
        recipe = stream.split("kind").weighted(recipes, weights)
        if options.overkill or not recipe.is_overkill:
            events.append(from_recipe(recipe, package, int(at_ms), stream, options))
        number += 1
