"""Hints about spans: they travel beside the entries, are judged, kept, and never said of a part."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dledger.appender import Appender
from dledger.codec import peer
from dledger.codec.entry import encode_span
from dledger.config import DLedgerConfig
from dledger.core.messages import Append
from dledger.errors import CorruptEntry, NotLeader
from dledger.storage.recent import RecentSpans
from ledgermq.remoting.protocol.frame import Frame, FrameDecoder

SENDER = peer.PeerCodec("group", "n0", ("n1", "n2"))
BODIES = [b"first", b"second", b"third"]
SPAN = replace(encode_span(5, 2, 4096, BODIES), hint=b"about three")
HINTED = Append("n0", "n1", 3, 4, 1, 3, SPAN)


def receiver(checked=None):
    """A codec whose user takes what says of itself that it is about so many entries."""
    codec = peer.PeerCodec("group", "n1", ("n0", "n2"))
    seen = [] if checked is None else checked

    def validator(hint, entries):
        seen.append((hint, entries))
        return hint == b"about " + {1: b"one", 3: b"three"}.get(entries, b"none")

    codec.is_sound_hint = validator
    return codec


def frame_of(message, codec=SENDER):
    (frame,) = FrameDecoder().feed(b"".join(codec.encode(message)))
    return frame


def test_a_hint_travels_with_its_span_and_is_checked():
    checked = []
    assert receiver(checked).decode(frame_of(HINTED)) == HINTED
    assert checked == [(b"about three", 3)]
    assert int.from_bytes(frame_of(HINTED).header[:2]) == peer.APPEND_HINTED == 31014


def test_without_a_hint_the_frame_is_what_it_was_and_nobody_judges():
    checked = []
    message = replace(HINTED, span=replace(SPAN, hint=b""))
    frame = frame_of(message)
    assert int.from_bytes(frame.header[:2]) == peer.CODES[Append] == 31005
    assert receiver(checked).decode(frame) == message
    assert checked == []


def test_followers_are_each_sent_the_hint_of_the_span_sent_to_them():
    other = replace(SPAN, hint=b"about one")
    for span in (SPAN, other, SPAN):
        for node in ("n1", "n2"):
            message = replace(HINTED, receiver=node, span=span)
            codec = peer.PeerCodec("group", node, ("n0",))
            codec.is_sound_hint = lambda hint, entries: True
            assert codec.decode(frame_of(message)) == message


@pytest.mark.parametrize("hint", [b"about one", b"about none", b"?"])
def test_a_hint_that_the_user_refuses_is_a_bad_frame(hint):
    message = replace(HINTED, span=replace(SPAN, hint=hint))
    with pytest.raises(CorruptEntry):
        receiver().decode(frame_of(message))


def test_who_reads_no_hints_takes_none():
    with pytest.raises(CorruptEntry):
        peer.PeerCodec("group", "n1", ("n0",)).decode(frame_of(HINTED))


@given(offset=st.integers(0, 400), flip=st.integers(1, 255))
def test_a_flipped_byte_is_refused(offset, flip):
    frame = frame_of(HINTED)
    body = bytearray(frame.body)
    where = offset % len(body)
    if where in (2, 3):
        return  # reserved
    body[where] ^= flip
    codec = receiver()
    codec.is_sound_hint = lambda hint, entries: True  # so the codec itself must see it
    with pytest.raises((CorruptEntry, peer.Misaddressed)):
        codec.decode(Frame(1, frame.header, bytes(body)))


@given(st.integers(1, 300))
def test_a_frame_cut_short_is_refused(missing):
    frame = frame_of(HINTED)
    body = frame.body[: max(0, len(frame.body) - missing)]
    with pytest.raises(CorruptEntry):
        receiver().decode(Frame(1, frame.header, body))


@pytest.mark.parametrize("index", [6, 7])
def test_a_part_of_a_span_has_no_hint(index):
    assert SPAN.from_index(5).hint == SPAN.before_index(8).hint == b"about three"
    assert SPAN.from_index(index).hint == SPAN.before_index(index).hint == b""


def noted_spans(count, entries=3):
    first = position = 0
    for number in range(count):
        made = replace(
            encode_span(first, 1, position, [b"x" * 100] * entries), hint=b"hint %d" % number
        )
        yield made
        first, position = made.last_index + 1, made.end_position


def test_hints_stay_when_their_entries_have_gone():
    spans = list(noted_spans(10))
    recent = RecentSpans(bytes_max=len(spans[0].data) * 2)
    for span in spans:
        recent.add(span)
    assert recent.first_index() == 24
    for index, expected in ((0, 0), (2, 0), (3, 1), (20, 6), (29, 9)):
        found = recent.maybe_hinted(index)
        assert found == (
            spans[expected].first_index, spans[expected].last_index, 1, spans[expected].units,
            b"hint %d" % expected,
        )  # fmt: skip
    assert recent.maybe_hinted(0) == found, "who has passed them does not come back"
    assert recent.maybe_hinted(30) is None


def test_hints_are_bounded_too_and_a_span_without_one_leaves_a_gap():
    spans = list(noted_spans(10))
    spans[4] = replace(spans[4], hint=b"")
    each = len(spans[0].units) + len(spans[0].hint)
    recent = RecentSpans(bytes_max=0, hint_bytes_max=each * 6)
    for span in spans:
        recent.add(span)
    assert recent.first_index() is None
    first = recent.maybe_hinted(0)
    assert first is not None
    assert first.first_index == spans[3].first_index
    behind = recent.maybe_hinted(spans[4].first_index)
    assert behind is not None
    assert behind.first_index == spans[5].first_index
    recent.forget_below(spans[9].first_index + 1)
    assert recent.maybe_hinted(0).hint == b"hint 9"


@given(cut=st.integers(0, 29))
def test_what_was_cut_off_has_no_hint_and_a_cut_span_loses_its_own(cut):
    spans = list(noted_spans(10))
    recent = RecentSpans()
    for span in spans:
        recent.add(span)
    recent.forget_from(cut)
    kept = []
    while (hinted := recent.maybe_hinted(kept[-1].last_index + 1 if kept else 0)) is not None:
        kept.append(hinted)
    assert [hinted.hint for hinted in kept] == [b"hint %d" % n for n in range(cut // 3)]


def noting_appender(**limits):
    """Return an appender, its spans, and what its user knows of."""
    spans, known = [], []
    peers = {"n0": "", "n1": ""}
    config = DLedgerConfig(group="g", self_id="n0", peers=peers, directory="/none", **limits)
    appender = Appender(
        config, schedule=lambda: None, refusal=lambda: NotLeader(None), committed=lambda: 0
    )
    appender.propose = spans.append
    appender.write_hint = lambda start, end: b"%r" % [n for n in known if start <= n * 448 < end]
    appender.accepting = True
    appender.restart(1, 0, 0)
    return appender, spans, known


def put_single(appender, known):
    appender.reserve(400)
    known.append(appender.append((b"x" * 400,), 400))


def put_batch(appender, known, count):
    appender.reserve(448 * count - 48)
    known += appender.append_batch([b"x" * 400] * count)


def test_a_full_span_is_closed_once_its_last_entry_can_be_noted():
    appender, spans, known = noting_appender(span_bytes_max=1024)
    put_batch(appender, known, 2)
    for _ in range(5):
        put_single(appender, known)
    appender.close_batch()
    assert [span.hint for span in spans] == [b"[0, 1, 2]", b"", b""]
    assert [len(span.data) for span in spans] == [3 * 448, 3 * 448, 448]


def test_spans_without_a_batch_and_short_ones_have_no_hint():
    appender, spans, known = noting_appender()
    for _ in range(7):
        put_single(appender, known)
    appender.close_batch()
    put_batch(appender, known, 2)
    appender.close_batch()
    put_single(appender, known)
    put_batch(appender, known, 2)
    appender.close_batch()
    for _ in range(3):
        put_single(appender, known)
    appender.close_batch()
    put_batch(appender, known, 3)
    appender.restart(2, 5, 0)
    for _ in range(3):
        put_single(appender, known)
    appender.close_batch()
    assert [span.hint for span in spans] == [b"", b"", b"[9, 10, 11]", b"", b""]


def test_all_spans_of_a_batch_have_a_hint():
    appender, spans, known = noting_appender(span_bytes_max=1024)
    known.extend(range(8))
    appender.reserve(448 * 8 - 48)
    appender.append_batch([b"x" * 400] * 8)
    put_single(appender, known)
    appender.close_batch()
    assert [span.hint for span in spans] == [b"[0, 1, 2]", b"[3, 4, 5]", b"[6, 7, 8]"]
