"""Room in the log: who waits, who is let in next, and what is refused."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from broker.limits import LOG_ROOM_BYTES, LOG_WAITING_BYTES_MAX, LOG_WAITING_MS_MAX
from broker.sends.room import (
    LOOK_S,
    SMALL_BYTES,
    STALLED_MS,
    STARVED_MS,
    TURN_BYTES,
    TURN_MAX,
    LogRoom,
)
from broker.sends.waiting import WaitingRoom
from ledgermq.remoting.transport.room import NoRoom
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.results import PutStatus
from tests.unit.broker.fakes import FakeClock, request
from tests.unit.broker.test_send import Bench
from tests.unit.broker.test_send_back import AT, MESSAGE
from tests.unit.broker.test_send_back import Bench as SendBack
from tests.unit.broker.transactions import PROPERTIES, ROLLBACK, Replica
from tests.unit.store.fakes import message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

LARGE = LOG_ROOM_BYTES // 2
TURNS = 200
FLOODING = 10
"""Connections; what they send may wait, all of it, for one address."""


class Log:
    """A log that commits when it is told to, and the room in it."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.entries: list[tuple[str, int]] = []
        self.committed = 0
        self.most = 0
        self.room = LogRoom(self.uncommitted_bytes, self.clock)

    def uncommitted_bytes(self) -> int:
        return sum(size for _, size in self.entries[self.committed :])

    def append(self, name: str, size: int) -> None:
        self.entries.append((name, size))
        self.most = max(self.most, self.uncommitted_bytes())

    def commit(self) -> None:
        self.committed += 1
        self.room.on_progress()

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.entries]

    async def work(self, *, commits: bool = True) -> None:
        """Let the loop turn, with a commit in each turn."""
        for _ in range(TURNS):
            await asyncio.sleep(0)
            if commits and self.committed < len(self.entries):
                self.commit()


class Sender:
    """A connection with large messages to send."""

    def __init__(self, log: Log, name: str, sizes: list[int], address: str = "a") -> None:
        self.remote = (address, 1)
        self.waiting_since_ms: int | None = None
        self._log, self._name, self._sizes = log, name, sizes
        self.refused: list[int] = []
        self.go_on()

    def go_on(self) -> None:
        while self._sizes and self._log.room.is_free():
            self._log.append(self._name, self._sizes.pop(0))
        if self._sizes and not self._log.room.wait(self, sum(self._sizes)):
            self.refused += self._sizes

    def enter(self) -> bool:
        self._log.append(self._name, self._sizes.pop(0))
        asyncio.get_running_loop().call_soon(self.go_on)
        return True

    def refuse(self, full: NoRoom) -> None:
        assert full.room is self._log.room
        self.refused.append(self._sizes.pop(0))
        asyncio.get_running_loop().call_soon(self.go_on)


def run(test: Callable[[Log], Awaitable[None]]) -> None:
    async def body() -> None:
        await test(Log())

    asyncio.run(asyncio.wait_for(body(), 20))


def most_on_the_way() -> int:
    """Return how many bytes a flood has on its way at most."""
    most = []

    async def test(log: Log) -> None:
        for number in range(20):
            Sender(log, f"s{number}", [LARGE] * 5, f"10.0.0.{number}")
        await log.work()
        most.append(log.most)
        assert len(log.entries) == 20 * 5, "nothing of it is left out"
        assert log.room.waiting_bytes == 0

    run(test)
    return most[0]


def test_few_large_messages_are_on_their_way():
    assert most_on_the_way() < LOG_ROOM_BYTES + LARGE


def test_a_room_without_end_is_found():
    with planted(BY_TESTS["log-room-without-end"]):
        assert most_on_the_way() >= 20 * 5 * LARGE


def turns_of_another_address() -> list[str]:
    """Return what is appended when one address floods and another one sends a message."""
    names = []

    async def test(log: Log) -> None:
        for number in range(FLOODING):
            Sender(log, f"flood{number}", [LARGE] * 4)
        Sender(log, "other", [LARGE], "b")
        await log.work()
        names.extend(log.names)

    run(test)
    return names


def test_another_address_comes_next():
    assert turns_of_another_address().index("other") <= 4


def test_one_queue_for_all_is_found():
    with planted(BY_TESTS["room-in-one-queue"]):
        assert turns_of_another_address().index("other") > FLOODING


def test_connections_of_an_address_have_their_turns():
    first = turns_of_another_address()[: 2 * FLOODING]
    assert len({name for name in first if name.startswith("flood")}) == FLOODING


def test_who_waits_is_not_overtaken_by_who_comes_when_there_is_room_again():
    async def test(log: Log) -> None:
        Sender(log, "first", [2 * LARGE])
        Sender(log, "second", [LARGE])
        log.commit()
        assert not log.room.is_free(), "somebody waits for it"
        Sender(log, "third", [LARGE])
        await log.work()
        assert log.names == ["first", "second", "third"]

    run(test)


def test_a_lone_client_has_all_its_room_without_waiting():
    async def test(log: Log) -> None:
        for number in range(1000):
            Sender(log, f"{number}", [64 * 1024])
            log.commit()
        assert len(log.entries) == 1000
        assert log.room.waiting_bytes == 0

    run(test)


def test_what_may_wait_of_an_address_is_a_share():
    async def test(log: Log) -> None:
        log.append("before", LOG_ROOM_BYTES)
        fits = LOG_WAITING_BYTES_MAX // 5
        assert Sender(log, "a", [fits]).refused == []
        assert Sender(log, "a2", [fits]).refused == [fits]
        assert Sender(log, "b", [fits // 2], "b").refused == [], "another address has its own"
        assert log.room.waiting_bytes == fits + fits // 2
        await log.work()
        assert sorted(log.names) == ["a", "b", "before"]
        assert log.room.waiting_bytes == 0

    run(test)


def newcomer_among_many() -> tuple[int, int]:
    """Return what of a newcomer is refused, and how many of those who fill what may wait."""
    refused = []

    async def test(log: Log) -> None:
        log.append("before", LOG_ROOM_BYTES)
        others = [
            Sender(log, f"{address}.{number}", [4 * 1024**2], f"a{address}")
            for address in range(40)
            for number in range(13)
        ]
        assert log.room.waiting_bytes >= LOG_WAITING_BYTES_MAX - 16 * 1024**2
        await asyncio.sleep(0)
        full = sum(len(one.refused) for one in others)
        newcomer = Sender(log, "new", [4 * 1024**2], "new")
        again = Sender(log, "new2", [4 * 1024**2], "new")
        assert log.room.waiting_bytes <= LOG_WAITING_BYTES_MAX
        await asyncio.sleep(0)
        refused.append(len(newcomer.refused))
        refused.append(sum(len(one.refused) for one in others) - full)
        assert again.refused, "it is a newcomer once"
        await log.work()
        assert log.room.waiting_bytes == 0
        assert ("new" in log.names) == (not newcomer.refused)

    run(test)
    return refused[0], refused[1]


def test_who_comes_late_takes_a_place_of_who_has_most():
    assert newcomer_among_many() == (0, 1)
    with planted(BY_TESTS["no-place-for-a-newcomer"]):
        assert newcomer_among_many() == (1, 0)


def refused_for_a_large_newcomer() -> int:
    """Return how many small ones are refused for a large one that gets no place all the same."""
    refused = []

    async def test(log: Log) -> None:
        log.append("before", LOG_ROOM_BYTES)
        small = 64 * 1024
        others = []
        for address in range(16):  # Each one takes a fifth of what is free.
            while not others or not others[-1].refused:
                others.append(Sender(log, f"{len(others)}", [small], f"a{address}"))
            others.pop()
        waiting_bytes = log.room.waiting_bytes
        large = LOG_WAITING_BYTES_MAX - waiting_bytes + (TURN_MAX + 1) * small
        newcomer = Sender(log, "new", [large], "new")
        assert newcomer.refused == [large]
        await asyncio.sleep(0)
        refused.append(sum(len(one.refused) for one in others))
        assert log.room.waiting_bytes == waiting_bytes - refused[0] * small
        await log.work(commits=False)

    run(test)
    return refused[0]


def test_nobody_is_pushed_out_for_one_that_gets_no_place():
    assert refused_for_a_large_newcomer() == 0
    with planted(BY_TESTS["pushed-out-in-vain"]):
        assert refused_for_a_large_newcomer() == TURN_MAX


def test_a_turn_lets_in_a_bounded_number_of_bytes():
    async def test(log: Log) -> None:
        log.append("before", LOG_ROOM_BYTES)
        for number in range(200):
            Sender(log, f"{number}", [SMALL_BYTES + 1])
        log.commit()
        await asyncio.sleep(0)
        assert 0 < len(log.entries) - 1 <= TURN_BYTES // SMALL_BYTES + 1
        await log.work()
        assert len(log.entries) == 201

    run(test)


def appended_without_a_majority() -> int:
    """Return how many of four are appended, a while after the last commit."""
    count = []

    async def test(log: Log) -> None:
        log.append("before", LOG_ROOM_BYTES)
        Sender(log, "s", [LARGE] * 3)
        Sender(log, "t", [LARGE])
        await log.work(commits=False)
        assert log.names == ["before"]
        log.clock.now_ms += STARVED_MS - 1
        await asyncio.sleep(2 * LOOK_S)
        assert log.names == ["before"], "it is too early to give up"
        log.clock.now_ms += 1
        await asyncio.sleep(2 * LOOK_S)
        assert log.names == ["before", "s"], "one, since none was let in for long"
        log.clock.now_ms += STALLED_MS - STARVED_MS
        await asyncio.sleep(2 * LOOK_S)
        count.append(len(log.entries) - 1)

    run(test)
    return count[0]


def test_where_nothing_is_committed_the_limits_of_the_log_count():
    assert appended_without_a_majority() == 4


def test_waiting_for_ever_is_found():
    with planted(BY_TESTS["room-waits-for-ever"]):
        assert appended_without_a_majority() == 2


def let_in_without_room_after_a_stall() -> list[str]:
    """Return who is let in, without room, once what had stalled is committed."""
    names: list[str] = []

    async def test(log: Log) -> None:
        log.append("before", LOG_ROOM_BYTES)
        Sender(log, "stalled", [LARGE])
        log.clock.now_ms += STALLED_MS
        await asyncio.sleep(2 * LOOK_S)
        assert log.names == ["before", "stalled"]
        await log.work()
        log.append("again", LOG_ROOM_BYTES)
        Sender(log, "next", [LARGE])
        await log.work(commits=False)
        names.extend(log.names[3:])
        await log.work()
        assert log.names[3:] == ["next"]

    run(test)
    return names


def test_after_a_stall_there_is_a_limit_again():
    assert let_in_without_room_after_a_stall() == []


def test_a_room_that_stays_open_after_a_stall_is_found():
    with planted(BY_TESTS["once-stalled-always-open"]):
        assert let_in_without_room_after_a_stall() == ["next"]


def let_in_beside_small_ones() -> int:
    """Return how many large ones are let in in two seconds while small ones fill the log."""
    count = []

    async def test(log: Log) -> None:
        log.append("small", LOG_ROOM_BYTES)
        Sender(log, "s", [LARGE] * 9)
        for _ in range(20):
            log.append("small", LOG_ROOM_BYTES)
            log.commit()
            log.clock.now_ms += 100
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        count.append(log.names.count("s"))

    run(test)
    return count[0]


def test_small_ones_do_not_keep_a_large_one_waiting_for_ever():
    assert 2 <= let_in_beside_small_ones() <= 2_000 // STARVED_MS
    with planted(BY_TESTS["room-for-small-ones-only"]):
        assert let_in_beside_small_ones() == 0


def test_a_coroutine_waits_as_well_and_one_goes_on_in_a_turn():
    async def test(log: Log) -> None:
        async def copy(name: str, address: str) -> None:
            await log.room.enter(address)
            log.append(name, LARGE)

        await copy("first", "a")
        assert log.names == ["first"], "there is room"
        copies = [asyncio.ensure_future(copy(f"a{number}", "a")) for number in range(20)]
        other = asyncio.ensure_future(copy("other", "b"))
        await log.work()
        await asyncio.gather(other, *copies)
        assert log.most <= LOG_ROOM_BYTES + LARGE
        assert log.names.index("other") <= 5

    run(test)


def late_ones_stored() -> list[str]:
    """Return what is stored of three senders that wait, two of them for too long."""
    stored: list[str] = []

    async def test(log: Log) -> None:
        log.append("before", LOG_ROOM_BYTES)
        late = [Sender(log, name, [LARGE, LARGE], name) for name in ("a", "b")]
        given_back = asyncio.ensure_future(log.room.enter("a"))
        await asyncio.sleep(0)
        log.room._progress_ms += LOG_WAITING_MS_MAX  # what is on its way is slow, and not stalled
        log.room._let_in_ms += LOG_WAITING_MS_MAX
        log.clock.now_ms += LOG_WAITING_MS_MAX - 1
        in_time = Sender(log, "c", [LARGE], "c")
        log.room._look()
        assert [one.refused for one in late] == [[], []], "not yet"
        log.clock.now_ms += 1
        log.room._look()
        await log.work()
        stored.extend(log.names[1:])
        assert given_back.done(), "a coroutine waits for as long as it takes"
        assert in_time.refused == []
        assert log.room.waiting_bytes == 0
        assert [sorted(one.refused) for one in late] == [
            [LARGE] * (2 - stored.count(name)) for name in ("a", "b")
        ]

    run(test)
    return stored


def test_what_waited_for_longer_than_its_sender_does_is_refused():
    assert late_ones_stored() == ["c"], "neither the first ones nor what was read along with them"


def test_late_sends_that_are_stored_are_found():
    with planted(BY_TESTS["late-sends-stored"]):
        assert sorted(late_ones_stored()) == ["a", "a", "b", "b", "c"]


def test_many_late_ones_are_refused_in_many_turns():
    async def test(log: Log) -> None:
        log.append("before", LOG_ROOM_BYTES)
        late = [Sender(log, "s", [LARGE], f"10.0.{n % 2}.{n // 2}") for n in range(3 * TURN_MAX)]
        log.room._progress_ms += LOG_WAITING_MS_MAX
        log.room._let_in_ms += LOG_WAITING_MS_MAX
        log.clock.now_ms += LOG_WAITING_MS_MAX
        log.room._look()
        assert sum(len(one.refused) for one in late) == TURN_MAX
        await log.work(commits=False)
        assert [one.refused for one in late] == [[LARGE]] * len(late)
        assert log.room.waiting_bytes == 0

    run(test)


def test_a_cancelled_coroutine_takes_nobodys_place():
    async def test(log: Log) -> None:
        log.append("before", LOG_ROOM_BYTES)
        given_up = [asyncio.ensure_future(log.room.enter("a")) for _ in range(5)]
        await asyncio.sleep(0)
        for one in given_up:
            one.cancel()
        await asyncio.gather(*given_up, return_exceptions=True)
        Sender(log, "s", [LARGE])
        log.commit()
        await asyncio.sleep(0)
        assert log.names == ["before", "s"]

    run(test)


# Sends


def test_a_large_send_waits_and_a_small_one_does_not():
    async def test(log: Log) -> None:
        bench = Bench(room=log.room)
        bench.send(b"x" * (SMALL_BYTES + 1))
        log.append("before", LOG_ROOM_BYTES)
        for code in (310, 320):
            with pytest.raises(NoRoom) as full:
                bench.send(b"x" * (SMALL_BYTES + 1), code)
            assert full.value.room is log.room
        with pytest.raises(NoRoom):
            bench.send(i="a\x01" + "x" * SMALL_BYTES)
        bench.send(b"x" * (SMALL_BYTES // 2))
        assert [len(message.body) for message, _ in bench.store.puts] == [
            SMALL_BYTES + 1,
            SMALL_BYTES // 2,
        ]
        assert bench.connection.answers == [], "nobody is refused"
        bench.store.puts[0][1](PutStatus.OK, 0, 0)
        assert bench.connection.answers[0].code == 0

    run(test)


# What small requests have copied, and what waited before


def copies_without_room() -> int:
    """Return how many of five given back messages are copied without room; four are large."""
    count = []

    async def test(log: Log) -> None:
        bench = SendBack()
        large = replace(MESSAGE, body=bytes(SMALL_BYTES + 1))
        bench.store.records |= dict.fromkeys(range(AT + 1, AT + 5), large)
        bench.put_topic("%RETRY%g")
        bench.processor._room = log.room
        log.append("before", LOG_ROOM_BYTES)
        giving = [
            asyncio.ensure_future(
                bench.processor.handle(
                    bench.connection, request(36, offset=AT + number, group="g", delayLevel=0)
                )
            )
            for number in range(5)
        ]
        await log.work(commits=False)
        count.append(len(bench.store.puts))
        await log.work()
        assert len(bench.store.puts) == 5, "none is forgotten"
        bench.store.finish()
        answers = await asyncio.gather(*giving)
        assert [answer.code for answer in answers] == [0] * 5

    run(test)
    return count[0]


def test_what_is_given_back_waits_for_room():
    assert copies_without_room() == 1
    with planted(BY_TESTS["copies-without-room"]):
        assert copies_without_room() == 5


def commits_without_room() -> int:
    """Return how many large transactions are committed while the log has no room."""
    count = []

    async def test(log: Log) -> None:
        replica = Replica().begin()
        replica.world.node.lead()
        replica.processor._room = log.room
        large, given_up = replica.send(bytes(SMALL_BYTES + 1)), replica.send(bytes(9000))
        kept = replica.service.let_in(message(topic="orders", properties=PROPERTIES % 9))
        replica.world.store.writer.put(kept, lambda *_: None)
        replica.commit()
        small = replica.rows[-1]
        replica.service.recent.note(small.physical, kept)
        log.append("before", LOG_ROOM_BYTES)
        replica.end(small)
        replica.end(given_up, ROLLBACK)
        with contextlib.suppress(NoRoom):
            replica.end(large)
        count.append(len(replica.copies()) - 1)
        log.commit()
        if not count[-1]:
            replica.end(large)
        replica.commit()
        assert len(replica.copies()) == 2
        assert replica.rows == []

    run(test)
    return count[0]


def test_a_commit_waits_for_room():
    assert commits_without_room() == 0
    with planted(BY_TESTS["commits-without-room"]):
        assert commits_without_room() == 1


def let_go_without_room() -> int:
    """Return how many sends that waited for their topic are let go on without a commit."""
    count = []

    async def test(log: Log) -> None:
        waiting = WaitingRoom(partial(log.room.enter, ""))
        waiting.open("T")
        for number in range(6):
            assert waiting.add("T", lambda _, number=number: log.append(f"{number}", LARGE), LARGE)
        going = asyncio.ensure_future(waiting.let_go("T", None))
        await log.work(commits=False)
        count.append(len(log.entries))
        await log.work()
        await going
        assert log.names == [f"{number}" for number in range(6)]

    run(test)
    return count[0]


def test_who_waited_for_a_topic_waits_for_room_too():
    assert let_go_without_room() == 2
    with planted(BY_TESTS["parked-sends-without-room"]):
        assert let_go_without_room() == 6


def test_refusals_of_sends_that_waited_need_no_room():
    async def test(log: Log) -> None:
        log.append("before", LOG_ROOM_BYTES)
        waiting = WaitingRoom(partial(log.room.enter, ""))
        waiting.open("T")
        told: list[object] = []
        assert waiting.add("T", told.append, LARGE)
        await waiting.let_go("T", (1, "no"))
        assert told == [(1, "no")]

    run(test)
