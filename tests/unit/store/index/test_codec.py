"""Layout, hashes and keys of the index, against Java's definition of a hash."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.remoting.protocol.properties import java_string_hash, parse_properties
from store.index import codec
from store.index.codec import Header, Layout
from store.index.keys import REMEMBERED_MAX, TOPICS_MAX, KeyHashes, has_key, unique_key, words
from tests.unit.store.index import support

TEXT = st.text(
    st.characters(exclude_characters="\x01\x02", exclude_categories=("Cs",)), max_size=70
)


def java_abs_hash(text):
    value = java_string_hash(text)
    return 0 if value == -(1 << 31) else abs(value)


def test_file_size_is_rocketmqs():
    assert Layout(5_000_000, 20_000_000).file_bytes == 420_000_040


def test_header_is_read_as_written():
    header = Header(1, 2, 3, 4, 5, 6)
    data = codec.encode_header(header)
    assert data.hex() == "".join(f"{n:016x}" for n in (1, 2, 3, 4)) + "0000000500000006"
    assert codec.decode_header(data) == header
    assert codec.decode_header(data[:39]) is None


@given(TEXT, TEXT)
def test_key_hash_is_javas(topic, key):
    assert codec.key_hash(topic.encode(), key.encode()) == java_abs_hash(f"{topic}#{key}")


def test_hash_of_a_long_key_is_javas():
    key = "abcdefg" * 70
    assert codec.key_hash(b"t", key.encode()) == java_abs_hash(f"t#{key}")


@pytest.mark.parametrize("size", [127, 128, 129, 256, 1000])
def test_a_hash_goes_on_from_another_over_any_number_of_pieces(size):
    text = bytes(33 + n % 90 for n in range(size))
    assert codec.text_hash(text[7:], codec.text_hash(text[:7])) == (
        java_string_hash(text.decode()) & 0xFFFFFFFF
    )


def test_a_text_is_hashed_in_time_that_grows_with_its_length():
    class Text(bytes):
        taken = 0

        def __getitem__(self, where):
            piece = super().__getitem__(where)
            Text.taken += len(piece)
            return piece

    codec.text_hash(Text(b"k" * 100_000))
    assert Text.taken <= 100_000


def test_the_smallest_hash_is_folded_to_zero():
    assert java_string_hash("polygenelubricants") == -(1 << 31)
    assert codec.folded(codec.text_hash(b"polygenelubricants")) == 0


@given(st.lists(st.tuples(TEXT, TEXT, TEXT), max_size=8))
def test_hashes_of_messages_are_those_of_their_keys(values):
    messages = [
        (topic.encode(), support.properties(unique, keys, "T"), at, 7, 0)
        for at, (topic, unique, keys) in enumerate(values)
    ]
    rows = KeyHashes().rows(messages, -1)
    assert [row[0] for row in rows] == support.Model(messages).hashes()


def client(number):
    """Return properties with the key of one of four clients."""
    unique = f"7F0000017A7121EE{number & 3:04X}{number >> 6:08X}{number >> 2 & 15:04X}"
    return support.properties(unique, more="T")


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 1 << 20)), max_size=30))
def test_hashes_of_client_ids_are_right_from_memory(values):
    messages = [(topic.encode(), client(n), at, 7, 0) for at, (topic, n) in enumerate(values)]
    hashes = KeyHashes()
    rows = hashes.rows(messages, -1) + hashes.rows(messages, -1)
    assert [row[0] for row in rows] == support.Model(messages * 2).hashes()


def test_what_is_remembered_is_bounded():
    hashes = KeyHashes()
    for topic in range(TOPICS_MAX + 10):
        hashes.rows([(b"%d" % topic, support.properties("A" * 32), 1, 2, 0)], 0)
    assert len(hashes._topics) <= TOPICS_MAX
    for head in range(REMEMBERED_MAX + 10):
        raw = support.properties(f"{head:026X}000000", more="T")
        rows = hashes.rows([(b"t", raw, 1, 2, 0)], 0)
        assert rows[0][0] == codec.key_hash(b"t", b"%026X000000" % head)
    assert 0 < len(hashes._heads) <= REMEMBERED_MAX


@given(
    st.lists(st.tuples(st.sampled_from(["UNIQ_KEY", "KEYS", "XKEYS", "MY_UNIQ_KEY", "T"]), TEXT))
)
def test_keys_are_found_in_raw_properties(pairs):
    raw = "\x02".join(f"{name}\x01{value}" for name, value in pairs).encode()
    parsed = parse_properties(raw)
    # Of a name that is there twice the last counts, even with no value; nobody writes that.
    last = dict(pairs)
    if "" not in (last.get("UNIQ_KEY", "x"), last.get("KEYS", "x")):
        unique = unique_key(raw)
        assert (unique.decode() if unique else None) == parsed.get("UNIQ_KEY")
        assert [word.decode() for word in words(raw)] == [
            word for word in parsed.get("KEYS", "").split(" ") if word
        ]


def test_rollbacks_have_no_keys_prepared_and_committed_ones_do():
    messages = [support.keyed(n, flags=flags) for n, flags in enumerate((0, 4, 8, 12))]
    assert [row[1] for row in KeyHashes().rows(messages, -1)] == [0, 100, 200]


def test_a_message_has_its_unique_key_and_each_word():
    raw = support.properties("U1", "a  b c")
    assert all(has_key(raw, key) for key in (b"U1", b"a", b"b", b"c"))
    assert not any(has_key(raw, key) for key in (b"U", b"a  b c", b"", b"d"))
