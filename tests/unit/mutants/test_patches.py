"""Each planted bug changes what it says, and nothing is planted unless asked."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dledger.codec.entry import encode_span
from dledger.core.log import RaftLog
from dledger.core.model import HardState
from dledger.storage.state_files import HardStateFile
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import RealDisk
from mutants import patches
from mutants.__main__ import main
from mutants.patches import ALL, BY_TESTS, MUTANTS
from mutants.planting import PRODUCT, Mutant, StaleMutantError, patch, planted, uproot
from store.config import StoreConfig
from store.queues.consume_queue import ConsumeQueues
from store.results import PutMessage, PutStatus
from store.write.commit_log import CommitLog
from tests.unit.store.fakes import batch_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dledger.core.model import Span

    Held = tuple[str, list[str], list[int]]


@pytest.fixture(autouse=True)
def unpatched() -> Iterator[None]:
    """Undo what a test planted."""
    yield
    uproot()


class FakeNode:
    """A leader whose entries never commit."""

    header_bytes = 48
    term = 1
    commit_index = first_index = first_position = committed_position = 0
    end_index = -1

    def reserve(self, body_bytes: int) -> int:
        return 48

    def append(self, parts: Sequence[bytes], body_bytes: int) -> int:
        self.end_index += 1
        return self.end_index

    def append_batch(self, bodies: Sequence[bytes]) -> list[int]:
        return [self.append((body,), len(body)) for body in bodies]


class EmptyView:
    """The disk of a new replica."""

    first_index = 0
    last_index = -1
    base_term = 0
    snapshot = None

    def term_runs(self) -> list[tuple[int, int]]:
        return []

    def position_after(self, index: int) -> int:
        return 0


def message() -> PutMessage:
    return PutMessage(b"T", 0, 0, 0, 0, bytes(8), 0, 0, b"", b"body", 0)


def commit_log(directory: Path) -> CommitLog:
    config = StoreConfig(directory=str(directory), store_host=bytes(8))
    log = CommitLog(config, ConsumeQueues(config, RealDisk()), SystemClock(), FakeNode())
    log.writable = True
    return log


@pytest.mark.parametrize("planted", [False, True])
def test_ack_before_quorum_acknowledges_what_is_only_appended(
    planted: bool, tmp_path: Path
) -> None:
    if planted:
        MUTANTS["ack-before-quorum"]()
    heard: list[PutStatus] = []
    log = commit_log(tmp_path)
    log.put(message(), lambda status, *_: heard.append(status))
    log.put_batch(batch_of([message(), message()]), lambda status, *_: heard.append(status))
    assert heard == ([PutStatus.OK] * 2 if planted else [])
    assert len(log.uncommitted) == 2


def span(index: int, term: int, position: int, body: bytes) -> Span:
    return encode_span(index, term, position, (body,))


@pytest.mark.parametrize("planted", [False, True])
def test_no_truncate_on_conflict_keeps_what_the_leader_does_not_have(planted: bool) -> None:
    if planted:
        MUTANTS["no-truncate-on-conflict"]()
    log = RaftLog(EmptyView(), -1)
    log.append(span(0, 1, 0, b"mine"))
    other = span(0, 2, 0, b"hers")
    assert log.find_conflict(other) == (None if planted else 0)


def test_no_truncate_on_conflict_still_takes_what_is_missing() -> None:
    MUTANTS["no-truncate-on-conflict"]()
    log = RaftLog(EmptyView(), -1)
    mine = span(0, 1, 0, b"mine")
    log.append(mine)
    assert log.find_conflict(span(1, 2, mine.end_position, b"next")) == 1


@pytest.mark.parametrize("planted", [False, True])
def test_vote_not_persisted_forgets_the_vote_at_a_restart(planted: bool, tmp_path: Path) -> None:
    if planted:
        MUTANTS["vote-not-persisted"]()
    file = HardStateFile(RealDisk(), str(tmp_path))
    file.save(HardState(7, "n1"))
    assert file.load(log_is_empty=False) == HardState(7, None if planted else "n1")


def product() -> Iterator[Held]:
    """What the loaded modules of the product hold, and the classes in them, each looked at once."""
    modules = {name: sys.modules[name] for name in sorted(sys.modules)}
    places: dict[int, tuple[str, Any]] = {
        id(module): (name, module)
        for name, module in modules.items()
        if name.partition(".")[0] in PRODUCT
    }
    for _, module in list(places.values()):
        classes = [(name, one) for name, one in vars(module).items() if isinstance(one, type)]
        places.update({id(one): (name, one) for name, one in classes})
    spaces = ((name, vars(place)) for name, place in places.values())
    return ((name, list(space), list(map(id, space.values()))) for name, space in spaces)


@pytest.fixture(scope="module")
def as_it_was() -> Callable[[], list[Held]]:
    """What the product held before anything was planted, looked at anew once more is loaded."""
    kept: dict[int, list[Held]] = {}

    def look() -> list[Held]:
        if len(sys.modules) not in kept:
            kept.clear()
            kept[len(sys.modules)] = list(product())
        return kept[len(sys.modules)]

    return look


@pytest.mark.parametrize("mutant", ALL.values(), ids=lambda mutant: mutant.name)
def test_every_mutant_changes_the_product_and_is_pulled_out_again(
    mutant: Mutant, as_it_was: Callable[[], list[Held]]
) -> None:
    mutant()  # what it imports is loaded from now on
    uproot()
    before = as_it_was()
    with planted(mutant):
        assert any(now != then for now, then in zip(product(), before, strict=True))
    assert list(product()) == before


@pytest.mark.parametrize("mutant", ALL.values(), ids=lambda mutant: mutant.name)
def test_every_mutant_says_what_it_breaks_and_who_had_it(mutant: Mutant) -> None:
    assert mutant.breaks.endswith(".")
    assert mutant.source.endswith(".")


def test_there_are_enough_of_them() -> None:
    assert len(MUTANTS) >= 26


def test_no_two_bugs_are_the_same() -> None:
    names: dict[object, list[str]] = {}
    for mutant in ALL.values():
        names.setdefault(mutant.plant, []).append(mutant.name)
    assert [same for same in names.values() if len(same) > 1] == []


def test_no_two_bugs_have_one_name() -> None:
    for bugs in (patches._SIMULATED, patches._BY_TESTS):
        names = [mutant.name for mutant in bugs]
        assert len(set(names)) == len(names)


def test_a_bug_is_found_by_the_simulator_or_by_a_test_that_plants_it() -> None:
    assert not set(MUTANTS) & set(BY_TESTS)
    tests = Path(__file__).parents[2]
    text = "".join(path.read_text() for path in tests.rglob("test_*.py"))
    planting = set(re.findall(r'(?:BY_TESTS|ALL)\["([^"]+)"\]', text))
    assert set(BY_TESTS) - planting == set()


def test_a_patch_of_code_that_has_changed_is_refused() -> None:
    with pytest.raises(StaleMutantError):
        patch("dledger.core.quorum:majority", ("no such text", ""))()
    with pytest.raises(StaleMutantError):
        patch("dledger.core.quorum:no_such_function", ("a", "b"))()


def test_a_function_is_exchanged_wherever_it_was_imported_by_name() -> None:
    from dledger.core import quorum, replication

    with planted(MUTANTS["one-short-of-a-majority"]):
        assert replication.majority_index is quorum.majority_index
        assert replication.majority_index((1, 2, 9)) == 9
    assert replication.majority_index((1, 2, 9)) == 2


def test_the_list_names_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in ALL)


def test_an_unknown_mutant_or_program_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no-such-bug", "--", "broker"]) == 2
    assert main(["ack-before-quorum", "--", "rm"]) == 2
    assert "ack-before-quorum" in capsys.readouterr().err


def test_no_production_package_imports_the_mutants() -> None:
    code = "import sys, broker.server; sys.exit('mutants' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
