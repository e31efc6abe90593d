"""Message bodies: keys, tags, verification."""

from hypothesis import given
from hypothesis import strategies as st

from chaos.history import payload

TAG = bytes(range(16))


@given(pid=st.integers(0, 2**23 - 1), seq=st.integers(0, 2**40 - 1), size=st.integers(0, 300))
def test_a_body_says_who_it_is_and_verifies(pid, seq, size):
    key = payload.make_key(pid, seq)
    body = payload.encode_body(TAG, key, size)
    assert payload.split_key(key) == (pid, seq)
    assert len(body) == max(size, payload.HEAD_BYTES)
    assert payload.decode_body(body) == payload.Payload(TAG.hex(), key)
    assert payload.verify_body(body)


@given(at=st.integers(20, 99), bit=st.integers(0, 7))
def test_a_flipped_bit_is_seen_by_hash_and_padding(at, bit):
    body = payload.encode_body(TAG, payload.make_key(3, 7), 100)
    broken = bytearray(body)
    broken[at] ^= 1 << bit
    assert payload.body_hash(broken) != payload.body_hash(body)
    assert not payload.verify_body(broken)


def test_foreign_bodies_are_nobodys():
    assert payload.decode_body(b"") is None
    assert payload.decode_body(b"x" * 100) is None
    assert not payload.verify_body(b"hello")


def test_a_uuid_stands_for_itself_and_other_run_ids_are_hashed():
    assert payload.run_tag("AB" * 16) == "ab" * 16
    assert len(payload.run_tag("run of monday")) == 32
    assert payload.run_tag("a") != payload.run_tag("b")
    assert payload.run_tag("zz" * 16) != "zz" * 16


def test_the_hash_fits_a_signed_long():
    assert -(2**63) <= payload.body_hash(b"anything") < 2**63
