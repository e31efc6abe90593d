"""Codecs: what is encoded decodes to the same, and any other bytes are refused."""

import struct
from zlib import crc32

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.codec import peer, properties
from dledger.codec.configuration import (
    decode_membership,
    encode_configuration,
    encode_configuration_span,
    encode_membership,
)
from dledger.codec.entry import (
    HEADER,
    HEADER_BYTES,
    count_sound,
    decode_header,
    encode_entry,
    encode_span,
    index_units,
    sound_size,
)
from dledger.codec.index import UNIT
from dledger.core import messages
from dledger.core.configuration import ConfigEntry, Configuration
from dledger.core.messages import Append, AppendReject, AppendReply, Heartbeat, HeartbeatReply
from dledger.core.model import HardState
from dledger.errors import CorruptEntry
from ledgermq.remoting.protocol.frame import Frame, FrameDecoder
from ledgermq.remoting.protocol.message import MessageExt, encode_record
from mutants.patches import BY_TESTS
from mutants.planting import planted

BODIES = st.lists(st.binary(max_size=40), min_size=1, max_size=6)
INT64 = st.integers(0, 2**62)
SENDER = peer.PeerCodec("group", "n0", ("n1", "n2"))
RECEIVER = peer.PeerCodec("group", "n1", ("n0", "n2"))


def test_entry_has_dledgers_bytes():
    entry = encode_entry(7, 3, 4096, b"body")
    assert entry.hex(" ", 4) == (
        "00000001 00000034 00000000 00000007 00000000 00000003 00000000 00001000"
        " 00000000 00000000 d3e2b71a 00000004 626f6479"
    ).replace("d3e2b71a", f"{decode_header(entry).body_crc:08x}")
    assert len(entry) == HEADER_BYTES + 4


def test_index_unit_has_dledgers_bytes():
    span = encode_span(7, 3, 4096, [b"body"])
    assert span.units.hex(" ", 4) == (
        "00000001 00000000 00001000 00000034 00000000 00000007 00000000 00000003"
    )


@given(bodies=BODIES, index=INT64, term=INT64, position=INT64)
def test_units_are_rebuilt_from_the_entries(bodies, index, term, position):
    span = encode_span(index, term, position, bodies)
    assert index_units(span.data, index, span.last_index, term) == span.units
    assert span.end_position == position + sum(48 + len(body) for body in bodies)


@given(bodies=BODIES, cut=st.integers(0, 10))
def test_span_is_cut_at_an_entry(bodies, cut):
    span = encode_span(5, 1, 100, bodies)
    index = 5 + cut % len(bodies)
    tail = span.from_index(index)
    assert tail.units == index_units(tail.data, index, span.last_index, 1)
    if index > 5:
        head = span.before_index(index)
        assert head.data + tail.data == span.data
        assert head.end_position == tail.position
    assert span.before_index(99) is span


@given(bodies=BODIES, offset=st.integers(0, 300), flip=st.integers(1, 255))
def test_flipped_header_is_refused(bodies, offset, flip):
    span = encode_span(5, 1, 1 << 20, bodies)
    data = bytearray(span.data)
    starts = [UNIT.unpack_from(span.units, i * 32)[1] - span.position for i in range(len(bodies))]
    where = starts[offset % len(starts)] + offset % 40  # everything but the body CRC and length
    data[where] ^= flip
    if where in range(24, 32):
        return  # the first position is what the others are measured by
    if (offset % 40, flip) == (35, 1):
        return  # marks a configuration, see below
    with pytest.raises(CorruptEntry):
        index_units(bytes(data), 5, span.last_index, 1)


@given(st.binary(max_size=200))
def test_any_bytes_are_no_entries(data):
    with pytest.raises(CorruptEntry):
        index_units(data, 0, 0, 1)


MESSAGES = st.one_of(
    st.builds(messages.PreVoteRequest, st.just("n0"), st.just("n1"), INT64, INT64, INT64),
    st.builds(messages.PreVoteReply, st.just("n0"), st.just("n1"), INT64, st.booleans()),
    st.builds(
        messages.VoteRequest, st.just("n0"), st.just("n1"), INT64, INT64, INT64, st.booleans()
    ),
    st.builds(messages.TimeoutNow, st.just("n0"), st.just("n1"), INT64, INT64),
    st.builds(messages.VoteReply, st.just("n0"), st.just("n1"), INT64, st.booleans()),
    st.builds(AppendReply, st.just("n0"), st.just("n1"), INT64, INT64),
    st.builds(AppendReject, st.just("n0"), st.just("n1"), INT64, INT64, INT64, INT64, INT64),
    st.builds(Heartbeat, st.just("n0"), st.just("n1"), INT64, INT64, INT64),
    st.builds(HeartbeatReply, st.just("n0"), st.just("n1"), INT64, INT64),
    st.builds(messages.FetchEntries, st.just("n0"), st.just("n1"), INT64, INT64, INT64),
)


def through_the_wire(message):
    frames = FrameDecoder().feed(b"".join(SENDER.encode(message)))
    assert len(frames) == 1
    return RECEIVER.decode(frames[0])


@given(MESSAGES)
def test_message_survives_the_wire(message):
    assert through_the_wire(message) == message
    assert messages.describe_message(message)


@given(bodies=BODIES, index=st.integers(-1, 2**40), term=st.integers(1, 2**40), commit=INT64)
def test_append_survives_the_wire(bodies, index, term, commit):
    span = encode_span(index + 1, term, 4096, bodies)
    for sent in (span, None):
        message = Append("n0", "n1", term + 1, index, term - 1, commit, sent)
        found = through_the_wire(message)
        assert found == message


@given(data=st.binary(min_size=1, max_size=300), values=st.tuples(INT64, INT64))
def test_fetched_snapshot_survives_the_wire(data, values):
    wanted = messages.SnapshotId(*values, size=len(data) + 7, crc=5)
    message = messages.FetchedSnapshot("n0", "n1", 3, wanted, 7, data)
    assert through_the_wire(message) == message
    message = messages.FetchSnapshot("n0", "n1", 3, *values)
    assert through_the_wire(message) == message


@given(bodies=BODIES, index=st.integers(0, 2**40), term=st.integers(1, 2**40))
def test_fetched_entries_survive_the_wire(bodies, index, term):
    span = encode_span(index, term, 4096, bodies)
    for sent in (span, None):
        message = messages.FetchedEntries("n0", "n1", term + 1, index, sent)
        assert through_the_wire(message) == message


@given(
    message=MESSAGES | st.just(Append("n0", "n1", 2, 4, 1, 3, encode_span(5, 2, 99, [b"a", b"b"]))),
    offset=st.integers(0, 300),
    flip=st.integers(1, 255),
)
def test_flipped_message_is_refused(message, offset, flip):
    frame = FrameDecoder().feed(b"".join(SENDER.encode(message)))[0]
    body = bytearray(frame.body)
    where = offset % len(body)
    body[where] ^= flip
    if where in (2, 3):
        return  # reserved
    with pytest.raises((CorruptEntry, peer.Misaddressed)):
        RECEIVER.decode(Frame(1, frame.header, bytes(body)))


FREQUENT = {
    Heartbeat("n0", "n1", 5, 7, 9): (31008, ">qqq", (5, 7, 9)),
    HeartbeatReply("n0", "n1", 5, 9): (31009, ">qq", (5, 9)),
    AppendReply("n0", "n1", 5, 7): (31006, ">qq", (5, 7)),
}
HEADERS = [SENDER.encode(message)[0][8:29] for message in FREQUENT]


@pytest.mark.parametrize("message", FREQUENT)
def test_a_frequent_message_has_the_bytes_of_every_other(message):
    code, fields, values = FREQUENT[message]
    body = struct.pack(fields, *values) + b"\x05group\x02n0\x02n1"
    header = struct.pack(">hBhiiii", code, 3, 1, 0, 2, 0, 0)
    rest = header + struct.pack(">BBHI", 1, 12, 0, crc32(body)) + body
    frame = struct.pack(">iI", 4 + len(rest), 1 << 24 | len(header)) + rest
    assert SENDER.encode(message) == (frame,)


@given(st.binary(max_size=100), st.sampled_from(HEADERS))
def test_any_bytes_are_no_frequent_message_either(body, header):
    with pytest.raises(CorruptEntry):
        RECEIVER.decode(Frame(1, header, body))


@given(st.binary(max_size=100), st.sampled_from(sorted(peer.CODES.values())))
def test_any_bytes_are_no_message(body, code):
    with pytest.raises(CorruptEntry):
        RECEIVER.decode(Frame(1, code.to_bytes(2, "big"), body))


def test_message_of_another_group_or_for_another_node_is_misaddressed():
    message = AppendReply("n0", "n1", 1, 1)
    for stranger in (
        peer.PeerCodec("other", "n0", ("n1",)),
        peer.PeerCodec("", "n0", ("n1",)),
    ):
        frame = FrameDecoder().feed(b"".join(stranger.encode(message)))[0]
        with pytest.raises(peer.Misaddressed):
            RECEIVER.decode(frame)
    frame = FrameDecoder().feed(b"".join(SENDER.encode(message)))[0]
    with pytest.raises(peer.Misaddressed):
        peer.PeerCodec("group", "n2", ("n0", "n1")).decode(frame)


def named(message, name):
    """Return the frame of a message whose sender calls itself so."""
    codec = peer.PeerCodec("group", "n9")
    parts = (b"group", name, message.receiver.encode())
    codec._names_out[message.receiver] = b"".join(bytes((len(part),)) + part for part in parts)
    return FrameDecoder().feed(b"".join(codec.encode(message)))[0]


@pytest.mark.parametrize("name", [b"\xff" * 200, b"n0\nfresh=true", b"n 0", b"n", b"", b"n" * 65])
def test_who_calls_itself_what_no_member_can_be_called_is_not_heard(name):
    for message in (AppendReply("n0", "n1", 1, 1), messages.VoteRequest("n0", "n1", 1, 1, 1)):
        with pytest.raises(CorruptEntry, match="no member's id"):
            RECEIVER.decode(named(message, name))
        assert RECEIVER.decode(named(message, b"n7")).sender == "n7"


def test_without_that_whoever_is_heard_is_called_what_he_likes():
    message = AppendReply("n0", "n1", 1, 1)
    with planted(BY_TESTS["sender-of-any-form"]):
        receiver = peer.PeerCodec("group", "n1")
        assert receiver.decode(named(message, b"n0\nfresh=true")).sender == "n0\nfresh=true"


def test_names_of_a_group_are_bounded():
    with pytest.raises(ValueError, match="too long"):
        peer.PeerCodec("g" * 250, "n0", ("n1",))


def test_server_that_is_no_member_is_understood():
    """It may be one that this node does not know of yet (dissertation 4.1)."""
    message = AppendReply("n9", "n1", 1, 1)
    stranger = peer.PeerCodec("group", "n9")
    frame = FrameDecoder().feed(b"".join(stranger.encode(message)))[0]
    assert RECEIVER.decode(frame) == message


def test_hello_tells_where_its_sender_is_found():
    hello = peer.PeerCodec("group", "n9").encode_hello("n1", "10.0.0.9:40911")
    frame = FrameDecoder().feed(hello)[0]
    assert RECEIVER.decode(frame) == peer.Hello("n9", "10.0.0.9:40911")
    damaged = Frame(frame.serialize_type, frame.header, frame.body[:-1] + b"2")
    with pytest.raises(CorruptEntry):
        RECEIVER.decode(damaged)


CONFIGURATION = Configuration({"n0": "a:1", "n1": "b:2"}, {"n3": "c:3"}, 4)


def state_record(payload):
    return encode_record(
        MessageExt(
            "rmq_sys_LEDGER_STATE", 0, 0, 4, 0, 48, 1, bytes(8), 1, bytes(8), 0, 0,
            payload, b"KIND\x01raft_config\x02",
        )
    )  # fmt: skip


@pytest.mark.parametrize("wrap", [bytes, state_record])
def test_configuration_is_read_from_the_entry_that_holds_it(wrap):
    body = wrap(encode_configuration(CONFIGURATION))
    span = encode_configuration_span(7, 2, 96, body, CONFIGURATION)
    message = Append("n0", "n1", 2, 6, 1, 5, span)
    frame = FrameDecoder().feed(b"".join(SENDER.encode(message)))[0]
    found = RECEIVER.decode(frame)
    assert found.span.configs == ((7, CONFIGURATION),)
    assert found == message
    assert decode_header(span.data).channel == 1


@pytest.mark.parametrize("body", [b"{}", b"", b"no record at all" * 9])
def test_entry_marked_as_a_configuration_that_holds_none_is_refused(body):
    span = encode_configuration_span(7, 2, 96, body, CONFIGURATION)
    frame = FrameDecoder().feed(b"".join(SENDER.encode(Append("n0", "n1", 2, 6, 1, 5, span))))[0]
    with pytest.raises(CorruptEntry):
        RECEIVER.decode(frame)


def test_membership_file_keeps_index_term_and_addresses():
    entries = (ConfigEntry(3, 1, CONFIGURATION), ConfigEntry(9, 2, Configuration({"n0": "a:1"})))
    assert decode_membership(encode_membership(entries)) == entries


def test_fresh_stands_in_currterm_only_while_it_is_so():
    fresh = properties.encode_hard_state(HardState(4, None, fresh=True))
    assert properties.decode_hard_state(fresh) == HardState(4, None, fresh=True)
    assert b"fresh" not in properties.encode_hard_state(HardState(4, "n0"))


def test_entries_of_a_term_above_the_leaders_are_refused():
    span = encode_span(0, 9, 0, [b"x"])
    frame = FrameDecoder().feed(b"".join(SENDER.encode(Append("n0", "n1", 8, -1, 0, -1, span))))[0]
    with pytest.raises(CorruptEntry):
        RECEIVER.decode(frame)


def test_hard_state_has_dledgers_text():
    assert properties.encode_hard_state(HardState(2, "n0")) == b"voteLeader=n0\ncurrTerm=2\n"
    assert properties.decode_hard_state(b"voteLeader=\ncurrTerm=2\n") == HardState(2, None)
    assert properties.decode_hard_state(b"#x\ncurrTerm=3\n") == HardState(3, None)


def test_checkpoint_has_dledgers_text():
    text = b"committedIndex=16\nendIndex=17\n"
    assert properties.decode_checkpoint(text) == properties.Checkpoint(17, 16)
    assert properties.encode_checkpoint(properties.Checkpoint(17, 16)) == text


def test_identity_is_read_back():
    for adopted in (False, True):
        identity = properties.Identity("g", "n0", "abc", adopted)
        assert properties.decode_identity(properties.encode_identity(identity)) == identity


@pytest.mark.parametrize("data", [b"", b"currTerm=x\n", b"currTerm=-1\n", b"\xff\xfe"])
def test_damaged_properties_are_refused(data):
    with pytest.raises(ValueError):  # noqa: PT011  # the file's reader says which file
        properties.decode_hard_state(data)


@pytest.mark.parametrize(
    "values", [(5, 7), ("5_1", 3), ("+5", 3), ("\u0665", 3), (5, -2), ("9" * 20, 3)]
)
def test_a_checkpoint_that_none_of_us_wrote_is_refused(values):
    text = "endIndex={}\ncommittedIndex={}\n".format(*values)
    with pytest.raises(ValueError):  # noqa: PT011  # the file's reader says which file
        properties.decode_checkpoint(text.encode())


@pytest.mark.parametrize("store_id", ["", "x", "a_b", "0" * 17])
def test_an_identity_without_a_number_is_refused(store_id):
    with pytest.raises(ValueError):  # noqa: PT011  # the file's reader says which file
        properties.decode_identity(f"group=g\nselfId=n0\nstoreId={store_id}\n".encode())


def test_header_is_48_bytes():
    assert HEADER.size == HEADER_BYTES == 48


def test_kind_of_message_from_a_later_version_is_dropped_and_ends_no_connection():
    message = AppendReply("n0", "n1", 1, 1)
    frame = FrameDecoder().feed(b"".join(SENDER.encode(message)))[0]
    unknown = peer.CODES_OF_PEERS[-1].to_bytes(2, "big") + frame.header[2:]
    with pytest.raises(peer.Misaddressed, match="31999"):
        RECEIVER.decode(Frame(1, unknown, frame.body))
    with pytest.raises(CorruptEntry):
        RECEIVER.decode(Frame(1, b"\x00\x0a" + frame.header[2:], frame.body))


@pytest.mark.parametrize("at", range(HEADER_BYTES))
@pytest.mark.parametrize("bit", [1, 2, 16])
def test_a_flipped_bit_anywhere_in_a_header_is_damage_before_the_entry_is_sent(at, bit):
    """The header has no CRC, and a receiver refuses what is wrong in fields that nobody uses."""
    span = encode_span(4, 2, 96, (b"one", b"two"))
    second = HEADER_BYTES + len(b"one")
    data = bytearray(span.data)
    data[second + at] ^= bit
    damaged = msgspec.structs.replace(span, data=bytes(data))
    assert count_sound(span) == 2
    assert count_sound(damaged) == 1
    assert sound_size(memoryview(span.data)[second:], 0, 5, 96 + second) == HEADER_BYTES + 3
    if not 16 <= at < 24:  # the term, which the index has, too
        assert sound_size(memoryview(data)[second:], 0, 5, 96 + second) == 0
