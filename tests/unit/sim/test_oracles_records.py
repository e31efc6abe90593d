"""What a record says is read from its bytes, and what brokers make of it compared with that."""

from types import SimpleNamespace

import pytest

from broker.pulls.tags import tag_codes
from chaos.history.segment import EntryRow
from ledgermq.remoting.protocol.message import MessageExt, encode_record
from sim.oracles.applied import check_keys
from sim.oracles.base import Violation
from sim.oracles.records import properties_of, stored_ms, tags_code, tags_of
from sim.oracles.truth import Truth, voters_in

HEADER = bytes(48)


def entry(properties, *, topic="orders", stored=1_234, ipv6=False, body=b"body"):
    host = bytes(20 if ipv6 else 8)
    message = MessageExt(
        topic, 0, 0, 0x30 if ipv6 else 0, 0, 48, 0, host, stored, host, 0, 0, body, properties
    )
    return HEADER + encode_record(message)


def test_numbers_that_look_like_text_do_not_hide_who_the_members_are():
    data = entry(b"", body=b'{"voters":{"n1":"b:1","n0":"a:1"},"learners":{}}')
    assert voters_in(data) == ("n0", "n1")
    assert voters_in(data[:36] + b'{"\x90\x12' + data[40:]) == ("n0", "n1")
    assert voters_in(entry(b"", body=b'{"learners')) is None


def test_store_time_and_properties_are_read_from_the_record():
    data = entry(b"KEYS\x0142\x02TAGS\x01red\x02")
    assert stored_ms(data) == 1_234
    assert properties_of(data) == {"KEYS": "42", "TAGS": "red"}
    assert tags_of(data) == "red"
    assert properties_of(entry(b"")) == {}
    assert tags_of(entry(b"")) == ""


@pytest.mark.parametrize(
    "data", [HEADER, entry(b"KEYS\x0142\x02", ipv6=True), entry(b"KEYS\x0142\x02", topic="t" * 200)]
)
def test_what_is_laid_out_in_another_way_is_left_alone(data):
    assert properties_of(data) == {}


@pytest.mark.parametrize("tag", ["red", "blue", "a longer one, of which the sum runs over"])
def test_tags_code_is_that_of_java(tag):
    assert {tags_code(tag)} == tag_codes(tag)


def test_no_tags_have_the_code_0():
    assert tags_code("") == 0


def asked(*, found, applied=0, committed=0, is_corrupt=False, indexed=True):
    """A replica that finds such places (queue, offset) for every key."""
    truth = Truth(("n0",))
    row = EntryRow(0, 1, 0, 0, 100, True, "message", "orders", 3, 0, 42)
    truth.queues["orders", 3] = [row]
    records = [bytes(12) + queue.to_bytes(4) + bytes(4) + at.to_bytes(8) for queue, at in found]
    store = SimpleNamespace(
        _index=object() if indexed else None,
        _queues=SimpleNamespace(by_name={("orders", 3): SimpleNamespace(min_offset=0)}),
        reader=SimpleNamespace(messages_of_key=lambda *_: SimpleNamespace(records=records)),
    )
    node = SimpleNamespace(commit_index=committed)
    controller = SimpleNamespace(store=store, node=node)
    return truth, SimpleNamespace(
        name="n0", base=0, controller=controller, is_corrupt=is_corrupt, applied_index=applied,
        mark=lambda _index: None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("found", "others"),
    [
        ([(3, 0)], {}),
        ([(1, 0), (3, 0)], {}),
        ([], {"applied": -1}),
        ([], {"committed": -1}),
        ([], {"is_corrupt": True}),
        ([], {"indexed": False}),
    ],
)
def test_what_is_in_the_log_is_found_by_its_key(found, others):
    check_keys(*asked(found=found, **others))


@pytest.mark.parametrize("found", [[], [(1, 0)], [(3, 1)]])
def test_a_message_that_is_not_found_by_its_key_is_a_violation(found):
    with pytest.raises(Violation, match="A39 key index: n0: orders/3@0 of entry 0"):
        check_keys(*asked(found=found))
