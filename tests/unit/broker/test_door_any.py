"""Whatever a send holds: it is answered or stored, and what is stored is read equal by all."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ledgermq.remoting.protocol.errors import InvalidHeader, RemoteProtocolError
from ledgermq.remoting.protocol.properties import find_property, parse_properties
from store import layout
from store.write.uncommitted import OwnBatch
from tests.unit.broker.door_bench import Bench

HALF_TOPIC = layout.HALF_TOPIC_BYTES.decode()
SENT = ["UNIQ_KEY", "KEYS", "TAGS", "WAIT", "DELAY", "TRAN_MSG", "CLUSTER", "k"]
CHARACTERS = st.characters(codec=None) | st.sampled_from(
    "\x00\x01\x02 \ud800\udfff\u20ac\U0001f600"
)
TOPICS = st.sampled_from(["T", "new", "%RETRY%g", "TBW102", "SCHEDULE_TOPIC_XXXX", "."])
NAMES = st.sampled_from(SENT) | st.text(CHARACTERS, max_size=4)
VALUES = st.text(CHARACTERS, max_size=8) | st.sampled_from(["true", "false", "3", "-1", "0" * 20])
PAIRS = st.lists(st.tuples(NAMES, VALUES).map("\x01".join), max_size=6).map("\x02".join)
TEXTS = PAIRS | st.text(CHARACTERS, max_size=40)
NUMBERS = st.sampled_from([0, 1, -1, 2**31 - 1, 2**31, -(2**31), 2**63 - 1, 2**63, -(2**63), 1e3])
FLAGS = st.sampled_from([0, 1, 2, 0x301, 4, 8, 0x10, 0x20, 0x33, 0x40, 0x400]) | st.integers(
    -(2**31), 2**31 - 1
)
ODD = st.one_of(NUMBERS, st.text(max_size=3), st.none())
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "b": TOPICS | TEXTS,
        "c": st.sampled_from(["TBW102", "T", ""]),
        **dict.fromkeys("degh", NUMBERS),
        **dict.fromkeys("jl", ODD),
        "f": FLAGS,
        "i": TEXTS,
        "m": st.sampled_from(["true", "false", "maybe", 1]),
    },
)
RAW = st.one_of(
    TEXTS.map(lambda text: text.encode("utf-8", "replace")),
    st.lists(st.sampled_from([b"\x01", b"\x02", b"TAGS\x01", b"a", b"\xff", b"\xc3"]), max_size=12)
    .map(b"".join),
)  # fmt: skip


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """Return the body of a batch, perhaps with lengths that lie."""
    parts: list[bytes] = []
    for _ in range(draw(st.integers(0, 4))):
        body, text = draw(st.binary(max_size=5)), draw(RAW)
        lie = draw(st.sampled_from([0] * 20 + [1, -1, 2**31 - 30 - len(body) - len(text)]))
        size = (22 + len(body) + len(text) + lie) & 0xFFFFFFFF
        head = (size, 0, 0, draw(st.integers(0, 2**32 - 1)), len(body))
        parts += [b"".join(n.to_bytes(4, "big") for n in head), body]
        parts += [len(text).to_bytes(2, "big"), text]
    return b"".join(parts) + draw(st.sampled_from([b""] * 9 + [b"\x00"]))


def java_properties(data: bytes) -> dict[str, str]:
    """MessageDecoder.string2messageProperties since 4.9.3."""
    text, found, index = data.decode(), {}, 0
    while index < len(text):
        end = text.find("\x02", index)
        end = len(text) if end < 0 else end
        if end - index >= 3:
            at = text.find("\x01", index)
            if index < at < end - 1:
                found[text[index:at]] = text[at + 1 : end]
        index = end + 1
    return found


def old_java_properties(data: bytes) -> dict[str, str]:
    """The same before."""
    items = [item.split("\x01") for item in data.decode().split("\x02")]
    return {item[0]: item[1] for item in items if len(item) == 2}


def check_all_is_read_equal(bench: Bench) -> None:
    codes: list[int] = []
    for own in bench.log.uncommitted:
        codes += own.codes if isinstance(own, OwnBatch) else [own.code]
    for record, code in zip(bench.records, codes, strict=True):
        text = record.properties
        found = java_properties(text)
        assert found == old_java_properties(text) == parse_properties(text)
        assert found["CLUSTER"] == "C"
        assert layout.tags_code(text) == code
        for name, value in found.items():
            assert find_property(text, name.encode()) == value.encode()
        is_half = record.topic == HALF_TOPIC
        says_so = found.get("TRAN_MSG", "").lower() == "true"
        assert is_half == says_so or (says_so and record.reconsume_times > 0)
        assert record.sys_flag & ~0x303 == 0
        assert (found["REAL_TOPIC"] if is_half else record.topic) in {"T", "TBW102"}
        assert len(record.born_host) == 8


@given(
    FIELDS,
    st.binary(max_size=10) | batches(),
    st.sampled_from([310, 320]),
    st.sampled_from([0, 0, 0, 2]),
)
def test_a_send_is_answered_or_stored_and_read_equal(
    fields: dict[str, Any], body: bytes, code: int, flag: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(Path(directory))
        bad_header = False
        try:
            bench.send(body, code, flag, **fields)
        except (InvalidHeader, RemoteProtocolError):
            bad_header = True  # the dispatcher answers it
        waits = bench.creator.waiting.count
        outcomes = bad_header + waits + len(bench.codes) + bool(bench.node.bodies)
        assert outcomes == 1 or (flag and outcomes == 0)
        check_all_is_read_equal(bench)
        bench.close()


@given(TEXTS, st.lists(RAW, min_size=1, max_size=4))
def test_properties_of_every_shape_are_read_equal(text: str, own: list[bytes]) -> None:
    from ledgermq.remoting.protocol.message import BatchElement, encode_batch

    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(Path(directory))
        with suppress(InvalidHeader, RemoteProtocolError):
            bench.send(i=text)
        bench.send(encode_batch([BatchElement(b"x", one) for one in own]), 320, i=text)
        assert len(bench.node.bodies) in {0, 1, len(own), 1 + len(own)}
        assert set(bench.codes) <= {13, 16}
        check_all_is_read_equal(bench)
