"""Property texts are stored as RocketMQ 4.9 stored them."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from broker.sends.properties import PropertyRewriter, java_map_order
from broker.sends.rules import Refused
from ledgermq.remoting.protocol.properties import java_string_hash, parse_properties

UNIQUE = b"FD00000000000000000000000000000241975FFD2B27672ABC380000"


def text(**items: str) -> bytes:
    return b"\x02".join(f"{name}\x01{value}".encode() for name, value in items.items())


def rewriter() -> PropertyRewriter:
    return PropertyRewriter("FixtureCluster", lambda: b"NEWID")


def test_a_recorded_send_is_stored_as_rocketmq_stored_it() -> None:
    """Request and pulled record of a real 4.9.7 run: WAIT goes, CLUSTER comes before TAGS."""
    sent = b"KEYS\x01k1\x02UNIQ_KEY\x01" + UNIQUE + b"\x02WAIT\x01true\x02TAGS\x01T"
    stored = b"KEYS\x01k1\x02UNIQ_KEY\x01" + UNIQUE + b"\x02CLUSTER\x01FixtureCluster\x02TAGS\x01T"
    result = rewriter().rewrite(sent)
    assert result.text == stored
    assert result.tags_code == java_string_hash("T")
    assert result.delay_level == 0
    assert not result.transactional


def test_recorded_orders_of_names_are_those_of_a_java_map() -> None:
    for names in (
        "city KEYS UNIQ_KEY CLUSTER TAGS n",
        "REAL_TOPIC KEYS TRAN_MSG UNIQ_KEY CLUSTER PGROUP WAIT TAGS REAL_QID",
        "REPLY_TO_CLIENT KEYS UNIQ_KEY CLUSTER TTL TAGS CORRELATION_ID",
    ):
        recorded = names.split()
        # The broker puts CLUSTER last; it shares a bucket with UNIQ_KEY and so comes behind it.
        inserted = sorted(recorded, key=lambda name: (name == "CLUSTER", name))
        order = java_map_order(inserted)
        assert [inserted[i] for i in order] == recorded


def test_the_properties_of_a_batch_go_behind_those_of_its_elements() -> None:
    assert rewriter().batch_suffix(b"WAIT\x01true") == b"CLUSTER\x01FixtureCluster\x02WAIT\x01true"


def test_a_unique_key_is_made_only_where_it_is_missing() -> None:
    assert parse_properties(rewriter().rewrite(b"").text) == {
        "UNIQ_KEY": "NEWID",
        "CLUSTER": "FixtureCluster",
    }
    assert b"NEWID" not in rewriter().rewrite(text(UNIQ_KEY="x")).text


def test_what_the_broker_must_know_is_seen() -> None:
    result = rewriter().rewrite(text(DELAY="3", TRAN_MSG="true", TAGS="TagA"))
    assert result.delay_level == 3
    assert result.transactional
    assert result.tags_code == 2598919
    assert rewriter().rewrite(text(DELAY="0", TRAN_MSG="false")).delay_level == 0


def test_a_trailing_separator_and_malformed_items_are_read_as_java_reads_them() -> None:
    made = rewriter()
    assert made.rewrite(text(UNIQ_KEY="x", TAGS="T") + b"\x02") == made.rewrite(
        text(UNIQ_KEY="x", TAGS="T")
    )
    broken = b"novalue\x02\x01noname\x02empty\x01\x02UNIQ_KEY\x01x"
    assert parse_properties(made.rewrite(broken).text) == {
        "UNIQ_KEY": "x",
        "CLUSTER": "FixtureCluster",
    }


def test_a_repeated_name_takes_the_later_value() -> None:
    result = rewriter().rewrite(b"UNIQ_KEY\x01x\x02a\x011\x02a\x012")
    assert parse_properties(result.text)["a"] == "2"
    assert result.text.count(b"a\x01") == 1


def test_tags_of_a_batch_element_win_late() -> None:
    made = rewriter()
    twice = text(TAGS="A") + b"\x02" + text(TAGS="T")
    others = text(KEYS="A"), text(KEYS="A", TAGS="B"), text(MYTAGS="C")
    codes = [java_string_hash("T"), 0, java_string_hash("B"), 0]
    assert made.tags_codes_of((twice, *others)) == codes


names = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF), min_size=1, max_size=6)


@given(st.dictionaries(names, names, max_size=30))
def test_no_property_is_lost_or_invented(items: dict[str, str]) -> None:
    made = rewriter()
    for _ in range(3):
        stored = parse_properties(made.rewrite(text(**items)).text)
        expected = {name: value for name, value in items.items() if name != "WAIT"}
        expected["CLUSTER"] = "FixtureCluster"
        expected.setdefault("UNIQ_KEY", "NEWID")
        assert stored == expected


@given(st.binary(max_size=60))
def test_any_bytes_give_properties(data: bytes) -> None:
    with suppress(Refused):
        assert b"CLUSTER\x01FixtureCluster" in rewriter().rewrite(data).text
        assert b"CLUSTER\x01FixtureCluster" in rewriter().batch_suffix(data)
