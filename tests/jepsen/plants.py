"""What may be wrong with a history: each plant spoils a sound one, or says that it cannot."""

from collections.abc import Callable
from itertools import pairwise

from tests.jepsen.histories import GROUPS, MS, TOPIC, Row, World, deliver


class NoPlaceError(Exception):
    """The history has nothing that could be spoiled in that way."""


Plant = Callable[[World], None]
PLANTS: dict[str, Plant] = {}


def plant(made: Plant) -> Plant:
    PLANTS[made.__name__.replace("_", " ")] = made
    return made


def chosen(world: World, rows: list[Row]) -> Row:
    if not rows:
        raise NoPlaceError
    return world.rng.choice(rows)


def _drop(world: World, key: int, *groups: str) -> None:
    world.deliveries = [
        row for row in world.deliveries if row["msg_key"] != key or row["grp"] not in groups
    ]


def _inner(world: World) -> list[Row]:
    """Return acknowledged sends with another message behind them in their queue."""
    return [s for s in world.ok() if s["queue_offset"] < len(world.logs[s["queue_id"]]) - 1]


@plant
def lost(world: World) -> None:
    """Nobody got it, though what lies behind it came."""
    _drop(world, chosen(world, _inner(world))["msg_key"], *GROUPS)


@plant
def lost_at_the_end(world: World) -> None:
    """Nobody got the last one of a queue: no later one was polled."""
    ends = [s for s in world.ok() if s["queue_offset"] == len(world.logs[s["queue_id"]]) - 1]
    _drop(world, chosen(world, ends)["msg_key"], *GROUPS)


@plant
def lost_to_one_group(world: World) -> None:
    if not world.of(grp=GROUPS[1]):
        raise NoPlaceError
    _drop(world, chosen(world, world.ok())["msg_key"], GROUPS[1])


@plant
def phantom(world: World) -> None:
    """A message came that nobody sent."""
    queue_id = world.rng.randrange(world.queues)
    at = len(world.logs[queue_id])
    deliver(world, GROUPS[0], queue_id, (at, world.new_key()), t=world.end(), generation=2)


@plant
def aborted(world: World) -> None:
    """A message came whose send had been refused."""
    send = chosen(world, [s for s in world.sends if s["outcome"] == "fail"])
    queue_id = send["queue_id"]
    deliver(world, GROUPS[0], queue_id, (len(world.logs[queue_id]), send["msg_key"]),
            t=world.end(), generation=3)  # fmt: skip


def _again(world: World, send: Row, queue_id: int) -> None:
    """Store a message once more, and let all groups get it there."""
    log, end = world.logs[queue_id], world.end()
    log.append((end, send["msg_key"]))
    for grp in {row["grp"] for row in world.deliveries}:
        deliver(world, grp, queue_id, (len(log) - 1, send["msg_key"]), t=end + MS, generation=3)


@plant
def stored_twice(world: World) -> None:
    send = chosen(world, _inner(world))
    _again(world, send, send["queue_id"])


@plant
def stored_twice_by_two_attempts(world: World) -> None:
    """At least once: the first attempt was stored, and its answer lost."""
    send = chosen(world, _inner(world))
    send["attempts"] = 2
    _again(world, send, send["queue_id"])


@plant
def stored_in_two_queues(world: World) -> None:
    send = chosen(world, world.ok())
    others = [queue_id for queue_id in range(world.queues) if queue_id != send["queue_id"]]
    if not others:
        raise NoPlaceError
    _again(world, send, world.rng.choice(others))


@plant
def two_at_one_place(world: World) -> None:
    """It was acknowledged where another one lies."""
    send = chosen(world, _inner(world))
    send["queue_offset"] += 1


@plant
def two_readings_of_one_place(world: World) -> None:
    """A later reader found another message at a place than the one before it."""
    sends = _inner(world)
    send, other = chosen(world, sends), chosen(world, sends)
    if send["queue_id"] != other["queue_id"] or send is other:
        raise NoPlaceError
    deliver(world, GROUPS[0], send["queue_id"], (send["queue_offset"], other["msg_key"]),
            t=world.end(), generation=3)  # fmt: skip


@plant
def acknowledged_elsewhere(world: World) -> None:
    """It was acknowledged behind the end of its queue, where nothing lies."""
    send = chosen(world, world.ok())
    send["queue_offset"] = len(world.logs[send["queue_id"]]) + 2


def _calls(world: World, grp: str = GROUPS[0]) -> dict[int, list[list[Row]]]:
    """Return the calls of a group's first generation, by queue and in their order."""
    calls: dict[tuple[int, int], list[Row]] = {}
    for row in world.of(grp=grp, generation=1):
        calls.setdefault((row["queue_id"], row["op_id"]), []).append(row)
    found: dict[int, list[list[Row]]] = {}
    for (queue_id, _), call in calls.items():
        found.setdefault(queue_id, []).append(call)
    return found


@plant
def polled_back(world: World) -> None:
    """Two calls of one member come in the wrong order."""
    pairs = [pair for calls in _calls(world).values() for pair in pairwise(calls)]
    if not pairs:
        raise NoPlaceError
    first, second = world.rng.choice(pairs)
    # Moved behind the second, which stays where it is: nothing may come before it was stored.
    for row in first:
        row.update(t_fetch_inv=second[0]["t_fetch_inv"] + 1, t_recv=second[0]["t_recv"] + 1,
                   op_id=second[0]["op_id"] + 5)  # fmt: skip


@plant
def turned_in_a_call(world: World) -> None:
    calls = [call for calls in _calls(world).values() for call in calls if len(call) > 1]
    if not calls:
        raise NoPlaceError
    call = world.rng.choice(calls)
    for row in call:
        row["pos"] = len(call) - 1 - row["pos"]


@plant
def polled_again(world: World) -> None:
    """A member gets again what it had, and nothing has changed hands."""
    row = chosen(world, world.of(grp=GROUPS[0], generation=2))
    last = world.of(grp=GROUPS[0], queue_id=row["queue_id"])[-1]
    world.deliveries.append(
        row | {"op_id": 1, "pos": 0, "t_fetch_inv": last["t_recv"] + MS,
               "t_recv": last["t_recv"] + 2 * MS}
    )  # fmt: skip


@plant
def passed_over(world: World) -> None:
    """A member leaves out what another one of its group gets later."""
    calls = [calls for calls in _calls(world).values() if sum(map(len, calls[:-1])) > 2]
    if not calls:
        raise NoPlaceError
    # Not the first, nor the last: a stretch of reading may begin and end anywhere.
    inner = [row for call in world.rng.choice(calls)[:-1] for row in call][1:-1]
    again = {row["msg_key"] for row in world.of(grp=GROUPS[0], generation=2)}
    row = chosen(world, [row for row in inner if row["msg_key"] not in again])
    row.update(consumer="another", generation=2, op_id=1, pos=0, t_fetch_inv=world.end(),
               t_recv=world.end() + MS)  # fmt: skip


def _swap(world: World, one: Row, other: Row) -> None:
    """Let two messages of a queue lie at each other's places."""
    log = world.logs[one["queue_id"]]
    stored = [key for _, key in log]
    places = {other["msg_key"]: stored.index(one["msg_key"]),
              one["msg_key"]: stored.index(other["msg_key"])}  # fmt: skip
    names = {offset: key for key, offset in places.items()}
    for send in (one, other):
        offset = places[send["msg_key"]]
        log[offset] = log[offset][0], send["msg_key"]
        if send["outcome"] == "ok":
            send["queue_offset"] = offset
    for row in world.deliveries:
        if row["queue_id"] == one["queue_id"] and row["queue_offset"] in names:
            key = names[row["queue_offset"]]
            row.update(msg_key=key, body_hash=key * 1000)
    end = world.end()
    for row in world.deliveries:  # so that none comes before it was sent
        row.update(t_fetch_inv=row["t_fetch_inv"] + end, t_recv=row["t_recv"] + end)


def _one_after_the_other(world: World, *, same: bool) -> list[tuple[Row, Row]]:
    """Return acknowledged sends of which one began after the other, near it in its queue.

    Elle looks for cycles among all between them, which takes its time where there are many.
    """
    return [
        (one, other)
        for one in world.ok()
        for other in world.ok()
        if one["queue_id"] == other["queue_id"]
        and one["t_cmp"] < other["t_inv"]
        and one["queue_offset"] < other["queue_offset"] <= one["queue_offset"] + 5
        and (one["process"] == other["process"]) == same
        and not (same and _lost_its_process(world, one, other))
    ]


def _lost_its_process(world: World, one: Row, other: Row) -> bool:
    """Tell whether a producer did not know what became of a send between these two.

    Jepsen then has it go on as another process.
    """
    return any(
        send["outcome"] == "info" and one["t_inv"] < send["t_inv"] < other["t_inv"]
        for send in world.sends
        if send["process"] == one["process"]
    )


@plant
def overtaken_by_another_producer(world: World) -> None:
    pairs = _one_after_the_other(world, same=False)
    if not pairs:
        raise NoPlaceError
    _swap(world, *world.rng.choice(pairs))


@plant
def overtaken_by_itself(world: World) -> None:
    pairs = _one_after_the_other(world, same=True)
    if not pairs:
        raise NoPlaceError
    _swap(world, *world.rng.choice(pairs))


@plant
def overtaken_by_an_unknown_one(world: World) -> None:
    """A send that nobody knows the end of lies before what was acknowledged when it began."""
    pairs = [
        (one, other)
        for one in world.ok()
        for other in world.sends
        if other["outcome"] == "info"
        and one["queue_id"] == other["queue_id"]
        and one["t_cmp"] < other["t_inv"]
        and _place(world, other) == one["queue_offset"] + 1
    ]
    if not pairs:
        raise NoPlaceError
    _swap(world, *world.rng.choice(pairs))


def _place(world: World, send: Row) -> int:
    """Return where a message lies, -1 for nowhere."""
    stored = [key for _, key in world.logs[send["queue_id"]]]
    return stored.index(send["msg_key"]) if send["msg_key"] in stored else -1


@plant
def read_before_it_was_sent(world: World) -> None:
    """The last one of a queue was polled, and only then did its send begin."""
    ends = [log[-1][1] for log in world.logs if log]
    send = chosen(world, [send for send in world.ok() if send["msg_key"] in ends])
    end = world.end()
    send.update(t_inv=end, t_cmp=end + MS)


@plant
def trimmed(world: World) -> None:
    """Retention took what lies before an offset, before anybody had read it: no loss to us."""
    ends = [len(log) for log in world.logs]
    low = min(3, *ends) if len(ends) > 1 else min(3, ends[0])
    world.deliveries = [row for row in world.deliveries if row["queue_offset"] >= low]
    world.drain = dict.fromkeys(GROUPS, low)


@plant
def filtered_by_tag(world: World) -> None:
    """A group did not ask for some of it: no loss to us, and nothing passed over."""
    grp = GROUPS[0]
    world.subscriptions = {grp: {TOPIC: ["red"]}}
    for send in world.sends:
        send["tag"] = world.rng.choice(("red", "blue"))
    blue = {send["msg_key"] for send in world.sends if send["tag"] == "blue"}
    world.deliveries = [
        row for row in world.deliveries if row["grp"] != grp or row["msg_key"] not in blue
    ]
    if not world.of(grp=grp):
        raise NoPlaceError
