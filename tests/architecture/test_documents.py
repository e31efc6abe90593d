"""Documents keep their word: links, named files and the commands of the front page exist."""

import re

import pytest

from tests.architecture.tree import ROOT, text, tracked

PAGES = [path for path in tracked() if path.endswith(".md")]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
MAKE = re.compile(r"\bmake ([a-z][a-z-]*)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
NAMED_FILE = re.compile(r"`([a-z_.]+/[\w./-]*\.(?:py|sh|yaml|toml|txt|md|java))`")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z](?![a-z-])")
OTHER_TOOLS = re.compile(r"\bpytest\b|\bpip\b|\bTESTS\b")
SPLIT = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors(page: str) -> set[str]:
    """The heading anchors of a page, as the usual renderers make them."""
    headings = SPLIT.findall(FENCE.sub("", text(page)))
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize("page", PAGES)
def test_links_resolve(page: str) -> None:
    folder = (ROOT / page).parent
    for target in LINK.findall(FENCE.sub("", text(page))):
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, anchor = target.partition("#")
        file = (folder / path).resolve() if path else ROOT / page
        assert file.exists(), target
        if anchor and file.suffix == ".md":
            assert anchor in anchors(str(file.relative_to(ROOT))), target


@pytest.mark.parametrize("page", PAGES)
def test_named_files_exist(page: str) -> None:
    missing = [name for name in NAMED_FILE.findall(text(page)) if not (ROOT / name).exists()]
    assert not missing, missing


@pytest.mark.parametrize("page", PAGES)
def test_named_targets_exist(page: str) -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", text("Makefile"), re.MULTILINE))
    code = "\n".join(re.findall(r"`[^`]+`|^```.*?^```", text(page), re.MULTILINE | re.DOTALL))
    assert set(MAKE.findall(code)) <= targets


def test_named_options_exist() -> None:
    """What a page has a reader type is an option of ours, or its line names another tool."""
    product = [path for path in tracked() if path.endswith(".py") and path[:6] != "tests/"]
    code = "\n".join(map(text, product))
    ours = set(re.findall(r"[\"'](--[a-z][a-z-]+)[\"']", code))
    by_name = set(re.findall(r"\b[a-z][a-z_]+\b", code))
    for page in PAGES:
        lines = [line for line in text(page).splitlines() if not OTHER_TOOLS.search(line)]
        for option in set(OPTION.findall("\n".join(lines))) - ours:
            assert option.removeprefix("--").replace("-", "_") in by_name, (page, option)


def test_front_page_names_the_two_commands() -> None:
    assert {"demo", "test"} <= set(MAKE.findall(text("README.md")))


def test_ci_runs_the_commands_of_the_front_page() -> None:
    script = text(".ci/run")
    for target in ("test", "check"):
        assert re.search(rf"\bmake {target}\b", script), target


DECISIONS = sorted(page for page in PAGES if re.fullmatch(r"docs/adr/\d{4}-[a-z0-9-]+\.md", page))


def test_every_decision_is_listed_in_order() -> None:
    """Numbers run from 1 without a gap; name, title and the handbook's list agree."""
    listed = re.findall(r"^\| \[(\d+)\]\((adr/[^)]+)\) \|", text("docs/README.md"), re.MULTILINE)
    assert [f"docs/{path}" for _, path in listed] == DECISIONS
    numbers = [int(page.rpartition("/")[2][:4]) for page in DECISIONS]
    assert numbers == list(range(1, len(numbers) + 1))
    for page, number, (shown, _) in zip(DECISIONS, numbers, listed, strict=True):
        assert int(shown) == number, page
        assert text(page).startswith(f"# {number}. "), page


def test_every_page_of_the_handbook_is_listed() -> None:
    pages = {page for page in PAGES if re.fullmatch(r"docs/[a-z]+\.md", page)} - {"docs/README.md"}
    assert pages <= {f"docs/{target}" for target in LINK.findall(text("docs/README.md"))}


TERMS = re.findall(r"\S+", """
    acknowledged append applied at-least-once auditor back-pressure baseline batch broker
    check-quorum checkpoint committed configuration consumer contract dispatch dispatch-hint drained
    entry flush follower frame group heartbeat held history index IndexFile key leader learner lease
    message mutant nemesis no-op offset oneway opaque oracle page-cache phantom
    physical plan position producer pull push quarantine queue queue_offset quorum
    read-index rebalance record replica retention corruption route segment snapshot span
    subscription tag tags-code term topic torn-write transfer truncate uncommitted unknown verdict
    voter witness name-server consumer-group consume-queue commit-log group-commit commit_index
    plain-log long-polling dead-letter unique-key
    master slave controller in-sync epoch half check-back op-message retry-topic orderly claim
    clustering broadcasting pre-vote barrier scenario campaign check budget
""")  # fmt: skip
"""Terms of the field and of this project that the handbook uses without explaining them anew."""


@pytest.mark.parametrize("term", TERMS)
def test_every_term_is_in_the_glossary(term: str) -> None:
    """A row begins with it, or has it in its first cell; and some other page uses it."""
    rows = re.findall(r"^\| (.+?) \|", text("docs/glossary.md"), re.MULTILINE)
    spoken = rf"\b{term.replace('-', '[- ]')}"
    assert [row for row in rows if re.search(spoken, row)], term
    elsewhere = [page for page in PAGES if page != "docs/glossary.md"]
    assert any(re.search(spoken, text(page)) for page in elsewhere), term
