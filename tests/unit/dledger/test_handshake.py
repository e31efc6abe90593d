"""Members that share a key: what proves it, and that no byte can be added, lost or repeated."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.codec.handshake import (
    CHALLENGE,
    GREETING,
    PROOF,
    Acceptor,
    Dialler,
    NotProven,
    Opener,
    Sealer,
    check_welcome,
    code_of,
    encode_welcome,
)
from dledger.codec.peer import PeerCodec
from dledger.core.messages import Heartbeat
from dledger.limits import PEER_FRAME_BYTES_MAX
from ledgermq.remoting.protocol.errors import RemoteProtocolError
from ledgermq.remoting.protocol.frame import (
    MAX_FRAME_BYTES,
    Frame,
    FrameDecoder,
    encode_frame,
)
from mutants.patches import BY_TESTS
from mutants.planting import planted

KEY, OTHER = b"a key of enough characters", b"another key, also long"


def nonces(seed=0):
    counter = itertools.count(seed)
    return lambda size: next(counter).to_bytes(size, "big")


def frames(data):
    return FrameDecoder().feed(data)


def only(data):
    (frame,) = frames(data)
    return frame


def shake(key=KEY, keys=(KEY,), dials=("g", "n0", "n1"), accepts=("g", "n1")):
    """Let the two shake hands; return sealer, sender and opener."""
    dialler = Dialler(key, dials, nonces(1000)(32))
    acceptor = Acceptor(keys, accepts, nonces())
    challenge = acceptor.challenge(only(dialler.greeting))
    proof, sealer = dialler.answer(only(challenge))
    return sealer, *acceptor.finish(only(proof))


def heartbeat(round_=1):
    codec = PeerCodec("g", "n0", ("n1",))
    return codec.encode(Heartbeat("n0", "n1", 3, 5, round_))


def test_who_has_the_key_is_known_by_name_and_heard():
    sealer, sender, opener = shake()
    assert sender == "n0"
    for number in range(3):
        buffers = heartbeat(number)
        sealed = only(b"".join(sealer.seal(buffers)))
        assert opener.open(sealed) == only(b"".join(buffers))


def test_a_key_can_be_exchanged_while_the_group_runs():
    for key in (KEY, OTHER):
        for keys in ((KEY, OTHER), (OTHER, KEY)):
            assert shake(key, keys)[1] == "n0"
    with pytest.raises(NotProven, match="not set here"):
        shake(OTHER, (KEY,))


@pytest.mark.parametrize(
    ("dials", "accepts"),
    [
        (("g", "n0", "n2"), ("g", "n1")),
        (("h", "n0", "n1"), ("g", "n1")),
        (("g", "n1", "n1"), ("g", "n1")),
    ],
)
def test_who_is_meant_is_part_of_it(dials, accepts):
    with pytest.raises(NotProven, match="it is"):
        shake(dials=dials, accepts=accepts)


def test_who_has_no_key_learns_nothing_that_helps():
    # The stranger knows a key id (it has heard a greeting), and all the frames of a handshake.
    dialler = Dialler(KEY, ("g", "n0", "n1"), bytes(32))
    first = Acceptor((KEY,), ("g", "n1"), nonces())
    challenge = only(first.challenge(only(dialler.greeting)))
    proof, _ = dialler.answer(challenge)
    first.finish(only(proof))
    # 1. It plays the same again: the acceptor's nonce is another one.
    second = Acceptor((KEY,), ("g", "n1"), nonces(7))
    second.challenge(only(dialler.greeting))
    with pytest.raises(NotProven):
        second.finish(only(proof))
    # 2. It gives the acceptor its own proof back.
    third = Acceptor((KEY,), ("g", "n1"), nonces(8))
    echoed = only(third.challenge(only(dialler.greeting)))
    parts = echoed.body[-32:]
    reflected = Frame(1, only(proof).header, (32).to_bytes(2, "big") + parts)
    with pytest.raises(NotProven):
        third.finish(reflected)
    # 3. It stands in for the acceptor with what it has heard.
    again = Dialler(KEY, ("g", "n0", "n1"), b"x" * 32)
    with pytest.raises(NotProven):
        again.answer(challenge)


def replay_is_noticed():
    sealer, _, opener = shake()
    sealed = only(b"".join(sealer.seal(heartbeat())))
    opener.open(sealed)
    try:
        opener.open(sealed)
    except NotProven:
        return True
    return False


def test_a_frame_counts_once():
    assert replay_is_noticed()
    with planted(BY_TESTS["seal-without-number"]):
        assert not replay_is_noticed()


def test_frames_cannot_change_places_nor_be_left_out():
    for order in ((1, 0), (1, 2), (2, 0)):
        sealer, _, opener = shake()
        sealed = [only(b"".join(sealer.seal(heartbeat(number)))) for number in range(3)]
        with pytest.raises(NotProven):
            [opener.open(sealed[number]) for number in order]


def test_frames_of_another_connection_are_worth_nothing():
    dialler = Dialler(KEY, ("g", "n0", "n1"), bytes(32))
    acceptor = Acceptor((KEY,), ("g", "n1"), nonces(99))
    proof, sealer = dialler.answer(only(acceptor.challenge(only(dialler.greeting))))
    acceptor.finish(only(proof))
    _, _, opener = shake()
    with pytest.raises(NotProven):
        opener.open(only(b"".join(sealer.seal(heartbeat()))))


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 255))
def test_any_changed_byte_is_noticed(place, change):
    sealer, _, opener = shake()
    sealed = bytearray(b"".join(sealer.seal(heartbeat())))
    sealed[place % len(sealed)] ^= change
    try:
        found = frames(bytes(sealed))
    except RemoteProtocolError:  # no frame any more, which ends the connection, too
        return
    for frame in found:
        with pytest.raises(NotProven):
            opener.open(frame)


_frames = st.builds(
    Frame,
    st.sampled_from([0, 1]),
    st.one_of(
        st.binary(max_size=30),
        st.sampled_from([code.to_bytes(2, "big") for code in (GREETING, CHALLENGE, PROOF)]),
        st.sampled_from([only(encode_welcome()).header]),
    ),
    st.binary(max_size=200),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(_frames, max_size=4))
def test_any_frames_in_any_order_are_refused_and_nothing_else(sent):
    acceptor, opener = Acceptor((KEY,), ("g", "n1"), nonces()), Opener(KEY)
    for frame in sent:
        take = acceptor.finish if acceptor.has_greeted else acceptor.challenge
        with pytest.raises(NotProven):
            take(frame)
        with pytest.raises(NotProven):
            Dialler(KEY, ("g", "n0", "n1"), bytes(32)).answer(frame)
        with pytest.raises(NotProven):
            opener.open(frame)
        assert code_of(frame) >= 0


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(["greeting", "challenge", "proof"]), st.integers(0, 500), st.integers(1, 255)
)
def test_a_handshake_with_any_byte_changed_fails(which, place, change):
    dialler = Dialler(KEY, ("g", "n0", "n1"), nonces(5)(32))
    acceptor = Acceptor((KEY,), ("g", "n1"), nonces())

    def spoilt(name, data):
        if name != which:
            return only(data)
        frame = only(data)
        body = bytearray(frame.body)
        body[place % len(body)] ^= change
        return Frame(frame.serialize_type, frame.header, bytes(body))

    def handshake():
        challenge = acceptor.challenge(spoilt("greeting", dialler.greeting))
        proof, _ = dialler.answer(spoilt("challenge", challenge))
        acceptor.finish(spoilt("proof", proof))

    with pytest.raises(NotProven):
        handshake()


def test_the_welcome_is_one_and_nothing_else_is():
    check_welcome(only(encode_welcome()))
    with pytest.raises(NotProven):
        check_welcome(only(Dialler(KEY, ("g", "n0", "n1"), bytes(32)).greeting))


def test_a_seal_covers_large_entries_in_parts():
    sealer, opener = Sealer(KEY), Opener(KEY)
    head = heartbeat()[0]
    data = bytes(range(256)) * 400
    total = int.from_bytes(head[:4], "big") + len(data)
    buffers = (total.to_bytes(4, "big") + head[4:], memoryview(data))
    decoder = FrameDecoder(1 << 25)
    (frame,) = decoder.feed(b"".join(sealer.seal(buffers)))
    assert opener.open(frame).body.endswith(data)


def test_a_seal_opens_whatever_a_member_may_send():
    """An entry of a version that had no bound reaches all members, with a shared key, too."""
    sealer, opener = Sealer(KEY), Opener(KEY)
    entry = bytes(MAX_FRAME_BYTES + 1)
    head = encode_frame(1, b"h", len(entry), PEER_FRAME_BYTES_MAX)
    decoder = FrameDecoder(PEER_FRAME_BYTES_MAX)
    (frame,) = decoder.feed(b"".join(sealer.seal((head, entry))))
    assert opener.open(frame).body == entry
