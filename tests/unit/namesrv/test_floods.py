"""Many registrations at once, and questions for many large routes."""

import asyncio
import zlib
from collections import Counter
from collections.abc import Awaitable

import pytest

from ledgermq.remoting.protocol.bodies import RegisterBrokerBody, TopicConfig, encode_register_body
from ledgermq.remoting.protocol.command import RemotingCommand
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.namesrv.test_processor import FakeConnection, Server, registered


def begin(server: Server, body: bytes, number: int) -> Awaitable[RemotingCommand]:
    """Begin a compressed registration, each of another broker."""
    fields = {
        "brokerName": f"b{number}",
        "brokerAddr": f"a:{number + 1}",
        "clusterName": "c",
        "brokerId": "0",
        "haServerAddr": "ha:1",
        "compressed": "true",
    }
    command = RemotingCommand(103, ext_fields=fields, body=body)
    return server._handlers[103](server.connection, command)


def with_topics(count: int) -> RegisterBrokerBody:
    """Return a registration with so many topics."""
    body = registered()
    body.topic_config_serialize_wrapper.topic_config_table = {
        f"T{number}": TopicConfig(topic_name=f"T{number}") for number in range(count)
    }
    return body


def largest_turn(monkeypatch: pytest.MonkeyPatch, count: int) -> int:
    """Return how many of so many registrations are read in one turn of the loop at most."""
    server, turn, read = Server(), 0, []
    body = encode_register_body(registered(), compressed=True)

    def inflate(data: bytes, *, compressed: bool) -> object:
        read.append(turn)
        raise zlib.error("none")

    async def flood() -> None:
        nonlocal turn
        answers = []
        for number in range(count):
            server.as_other(FakeConnection(number + 10))
            server.connection.remote = (f"10.0.0.{number}", 4)
            answers.append(asyncio.ensure_future(begin(server, body, number)))
        while len(read) < count:
            turn += 1
            await asyncio.sleep(0)
        await asyncio.gather(*answers, return_exceptions=True)

    monkeypatch.setattr("namesrv.admission.register_parts", inflate)
    asyncio.run(flood())
    return max(map(read.count, read))


def codes_of_one_turn(connections: int, each: int, addresses: int = 1) -> Counter[int]:
    """Return how many registrations that come in one turn are answered each code."""
    server, body = Server(), encode_register_body(registered(), compressed=True)

    async def flood() -> Counter[int]:
        answers = []
        for number in range(connections):
            server.as_other(FakeConnection(number + 10))
            server.connection.remote = (f"10.0.0.{number % addresses}", 4)
            answers += [begin(server, body, each * number + one) for one in range(each)]
        return Counter([answer.code for answer in await asyncio.gather(*answers)])

    return asyncio.run(flood())


def topics_after_a_small_one_behind_a_large_one() -> list[int]:
    """Return by which topics a broker is known, in the end; it sent a large list, then a small one.

    The small one is taken at once; the large one waits for its turn.
    """
    server = Server()
    fields = {
        "brokerName": "b",
        "brokerAddr": "a:1",
        "clusterName": "c",
        "brokerId": "0",
        "haServerAddr": "ha:1",
    }
    large = with_topics(1_000)
    large.topic_config_serialize_wrapper.data_version.counter = 1
    small = with_topics(3)
    small.topic_config_serialize_wrapper.data_version.counter = 2
    bodies = [encode_register_body(body) for body in (large, small, large)]

    def ask(body: bytes) -> RemotingCommand | Awaitable[RemotingCommand]:
        command = RemotingCommand(103, ext_fields=fields, body=body)
        return server._handlers[103](server.connection, command)

    async def send() -> list[int]:
        first, second = ask(bodies[0]), ask(bodies[1])
        assert isinstance(second, RemotingCommand), "taken at once"
        assert isinstance(first, Awaitable)
        known = [server.table.rows.count]
        assert (await first).code == 0
        known.append(server.table.rows.count)
        third = ask(bodies[2])
        assert isinstance(third, Awaitable)
        assert (await third).code == 0
        return [*known, server.table.rows.count]

    return asyncio.run(send())


def test_what_a_connection_says_later_counts() -> None:
    assert topics_after_a_small_one_behind_a_large_one() == [3, 3, 1_000]


def test_a_planted_older_registration_is_found() -> None:
    with planted(BY_TESTS["older-registration-overwrites"]):
        assert topics_after_a_small_one_behind_a_large_one() == [3, 1_000, 1_000]


def test_registrations_that_come_in_one_turn_are_bounded_too() -> None:
    assert codes_of_one_turn(1, 20) == {0: 2, 2: 18}
    assert codes_of_one_turn(40, 2, addresses=40) == {0: 60, 2: 20}


def test_one_address_leaves_places_to_others() -> None:
    assert codes_of_one_turn(40, 2) == {0: 12, 2: 68}


def test_a_planted_address_with_all_places_is_found() -> None:
    with planted(BY_TESTS["registrations-of-one-address"]), pytest.raises(AssertionError):
        test_one_address_leaves_places_to_others()


class Silent(FakeConnection):
    """Says nothing before it is told to."""

    def __init__(self, number: int) -> None:
        super().__init__(number, None)
        self.asked, self.told = asyncio.Event(), asyncio.Event()

    async def request(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        self.asked.set()
        await self.told.wait()
        return await super().request(command, timeout_ms)


async def is_taken_beside_a_silent_rival() -> bool:
    """Tell whether a registration goes on while a rival of another one is asked.

    That rival came while the other one waited for its turn.
    """
    server, loop = Server(), asyncio.get_running_loop()
    large = encode_register_body(with_topics(1_000), compressed=True)
    server.as_other(FakeConnection(10))
    before = loop.create_task(begin(server, large, 0))
    server.as_other(FakeConnection(11))
    claim = loop.create_task(begin(server, large, 1))
    await asyncio.sleep(0)
    rival = Silent(12)
    server.as_other(rival).register(brokerName="b1", brokerAddr="a:2")
    await rival.asked.wait()
    server.as_other(FakeConnection(13))
    other = loop.create_task(begin(server, large, 2))
    done, _ = await asyncio.wait((other,), timeout=0.2)
    rival.told.set()
    codes = [(await one).code for one in (before, claim, other)]
    assert codes == [0, 0, 0], "the rival was silent, so the claim counts"
    return bool(done)


def test_nobody_waits_while_the_rival_of_another_is_asked() -> None:
    assert asyncio.run(is_taken_beside_a_silent_rival())


def test_a_planted_wait_for_the_rival_of_another_is_found() -> None:
    with planted(BY_TESTS["registrations-wait-for-a-rival"]):
        assert not asyncio.run(is_taken_beside_a_silent_rival())


def test_one_registration_is_read_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    assert largest_turn(monkeypatch, 20) == 1


def test_without_that_all_are_read_in_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    with planted(BY_TESTS["registrations-all-at-once"]):
        assert largest_turn(monkeypatch, 20) > 1


def remembered_routes(monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how many routes are remembered after many questions."""
    server = Server()
    monkeypatch.setattr("namesrv.processor.ROUTES_BYTES_MAX", 1_000)
    server.register(encode_register_body(with_topics(100)))
    for number in range(100):
        assert server.ask(105, topic=f"T{number}").code == 0
    return len(server.processor._routes)


def test_routes_are_remembered_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    assert remembered_routes(monkeypatch) < 20


def test_without_that_all_routes_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    with planted(BY_TESTS["routes-remembered-without-bound"]):
        assert remembered_routes(monkeypatch) == 100
