"""Frames of the proxy: any split of the stream gives the same bytes in the same frames."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.generator import Stream
from chaos.net.rules import Counters, Rule, apply_rule
from chaos.net.wire import (
    FrameSplitter,
    decode_answer,
    encode_request,
    flip_last_byte,
    frame_code,
)


def binary_frame(code: int, body: bytes) -> bytes:
    header = struct.pack(">h", code)
    return struct.pack(">iI", 4 + len(header) + len(body), 1 << 24 | len(header)) + header + body


frames = st.lists(st.binary(max_size=50).map(lambda body: binary_frame(31001, body)), max_size=6)


@given(frames, st.lists(st.integers(0, 400), max_size=8))
def test_any_split_gives_the_same_frames(sent, cuts):
    stream = b"".join(sent)
    splitter, got, at = FrameSplitter(), [], 0
    for cut in [*sorted(min(cut, len(stream)) for cut in cuts), len(stream)]:
        got += splitter.feed(stream[at:cut])
        at = cut
    assert got == sent
    assert splitter.partial_bytes == 0


@given(st.binary(max_size=200), st.integers(1, 20))
def test_no_byte_is_lost_whatever_it_is(stream, size):
    splitter = FrameSplitter()
    out = b"".join(
        b"".join(splitter.feed(stream[at : at + size])) for at in range(0, len(stream), size)
    )
    assert out == stream[: len(stream) - splitter.partial_bytes]


def test_what_is_no_frame_passes_through():
    splitter = FrameSplitter()
    assert splitter.feed(b"GET / HTTP/1.1\r\n") == [b"GET / HTTP/1.1\r\n"]
    assert splitter.transparent


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (binary_frame(31001, b""), 31001),
        (encode_request(29001, 1), 29001),
        (b"\0\0\0\4\0\0\0\0", None),
        (b"", None),
    ],
)
def test_code_of_a_frame(frame, code):
    assert frame_code(frame) == code


def test_answer_is_header_and_body():
    header = json.dumps({"code": 0}).encode()
    frame = struct.pack(">iI", 4 + len(header) + 2, len(header)) + header + b"{}"
    assert decode_answer(frame) == ({"code": 0}, b"{}")


def test_flipped_frame_differs_in_one_bit():
    frame = binary_frame(1, b"abc")
    assert flip_last_byte(frame) == frame[:-1] + b"b"


def effect(rule: Rule) -> tuple[list[bytes], Counters]:
    counters = Counters()
    stream = Stream(1, "link")
    out: list[bytes] = []
    for draw in range(200):
        out += [b for _, b in apply_rule(rule, binary_frame(31002, b"x"), counters, stream, draw)]
    return out, counters


def test_default_rule_changes_nothing():
    out, counters = effect(Rule())
    assert out == [binary_frame(31002, b"x")] * 200
    assert counters == Counters()


def test_dropped_type_never_passes():
    assert effect(Rule(drop_codes=frozenset({31002})))[0] == []
    assert len(effect(Rule(drop_codes=frozenset({31001})))[0]) == 200


def test_duplicates_and_corruption_come_at_their_rate_and_are_counted():
    out, counters = effect(Rule(dup_p=0.5, corrupt_p=0.5))
    assert len(out) == 200 + counters.duplicated
    assert 60 < counters.duplicated < 140
    assert 60 < counters.corrupted < 140


def test_delay_is_within_its_jitter():
    stream, counters = Stream(1, "link"), Counters()
    rule = Rule(delay_ms=50, jitter_ms=10)
    delays = [apply_rule(rule, b"x", counters, stream, draw)[0][0] for draw in range(50)]
    assert all(0.05 <= delay < 0.06 for delay in delays)
    assert counters.delayed == 50
