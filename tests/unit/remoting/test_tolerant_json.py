"""JSON beyond the standard, as fastjson writes it."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.protocol.errors import RemoteProtocolError
from remoting.protocol.tolerant_json import DEPTH_MAX, loads, text_of

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
    source = (
        b'{"a":[{"x":1}],"b":{"$ref":"$.a[0]"},"c":[{"$ref":"$.a[7]"},{"$ref":"a"},{"$ref":"$"}]}'
    )
    value = loads(source)
    assert value["b"] == {"x": 1}
    assert value["c"][:2] == [None, None]
    assert value["c"][2] is value


@pytest.mark.parametrize(
    "source",
    [
        "", "{", "[1", "[1 2]", '{"a" 1}', '{"a":}', "nil", "'open", r'"\q"', r'"\u12"', "{[1]:2}",
        "{{'a':[1]}:2}", "[1] x", "9" * 65, "[" * (DEPTH_MAX + 2),
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
