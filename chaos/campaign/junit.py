"""The runs of a campaign as a JUnit file, as CI systems read it. Pure."""

from collections.abc import Sequence
from typing import Final
from xml.etree import ElementTree as ET  # what is read is what we write

from chaos.campaign.outcome import EXCEEDED, FAILED, Outcome
from chaos.checker.model import INVALID, UNKNOWN

_ELEMENTS: Final = {INVALID: "failure", UNKNOWN: "error", FAILED: "error"}


def junit(outcomes: Sequence[Outcome], name: str) -> bytes:
    """Return the file: one test case for each run, INVALID a failure, UNKNOWN an error.

    What exceeded the contract passes, and says so in its output.
    """
    suite = ET.Element(
        "testsuite",
        name=name,
        tests=str(len(outcomes)),
        failures=str(sum(_ELEMENTS.get(one.verdict) == "failure" for one in outcomes)),
        errors=str(sum(_ELEMENTS.get(one.verdict) == "error" for one in outcomes)),
        time=f"{sum(one.seconds for one in outcomes):.1f}",
    )
    for one in outcomes:
        suite.append(_case(one))
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    text: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _case(one: Outcome) -> ET.Element:
    case = ET.Element(
        "testcase",
        classname=_text(f"chaos.{one.job.title}"),
        name=_text(one.job.words),
        time=f"{one.seconds:.1f}",
    )
    lines = [_text(f"{finding.cause}\n    {finding.summary}") for finding in one.findings]
    element = _ELEMENTS.get(one.verdict)
    if element is not None:
        message = _text(one.findings[0].cause if one.findings else one.verdict)
        ET.SubElement(case, element, type=one.verdict, message=message).text = "\n".join(lines)
    elif one.verdict == EXCEEDED or lines:
        ET.SubElement(case, "system-out").text = "\n".join([one.verdict, *lines])
    return case


def _text(text: str) -> str:
    """Return a text without what XML cannot carry."""
    return "".join(c for c in text if c in "\n\t" or (c >= " " and not "\ud800" <= c <= "\udfff"
                                                      and c not in "\ufffe\uffff"))  # fmt: skip
