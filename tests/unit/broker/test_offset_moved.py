"""OFFSET_MOVED_EVENT: what is stored, and how often."""

from __future__ import annotations

import pytest

from broker.offsets.moved import PERIOD_MS, REMEMBERED_MAX, OffsetMovedEvents
from broker.pulls.long_polling import HeldPull
from broker.sends.properties import PropertyRewriter
from ledgermq.remoting.protocol.properties import parse_properties
from store.results import PutStatus
from tests.unit.broker.fakes import FakeClock, FakeConnection, FakeStore

HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"


class Bench:
    """Events over a fake store."""

    def __init__(self) -> None:
        self.store, self.clock = FakeStore(), FakeClock()
        self.events = OffsetMovedEvents(self.store, self.clock, broker_name="b", broker_host=HOST)

    def move(
        self, group: str = "g", topic: str = "T", queue_id: int = 2, offset: int = 9, new: int = 4
    ) -> int:
        """Have a pull moved; return how many events were stored until now."""
        pull = HeldPull(FakeConnection(), 1, 0, topic, queue_id, offset, 32, None, 0, group=group)
        self.events.on_moved(pull, new)
        return len(self.store.puts)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_the_message_is_that_of_rocketmq(bench: Bench) -> None:
    bench.move()
    message, _ = bench.store.puts[0]
    assert (message.topic, message.queue_id) == (b"OFFSET_MOVED_EVENT", 0)
    assert message.body == (
        b'{"consumerGroup":"g","messageQueue":{"brokerName":"b","queueId":2,"topic":"T"},'
        b'"offsetNew":4,"offsetRequest":9}'
    )
    assert parse_properties(message.properties) == {"TAGS": "g", "KEYS": "g", "DELAY": "0"}
    assert message.born_host == HOST
    assert message.born_timestamp == bench.clock.wall_ms()
    assert message.tags_code == ord("g")
    assert (message.flag, message.sys_flag, message.reconsume_times) == (0, 0, 0)
    assert message.prepared_offset == 0


def test_its_properties_are_in_the_order_of_a_hash_map(bench: Bench) -> None:
    bench.move()
    stored = bench.store.puts[0][0].properties
    rewritten = PropertyRewriter("C", lambda: b"0").rewrite(b"UNIQ_KEY\x01u\x02" + stored).text
    pairs = [pair.split(b"\x01")[0] for pair in rewritten.split(b"\x02")]
    own = [name for name in pairs if name not in {b"UNIQ_KEY", b"CLUSTER"}]
    assert [pair.split(b"\x01")[0] for pair in stored.split(b"\x02")] == own


def test_of_a_group_and_queue_one_event_in_a_while(bench: Bench) -> None:
    assert bench.move() == 1
    assert [bench.move(offset=9 + n, new=4 + n) for n in range(3)] == [1, 1, 1]
    bench.clock.now_ms += PERIOD_MS - 1
    assert bench.move() == 1
    bench.clock.now_ms += 1
    assert [bench.move(), bench.move()] == [2, 2]


def test_others_have_events_of_their_own(bench: Bench) -> None:
    assert bench.move() == 1
    assert bench.move(group="h") == 2
    assert bench.move(topic="U") == 3
    assert bench.move(queue_id=3) == 4
    assert bench.move() == 4


def test_what_is_remembered_is_bounded_and_forgotten_in_time(bench: Bench) -> None:
    for number in range(REMEMBERED_MAX):
        bench.clock.now_ms += number == REMEMBERED_MAX // 2
        bench.move(group=f"g{number}")
    assert bench.move(group="one too many") == REMEMBERED_MAX
    bench.clock.now_ms += PERIOD_MS - 1
    assert bench.move(group="one too many") == REMEMBERED_MAX + 1
    assert len(bench.events._stored_ms) == REMEMBERED_MAX // 2 + 1
    assert bench.move(group=f"g{REMEMBERED_MAX - 1}") == REMEMBERED_MAX + 1


def test_a_store_that_refuses_is_logged_and_no_more(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.move()
    bench.store.finish(PutStatus.DISK_FULL)
    assert "event=offset_moved group=g topic=T queue=2 offset_request=9 offset_new=4" in caplog.text
    assert "event=offset_moved_not_stored status=DISK_FULL" in caplog.text
    caplog.clear()
    bench.move(group="h")
    bench.store.finish()
    assert "not_stored" not in caplog.text
