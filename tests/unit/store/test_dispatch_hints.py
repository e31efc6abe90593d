"""What a follower dispatches by a leader's hints is what it would have read back from the log."""

from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.codec.index import UNIT, UNIT_MAGIC
from dledger.config import ENTRY_HEADER_BYTES
from dledger.errors import DamagedEntry
from dledger.storage.recent import HintedSpan
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.config import IndexConfig
from store.dispatch.sample import agrees, claim_about
from store.layout import FLAG_NOT_INDEXED, tags_code
from store.write.hints import ALIKE, is_sound_hint, maybe_decode_hint
from tests.unit.store.fakes import World, batch_of, message

INDEX = IndexConfig(slots=16, entries=10_000)
HEAD_BYTES = 8
KNOWN = [("t", 0), ("t", 1), ("o" * 127, 0)]
QUEUES = st.sampled_from([*KNOWN, *KNOWN, ("new", 0)])
TEXTS = st.tuples(
    st.sampled_from(["", "a", "b"]), st.sampled_from(["", "k", "k l m"]), st.booleans()
)
OPS = st.one_of(
    st.tuples(st.just("put"), QUEUES, TEXTS),
    st.tuples(st.just("put"), QUEUES, TEXTS),
    st.tuples(st.just("batch"), QUEUES, st.lists(TEXTS, min_size=1, max_size=5)),
    st.tuples(st.just("batch"), QUEUES, st.integers(1, 5).map(lambda n: [("a", "k", True)] * n)),
    st.tuples(st.sampled_from(["state", "half", "rollback", "delayed", "delayed batch"])),
    st.tuples(st.just("time"), st.integers(0, 3)),
    st.tuples(st.just("span")),
    st.tuples(st.just("commit"), st.integers(0, 100)),
)


def properties(number, text=("", "", True)):
    tags, keys, is_unique = text
    items = [b"UNIQ_KEY\x01%028X%04X" % (number // 7, number)] if is_unique else []
    items += [b"KEYS\x01" + keys.encode()] if keys else []
    items += [b"TAGS\x01" + tags.encode()] if tags else []
    return b"\x02".join(items)


def note_of(world, first, last):
    """Return what the leader says of entries ``first..last``."""
    node = world.node
    end = node.position_after(last) if last <= node.end_index else node.end_position + 100
    start = node.entries[first][0] if first <= node.end_index else node.end_position
    return world.store.log_user.write_hint(start, end)


class Group:
    """A leader, and followers that are sent its log: one with the hints and one without."""

    def __init__(self, **config):
        self.leader = World(index=INDEX).begin()
        self.leader.node.lead()
        self.hinted = World(**{"index": INDEX, **config}).begin()
        self.plain = World(**{"index": INDEX, **config}).begin()
        self.count = 0
        self.looked_into: list[int] = []
        walk = self.hinted.node.bodies
        self.hinted.node.bodies = lambda *bounds: self._watch(walk(*bounds))
        self.send()
        self.commit()
        self.looked_into.clear()

    def _watch(self, walk):
        for body in walk:
            self.looked_into.append(self.hinted.node.find(body[0]))
            yield body

    def put(self, queue=("t", 0), *texts, **fields):
        """Put messages, a batch if there are several."""
        made = []
        for text in texts or [("", "", True)]:
            self.count += 1
            raw = properties(self.count, text) + fields.get("delay", b"")
            topic, number = queue
            flags = {"sys_flag": fields.get("sys_flag", 0)}
            made.append(
                message(
                    topic=topic, queue_id=number, body=b"%d" % self.count, properties=raw,
                    tags_code=tags_code(raw), **flags,
                )
            )  # fmt: skip
        if len(made) == 1 and not fields.get("batch"):
            self.leader.store.writer.put(made[0], lambda *answer: None)
        else:
            self.leader.store.writer.put_batch(batch_of(made), lambda *answer: None)

    def state(self):
        self.count += 1
        self.leader.store.writer.propose_state("k", b"%d" % self.count, lambda status: None)

    def send(self):
        """Close a span, and let the followers have it."""
        log, first = self.leader.node, self.hinted.node.end_index + 1
        if first > log.end_index:
            return None
        hint = note_of(self.leader, first, log.end_index)
        units = b""
        for index in range(first, log.end_index + 1):
            position, term, body = log.entries[index]
            size = len(body) + ENTRY_HEADER_BYTES
            units += UNIT.pack(UNIT_MAGIC, position, size, index, term)
            for follower in (self.hinted, self.plain):
                follower.node.add(position, term, body)
        if hint:
            assert is_sound_hint(hint, log.end_index + 1 - first)
            hinted = HintedSpan(first, log.end_index, log.term, units, hint)
            self.hinted.node.hints.append(hinted)
        return hint

    def commit(self, percent=100):
        """Commit so much of what the followers have."""
        begin, end = self.leader.node.commit_index, self.hinted.node.end_index
        index = begin + (end - begin) * percent // 100
        for world in (self.leader, self.hinted, self.plain):
            if index > world.node.commit_index:
                world.node.commit(index)
            world.turns()
            assert world.applied_index <= world.node.commit_index

    def run(self, ops):
        for op, *given_values in ops:
            match op:
                case "put":
                    self.put(*given_values)
                case "batch":
                    self.put(given_values[0], *given_values[1], batch=True)
                case "state":
                    self.state()
                case "half" | "rollback":
                    self.put(sys_flag=4 if op == "half" else 12)
                case "delayed" | "delayed batch":
                    queue = ("SCHEDULE_TOPIC_XXXX", 1)
                    self.put(queue, delay=b"\x02DELAY\x012", batch=op != "delayed")
                case "time":
                    self.leader.clock.now += given_values[0]
                case "span":
                    self.send()
                case "commit":
                    self.commit(*given_values)
        self.send()
        self.commit()

    def check(self):
        leader, hinted, plain = self.leader, self.hinted, self.plain
        assert hinted.listener.states == plain.listener.states == leader.listener.states
        assert hinted.store._dispatcher.applied == plain.store._dispatcher.applied
        queues = [
            {name: one.max_offset for name, one in world.store._queues.by_name.items()}
            for world in (leader, hinted, plain)
        ]
        assert queues[0] == queues[1] == queues[2]
        assert hinted.queue_bytes() == plain.queue_bytes() == leader.queue_bytes()
        assert hinted.disk.files == plain.disk.files
        index = [[data for path, data in sorted(one.disk.files.items()) if "/index/" in path]
                 for one in (leader, plain)]  # fmt: skip
        assert index[0] == index[1]


@settings(max_examples=300)
@given(ops=st.lists(OPS, max_size=30), batch=st.sampled_from([1, 3, 512]))
def test_dispatch_by_hints_is_dispatch_of_the_records(ops, batch):
    group = Group(dispatch_batch=batch)
    for queue in KNOWN:  # the first message of a queue is looked into
        group.put(queue)
    group.run([("span",), ("commit", 100), *ops])
    group.check()


def test_messages_are_not_looked_into_state_is():
    group = Group()
    group.put(("t", 0))
    group.put(("orders", 1))
    group.send()
    group.commit()
    assert group.looked_into == [2, 1, 2], "a sample, and queues that are new"
    group.looked_into.clear()
    group.put(("t", 0), ("a", "k", True), ("b", "", False))
    group.state()
    group.put(("orders", 1), ("a", "", True))
    group.put(("t", 0))
    group.send()
    group.commit()
    assert group.looked_into == [6, 5], "a sample, and what is not a message"
    group.check()


def test_spans_cut_by_commit_are_looked_into_to_their_end_and_no_further():
    group = Group()
    group.put()
    group.send()
    group.commit()
    group.looked_into.clear()
    for _ in range(2):
        group.put(("t", 0), *[("", "", True)] * 4)
        group.send()
    group.commit(25)
    assert group.looked_into == [2, 3]
    group.commit()
    assert group.looked_into == [2, 3, 4, 5, 8], "and a sample of the span that is whole"
    group.check()


def test_a_hint_that_does_not_fit_what_is_known_here_is_not_taken():
    group = Group()
    group.put()
    group.send()
    group.commit()
    group.put(("t", 0), *[("", "", True)] * 3)
    group.send()
    node = group.hinted.node
    data = bytearray(node.hints[-1].hint)
    hint = maybe_decode_hint(bytes(data))
    at = HEAD_BYTES + sum(len(topic) + 5 for topic, _ in hint.queues) + 15
    data[at] += 1  # the queue offset
    assert maybe_decode_hint(bytes(data)).runs[0].queue_offset == 2
    node.hints[-1] = node.hints[-1]._replace(hint=bytes(data))
    group.commit()
    assert group.looked_into[-3:] == [2, 3, 4]
    group.check()


@pytest.mark.parametrize(
    ("said", "instead"),
    [
        (b"\x01t\0\0\0\0", b"\x01u\0\0\0\0"),
        (b"\x01t\0\0\0\0", b"\x01t\0\0\0\1"),
        (pack(">q", 97), pack(">q", 98)),
        (None, None),
    ],
    ids=["topic", "queue", "tags code", "key"],
)
def test_a_hint_that_is_wrong_of_the_sample_is_believed_of_no_entry(said, instead, caplog):
    group = wronged(said, instead)
    group.commit()
    assert group.looked_into[1:] == [4, 5, 6]
    assert "event=dispatch_hint_refused start=" in caplog.text
    group.check()
    with planted(BY_TESTS["hint-believed-unseen"]):
        group = wronged(said, instead)
        group.commit()
        assert len(group.looked_into) == 1
        with pytest.raises(AssertionError):
            group.check()


def wronged(said, instead):
    """A group whose follower is about to dispatch three messages by a hint that is wrong."""
    group = Group()
    for queue in [("t", 0), ("u", 0), ("t", 1)]:
        group.put(queue)
    group.send()
    group.commit()
    group.put(("t", 0), *[("a", "", True)] * 3)
    group.send()
    node = group.hinted.node
    hint = node.hints[-1].hint
    wrong = hint.replace(said, instead) if said else hint[:-12] + bytes(12)
    assert wrong != hint
    assert is_sound_hint(wrong, 3)
    node.hints[-1] = node.hints[-1]._replace(hint=wrong)
    group.looked_into.clear()
    return group


def test_what_is_in_no_queue_agrees_with_no_claim_of_a_message():
    group = Group()
    group.put(("t", 0), *[("a", "", True)] * 3)
    hint = maybe_decode_hint(group.send())
    claim = claim_about(hint, 1)
    record = (900, 120, 0, 1, 0, 7, b"t", b"TAGS\x01a", b"", 0)
    assert agrees(hint, claim, record, None)
    half = (*record[:4], FLAG_NOT_INDEXED, *record[5:])
    assert not agrees(hint, claim, half, None)


def test_without_hashes_in_a_hint_an_index_needs_the_records():
    group = Group()
    group.put()
    group.send()
    group.commit()
    group.leader.store._commit_log._keys = None
    group.put(("t", 0), *[("", "k", True)] * 3)
    hint = group.send()
    assert not maybe_decode_hint(hint).has_keys
    group.commit()
    assert group.looked_into[-3:] == [2, 3, 4]
    assert group.hinted.disk.files == group.plain.disk.files
    bare = Group(index=None)
    bare.put(("t", 0), *[("", "k", True)] * 3)
    bare.send()
    bare.commit()
    bare.put(("t", 0), *[("", "k", True)] * 3)
    bare.send()
    bare.looked_into.clear()
    bare.commit()
    assert bare.looked_into == [5], "who has no index needs no hashes, just a sample"
    assert bare.hinted.queue_bytes() == bare.leader.queue_bytes()


def test_damage_in_what_is_looked_into_stops_dispatch_there_until_it_is_repaired():
    group = Group()
    group.put()
    group.send()
    group.commit()
    group.put()
    group.state()
    group.put()
    group.send()
    group.hinted.node.corrupt(3)
    group.commit()
    assert group.hinted.applied_index == 2
    with pytest.raises(DamagedEntry):
        group.hinted.node.body_view(3)
    group.hinted.node.corrupt(3)
    group.hinted.store.tick()
    assert group.hinted.applied_index == 4
    group.check()


def test_what_is_dispatched_is_let_go_of():
    group = Group()
    group.put()
    group.put()
    group.send()
    group.commit()
    group.put()
    group.send()
    group.commit()
    assert group.hinted.node.released == group.leader.node.released == 3, "before the next batch"


def test_there_is_no_hint_before_all_that_was_put_is_known():
    group = Group()
    group.put()
    group.put()
    assert note_of(group.leader, 1, 2)
    assert note_of(group.leader, 1, 3) == b"", "an entry that is being put"
    assert note_of(group.leader, 5, 6) == b""
    group.put(("t", 0), *[("", "", True)] * 3)
    assert note_of(group.leader, 4, 5) == b"", "a batch that was cut in two"


@given(ops=st.lists(OPS, min_size=1, max_size=8), data=st.data())
def test_any_bytes_are_a_hint_of_their_entries_or_refused(ops, data):
    group = Group()
    group.run([op for op in ops if op[0] not in ("span", "commit")])
    if not group.hinted.node.hints:
        return
    hinted = group.hinted.node.hints[-1]
    entries = hinted.last_index + 1 - hinted.first_index
    assert not is_sound_hint(hinted.hint, entries + 1)
    assert not is_sound_hint(hinted.hint, entries - 1)
    cut = data.draw(st.integers(0, len(hinted.hint) - 1))
    assert maybe_decode_hint(hinted.hint[:cut]) is None
    assert maybe_decode_hint(hinted.hint + b"\0") is None
    spoilt = bytearray(hinted.hint)
    spoilt[data.draw(st.integers(0, len(spoilt) - 1))] ^= data.draw(st.integers(1, 255))
    hint = maybe_decode_hint(bytes(spoilt))
    if hint is not None:
        for run in hint.runs:
            assert run.entries > 0
            named = (*run.queues, run.queue) if run.kind == ALIKE else run.queues
            assert all(number < len(hint.queues) for number in named)
            assert run.counts is None or len(run.hashes) == sum(run.counts)


@given(st.binary(max_size=100))
def test_no_bytes_are_read_as_a_hint_without_entries(data):
    assert not is_sound_hint(data, 0)


def test_a_turn_looks_into_a_bounded_number_of_entries_of_a_span():
    group = Group(dispatch_batch=3)
    for _ in range(10):
        group.state()
    group.send()
    group.hinted.node.commit(group.hinted.node.end_index)
    assert group.looked_into == [1, 2, 3]
    assert group.hinted.turns() == 3
    assert group.looked_into == list(range(1, 11))
    group.commit()
    group.check()
