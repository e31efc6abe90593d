"""What brokers leave behind is removed in slices, and nobody sees it meanwhile."""

import asyncio
import gc
import itertools
import json
import time

import pytest

from ledgermq.remoting.protocol.bodies import TopicConfig, TopicConfigWrapper, encode_body
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.frame import MAX_FRAME_BYTES
from ledgermq.runtime.disk import RealDisk
from mutants.patches import BY_TESTS
from mutants.planting import planted
from namesrv.config import NamesrvConfig
from namesrv.limits import BROKER_NAMES_BYTES_MAX, BROKERS_MAX
from namesrv.route_table import EXPIRED_PER_TURN, EXPIRY_MS, Registration, RouteTable
from namesrv.rows import TOPICS_PER_TURN
from namesrv.server import NameServer
from tests.unit.namesrv.test_processor import FakeClock, Server
from tests.unit.namesrv.test_route_table import names, registration, topics

TOPICS = 380_000
SLICE_MS_MAX = 20


def full_table(count: int = TOPICS, connection: int = 7) -> RouteTable:
    """Return a table with so many topics, which eight brokers registered over one connection."""
    table = RouteTable()
    config = TopicConfig(topic_name="T")
    for broker in range(8):
        names = (f"topic-{broker}-{number}" for number in range(count // 8))
        wrapper = TopicConfigWrapper(topic_config_table=dict.fromkeys(names, config))
        done = table.register(
            registration(
                0, f"a:{broker}", broker_name=f"b{broker}", topics=wrapper, connection=connection
            ),
            0,
        )
        assert not done.refusal
        for _ in done.rest or ():
            pass
    return table


def slices_ms(table: RouteTable) -> list[float]:
    """End the connection of `full_table`; return how long each slice took."""
    times = [time.process_time()]
    table.on_connection_closed(7)
    times.append(time.process_time())
    while table.rows.sweep():
        times.append(time.process_time())
    times.append(time.process_time())
    return [1000 * (b - a) for a, b in itertools.pairwise(times)]


def test_the_end_of_a_connection_with_380_000_topics_holds_nobody_up():
    table = full_table()
    slices = slices_ms(table)
    assert len(slices) >= TOPICS // TOPICS_PER_TURN
    assert sorted(slices)[-3] < SLICE_MS_MAX, "two may have been hit by the collector of garbage"
    assert not table.rows.topics
    assert [used for used, _ in table.used.values()] == [0] * 4


def test_without_slices_it_does():
    table = full_table()
    with planted(BY_TESTS["dead-topics-removed-at-once"]):
        assert max(slices_ms(table)) > SLICE_MS_MAX


def look_between_slices() -> None:
    table = full_table(24_000)
    table.register(registration(0, "z:1", broker_name="z", connection=8), 0)
    table.on_connection_closed(7)
    assert table.rows.topics["topic-0-0"], "it is still to be swept"
    assert table.route("topic-0-0") is None
    assert names(table) == ["T"]
    assert names(table, "c") == ["T"]
    assert list(table.cluster_info().broker_addr_table) == ["z"]
    assert table.rows.count == 1


def test_what_is_left_to_remove_is_seen_by_nobody():
    look_between_slices()


def test_without_that_routes_lead_to_nobody():
    with planted(BY_TESTS["routes-to-the-gone"]), pytest.raises(AssertionError):
        look_between_slices()


def test_a_broker_that_comes_back_meanwhile_keeps_what_it_brings():
    table = full_table(24_000)
    table.on_connection_closed(7)
    again = topics(5, **{"topic-0-0": 3})
    table.register(registration(0, "a:0", broker_name="b0", topics=again, connection=8), 1)
    assert table.route("topic-0-0").queue_datas[0].read_queue_nums == 3
    table.delete_topic("topic-0-1")
    while table.rows.sweep():
        assert table.route("topic-0-0").queue_datas[0].read_queue_nums == 3
        assert table.route("topic-0-1") is None
    assert list(table.rows.topics) == names(table) == ["topic-0-0"]
    assert (table.rows.count, table.rows.names_bytes) == (1, len("topic-0-0"))


async def longest_turn_ms(server: Server) -> float:
    """Ask for all topics, twice at once; return the longest turn of the loop meanwhile."""
    answers = [asyncio.ensure_future(ask(server, 206)) for _ in range(2)]
    gc.collect()
    gc.disable()  # it would look at what all tests before this one have left
    longest, before = 0.0, time.process_time()
    try:
        while not all(answer.done() for answer in answers):
            await asyncio.sleep(0)
            now = time.process_time()
            longest, before = max(longest, now - before), now
    finally:
        gc.enable()
    listed = [json.loads(answer.result().body)["topicList"] for answer in answers]
    assert [len(names) for names in listed] == [TOPICS, TOPICS]
    return 1000 * longest


async def ask(server: Server, code: int) -> RemotingCommand:
    answer = server._handlers[code](server.connection, RemotingCommand(code))
    return answer if isinstance(answer, RemotingCommand) else await answer


def listing_ms() -> float:
    server = Server()
    server.processor._listing._table = full_table()
    return asyncio.run(longest_turn_ms(server))


def test_the_list_of_380_000_topics_is_made_in_slices():
    """A machine that is busy makes both slower; one of three tries is quiet."""
    sliced = min(listing_ms() for _ in range(3))
    with planted(BY_TESTS["all-topics-listed-at-once"]):
        at_once = listing_ms()
    assert at_once > 2 * SLICE_MS_MAX, "even on a fast machine"
    assert sliced < at_once / 3, (sliced, at_once)


def test_each_registration_removes_a_slice_so_that_they_do_not_pile_up():
    table = full_table(8 * TOPICS_PER_TURN)
    table.on_connection_closed(7)
    for number in range(8):
        table.register(registration(0, f"z:{number}", broker_name=f"z{number}", connection=8), 0)
    assert list(table.rows.topics) == ["T"]


def test_permissions_of_many_topics_change_step_by_step():
    table = full_table(8 * 2_500)
    count, steps = table.set_write_perm("b0", allowed=False)
    assert count == 2_500
    assert next(steps) is None
    assert table.route("topic-0-0").queue_datas[0].perm == 4
    assert table.route("topic-0-1000").queue_datas[0].perm == 6
    table.delete_topic("topic-0-1000")
    assert len(list(steps)) == 2
    assert table.route("topic-0-2499").queue_datas[0].perm == 4
    server = Server()
    server.processor._table = table
    answer = server.processor.add_write_perm(None, _named("b0"))
    assert not hasattr(answer, "code"), "it takes several turns"
    answer.close()


def _named(broker: str) -> RemotingCommand:
    return RemotingCommand(327, ext_fields={"brokerName": broker})


def test_silent_brokers_are_removed_a_slice_at_a_time():
    table = RouteTable()
    for number in range(EXPIRED_PER_TURN + 3):
        table.register(
            registration(0, f"z:{number}", broker_name=f"z{number}", connection=number), 0
        )
    assert len(table.expire(EXPIRY_MS + 1)) == EXPIRED_PER_TURN
    assert len(table.expire(EXPIRY_MS + 1)) == 3


def pass_scans(server: NameServer, clock: FakeClock, for_ms: int) -> None:
    """Let time pass in which a name server looks every five seconds, as it does."""
    for _ in range(for_ms // 5_000):
        clock.now_ms += 5_000
        server._scan()


async def left_after_a_stall() -> list[str]:
    """Who is left when a name server that stood still for ten minutes looks again."""
    clock = FakeClock()
    server = NameServer(NamesrvConfig(), clock, RealDisk())
    for name in ("dead", "alive"):
        one = registration(0, f"{name}:1", broker_name=name, connection=ord(name[0]))
        server.table.register(one, clock.now_ms)
    clock.now_ms += 600_000
    server._scan()
    assert list(server.table.broker_addrs()) == ["dead:1", "alive:1"]
    pass_scans(server, clock, EXPIRY_MS - 5_000)
    server.table.register(
        registration(0, "alive:1", broker_name="alive", connection=ord("a")), clock.now_ms
    )
    pass_scans(server, clock, 10_000)
    await server.stop()
    return list(server.table.broker_addrs())


def test_a_name_server_that_stood_still_does_not_take_everybody_for_dead():
    assert asyncio.run(left_after_a_stall()) == ["alive:1"]
    with planted(BY_TESTS["own-stall-is-their-silence"]), pytest.raises(AssertionError):
        asyncio.run(left_after_a_stall())


async def left_after_one_scan() -> int:
    """How many of seven silent brokers are there after a scan whose slices are of two."""
    clock = FakeClock()
    server = NameServer(NamesrvConfig(), clock, RealDisk())
    for number in range(7):
        name = f"z{number}"
        server.table.register(
            registration(0, f"z:{number}", broker_name=name, connection=number), clock.now_ms
        )
    pass_scans(server, clock, EXPIRY_MS)
    clock.now_ms += 1
    server._scan()
    assert len(list(server.table.broker_addrs())) == 5
    await asyncio.sleep(0.05)
    await server.stop()
    return len(list(server.table.broker_addrs()))


def test_a_scan_goes_on_until_no_silent_broker_is_left(monkeypatch):
    monkeypatch.setattr("namesrv.route_table.EXPIRED_PER_TURN", 2)
    assert asyncio.run(left_after_one_scan()) == 0
    with planted(BY_TESTS["one-slice-of-the-silent"]):
        assert asyncio.run(left_after_one_scan()) == 5


def test_a_group_cannot_collect_more_topics_than_all_may_have(monkeypatch):
    monkeypatch.setattr("namesrv.route_table.TOPIC_ROWS_MAX", 3)
    table = RouteTable()
    assert not table.register(registration(topics=topics(1, A=1, B=1)), 0).refusal
    assert table.register(registration(topics=topics(2, C=1, D=1)), 0).refusal
    assert not table.register(registration(topics=topics(2, B=1, C=1)), 0).refusal
    assert table.rows.count == 3


def many_long_names(table: RouteTable) -> int:
    """Register as many brokers with the longest names as are taken; return how many."""
    for number in range(BROKERS_MAX):
        if table.register(long_names(number), 0).refusal:
            return number
    return BROKERS_MAX


def long_names(number: int, **changes: object) -> Registration:
    name = f"{number:05}" + 250 * '"'
    fields = {"broker_name": name, "cluster": 255 * "c", "connection": number + 1}
    return registration(0, f"{number:05}{285 * 'h'}:10911", **(fields | changes))


def test_all_brokers_fit_into_one_answer():
    table = RouteTable()
    count = many_long_names(table)
    assert 1_000 < count < BROKERS_MAX
    size = len(encode_body(table.cluster_info()))
    assert BROKER_NAMES_BYTES_MAX // 2 < size <= BROKER_NAMES_BYTES_MAX
    assert "names and addresses" in table.register(long_names(count), 0).refusal
    assert not table.register(long_names(0, raft_term=3), 0).refusal, "the old ones go on"
    table.on_connection_closed(1)
    assert not table.register(long_names(count), 0).refusal
    while_full = table.used["names and addresses of all brokers"][0]
    assert not table.register(long_names(count), 0).refusal
    assert table.used["names and addresses of all brokers"][0] == while_full


def test_without_that_the_answer_fits_into_no_frame():
    table = RouteTable()
    with planted(BY_TESTS["broker-names-unbounded"]):
        assert many_long_names(table) == BROKERS_MAX
    assert len(encode_body(table.cluster_info())) > MAX_FRAME_BYTES
