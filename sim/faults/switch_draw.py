"""From a seed to a plan about brokers that controllers switch. Pure.

The stream is one of its own: what `sim.faults.draw` makes of the same seed does not depend on it.
"""

from collections.abc import Callable
from typing import Final, Literal

from msgspec import structs

from sim.faults.ambush_draw import (
    AMBUSHES,
    OF_SWITCH,
    POINTS,
    ambushes,
    has_ambushes,
    with_points,
)
from sim.faults.draw import draw_package
from sim.faults.plan import FaultEvent, FaultKind, Options, Package, Plan, Role, Workload
from sim.faults.small import STREAM, draw_small
from sim.faults.switch import REPLICAS, SWITCH, Switch
from sim.rng import SplitRng

_Story = Callable[[SplitRng, Switch, int], list[FaultEvent]]

SHARE: Final = 0.2
"""Seeds of a campaign that have such a plan, too."""
CALM_P: Final = 0.03
"""Plans without a fault."""
WILD_P: Final = 0.5
"""Plans with twice as many faults."""
STORY_P: Final = 0.6
"""Plans with a story: several faults that belong together, see `_STORIES`."""
EVENTS_MAX: Final = 40
FIRST_MS: Final = 7_000
"""No story begins sooner: there is a master, and slaves are in sync."""
LIVENESS_MS: Final = 120_000
SEGMENT_BYTES: Final = 1 << 20
SMALL_SEGMENT_BYTES: Final = 64 * 1024
FLUSHES: Final[tuple[Literal["ASYNC_FLUSH", "SYNC_FLUSH"], ...]] = ("ASYNC_FLUSH", "SYNC_FLUSH")
CONTROLLERS: Final = 3
RARE_P: Final = 0.15
"""Plans with a story of those that seldom happen, see `_RARE`."""
RARE: Final = "rare stories"
"""The stream that these are drawn from, behind everything else."""
BLINK_P: Final = 0.08
"""Plans with slaves that lose their power and are back at once, see `_blink`."""
BLINK: Final = "back at once"
"""The stream that these are drawn from, behind everything else."""
UNANSWERED_P: Final = 0.08
"""Plans with a master that is not told what was decided, see `_unanswered`."""
UNANSWERED: Final = "unanswered sets"
"""The stream that these are drawn from, behind everything else."""
AMBUSHES_P: Final = 0.5
"""Plans with ambushes, of those without a story: nothing else is to happen in one."""
DECIDED_MS: Final = 4_600
"""A request for another set is given up before."""
SILENT_P: Final = 0.08
"""Stories of controllers without a majority for longer than any lease."""
SILENT_MS: Final = 8_000
GONE_MS: Final = 9_000
"""So long a controller is away that another one has to lead without it."""
LAG_MS: Final = 400
"""What a slave lacks is written within so long."""


def is_switch_too(seed: int) -> bool:
    """Tell whether a campaign runs a plan about controllers beside that of the seed."""
    return SplitRng(seed).split(SWITCH).split("too").chance(SHARE)


def draw_switch(seed: int) -> Plan:
    """Return the plan of a seed."""
    rng = SplitRng(seed).split(SWITCH)
    options = _draw_options(rng.split("options"))
    is_calm = rng.split("calm").chance(CALM_P)
    events = [] if is_calm else draw_package(rng.split("faults"), Package.SWITCH, options)
    if rng.split("wild").chance(WILD_P) and not is_calm:
        events += draw_package(rng.split("more faults"), Package.SWITCH, options)
    usual = list(events)
    if not is_calm:
        options, events = _with_stories(rng, options, events)
    hidden = rng.split(AMBUSHES)
    if events == usual and has_ambushes(hidden, AMBUSHES_P):
        events += ambushes(hidden, options, OF_SWITCH, FIRST_MS)
    if events == usual:
        events = with_points(rng.split(POINTS), events, options, OF_SWITCH, first_ms=FIRST_MS)
    events = sorted(events, key=lambda one: (one.at_ms, one.seed))[:EVENTS_MAX]
    workload = _draw_workload(rng.split("workload"))
    workload = structs.replace(workload, small=draw_small(rng.split(STREAM)))
    return Plan(seed=seed, options=options, workload=workload, events=tuple(events))


def _with_stories(
    rng: SplitRng, options: Options, events: list[FaultEvent]
) -> tuple[Options, list[FaultEvent]]:
    """Return the same with faults that belong together, in most plans."""
    if rng.split("story").chance(STORY_P):
        options, events = _with_story(rng.split("chapters"), options, events)
    rare = rng.split(RARE)
    if rare.split("on").chance(RARE_P):
        options, events = _with_chapters(rare, options, events, rare.split("which").choice(_RARE))
    blink = rng.split(BLINK)
    if blink.split("on").chance(BLINK_P):
        options, events = _with_chapters(blink, options, events, _blink)
    unanswered = rng.split(UNANSWERED)
    if unanswered.split("on").chance(UNANSWERED_P):
        options, events = _with_chapters(unanswered, options, events, _unanswered)
    return options, events


def _event(
    kind: FaultKind, target: str, at_ms: int, for_ms: int, seed: int, **params: float | str
) -> FaultEvent:
    return FaultEvent(
        at_ms=at_ms, kind=kind, package=Package.SWITCH, target=target, for_ms=for_ms, seed=seed,
        params=params,
    )  # fmt: skip


def _with_story(
    rng: SplitRng, options: Options, events: list[FaultEvent]
) -> tuple[Options, list[FaultEvent]]:
    """Return the same with one of the usual stories."""
    is_silent = rng.split("silent").chance(SILENT_P)
    story = _silent if is_silent else rng.split("which").choice(_STORIES)
    return _with_chapters(rng, options, events, story)


def _with_chapters(
    rng: SplitRng, options: Options, events: list[FaultEvent], story: _Story
) -> tuple[Options, list[FaultEvent]]:
    """Return the same with faults that belong together, and nothing else meanwhile."""
    switch = options.switch
    assert switch is not None
    begin_ms = rng.split("begin").randint(FIRST_MS, FIRST_MS + 4_000)
    chapters = story(rng.split("events"), switch, begin_ms)
    end_ms = max(one.end_ms for one in chapters) + 2 * switch.silence_ms
    others = [one for one in events if one.end_ms < begin_ms - 500 or one.at_ms > end_ms]
    safety_ms = max(options.safety_ms, end_ms)
    return structs.replace(options, safety_ms=safety_ms), [*others, *chapters]


def _seed(rng: SplitRng) -> int:
    return rng.split("seed").randint(0, (1 << 31) - 1)


def _tail(rng: SplitRng, switch: Switch, at_ms: int) -> list[FaultEvent]:
    """A master that its slaves do not reach goes on writing, dies, and comes back when another is.

    What it wrote alone has to go.
    """
    master, seed = rng.split("master").choice(switch.names[:2]), _seed(rng)
    gone_ms = at_ms + rng.split("gone").choice((LAG_MS, LAG_MS * 2))
    away_ms = int(switch.silence_ms * rng.split("away").choice((1.5, 2.5)))
    cut = rng.split("cut").choice((FaultKind.ISOLATE, FaultKind.ISOLATE, FaultKind.ONE_WAY))
    params: dict[str, float | str] = {"side": "from", "acks": 1} if cut is FaultKind.ONE_WAY else {}
    return [
        _event(cut, master, at_ms, gone_ms - at_ms + 50, seed, **params),
        _event(FaultKind.CRASH, master, gone_ms, away_ms, seed),
    ]


def _again(rng: SplitRng, switch: Switch, at_ms: int) -> list[FaultEvent]:
    """The same twice, with the brokers in both roles: tails of several epochs."""
    first = _tail(rng.split("first"), switch, at_ms)
    later_ms = max(one.end_ms for one in first) + rng.split("later").choice((300, 1_500, 4_000))
    return [*first, *_tail(rng.split("second"), switch, later_ms)]


def _undecided(rng: SplitRng, switch: Switch, at_ms: int) -> list[FaultEvent]:
    """No majority of the controllers runs; a slave is gone meanwhile, and the master after it."""
    seed, long_ms = _seed(rng), int(switch.silence_ms * rng.split("long").choice((0.8, 1.5, 3.0)))
    slave, master = rng.split("order").sample(switch.names, 2)
    kind = rng.split("kind").choice((FaultKind.CRASH, FaultKind.PAUSE, FaultKind.ISOLATE))
    return [
        _event(FaultKind.NAMESRV_CRASH, "ns0", at_ms, long_ms, seed),
        _event(FaultKind.NAMESRV_CRASH, "ns1", at_ms + 50, long_ms, seed + 1),
        _event(kind, slave, at_ms + 100, long_ms, seed + 2),
        _event(FaultKind.CRASH, master, at_ms + long_ms - 100, switch.silence_ms, seed + 3),
    ]


def _cut_off(rng: SplitRng, switch: Switch, at_ms: int) -> list[FaultEvent]:
    """A master reaches its slaves and clients, and no controller: another one is elected."""
    seed, master = _seed(rng), rng.split("master").choice(switch.names[:2])
    long_ms = int(switch.silence_ms * rng.split("long").choice((1.2, 2.0, 4.0)))
    side = rng.split("side").choice(("both", "to", "from"))
    return [
        _event(FaultKind.NAMESRV_CUT, master, at_ms, long_ms, seed, which="all", side=side, acks=1)
    ]


def _behind(rng: SplitRng, switch: Switch, at_ms: int) -> list[FaultEvent]:
    """A slave is away until it is out of the set, comes back, and the master dies meanwhile."""
    seed, slave = _seed(rng), rng.split("slave").choice(switch.names)
    away_ms = int(max(switch.behind_max_ms, 1_000) * rng.split("away").choice((1.2, 2.0)))
    back_ms = at_ms + away_ms
    early_ms = rng.split("early").choice((-800, -200, 0, 100, 300, 700, 1_500))
    kinds = (FaultKind.ISOLATE, FaultKind.ISOLATE, FaultKind.CRASH, FaultKind.PAUSE)
    kind = rng.split("kind").choice(kinds)
    return [
        _event(kind, slave, at_ms, away_ms, seed),
        _event(FaultKind.DELAY, slave, back_ms, 2_000, seed + 1, base_ms=100, loss=0.0),
        _event(FaultKind.CRASH, "leader", back_ms + early_ms, switch.silence_ms * 2, seed + 2),
    ]


def _leaderless(rng: SplitRng, switch: Switch, at_ms: int) -> list[FaultEvent]:
    """The controller that leads dies, or is cut off, in the middle of a switch."""
    seed, wait_ms = _seed(rng), rng.split("wait").choice((0, 20, 60, 150, 500))
    kind = rng.split("kind").choice(
        (FaultKind.NAMESRV_CRASH, FaultKind.ISOLATE, FaultKind.POWER_LOSS, FaultKind.NAMESRV_PAUSE)
    )
    params: dict[str, float | str] = {"mode": "lost"} if kind is FaultKind.POWER_LOSS else {}
    long_ms = rng.split("long").choice((500, 2_000, 5_000))
    return [
        _event(FaultKind.CRASH, "leader", at_ms, switch.silence_ms, seed),
        _event(kind, "controller", at_ms + wait_ms, long_ms, seed + 1, **params),
    ]


def _blackout(rng: SplitRng, switch: Switch, at_ms: int) -> list[FaultEvent]:
    """All controllers lose their power at once, while a switch is under way or just over."""
    seed, wait_ms = _seed(rng), rng.split("wait").choice((20, 100, 400, 1_000))
    mode = rng.split("mode").choice(("lost", "torn", "reordered"))
    back = rng.split("back")
    return [
        _event(FaultKind.CRASH, "leader", at_ms, switch.silence_ms, seed),
        *(
            _event(
                FaultKind.POWER_LOSS,
                f"ns{number}",
                at_ms + wait_ms + number,
                back.split(str(number)).choice((100, 600, 2_000)),
                seed + 1 + number,
                mode=mode,
            )
            for number in range(CONTROLLERS)
        ),
    ]


def _silent(rng: SplitRng, switch: Switch, at_ms: int) -> list[FaultEvent]:
    """No majority of the controllers runs, for longer than any lease; nothing else happens."""
    seed, long_ms = _seed(rng), switch.silence_ms + switch.poll_ms + SILENT_MS
    return [
        _event(FaultKind.NAMESRV_CRASH, f"ns{number}", at_ms + 50 * number, long_ms, seed + number)
        for number in rng.split("who").sample(range(CONTROLLERS), 2)
    ]


def _long_tail(rng: SplitRng, switch: Switch, at_ms: int) -> list[FaultEvent]:
    """The controller that leads is cut off from the others, and writes what they do not have.

    Brokers reach it still, begin anew, and ask it for this and that. Another one leads, and is gone
    when the first comes back: of two logs the longer one is the older.
    """
    seed, cut_ms = _seed(rng), rng.split("cut").choice((1_300, 1_600, 2_000))
    early_ms = rng.split("early").choice((0, 50, 150))
    order = rng.split("order").sample(switch.names, switch.brokers)
    return [
        _event(FaultKind.ISOLATE, Role.CONTROLLER, at_ms, cut_ms, seed),
        *(
            _event(FaultKind.CRASH, name, at_ms + 30 + 200 * number, 80, seed + 1 + number)
            for number, name in enumerate(order)
        ),
        _event(
            FaultKind.NAMESRV_CRASH, Role.CONTROLLER, at_ms + cut_ms - early_ms, GONE_MS, seed + 9
        ),
    ]


def _let_in_and_gone(rng: SplitRng, switch: Switch, at_ms: int) -> list[FaultEvent]:
    """Who is to be let in loses the end of its log before controllers have decided.

    They take long, since they hear each other late, or hear late of what the master asks for: the
    slave may be back before that. The master dies when all is decided.
    """
    seed, slave = _seed(rng), rng.split("slave").choice(switch.names)
    away_ms = int(max(switch.behind_max_ms, 1_000) * rng.split("away").choice((1.2, 2.0)))
    back_ms = at_ms + away_ms
    late: dict[str, float | str] = {"base_ms": rng.split("late").choice((150, 400, 800))}
    who, what = rng.split("who").choice((
        ("leader", FaultKind.NAMESRV_DELAY), ("leader", FaultKind.NAMESRV_DELAY),
        (Role.CONTROLLER, FaultKind.DELAY),
    ))  # fmt: skip
    late |= {"loss": 0.0} if what is FaultKind.DELAY else {"which": "all"}
    lost_ms = back_ms + rng.split("lost").randint(100, 2_000)
    dies_ms = lost_ms + rng.split("dies").choice((500, 1_200, 2_500))
    down_ms = rng.split("down").choice((30, 150))
    return [
        _event(FaultKind.ISOLATE, slave, at_ms, away_ms, seed),
        _event(what, who, back_ms - 300, 4_000, seed + 1, **late),
        _event(FaultKind.POWER_LOSS, slave, lost_ms, down_ms, seed + 2, mode="lost"),
        _event(FaultKind.CRASH, "leader", dies_ms, switch.silence_ms * 2, seed + 3),
    ]


def _blink(rng: SplitRng, switch: Switch, at_ms: int) -> list[FaultEvent]:
    """A slave loses its power, and is back before anybody misses it; then the master dies.

    It comes with less than it had confirmed, several times, while the master goes on writing.
    """
    seed, slave = _seed(rng), rng.split("slave").choice(switch.names)
    events = []
    for number in range(rng.split("times").randint(1, 3)):
        stream = rng.split(f"time{number}")
        down_ms = stream.split("down").choice((20, 60, 200))
        events.append(
            _event(FaultKind.POWER_LOSS, slave, at_ms, down_ms, seed + number, mode="lost")
        )
        at_ms += down_ms + stream.split("later").choice((700, 1_500, 3_000))
    dies_ms = at_ms - rng.split("dies").choice((0, 300, 600))
    events.append(
        _event(FaultKind.CRASH, Role.LEADER, dies_ms, int(switch.silence_ms * 1.5), seed + 9)
    )
    return events


def _unanswered(rng: SplitRng, switch: Switch, at_ms: int) -> list[FaultEvent]:
    """A master asks for a slave to be let in, and does not hear that it was; the slave is cut off.

    What the master writes then must not count. It dies, and the slave may be elected.
    """
    seed, slave = _seed(rng), rng.split("slave").choice(switch.names)
    away_ms = int(max(switch.behind_max_ms, 1_000) * rng.split("away").choice((1.2, 2.0)))
    back_ms = at_ms + away_ms
    gone_ms = back_ms + DECIDED_MS + rng.split("gone").randint(100, 1_500)
    dies_ms = gone_ms + rng.split("dies").choice((500, 1_200, 2_500))
    side = rng.split("side").choice(("from", "from", "both"))
    return [
        _event(FaultKind.ISOLATE, slave, at_ms, away_ms, seed),
        _event(
            FaultKind.NAMESRV_CUT, "leader", back_ms - rng.split("deaf").choice((300, 0, -200)),
            dies_ms - back_ms + 300, seed + 1, which="all", side=side, acks=1,
        ),
        _event(FaultKind.ISOLATE, slave, gone_ms, dies_ms - gone_ms + 200, seed + 2),
        _event(FaultKind.CRASH, "leader", dies_ms, switch.silence_ms * 2, seed + 3),
    ]  # fmt: skip


_RARE: Final = (_long_tail, _let_in_and_gone)

_STORIES: Final = (_tail, _tail, _again, _undecided, _cut_off, _behind, _leaderless, _blackout)


def _draw_options(rng: SplitRng) -> Options:
    silence_ms = rng.split("silence").choice((1_200, 2_500))
    flush = rng.split("flush").weighted(FLUSHES, (0.4, 0.6))
    is_mixed = rng.split("mixed").chance(0.25)
    switch = Switch(
        brokers=rng.split("brokers").weighted((2, 3), (0.5, 0.5)),
        flush=rng.split("other flush").choice(FLUSHES) if is_mixed else flush,
        silence_ms=silence_ms,
        beat_ms=rng.split("beat").choice((100, 400)),
        poll_ms=rng.split("poll").choice((100, 500)),
        behind_max_ms=rng.split("behind").choice((700, 1_500, 4_000)),
        in_sync_min=rng.split("min").weighted((1, 2), (0.85, 0.15)),
        slave_timeout_ms=rng.split("timeout").choice((200, 1_000, 3_000)),
        heartbeat_ms=rng.split("heartbeat").choice((200, 500)),
        batch_bytes=rng.split("batch").choice((1024, 32 * 1024)),
        delay_p=rng.split("delays").choice((0.0, 0.1)),
    )
    assert set(switch.names) <= set(REPLICAS)
    return Options(
        switch=switch,
        namesrvs=CONTROLLERS,
        flush_disk_type=flush,
        segment_bytes=rng.split("segments").weighted(
            (SEGMENT_BYTES, SMALL_SEGMENT_BYTES), (0.85, 0.15)
        ),
        queue_file_bytes=rng.split("queue files").choice((400, 20_000)),
        safety_ms=rng.split("safety").choice((14_000, 20_000, 30_000)),
        liveness_ms=LIVENESS_MS,
        max_wait_ack_ms=rng.split("ack").choice((500, 2_500)),
        checkpoint_ms=rng.split("checkpoints").choice((300, 5_000)),
        clock_spread_ms=rng.split("clocks").choice((0, 0, 300)),
        delay_levels="1s 2s 4s",
    )


def _draw_workload(rng: SplitRng) -> Workload:
    return Workload(
        rate_per_s=rng.split("rate").choice((6.0, 15.0)),
        producers=rng.split("producers").randint(1, 2),
        consumers=rng.split("consumers").randint(1, 2),
        queues=rng.split("queues").choice((1, 4)),
        ordered_queues=0,
        batch_p=rng.split("batches").choice((0.0, 0.2)),
        burst_p=rng.split("bursts").choice((0.0, 0.2)),
        burst_max=rng.split("burst max").choice((8, 40)),
        body_max=rng.split("bodies").choice((128, 1_024, 4_096)),
        compact_p=0.0,
        commit_on_pull=rng.split("commits").chance(0.5),
    )
