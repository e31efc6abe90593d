"""What a send may contain is decided before anything is appended, created or made to wait.

Each rule is a check; each check finds the bug that takes the rule away.
"""

from __future__ import annotations

import asyncio
import itertools
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

from broker.limits import PARKED_BYTES_MAX, PARKED_TOPIC_BYTES_MAX
from broker.sends.rules import level_of
from broker.sends.waiting import SLICE_SENDS
from ledgermq.remoting.protocol.errors import InvalidHeader, RemoteProtocolError
from ledgermq.remoting.protocol.limits import BATCH_MESSAGES_MAX, KEY_BYTES_MAX, KEY_WORDS_MAX
from ledgermq.remoting.protocol.message import BatchElement, encode_batch
from ledgermq.remoting.protocol.properties import parse_properties
from mutants.patches import ALL, BY_TESTS
from mutants.planting import planted
from store import layout
from tests.unit.broker.door_bench import BODY_MAX, NOW_MS, Bench

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mutants.planting import Mutant

IPV6_HOST = ("2001:db8::1", 4_000)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def batch_of(*elements: tuple[bytes, bytes]) -> bytes:
    return encode_batch([BatchElement(body, text) for body, text in elements])


def check_hosts_are_as_wide_as_the_broker_says(bench: Bench) -> None:
    one = batch_of((b"a", b"k\x01v"))
    for flags in (0x10, 0x20, 0x30, 0x33):
        bench.send(f=flags)
        bench.send(one, 320, f=flags)
    assert bench.store.flags == [0] * 6 + [3, 3], "the store need not know better"
    assert [record.sys_flag for record in bench.records] == [0] * 6 + [3, 3]
    bench.connection = type(bench.connection)()
    bench.connection.remote = IPV6_HOST
    bench.send(f=0x20)
    assert bench.records[-1].sys_flag == 0x10
    assert len(bench.records[-1].born_host) == 20


def check_bits_without_a_meaning_are_refused(bench: Bench) -> None:
    one = batch_of((b"a", b""))
    odd = (0x40, 0x80, 0x400, 0x700, 0x800, 0x40000000, -1 & ~0xC, -(2**31))
    for flags in odd:
        bench.send(f=flags)
        bench.send(one, 320, f=flags)
    assert bench.codes == [13] * 2 * len(odd)
    assert bench.node.bodies == []
    for flags in (0, 1, 2, 3, 0x101, 0x201, 0x301, 0x300):
        bench.send(f=flags)
    assert [record.sys_flag for record in bench.records] == [0, 1, 2, 3, 0x101, 0x201, 0x301, 0x300]


def check_a_delay_has_any_number_of_digits(bench: Bench) -> None:
    for digits in ("9" * 5_000, "0" * 5_000 + "1", "+3", "4294967296"):
        bench.send(i=f"DELAY\x01{digits}")
    levels = [(record.topic, record.queue_id + 1) for record in bench.records]
    assert levels == [("SCHEDULE_TOPIC_XXXX", level) for level in (18, 1, 3, 18)]
    for level, record in zip((18, 1, 3, 18), bench.records, strict=True):
        assert b"DELAY\x01%d" % level in record.properties.split(b"\x02")
    for digits in ("0", "000", "-1"):
        bench.send(i=f"DELAY\x01{digits}")
    assert [record.topic for record in bench.records[4:]] == ["T"] * 3
    for digits in ("x", "+", "1" * 5_000 + "x"):
        bench.send(i=f"DELAY\x01{digits}")
    assert bench.codes == [13] * 3


def check_a_batch_holds_no_delayed_message(bench: Bench) -> None:
    for text in (b"DELAY\x013", b"TRAN_MSG\x01true", b"DELAY\x01" + b"1" * 5_000):
        bench.send(batch_of((b"a", b"k\x01v"), (b"b", b"k\x01v\x02" + text)), 320)
        bench.send(batch_of((b"a", b"k\x01v")), 320, i=text.decode())
    bench.send(batch_of((b"a", b"k\x01v")), 320, f=4)
    assert bench.codes == [13] * 7
    bench.send(batch_of((b"a", b"DELAY\x010\x02MYDELAY\x013")), 320)
    assert len(bench.records) == 1


def check_no_message_waits_for_a_time_of_delivery(bench: Bench) -> None:
    later = {"TIMER_DELAY_MS": 1, "TIMER_DELAY_SEC": 1, "TIMER_DELIVER_MS": NOW_MS + 1}
    for name, value in later.items():
        for more in (0, 1, 2):  # the third has names that are known by then
            bench.send(i=f"UNIQ_KEY\x01u\x02{name}\x01{value + more}")
        bench.send(batch_of((b"a", b"k\x01v"), (b"b", f"{name}\x01{value}".encode())), 320)
    bench.send(batch_of((b"a", b"k\x01v")), 320, i="TIMER_DELAY_MS\x011")
    bench.send(i="TIMER_DELIVER_MS\x010\x02TIMER_DELAY_MS\x01+7")  # the later one does not count
    bench.send(i="DELAY\x010\x02TIMER_DELAY_MS\x017")  # nor does no level
    assert bench.codes == [13] * 15
    assert "TIMER_DELAY_MS is RocketMQ 5's" in (bench.connection.answers[-1].remark or "")
    bench.send(i="UNIQ_KEY\x01u\x02MY_TIMER_DELAY_MS\x011\x02k\x01TIMER_DELAY_MS")
    bench.send(batch_of((b"a", b"k\x01TIMER_DELAY_MS\x02TIMER_DELAY\x011")), 320)
    assert len(bench.records) == 2


def check_a_time_of_delivery_is_a_number(bench: Bench) -> None:
    for value in ("x", "1.5", "+", "0x1", "1" * 20, "\u0663"):
        bench.send(i=f"TIMER_DELAY_MS\x01{value}")
        bench.send(batch_of((b"a", f"TIMER_DELAY_MS\x01{value}".encode())), 320)
    assert bench.codes == [13] * 12
    assert "TIMER_DELAY_MS is not a number" in (bench.connection.answers[-1].remark or "")


def test_what_is_due_or_has_a_level_is_taken_whatever_its_time_of_delivery(bench: Bench) -> None:
    for text in (
        "TIMER_DELAY_MS\x010", "TIMER_DELAY_SEC\x01-5", f"TIMER_DELIVER_MS\x01{NOW_MS}",
        f"TIMER_DELIVER_MS\x01{NOW_MS - 1}\x02TIMER_DELAY_MS\x010",
    ):  # fmt: skip
        for _ in range(3):
            bench.send(i=text)
        bench.send(batch_of((b"a", text.encode())), 320)
    assert [record.topic for record in bench.records] == ["T"] * 16
    bench.send(i="DELAY\x013\x02TIMER_DELAY_MS\x0160000")
    assert bench.records[-1].topic == "SCHEDULE_TOPIC_XXXX"
    assert bench.codes == []


def check_properties_are_added_up_before_they_are_copied(bench: Bench) -> None:
    body = batch_of(*[(b"x", b"")] * 1_000)
    tracemalloc.start()
    try:
        bench.send(body, 320, i="k\x01" + "v" * 32_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert bench.codes == [13]
    assert peak < 2 * 1024**2
    bench.send(batch_of(*[(b"x", b"k\x01v\x02" * 40)] * 1_000), 320)
    assert bench.codes == [13, 13]


def check_a_batch_has_so_many_messages(bench: Bench) -> None:
    alike, ragged = [(b"x", b"")], [(b"x", b""), (b"yy", b"k\x01v")]
    limit = int(BATCH_MESSAGES_MAX)
    bench.send(batch_of(*alike * (limit + 1)), 320)
    bench.send(batch_of(*ragged * (limit // 2), *alike), 320)
    assert bench.codes == [13, 13]
    remark = bench.connection.answers[0].remark or ""
    assert f"more than {limit}" in remark
    bench.send(batch_of(*alike * limit), 320)
    bench.send(batch_of(*ragged * (limit // 2)), 320)
    assert len(bench.records) == 2 * limit


def check_properties_of_a_batch_are_read_equal_by_all(bench: Bench) -> None:
    odd = (
        b"TAGS\x01A\x02TAGS\x01",
        b"TAGS\x01\xff\xfe",
        b"novalue\x02\x01noname\x02TAGS\x01B",
        b"\x02",
        b"TAGS\x01\xc3\xa4\x02n\x00\x01\x00",
        b"TAGS\x01C\x02\x02k\x01v\x02",
    )
    for text in odd:
        bench.send(batch_of((b"a", b""), (b"b", text)), 320, i="WAIT\x01true")
    assert bench.codes == []
    codes = [code for own in bench.log.uncommitted for code in own.codes]
    assert codes == [layout.tags_code(record.properties) for record in bench.records]
    tags = [parse_properties(record.properties).get("TAGS") for record in bench.records[1::2]]
    assert tags == ["A", "\ufffd\ufffd", "B", None, "\u00e4", "C"]
    for record in bench.records:
        for name, value in parse_properties(record.properties.decode().encode()).items():
            assert record.maybe_property(name) == value


def check_no_value_holds_the_end_of_a_name(bench: Bench) -> None:
    for text in ("k\x01v\x01w", "a\x01b\x02k\x01v\x01", "k\x01\x01v"):
        bench.send(i=text)
        bench.send(batch_of((b"a", text.encode())), 320, i="")
        bench.send(batch_of((b"a", b"")), 320, i=text)
    assert bench.codes == [13] * 9


def check_keys_are_limited(bench: Bench) -> None:
    bench.send(i="KEYS\x01" + "k " * int(KEY_WORDS_MAX))
    keys = b"KEYS\x01" + b"k" * 32_000
    bench.send(batch_of(*[(b"a", keys)] * (KEY_BYTES_MAX // 32_000 + 1)), 320)
    bench.send(batch_of(*[(b"a", b"KEYS\x01k k k k k")] * 1_000), 320)
    assert bench.codes == [13] * 3
    bench.send(i="KEYS\x01" + "k " * (int(KEY_WORDS_MAX) - 1))
    assert len(bench.records) == 1


def check_long_properties_are_not_taken_apart(bench: Bench) -> None:
    bench.send(i="k\x01v")
    assert bench.ids_made == 1, "a message without a key gets one when it is read"
    bench.send(i="\x02".join(f"{number}\x01v" for number in range(20_000)))
    assert bench.codes == [13]
    assert bench.ids_made == 1


def check_what_is_remembered_is_bounded_in_bytes(bench: Bench) -> None:
    tracemalloc.start()
    try:
        for number in range(60):
            big = f"{number}" + "x" * 3_000
            bench.send(batch_of((b"a", b"")), 320, i=f"k\x01{big}")
            bench.send(i=f"TAGS\x01{big}")
            bench.send(i=f"{big}\x01v")
            bench.node.bodies.clear()
            bench.log.uncommitted._items.clear()
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert bench.codes == []
    assert kept < 256 * 1024


def check_tags_read_back_are_remembered_if_short(bench: Bench) -> None:
    tracemalloc.start()
    try:
        for number in range(40):
            layout.tags_code(b"TAGS\x01%d" % number + b"x" * 10_000)
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < 128 * 1024
    assert bench.codes == []


def check_what_waits_is_bounded_in_bytes(bench: Bench) -> None:
    each = PARKED_TOPIC_BYTES_MAX // 4
    for topic in range(6):
        for _ in range(5):
            bench.send(b"x" * (each - 1_000), b=f"new{topic}")
    assert bench.creator.waiting.size_bytes <= PARKED_BYTES_MAX
    assert bench.codes.count(2) == 6 * 5 - PARKED_BYTES_MAX // each
    assert bench.codes.count(2) == len(bench.codes)


async def release(bench: Bench) -> None:
    """Let all creations end, one step a turn as the loop would."""
    bench.publisher.published.set()
    while bench.served:
        await bench.served.pop(0)


def check_later_sends_go_behind_those_that_wait(bench: Bench) -> None:
    async def run() -> None:
        bench.send(b"1", b="new")
        bench.send(batch_of((b"2", b""), (b"3", b"")), 320, b="new")
        creation = asyncio.ensure_future(bench.served.pop())
        await asyncio.sleep(0)
        assert bench.topics.get("new") is not None, "applied, not published"
        bench.send(b"4", b="new")
        bench.send(batch_of((b"5", b"")), 320, b="new")
        bench.send(b"other")
        bench.publisher.published.set()
        await creation
        bench.send(b"6", b="new")

    asyncio.run(run())
    assert [record.body for record in bench.records] == [
        b"other",
        *(b"%d" % n for n in range(1, 7)),
    ]
    assert bench.codes == []
    assert bench.creator.waiting.topics == {}
    assert bench.creator.waiting.count == bench.creator.waiting.size_bytes == 0


def check_who_waited_is_let_go_on_in_slices(bench: Bench) -> None:
    async def run() -> None:
        for number in range(3 * SLICE_SENDS):
            bench.send(b"%d" % number, b="new")
        bench.publisher.published.set()
        creation = asyncio.ensure_future(bench.served.pop())
        counts = [0]
        while not creation.done():
            await asyncio.sleep(0)
            counts.append(len(bench.records))
            if len(counts) == 3:
                bench.send(b"late", b="new")
        assert max(b - a for a, b in itertools.pairwise(counts)) <= SLICE_SENDS

    asyncio.run(run())
    bodies = [b"%d" % number for number in range(3 * SLICE_SENDS)]
    assert [record.body for record in bench.records] == [*bodies, b"late"]


def check_who_waits_is_answered_when_the_creation_raises(bench: Bench) -> None:
    told: list[dict[str, Any]] = []

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        bench.proposer.error = ValueError("boom")
        bench.send(b"1", b="new")
        bench.send(batch_of((b"2", b"")), 320, b="new")
        await asyncio.gather(*bench.served, return_exceptions=True)
        bench.served.clear()

    asyncio.run(run())
    assert bench.codes == [1, 1]
    assert all("not stored" in (one.remark or "") for one in bench.connection.answers)
    assert all("unknown" not in (one.remark or "") for one in bench.connection.answers)
    assert [str(one["exception"]) for one in told] == ["boom"]
    assert bench.creator.waiting.topics == {}


def check_a_batch_that_waited_is_a_batch(bench: Bench) -> None:
    bench.send(batch_of((b"1", b""), (b"2", b"")), 320, b="new")
    asyncio.run(release(bench))
    assert [record.body for record in bench.records] == [b"1", b"2"]


def check_a_delayed_half_waits_for_its_end(bench: Bench) -> None:
    half = "UNIQ_KEY\x01u\x02TRAN_MSG\x01true\x02PGROUP\x01p\x02DELAY\x012"
    bench.send(i=half)
    bench.send(i=half, j=1)  # what was committed long ago, and given back
    topics = [record.topic for record in bench.records]
    assert topics == ["RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"]


CHECKS: list[tuple[Mutant, Callable[[Bench], None]]] = [
    (ALL["client-sets-host-bits"], check_hosts_are_as_wide_as_the_broker_says),
    (BY_TESTS["bits-without-a-meaning"], check_bits_without_a_meaning_are_refused),
    (BY_TESTS["delay-of-any-length"], check_a_delay_has_any_number_of_digits),
    (BY_TESTS["delay-within-a-batch"], check_a_batch_holds_no_delayed_message),
    (BY_TESTS["timer-without-effect"], check_no_message_waits_for_a_time_of_delivery),
    (BY_TESTS["timer-of-any-text"], check_a_time_of_delivery_is_a_number),
    (
        BY_TESTS["batch-copied-before-its-limit"],
        check_properties_are_added_up_before_they_are_copied,
    ),
    (BY_TESTS["batch-of-any-length"], check_a_batch_has_so_many_messages),
    (BY_TESTS["batch-properties-as-they-came"], check_properties_of_a_batch_are_read_equal_by_all),
    (BY_TESTS["separator-within-a-value"], check_no_value_holds_the_end_of_a_name),
    (BY_TESTS["keys-without-limit"], check_keys_are_limited),
    (
        BY_TESTS["properties-parsed-whatever-their-length"],
        check_long_properties_are_not_taken_apart,
    ),
    (BY_TESTS["remembered-by-count"], check_what_is_remembered_is_bounded_in_bytes),
    (BY_TESTS["tags-remembered-by-count"], check_tags_read_back_are_remembered_if_short),
    (BY_TESTS["parked-by-count"], check_what_waits_is_bounded_in_bytes),
    (BY_TESTS["later-sends-overtake"], check_later_sends_go_behind_those_that_wait),
    (BY_TESTS["let-go-at-once"], check_who_waited_is_let_go_on_in_slices),
    (BY_TESTS["creation-fails-unanswered"], check_who_waits_is_answered_when_the_creation_raises),
    (BY_TESTS["parked-batch-goes-on-as-one"], check_a_batch_that_waited_is_a_batch),
    (BY_TESTS["delayed-half-is-no-half"], check_a_delayed_half_waits_for_its_end),
]
each_rule = pytest.mark.parametrize(("bug", "check"), CHECKS, ids=[bug.name for bug, _ in CHECKS])


@each_rule
def test_the_rule_holds(bug: Mutant, check: Callable[[Bench], None], bench: Bench) -> None:
    del bug
    check(bench)


@each_rule
def test_the_check_of_a_rule_finds_its_bug(
    bug: Mutant, check: Callable[[Bench], None], tmp_path: Path
) -> None:
    with planted(bug):
        bench = Bench(tmp_path)
        with pytest.raises((AssertionError, ValueError, RemoteProtocolError)):
            check(bench)
        bench.close()


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"b": "a\x00b"}, 1),
        ({"b": "../x"}, 1),
        ({"b": "\u00e4"}, 1),
        ({"b": " "}, 1),
        ({"b": "t" * 70_000}, 1),
        ({"e": 2**31 - 1}, 1),
        ({"i": "k\x01" + "v" * 32_767}, 13),
        ({"i": "k\x01" + "\u20ac" * 11_000}, 13),
        ({"i": "k\x01" + "v" * 32_760}, 13),
        ({"i": "x" * 300_000}, 13),
    ],
)
def test_odd_fields_have_rocketmqs_answers(bench: Bench, fields: dict[str, Any], code: int) -> None:
    bench.send(**fields)
    assert bench.codes == [code]
    assert bench.node.bodies == []


@pytest.mark.parametrize("name", ["d", "e", "f", "g", "h", "j", "l"])
@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**40, "x", "", "1.5"])
def test_a_number_that_does_not_fit_its_field_is_a_bad_header(
    bench: Bench, name: str, value: object
) -> None:
    with pytest.raises(InvalidHeader):  # the dispatcher answers it with 1
        bench.send(**{name: value})
    assert bench.node.bodies == []


def test_negative_numbers_are_taken_as_rocketmq_takes_them(bench: Bench) -> None:
    bench.send(e=-5, g=-1, h=-7, j=-3, d=-4, l=-1)
    (record,) = bench.records
    assert (record.queue_id, record.born_timestamp, record.flag) == (3, -1, -7)
    assert record.reconsume_times == -3


@pytest.mark.parametrize("size", [0, BODY_MAX + 1])
def test_a_body_has_a_length_within_its_limit(bench: Bench, size: int) -> None:
    bench.send(b"x" * size)
    bench.send(b"x" * size, b="new")
    bench.send(b"x" * size, 320)
    assert bench.codes == [13, 13, 13]
    assert bench.served == []
    bench.send(b"x" * BODY_MAX)
    assert len(bench.records) == 1


def element(size: int, body: int, text: int, rest: bytes) -> bytes:
    four = (size, 0, 0, 0, body)
    return (
        b"".join(n.to_bytes(4, "big", signed=True) for n in four) + rest + text.to_bytes(2, "big")
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00" * 19,
        batch_of((b"", b"k\x01v")),
        batch_of((b"a", b"k\x01v")) + b"\x00",
        batch_of((b"a", b"k\x01v"))[:-1],
        batch_of((b"a", b"k\x01v"), (b"", b"k\x01v")),
        element(-1, 1, 0, b"a"),
        element(0, 1, 0, b"a"),
        element(23, -1, 0, b"a"),
        element(23, 2**31 - 1, 0, b"a"),
        element(2**31 - 1, 1, 0, b"a"),
        element(22 + 4 * 1024**2, 4 * 1024**2, 0, b"x" * 4 * 1024**2),
        element(22 + 1 + 65_535, 1, 65_535, b"a") + b"x" * 65_535,
        batch_of((b"a", b"k\x01" + b"v" * 32_760)),
    ],
)
def test_a_batch_that_is_none_is_refused_whole(bench: Bench, body: bytes) -> None:
    bench.send(body, 320)
    bench.send(body, 310, m="true")
    assert bench.codes == [13, 13]
    assert bench.node.bodies == []


def check_a_delay_is_a_number(bench: Bench) -> None:
    one = batch_of((b"a", b"DELAY\x01soon"))
    for text in ("soon", "1.5", " 1", "0x1", "1e0", "-", "2-", "++3"):
        bench.send(i=f"DELAY\x01{text}")
    bench.send(one, 320)
    assert bench.codes == [13] * 9
    assert bench.node.bodies == [], "it would be delivered at once"
    for text in ("-3", "0", "+0", "19", "99999999999"):
        bench.send(i=f"DELAY\x01{text}")
    assert bench.codes[9:] == [], "what is stored has no answer yet"
    assert [record.topic for record in bench.records] == [*["T"] * 3, *["SCHEDULE_TOPIC_XXXX"] * 2]


def test_a_delay_is_a_number(bench: Bench) -> None:
    check_a_delay_is_a_number(bench)


def test_a_delay_that_is_believed_is_noticed(bench: Bench) -> None:
    with planted(BY_TESTS["delay-of-no-number"]), pytest.raises(AssertionError, match="13"):
        check_a_delay_is_a_number(bench)


def test_a_level_is_what_java_reads() -> None:
    assert [level_of(text) for text in (b"3", b"+3", b"03", b"", b"+", b"++3", b"-3", b"3 ")] == [
        3, 3, 3, 0, 0, 0, 0, 0,
    ]  # fmt: skip
