"""Frames out of any split of a stream."""

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.remoting.protocol.errors import LocalProtocolError, RemoteProtocolError
from ledgermq.remoting.protocol.frame import (
    MAX_FRAME_BYTES,
    RECEIVE_BYTES_MIN,
    RECEIVE_BYTES_USUAL,
    Frame,
    FrameDecoder,
    encode_frame,
)
from mutants.patches import BY_TESTS
from mutants.planting import planted

frames = st.builds(
    Frame, st.integers(0, 1), st.binary(max_size=60), st.one_of(st.just(b""), st.binary())
)


def packed(frame: Frame) -> bytes:
    return encode_frame(frame.serialize_type, frame.header, len(frame.body)) + frame.body


def feed_in_pieces(stream: bytes, cuts: list[int]) -> tuple[list[Frame], bool]:
    """Return the frames and whether the stream was refused."""
    decoder, found = FrameDecoder(), []
    places = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    try:
        for start, end in itertools.pairwise(places):
            found += decoder.feed(stream[start:end])
        decoder.feed(b"")
    except RemoteProtocolError:
        return found, True
    return found, decoder.error is not None


@given(st.lists(frames, max_size=8))
def test_decode_of_encode_is_the_same(sent):
    assert FrameDecoder().feed(b"".join(map(packed, sent))) == sent


@given(st.lists(frames, max_size=5), st.lists(st.integers(0, 10_000), max_size=6), st.binary())
def test_whole_split_and_byte_wise_feeds_agree(sent, cuts, tail):
    stream = b"".join(map(packed, sent)) + tail
    whole = feed_in_pieces(stream, [])
    assert feed_in_pieces(stream, cuts) == whole
    assert feed_in_pieces(stream, list(range(len(stream)))) == whole


@given(st.binary(max_size=300))
def test_any_bytes_give_frames_or_a_remote_protocol_error(data):
    found, refused = feed_in_pieces(data, [])
    assert refused or sum(len(packed(frame)) for frame in found) <= len(data)


def test_good_frames_before_garbage_are_delivered_then_the_error_is_raised():
    good = Frame(0, b"{}", b"body")
    decoder = FrameDecoder()
    assert decoder.feed(packed(good) + b"GET / HTTP/1.1\r\n") == [good]
    assert decoder.error is not None
    with pytest.raises(RemoteProtocolError):
        decoder.feed(b"")
    with pytest.raises(RemoteProtocolError):
        decoder.received(0)


def test_good_frames_before_garbage_are_delivered_however_far_apart_they_are():
    good = Frame(0, b"{}", bytes(RECEIVE_BYTES_MIN - 10))
    for count in (1, 100):
        stream = packed(good) * count
        assert FrameDecoder().feed(stream + b"\xff" * 50_000) == [good] * count


@pytest.mark.parametrize(
    "prefix",
    [
        pytest.param(struct.pack(">i", -1), id="negative total"),
        pytest.param(struct.pack(">i", 3), id="total below the header word"),
        pytest.param(struct.pack(">i", MAX_FRAME_BYTES - 3), id="oversize, by its total alone"),
        pytest.param(struct.pack(">iI", 20, 17), id="header longer than the frame"),
        pytest.param(struct.pack(">iI", 20, 2 << 24), id="unknown serialize type"),
    ],
)
def test_a_bad_prefix_is_refused_before_the_rest_arrives(prefix):
    with pytest.raises(RemoteProtocolError):
        FrameDecoder().feed(prefix)


def test_the_largest_frame_passes_and_the_buffer_shrinks_after_it():
    frame = Frame(0, b"h", bytes(MAX_FRAME_BYTES - 9))
    decoder = FrameDecoder()
    assert decoder.feed(packed(frame)) == [frame]
    assert len(decoder.writable()) == RECEIVE_BYTES_USUAL
    with pytest.raises(LocalProtocolError):
        encode_frame(0, b"hh", MAX_FRAME_BYTES - 9)


def test_the_buffer_grows_with_what_arrives_not_with_what_is_claimed():
    decoder = FrameDecoder()
    decoder.feed(struct.pack(">iI", MAX_FRAME_BYTES - 4, 0))
    assert decoder.partial_bytes == 8
    assert len(decoder.writable()) == RECEIVE_BYTES_MIN - 8


def test_full_reads_make_the_buffer_larger_up_to_its_usual_size():
    frame = Frame(0, b"", bytes(RECEIVE_BYTES_MIN - 8))
    decoder = FrameDecoder()
    for _ in range(10):
        room = decoder.writable()
        data = packed(frame) * (len(room) // RECEIVE_BYTES_MIN)
        room[: len(data)] = data
        assert decoder.received(len(data)) == [frame] * (len(data) // len(packed(frame)))
    assert len(decoder.writable()) == RECEIVE_BYTES_USUAL


def test_the_error_that_a_decoder_keeps_holds_nothing_of_its_connection():
    decoder = FrameDecoder()
    for _ in range(2):
        with pytest.raises(RemoteProtocolError):
            decoder.feed(b"GET / HTTP/1.1\r\n")
    assert decoder.error is not None
    assert decoder.error.__traceback__ is None


def frames_of_one_read_behind_a_large_one() -> int:
    large, small = packed(Frame(0, b"{}", bytes(9_000_000))), packed(Frame(0, b"", b""))
    decoder = FrameDecoder()
    assert decoder.feed(large[:-1000]) == []
    assert decoder.buffer_bytes == 16_777_216  # it has room for nearly a million of them
    room, sent = decoder.writable(), large[-1000:] + small * 1_000_000
    room[:] = sent[: len(room)]
    found = decoder.received(len(room))
    assert len(found[0].body) == 9_000_000
    return len(found) - 1


def test_what_a_large_buffer_has_left_is_not_filled_with_small_frames():
    most = RECEIVE_BYTES_USUAL // 8
    assert frames_of_one_read_behind_a_large_one() <= most
    with planted(BY_TESTS["large-buffer-filled-with-small-frames"]):
        assert frames_of_one_read_behind_a_large_one() > 10 * most
