"""Messages by key: what a store answers as leader, follower, after starts, with damage and cuts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.errors import DamagedEntry
from ledgermq.remoting.protocol.message import decode_record
from store.config import IndexConfig
from store.layout import FLAG_NOT_INDEXED
from tests.unit.store.fakes import World, batch_of, message
from tests.unit.store.index import support

ALWAYS = (0, 1 << 62)
INDEX = IndexConfig(slots=16, entries=10)


def world(disk=None, node=None):
    return World(disk, node, index=INDEX)


def leading():
    made = world().begin()
    made.node.lead()
    made.turns()
    return made


def put(made, number, keys="", topic="t", **fields):
    unique = f"{number:028X}{number:04X}"
    made.put(topic=topic, properties=support.properties(unique, keys), **fields)
    made.clock.now += 250


def bodies(made, key, topic="t", limit=64, span=ALWAYS):
    result = made.store.reader.messages_of_key(topic, key, limit, span)
    return [decode_record(record).body.decode() for record in result.records]


def fill(made, count, first=0):
    for number in range(first, count):
        put(made, number, f"k{number % 3} all", body=b"m%d" % number)
    made.node.commit()
    made.turns()


def expected(count, key, first=0):
    numbers = [n for n in range(first, count) if key in (f"k{n % 3}", "all")]
    return [f"m{n}" for n in numbers]


def test_messages_are_found_by_each_of_their_keys_oldest_first():
    made = leading()
    fill(made, 20)
    assert bodies(made, "k1") == expected(20, "k1")
    assert bodies(made, "all") == expected(20, "all")
    assert bodies(made, f"{7:028X}{7:04X}") == ["m7"]
    assert bodies(made, "all", limit=3) == ["m17", "m18", "m19"]
    assert bodies(made, "missing") == bodies(made, "all", topic="u") == []
    assert bodies(made, "") == bodies(made, "all", limit=0) == bodies(made, "all", limit=-1) == []


def test_a_key_that_no_message_can_have_is_not_looked_for(monkeypatch):
    made = leading()
    fill(made, 1)
    monkeypatch.setattr("store.read.key_query.search", None)  # not even hashed
    assert bodies(made, "k" * 32_768) == bodies(made, "k", topic="t" * 32_768) == []


def test_the_answer_says_how_far_the_index_reaches():
    made = leading()
    fill(made, 3)
    result = made.store.reader.messages_of_key("t", "all", 64, ALWAYS)
    newest = decode_record(result.records[-1])
    assert (result.last_timestamp, result.last_physical) == (
        newest.store_timestamp, newest.physical_offset,
    )  # fmt: skip
    nothing = made.store.reader.messages_of_key("t", "missing", 64, ALWAYS)
    assert (nothing.last_timestamp, nothing.last_physical) == (0, 0)


def test_only_what_is_committed_is_found():
    made = leading()
    put(made, 0, "k")
    assert bodies(made, "k") == []
    made.node.commit()
    assert bodies(made, "k") == ["hello"]


def test_another_key_with_the_same_hash_is_not_found():
    made = leading()
    put(made, 0, "Aa", body=b"mine")
    put(made, 1, "BB", body=b"other")
    made.node.commit()
    assert bodies(made, "Aa") == ["mine"]
    assert bodies(made, "BB") == ["other"]


def test_messages_before_many_of_another_key_are_found_by_a_later_round():
    made = World(index=IndexConfig(slots=16, entries=1000, offsets_max=4)).begin()
    made.node.lead()
    put(made, 0, "Aa", body=b"mine")
    made.clock.now += 10_000
    for number in range(1, 8):
        put(made, number, "BB")
        made.clock.now += 1000
    made.clock.now += 10_000
    made.node.commit()
    made.turns()
    assert bodies(made, "Aa") == ["mine"]


def test_messages_of_another_key_in_the_same_millisecond_hide_none():
    # RocketMQ looks at no more messages than are wanted, and at the same ones in each round.
    made = World(index=IndexConfig(slots=16, entries=1000, offsets_max=4)).begin()
    made.node.lead()
    put(made, 0, "Aa", body=b"a0")
    put(made, 1, "Aa", body=b"a1")
    for number in range(2, 9):
        made.clock.now -= 250
        put(made, number, "BB")
    made.node.commit()
    made.turns()
    assert bodies(made, "Aa", limit=1) == ["a1"]
    put(made, 9, "Aa", body=b"a9")
    put(made, 10, "BB", body=b"b10")
    made.node.commit()
    made.turns()
    assert bodies(made, "Aa", limit=1) == ["a9"]
    assert bodies(made, "BB", limit=1) == ["b10"]


def test_prepared_messages_are_found_rolled_back_and_state_records_are_not():
    made = leading()
    put(made, 0, "p", sys_flag=4, body=b"half")
    put(made, 1, "r", sys_flag=12, body=b"gone")
    made.store.writer.propose_state("k", b"x", lambda _status: None)
    made.node.commit()
    made.turns()
    assert FLAG_NOT_INDEXED == 4
    assert bodies(made, "p") == ["half"]
    assert bodies(made, "r") == []
    assert made.store._index.index.files[0].count == 3


def test_a_batch_is_found_message_by_message():
    made = leading()
    batch = [message(properties=support.properties(f"U{n}", "k"), body=b"b%d" % n) for n in (1, 2)]
    made.store.writer.put_batch(batch_of(batch), lambda *_: None)
    made.node.commit()
    assert bodies(made, "k") == ["b1", "b2"]
    assert bodies(made, "U2") == ["b2"]


def test_a_follower_indexes_what_it_reads_back():
    made = leading()
    fill(made, 20)
    follower = world(node=made.node).begin()
    assert bodies(follower, "k1") == expected(20, "k1")


@given(st.integers(1, 25), st.integers(0, 25), st.booleans(), st.booleans())
def test_after_any_start_every_key_is_found_and_nothing_twice(before, more, flushes, removes):
    made = leading()
    fill(made, before)
    if flushes:
        assert made.store.checkpoints.write_now()
    fill(made, before + more, before)
    made.store.tick()
    disk = made.disk
    if removes:
        disk.files.pop("/s/index.checkpoint", None)
    again = world(disk, made.node).begin()
    for key in ("k0", "k1", "all"):
        assert bodies(again, key) == expected(before + more, key)
    assert again.store._index.index.files[-1].count <= 10
    total = sum(file.count - 1 for file in again.store._index.index.files)
    assert total == 3 * (before + more)


@given(st.integers(1, 20), st.integers(0, 20))
def test_what_the_log_lost_is_not_found(count, lost):
    made = leading()
    fill(made, count)
    assert made.store.checkpoints.write_now()
    fill(made, count + lost, count)
    assert made.store.checkpoints.write_now()
    made.node.truncate(len(made.node.entries) - lost)
    made.node.commit_index = made.node.end_index
    again = world(made.disk, made.node).begin()
    assert bodies(again, "all") == expected(count, "all")
    made.node.lead()
    again.turns()
    fill(again, count + 5, count)
    assert bodies(again, "all") == expected(count + 5, "all")


def test_a_damaged_message_is_refused_unless_there_are_others():
    made = leading()
    put(made, 0, "k one", body=b"first")
    put(made, 1, "k", body=b"second")
    made.node.commit()
    made.node.corrupt(1)
    assert bodies(made, "k") == ["second"]
    with pytest.raises(DamagedEntry):
        bodies(made, "one")
    made.node.corrupt(1)
    assert bodies(made, "one") == ["first"]


def test_a_large_answer_has_the_newest(monkeypatch):
    made = leading()
    fill(made, 9)
    size = len(made.store.reader.messages_of_key("t", "all", 1, ALWAYS).records[0])
    monkeypatch.setattr("store.read.key_query.ANSWER_BYTES_MAX", 3 * size)
    assert bodies(made, "all") == ["m6", "m7", "m8"]
    monkeypatch.setattr("store.read.key_query.ANSWER_BYTES_MAX", 1)
    assert bodies(made, "all") == ["m8"]


def test_without_an_index_nothing_is_found_and_nothing_written():
    made = World().begin()
    made.node.lead()
    put(made, 0, "k")
    made.node.commit()
    assert bodies(made, "k") == []
    assert made.store.checkpoints.write_now()
    assert not [path for path in made.disk.files if "index" in path]
    assert made.store.checkpoints.index_timestamp == 0


def test_with_the_disk_full_messages_are_taken_and_found_later():
    made = leading()
    fill(made, 3)
    made.disk.writes_left = 0
    made.store.tick()
    fill(made, 9, 3)
    assert bodies(made, "all") == expected(9, "all")
    made.disk.writes_left = None
    made.store.tick()
    assert made.store.checkpoints.write_now()
    again = world(made.disk, made.node).begin()
    assert bodies(again, "all") == expected(9, "all")


def test_dispatch_waits_when_too_many_entries_wait(monkeypatch):
    monkeypatch.setattr("store.index.key_index.UNWRITTEN_BYTES_MAX", 60)
    made = leading()
    made.disk.writes_left = 0
    fill(made, 1)
    fill(made, 4, 1)
    assert made.soon == []
    assert made.applied_index < made.node.end_index
    made.disk.writes_left = None
    made.store.tick()
    made.turns()
    assert made.applied_index == made.node.end_index
    assert bodies(made, "all") == expected(4, "all")


@given(
    st.lists(
        st.tuples(st.sampled_from(["flip", "cut", "garbage"]), st.integers(0, 10**6)),
        min_size=1,
        max_size=6,
    ),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_whatever_happens_to_index_files_no_wrong_message_is_found(damages, in_use, random):
    made = leading()
    fill(made, 20)
    assert made.store.checkpoints.write_now()
    disk, node = made.disk, made.node
    paths = sorted(path for path in disk.files if "/index" in path)
    assert len(paths) > 5
    for kind, place in damages:
        data = disk.files[paths[place % len(paths)]]
        at = place // len(paths) % max(1, len(data))
        if kind == "flip":
            data[at : at + 1] = bytes([random.randrange(256)])
        elif kind == "cut" and not in_use:
            del data[at:]
        else:
            data[at:] = random.randbytes(len(data) - at)
    if not in_use:
        made = world(disk, node).begin()
        node.lead()
        made.turns()
    for key in ("k0", "k1", "all", f"{3:028X}{3:04X}"):
        right = expected(20, key) or ["m3"]
        found = bodies(made, key)
        assert [body for body in right if body in found] == found, "no other, none twice, in order"
    fill(made, 25, 20)
    assert bodies(made, "all")[-5:] == [f"m{n}" for n in range(20, 25)]
    assert not made.fatal
