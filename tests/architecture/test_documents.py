"""Documents keep their word: links, named files and the commands of the front page exist."""

import re

import pytest

from tests.architecture.tree import ROOT, text, tracked

PAGES = [path for path in tracked() if path.endswith(".md")]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
MAKE = re.compile(r"\bmake ([a-z][a-z-]*)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
NAMED_FILE = re.compile(r"`([a-z_.]+/[\w./-]*\.(?:py|sh|yaml|toml|txt|md|java))`")
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


def test_front_page_names_the_two_commands() -> None:
    assert {"demo", "test"} <= set(MAKE.findall(text("README.md")))


def test_ci_runs_the_commands_of_the_front_page() -> None:
    script = text(".ci/run")
    for target in ("test", "check"):
        assert re.search(rf"\bmake {target}\b", script), target
