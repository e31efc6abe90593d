"""JSON beyond the standard, as fastjson writes it."""

import contextlib
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.remoting.protocol.bodies import HeartbeatData, RegisterBrokerBody, decode_body
from ledgermq.remoting.protocol.errors import RemoteProtocolError
from ledgermq.remoting.protocol.limits import NESTING_MAX, TOLERANT_BYTES_MAX, TOLERANT_VALUES_MAX
from ledgermq.remoting.protocol.tolerant_json import REQUEST, _Reader, loads, text_of
from mutants.patches import BY_TESTS
from mutants.planting import planted

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=20,
)
MARK = '"$ref"'
"""Any text that contains this takes the tolerant way."""


def tolerant(source: str) -> object:
    """Read a text the tolerant way, whatever it is."""
    return loads(f"[{source},{{}}, {MARK}]".encode())[0]


@given(values)
def test_all_json_reads_the_same(value):
    assert loads(json.dumps(value).encode()) == value
    assert tolerant(json.dumps(value)) == value
    assert tolerant(json.dumps(value, ensure_ascii=False)) == value


@given(
    st.one_of(st.binary(), text.map(str.encode), values.map(lambda v: json.dumps(v)[1:].encode()))
)
def test_any_bytes_give_a_value_or_a_remote_protocol_error(data):
    for source in (data, data + MARK.encode()):
        with contextlib.suppress(RemoteProtocolError):
            loads(source)


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("{0:'x',1 : 2,}", {0: "x", 1: 2}),
        ("{offset:5, a.b-c:null}", {"offset": 5, "a.b-c": None}),
        ('{{"queueId":0,"topic":"T"}:5}', {(("queueId", 0), ("topic", "T")): 5}),
        ("[1,2.5,-3e2,true,false,null]", [1, 2.5, -300.0, True, False, None]),
        (r"'it\'s \x41 \u00e9 \ud83d\ude00'", "it's A é 😀"),
        (r'"\ud800"', "�"),
        ("{}", {}),
        ("[]", []),
    ],
)
def test_what_fastjson_writes_beyond_json(source, value):
    assert tolerant(source) == value


def test_bytes_that_are_no_text_are_replaced():
    assert loads(b'{"a":"\xff","\xfe":1}') == {"a": "\ufffd", "\ufffd": 1}


def test_references_are_resolved_wherever_they_stand():
    source = b'{"a":[{"x":1}],"b":{"$ref":"$.a[0]"},"c":[{"$ref":"$.a[7]"},{"$ref":"a"}]}'
    value = loads(source)
    assert value["b"] == {"x": 1}
    assert value["c"] == [None, None]


@pytest.mark.parametrize(
    "source",
    [
        "", "{", "[1", "[1 2]", '{"a" 1}', '{"a":}', "nil", "'open", r'"\q"', r'"\u12"', "{[1]:2}",
        "{{'a':[1]}:2}", "[1] x", "9" * 65, "[" * (NESTING_MAX + 2),
    ],
)  # fmt: skip
def test_what_is_no_json_is_refused(source):
    with pytest.raises(RemoteProtocolError):
        tolerant(source)


def test_text_of_writes_what_a_java_string_would_hold():
    assert [text_of(one) for one in ("x", True, False, 3, 1.5)] == [
        "x",
        "true",
        "false",
        "3",
        "1.5",
    ]
    assert text_of({"a": [1]}) == '{"a":[1]}'
    assert text_of("\ud800") == "?"
    assert text_of({(1, 2): 3}) == "{(1, 2): 3}"


def doubling(levels: int) -> str:
    """Return a text whose value doubles with each level, though it names each level only twice."""
    parts = ['"a0":{"x":1}'] + [
        f'"a{i}":[{{"$ref":"$.a{i - 1}"}},{{"$ref":"$.a{i - 1}"}}]' for i in range(1, levels)
    ]
    return "{" + ",".join(parts) + "}"


def test_references_that_double_are_refused():
    for levels in (20, 60):
        with pytest.raises(RemoteProtocolError, match="references"):
            loads(doubling(levels).encode())
    assert loads(doubling(5).encode())["a4"][1][0] == [[{"x": 1}] * 2] * 2


@pytest.mark.parametrize("kind", [HeartbeatData, RegisterBrokerBody])
def test_a_body_of_two_kilobytes_that_doubles_is_refused(kind):
    with pytest.raises(RemoteProtocolError, match="references"):
        decode_body(doubling(40).encode(), kind)


def test_without_that_a_value_of_a_kilobyte_has_a_million_parts():
    with planted(BY_TESTS["references-double"]):
        value = loads(doubling(20).encode())
    assert len(str(value["a19"])) > 1_000_000


@pytest.mark.parametrize("source", ['{"a":{"$ref":"$"}}', '{"a":[{"$ref":"$.a"}]}'])
def test_a_value_that_holds_itself_is_refused(source):
    with pytest.raises(RemoteProtocolError, match="references nest too deep"):
        loads(source.encode())


def test_references_nest_no_deeper_than_texts():
    chain = ['"a0":{}'] + [f'"a{i}":{{"b":{{"$ref":"$.a{i - 1}"}}}}' for i in range(1, 100)]
    with pytest.raises(RemoteProtocolError, match="references"):
        loads(("{" + ",".join(chain) + "}").encode())


K = TOLERANT_BYTES_MAX - 100
LONG = {
    "numbers": "[" + "1," * (K // 2) + "1]",
    "objects": "[" + "{}," * (K // 3) + "1]",
    "keys": "{" + ",".join(f"k{i}:1" for i in range(K // 9)) + "}",
    "escapes": "['" + "\\n" * (K // 2) + "']",
    "characters": "['" + "\\u00e9" * (K // 6) + "']",
    "surrogates": "['" + "\\ud800" * (K // 6) + "']",
    "space": "[" + " " * K + "'']",
    "references": "[" + '{"$ref":"$"},' * (K // 13) + "1]",
    "steps": '[{"$ref":"$' + ".a" * (K // 2) + '"}]',
    "open string": "'" + "\\'" * (K // 2),
}


@pytest.mark.parametrize("source", LONG.values(), ids=LONG)
def test_no_text_takes_long(source):
    """A generous bound of the processor's time: what is refused otherwise takes half a second.

    The collector of garbage may hit one try, among what all tests before have left.
    """

    def took_s() -> float:
        began = time.process_time()
        with contextlib.suppress(RemoteProtocolError):
            loads(source.encode())
        return time.process_time() - began

    assert min(took_s() for _ in range(3)) < 0.15


def test_the_slow_reader_ends_after_so_many_values():
    few = "[" + "'x'," * (TOLERANT_VALUES_MAX - 2) + "]"
    assert len(_Reader(few, REQUEST.values_max).read_all()) == TOLERANT_VALUES_MAX - 2
    for source in (LONG["numbers"], LONG["escapes"], LONG["keys"]):
        with pytest.raises(RemoteProtocolError, match="more than 4000 values"):
            _Reader(source, REQUEST.values_max).read_all()
    with planted(BY_TESTS["slow-reader-without-end"]):
        assert len(_Reader(LONG["numbers"], REQUEST.values_max).read_all()) == K // 2 + 1


def test_a_text_beyond_the_reach_is_not_begun():
    with pytest.raises(RemoteProtocolError, match="bytes, more than"):
        loads(b" " * TOLERANT_BYTES_MAX + b"{}")


@pytest.mark.parametrize(
    "source",
    ["1" * 5000, "-" + "9" * 4301, "1e999999", "1." + "0" * 5000, "NaN", "Infinity", "-", "1e",
     '{"$ref":"$[' + "9" * 5000 + ']"}', "\u0661", "{'a':\u0661}"],
)  # fmt: skip
@pytest.mark.parametrize("read", [loads, tolerant])
def test_odd_numbers_raise_what_is_declared(source, read):
    with contextlib.suppress(RemoteProtocolError):
        read(source.encode() if read is loads else source)


def test_numbers_as_large_as_msgspec_reads_them_become_text():
    assert text_of(loads(b"1" * 400)) == "1" * 400
    assert text_of({"a": 10**30}) == f'{{"a":{10**30}}}'
