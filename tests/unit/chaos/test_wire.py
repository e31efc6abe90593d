"""Frames of the proxy: any split of the stream gives the same bytes in the same frames."""

import itertools
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.generator import Stream
from chaos.net.rules import Counters, Kept, Rule, Treatment, rule_from
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
    treatment = Treatment(counters, Kept(), Stream(1, "link"))
    out: list[bytes] = []
    for draw in range(200):
        out += [b for _, b in treatment.treat(rule, binary_frame(31002, b"x"), draw)]
    return out, counters


def treated(rule: Rule, bodies: list[bytes]) -> tuple[list[bytes], Counters]:
    """The bodies of what leaves, in order."""
    counters = Counters()
    treatment = Treatment(counters, Kept(), Stream(1, "link"))
    out: list[bytes] = []
    for draw, body in enumerate(bodies):
        out += [b[10:] for _, b in treatment.treat(rule, binary_frame(31002, body), draw)]
    return out + [b[10:] for _, b in treatment.release()], counters


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
    treatment = Treatment(Counters(), Kept(), Stream(1, "link"))
    rule = Rule(delay_ms=50, jitter_ms=10)
    delays = [treatment.treat(rule, b"x", draw)[0][0] for draw in range(50)]
    assert all(0.05 <= delay < 0.06 for delay in delays)
    assert len(set(delays)) > 40


NUMBERED = [b"%03d" % at for at in range(200)]


def test_reordered_frames_change_places_with_the_next_and_none_is_lost():
    out, counters = treated(Rule(reorder_p=0.5), NUMBERED)
    assert sorted(out) == NUMBERED
    assert out != NUMBERED
    assert sum(a > b for a, b in itertools.pairwise(out)) == counters.reordered > 20


def test_last_frame_that_nothing_overtakes_leaves_all_the_same():
    assert treated(Rule(reorder_p=1.0), [b"one"]) == ([b"one"], Counters())


def test_replayed_frames_were_carried_before_and_come_behind():
    out, counters = treated(Rule(replay_p=0.5), NUMBERED)
    assert len(out) == 200 + counters.replayed
    assert 60 < counters.replayed < 140
    assert list(dict.fromkeys(out)) == NUMBERED, "nothing comes before it was sent"


def test_kept_frames_of_a_rare_kind_outlive_many_of_another():
    kept, stream = Kept(), Stream(1, "link")
    kept.keep(binary_frame(31_004, b"a vote"))
    for _ in range(1000):
        kept.keep(binary_frame(31_008, b"a heartbeat"))
        kept.keep(binary_frame(31_005, b"x" * 20_000))
    assert {kept.pick(stream, draw) for draw in range(0, 100, 2)} == {
        binary_frame(31_004, b"a vote"),
        binary_frame(31_008, b"a heartbeat"),
    }
    assert sum(map(len, kept.by_code.values())) == 17


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"dup": 1}, "has no dup"),
        ({"dup_p": 1.5}, "from 0 to 1"),
        ({"delay_ms": -1}, "a delay"),
        ({"jitter_ms": 1e9}, "a delay"),
        ({"rate_bytes_s": -1}, "below 0"),
        ({"reset_after_bytes": -5}, "below 0"),
        ({"drop_codes": ["x"]}, "invalid literal"),
    ],
)
def test_impossible_rules_are_refused(wanted, said):
    with pytest.raises(ValueError, match=said):
        rule_from(wanted)


def test_rule_of_a_command_is_the_rule():
    wanted = {"drop_codes": [31_001, 31_002], "delay_ms": 3.5}
    assert rule_from(wanted) == Rule(drop_codes=frozenset({31_001, 31_002}), delay_ms=3.5)
