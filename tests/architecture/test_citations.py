"""Citations lead somewhere: each section, id, heading and decision that a comment names exists."""

import re
from collections.abc import Iterator

import pytest

from tests.architecture.test_documents import anchors
from tests.architecture.tree import PACKAGES, ROOT, text, tracked

ITEM = r"(?:[A-Z]\d{1,2}|\d{1,2}(?:\.\d{1,2})?)"
ITEMS = rf"{ITEM}(?:-{ITEM})?(?:\s\([^()]*\))?"
SPACE = r"(?:\s*\n[ #]*|[ ])"
SPEC = re.compile(
    rf"\bspec/(?P<page>\w+)\.md(?:{SPACE}(?P<items>{ITEMS}(?:,{SPACE}{ITEMS})*)(?![\w.]*\w))?"
)
PAGE = re.compile(r"(?<![\w/])docs/(?P<page>[\w/-]+)\.md(?:#(?P<anchor>[\w-]+))?")
DECISION = re.compile(r"(?<![\w/])docs/adr/(?P<number>\d{4})\b(?!-)")
ELSEWHERE = re.compile(r"(?<![\w/])(?!spec/)(?:docs/)?[\w/]+\.md \(?[A-Z]?\d")
"""A number behind a page that has none."""
NO_PAGE = re.compile(r"\b(?:protocol|chaos|anchors) \d+(?:\.\d+)?\b(?!\.\d)")
MODULE = re.compile(rf"``?((?:{'|'.join(PACKAGES)})(?:\.(?!conf\b)\w+)+)``?")
PAPER = re.compile(r"\b[Pp]aper (?P<section>\d(?:\.\d)?(?:\.\d)?)(?!\d)")
"""Section numbers behind the word, as in "Raft paper 5.4.2"."""
PAPER_SECTIONS = set(
    re.findall(r"\S+", "1 2 3 4 5 6 7 8 9 10 5.1 5.2 5.3 5.4 5.4.1 5.4.2 5.4.3 5.5 5.6")
)

CITING = [path for path in tracked() if path.endswith((".py", ".c", ".sh", ".yaml", ".java"))]
PAGES = sorted(path for path in tracked() if re.fullmatch(r"docs/spec/[a-z]+\.md", path))
THIS = "tests/architecture/test_citations.py"
CHECK_ID = re.compile(r"\bA\d{1,2}\b")


def sections(page: str) -> set[str]:
    """Numbers of the headings and ids of the table rows of a page of facts."""
    headings = re.findall(r"^#{2,3} (\d+(?:\.\d+)?)\.? ", text(page), re.MULTILINE)
    rows = re.findall(r"^\| ([A-Z]\d+) \|", text(page), re.MULTILINE)
    assert len(headings) == len(set(headings)), page
    assert len(rows) == len(set(rows)), page
    return {*headings, *rows}


def unresolved(body: str) -> Iterator[str]:
    """Citations in a text that lead nowhere."""
    for match in SPEC.finditer(body):
        page = f"docs/spec/{match['page']}.md"
        if page not in PAGES:
            yield match[0]
            continue
        items = re.sub(r"\([^()]*\)", "", match["items"] or "")
        missing = set(re.findall(ITEM, items)) - sections(page)
        yield from (f"{page} {number}" for number in sorted(missing))
    for match in PAGE.finditer(body):
        page, anchor = f"docs/{match['page']}.md", match["anchor"]
        if not (ROOT / page).exists() or (anchor and anchor not in anchors(page)):
            yield match[0]
    for match in DECISION.finditer(body):
        if not any(path.startswith(f"docs/adr/{match['number']}-") for path in tracked()):
            yield match[0]
    yield from (match[0] for pattern in (ELSEWHERE, NO_PAGE) for match in pattern.finditer(body))
    for match in PAPER.finditer(body):
        if match["section"] not in PAPER_SECTIONS:
            yield match[0]


def test_citations_resolve() -> None:
    found = {path: list(unresolved(text(path))) for path in CITING if path != THIS}
    assert not {path: missing for path, missing in found.items() if missing}


@pytest.mark.parametrize(
    "citation",
    [
        "spec/wire.md 3.99",
        "spec/wire.md 3.3, 4.99",
        "spec/wire.md 3.3 (auto-creation), 4.99 (17)",
        "spec/wire.md 3.3,\n    9.9",
        "spec/proof.md A1, Z9",
        "spec/proof.md N1-N99",
        "spec/nothing.md 1",
        "docs/nothing.md",
        "docs/raft.md#no-such-heading",
        "docs/adr/9999",
        "protocol.md 3.3",
        "protocol 3.3",
        "docs/chaos.md 6.4",
        "Raft paper 5.9",
    ],
)
def test_a_citation_that_leads_nowhere_is_found(citation: str) -> None:
    assert list(unresolved(f"Source: {citation}; RocketMQ ConfigManager."))


@pytest.mark.parametrize(
    "citation",
    [
        "spec/wire.md 3.3",
        "spec/wire.md 3.3 (auto-creation), 3.9 (17)",
        "spec/disk.md 5",
        "spec/proof.md N1-N13, A1",
        "docs/raft.md#durability",
        "docs/adr/0002",
        "Raft paper 5.4.2",
    ],
)
def test_a_citation_that_leads_somewhere_is_not(citation: str) -> None:
    assert not list(unresolved(f"Source: {citation}; RocketMQ ConfigManager."))


def is_there(dotted: str) -> bool:
    """Whether a dotted name is a module, or a name that its module has."""
    parts = dotted.split(".")
    for size in range(len(parts), 0, -1):
        folder = "/".join(parts[:size])
        source = next((p for p in (f"{folder}.py", f"{folder}/__init__.py") if p in tracked()), "")
        if source:
            return all(re.search(rf"\b{name}\b", text(source)) for name in parts[size:])
    return False


def test_named_modules_exist() -> None:
    """What a comment or a page has as ``package.module.name`` is there."""
    named = [path for path in tracked() if path.endswith((".py", ".md")) and path != "CHANGELOG.md"]
    gone = {
        f"{path}: {name}"
        for path in named
        for name in MODULE.findall(text(path))
        if not is_there(name)
    }
    assert not gone, gone


def test_every_page_of_facts_is_cited_and_listed() -> None:
    listed = set(re.findall(r"\]\((\w+\.md)\)", text("docs/spec/README.md")))
    assert {path.rpartition("/")[2] for path in PAGES} == listed
    cited = {match["page"] for path in CITING for match in SPEC.finditer(text(path))}
    assert {f"docs/spec/{page}.md" for page in cited} >= set(PAGES)


def test_check_ids_are_those_of_the_code() -> None:
    """Each id that checkers or oracles use is explained, and each one explained is used."""
    checking = [p for p in CITING if p.split("/")[0] in ("chaos", "spark", "sim")]
    used = {name for path in checking for name in CHECK_ID.findall(text(path))}
    explained = {name for name in sections("docs/spec/proof.md") if CHECK_ID.fullmatch(name)}
    assert explained == used
