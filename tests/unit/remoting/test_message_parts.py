"""Properties, hosts, compression, unique ids: the small codecs beside the record."""

import contextlib
import datetime
import zlib

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.remoting.protocol import compression
from ledgermq.remoting.protocol.compression import COMPRESSED_ZLIB, compress, decompress
from ledgermq.remoting.protocol.errors import LocalProtocolError, RemoteProtocolError
from ledgermq.remoting.protocol.hosts import pack_host, parse_address, unpack_host
from ledgermq.remoting.protocol.properties import (
    find_property,
    format_properties,
    java_string_hash,
    parse_properties,
    tags_code,
)
from ledgermq.remoting.protocol.unique_id import DAY_MS, UniqueIdGenerator, month_bounds_ms
from mutants.patches import BY_TESTS
from mutants.planting import planted

words = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=9
)


@given(st.dictionaries(words, words, max_size=5), st.sampled_from([b"", b"\x02"]))
def test_properties_read_back_with_and_without_the_last_separator(properties, end):
    data = format_properties(properties) + (end if properties else b"")
    assert parse_properties(data) == properties
    for name, value in properties.items():
        assert find_property(data, name.encode()) == value.encode()


@given(st.binary())
def test_any_bytes_are_properties(data):
    parsed = parse_properties(data)
    assert all(name and value for name, value in parsed.items())


def test_the_later_of_two_equal_properties_wins():
    data = b"A\x011\x02B\x012\x02A\x013"
    assert parse_properties(data) == {"A": "3", "B": "2"}
    assert find_property(data, b"A") == b"3"
    assert find_property(data, b"B") == b"2"
    assert find_property(data, b"C") is None
    assert find_property(b"A\x01\x02", b"A") is None
    assert find_property(b"XA\x011", b"A") is None


@pytest.mark.parametrize(
    ("text", "code"), [("TagA", 2598919), ("", 0), ("ab", 3105), ("😀", 1772899), ("é" * 40, None)]
)
def test_the_hash_is_javas(text, code):
    value = java_string_hash(text)
    assert -(2**31) <= value < 2**31
    if code is not None:
        assert value == code


def test_no_tags_have_code_0():
    assert tags_code(None) == tags_code("") == 0
    assert tags_code("TagA") == 2598919


@given(st.ip_addresses(), st.integers(0, 65535))
def test_hosts_read_back(address, port):
    packed = pack_host(str(address), port)
    mapped = getattr(address, "ipv4_mapped", None)
    assert unpack_host(packed) == (str(mapped or address), port)


def test_an_ipv4_address_in_ipv6_form_is_packed_as_ipv4():
    assert pack_host("::ffff:10.0.0.1", 5) == pack_host("10.0.0.1", 5)
    assert len(pack_host("fe80::1%eth0", 5)) == 20


def test_what_is_no_host_is_refused():
    for address, port in (("localhost", 1), ("127.0.0.1", -1)):
        with pytest.raises(LocalProtocolError):
            pack_host(address, port)
    with pytest.raises(RemoteProtocolError):
        unpack_host(b"\0" * 9)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9876", ("127.0.0.1", 9876)),
        (" broker-0:80 ", ("broker-0", 80)),
        ("[::1]:5", ("::1", 5)),
        ("[fe80::1%eth0]:5", ("fe80::1%eth0", 5)),
        ("broker_0.example.:80", ("broker_0.example.", 80)),
    ],
)
def test_addresses_are_parsed(text, address):
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "host", ":80", "host:", "host:x", "host:65536", "host:²"])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(LocalProtocolError):
        parse_address(text)


@pytest.mark.parametrize(
    "text",
    [
        "..:1",
        ":::1000000",
        "a..b:1",
        "x" * 64 + ".y:1",
        "a\0b:1",
        "a\nb:1",
        "[]:1",
        "host:" + "1" * 5_000,
        "\ud800:1",
        "\xe9" * 80 + ":1",
    ],
)
def test_what_no_resolver_takes_is_no_address(text):
    """A resolver would raise what nobody expects of it."""
    with pytest.raises(LocalProtocolError) as caught:
        parse_address(text)
    assert len(str(caught.value)) < 1_000


@given(st.binary(max_size=2000))
def test_all_compression_types_read_back(content):
    assert decompress(compress(content), COMPRESSED_ZLIB) == content
    assert decompress(zlib.compress(content), 0x1) == content
    assert decompress(lz4.frame.compress(content), 0x101) == content
    assert decompress(zstandard.compress(content), 0x201) == content


@given(st.binary(max_size=200), st.sampled_from([0x1, 0x101, 0x201, 0x301, 0x701]))
def test_any_bytes_inflate_or_give_a_remote_protocol_error(data, flag):
    with contextlib.suppress(RemoteProtocolError):
        decompress(data, flag)


@pytest.mark.parametrize(
    ("flag", "pack"),
    [(0x301, zlib.compress), (0x101, lz4.frame.compress), (0x201, zstandard.compress)],
)
def test_a_small_body_cannot_fill_the_memory(flag, pack, monkeypatch):
    monkeypatch.setattr(compression, "CONTENT_BYTES_MAX", 1000)
    assert decompress(pack(bytes(999)), flag)
    with pytest.raises(RemoteProtocolError):
        decompress(pack(bytes(5000)), flag)


@pytest.mark.parametrize(
    ("flag", "pack"),
    [
        (0x301, zlib.compress),
        (0x101, lz4.frame.compress),
        (0x201, zstandard.compress),
        (0x201, zstandard.ZstdCompressor(write_content_size=False).compress),
    ],
)
def test_a_body_that_is_cut_short_is_none(flag, pack):
    """What came before the cut must not pass for the whole."""
    body = pack(bytes(range(256)) * 4_000)
    assert len(decompress(body, flag)) == 1_024_000
    for end in (len(body) - 1, len(body) // 2, 12):
        with pytest.raises(RemoteProtocolError):
            decompress(body[:end], flag)


def test_planted_trust_in_a_zstd_reader_is_found():
    content = bytes(range(256)) * 4_000
    body = zstandard.ZstdCompressor(write_checksum=True).compress(content)
    with planted(BY_TESTS["zstd-body-cut-short"]):
        assert len(decompress(body[: len(body) // 2], 0x201)) < len(content)


def test_a_missing_package_is_named(monkeypatch):
    def absent(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(compression.importlib, "import_module", absent)
    with pytest.raises(LocalProtocolError, match="install the package lz4"):
        decompress(b"", 0x101)


@given(st.integers(0, 4_000_000_000_000))
def test_months_are_the_calendars(now_ms):
    start, end = month_bounds_ms(now_ms)
    first = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC).replace(
        day=1, hour=0, minute=0, second=0, microsecond=0
    )
    following = (first + datetime.timedelta(days=31)).replace(day=1)
    assert (start, end) == (first.timestamp() * 1000, following.timestamp() * 1000)
    assert start <= now_ms < end


def test_unique_ids_have_javas_form_and_differ():
    generator = UniqueIdGenerator(b"\x7f\0\0\1", 0x12345, -1)
    ids = [generator.next(now_ms) for now_ms in (1000, 1000, 31 * DAY_MS + 5)]
    assert ids[0] == "7F0000012345FFFFFFFF" + "000003E8" + "0000"
    assert ids[1] == ids[0][:-1] + "1"
    assert ids[2] == ids[0][:20] + "00000005" + "0002"
    many = {generator.next(5) for _ in range(70_000)}
    assert len(many) == 0x10000


@pytest.mark.parametrize("count", [0, 1, 2, 5, 70_000])
def test_ids_taken_together_are_those_taken_one_by_one(count):
    one_by_one = UniqueIdGenerator(b"\x7f\0\0\1", 7, 9)
    together = UniqueIdGenerator(b"\x7f\0\0\1", 7, 9)
    for now_ms in (5, 31 * DAY_MS + 6):
        expected = [one_by_one.next(now_ms) for _ in range(count)]
        assert together.take(now_ms, count) == expected
        assert together.next(now_ms) == one_by_one.next(now_ms)
