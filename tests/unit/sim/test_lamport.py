"""The Lamport diagram of a trace: parsed back as XML, and compared with the trace."""

import xml.etree.ElementTree as ET

import pytest

from sim.lamport import draw_lamport, parse_line

SVG = "{http://www.w3.org/2000/svg}"

TRACE = [
    "0 host n0 address=10.0.0.1",
    "0 host n1 address=10.0.0.2",
    "0 host p0 address=10.0.2.1",
    "0 boot n0 incarnation=1",
    "1000000 say n0 to=n1 what=VoteRequest,term=1,last=-1/0",
    "1000000 say n0 to=n1 what=Heartbeat,term=1",
    "1200000 arrive 10.0.0.2 source=10.0.0.1 port=40911 size=80",
    "1200000 arrive 10.0.0.2 source=10.0.2.1 port=10911 size=80",
    "1300000 role n1 role=LEADER term=1",
    "1400000 violation - oracle=A30 election safety text=term 1 has <two> leaders",
]


def drawn(lines: list[str], **options: int) -> ET.Element:
    return ET.fromstring(draw_lamport(lines, title="seed 7", **options))


def with_class(svg: ET.Element, name: str) -> list[ET.Element]:
    return [element for element in svg.iter() if element.get("class") == name]


def test_line_is_parsed_into_columns_with_spaces():
    line = parse_line(TRACE[-1])
    assert (line.at_ns, line.kind, line.host) == (1_400_000, "violation", "-")
    assert line.columns == {"oracle": "A30 election safety", "text": "term 1 has <two> leaders"}


def test_garbage_is_no_line():
    with pytest.raises(ValueError, match="unpack"):
        parse_line("what")


def test_each_host_that_says_or_does_something_has_a_life_line():
    svg = drawn(TRACE)
    assert [text.text for text in with_class(svg, "host")] == ["n0", "n1"]
    assert len(with_class(svg, "life")) == 2


def test_message_that_arrives_is_an_arrow_from_sender_to_receiver():
    svg = drawn(TRACE)
    (arrow,) = with_class(svg, "message")
    left, right = (float(line.get("x1") or 0) for line in with_class(svg, "life"))
    assert (float(arrow.get("x1") or 0), float(arrow.get("x2") or 0)) == (left, right)
    assert float(arrow.get("y2") or 0) > float(arrow.get("y1") or 0)
    title = arrow.find(f"{SVG}title")
    assert title is not None
    assert title.text == "VoteRequest,term=1,last=-1/0"


def test_message_that_never_arrives_is_drawn_as_lost():
    (arrow,) = with_class(drawn(TRACE), "lost")
    title = arrow.find(f"{SVG}title")
    assert title is not None
    assert title.text == "Heartbeat,term=1"


def test_violation_and_role_are_marked():
    svg = drawn(TRACE)
    assert len(with_class(svg, "violation")) == 1
    text = "".join(svg.itertext())
    assert "term 1 has <two> leaders" in text
    assert "role=LEADER" in text


def test_only_the_last_rows_are_drawn():
    svg = drawn(TRACE, marks_max=2)
    assert not with_class(svg, "message")
    assert len(with_class(svg, "violation")) == 1


def test_message_under_way_to_a_killed_host_is_lost():
    lines = [*TRACE[:5], "1100000 kill n1 ending=reset", TRACE[6]]
    svg = drawn(lines)
    assert not with_class(svg, "message")
    assert len(with_class(svg, "lost")) == 1
