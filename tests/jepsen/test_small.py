"""Small histories as Jepsen writes them: our import judges them as Jepsen's Kafka checker does."""

from pathlib import Path

import pytest

from chaos.checker import check_history
from chaos.load import load_history
from cli.main import run
from tests.jepsen.driver import judge_all
from tests.jepsen.mapping import FOUND_BY_JEPSEN

MS = 1_000_000
Lines = list[tuple[int, str, str, str]]


def both(process: int, f: str, asked: str, told: str = "", kind: str = "ok") -> Lines:
    return [(process, "invoke", f, asked), (process, kind, f, told or asked)]


def sent(process: int, key: int, *pairs: tuple[int, int], kind: str = "ok") -> Lines:
    """Return one operation that sends these (offset, value)."""
    asked = " ".join(f"[:send {key} {value}]" for _, value in pairs)
    back = " ".join(f"[:send {key} [{offset} {value}]]" for offset, value in pairs)
    return both(process, "send", f"[{asked}]", f"[{back if kind == 'ok' else asked}]", kind)


def got(process: int, key: int, *pairs: tuple[int, int]) -> Lines:
    found = " ".join(f"[{offset} {value}]" for offset, value in pairs)
    return both(process, "poll", "[[:poll]]", f"[[:poll {{{key} [{found}]}}]]")


def assign(process: int, *keys: int, f: str = "assign", kind: str = "ok") -> Lines:
    return both(process, f, f"[{' '.join(map(str, keys))}]", kind=kind)


FOUR = [line for n in range(4) for line in sent(0, 0, (n, 10 + n))]
"""Values 10 to 13 at offsets 0 to 3 of key 0."""
READ = assign(5, 0) + got(5, 0, (0, 10), (1, 11), (2, 12), (3, 13))
HISTORIES: dict[str, tuple[Lines, set[str], set[str]]] = {
    "all came": (FOUR + READ, set(), set()),
    "one between others is lost": (
        FOUR + assign(5, 0) + got(5, 0, (0, 10), (1, 11), (3, 13)),
        {"A1"}, {"lost-write", "unseen", "int-poll-skip"},
    ),
    # Nobody says whether the end was read: Jepsen calls it unseen, and we unknown.
    "the end did not come": (
        FOUR + assign(5, 0) + got(5, 0, (0, 10), (1, 11), (2, 12)), {"A1?"}, {"unseen"}
    ),
    "an unknown send came": (
        FOUR + READ + sent(1, 0, (4, 20), kind="info") + got(5, 0, (4, 20)), set(), set()
    ),
    "an unknown send did not come": (FOUR + READ + sent(1, 0, (4, 20), kind="info"), set(), set()),
    "a refused send came": (
        FOUR + READ + sent(1, 0, (4, 20), kind="fail") + got(5, 0, (4, 20)), {"A7"}, {"G1a"}
    ),
    "a value that nobody sent": (FOUR + READ + got(5, 0, (4, 99)), {"A5"}, {"no-writer-of-value"}),
    "two values at one offset": (
        FOUR + sent(1, 0, (3, 20)) + READ, {"A1", "A11", "A15"},
        {"inconsistent-offsets"},
    ),
    "one value at two offsets": (FOUR + READ + got(5, 0, (4, 12)), {"A8"}, {"duplicate"}),
    "a poll goes back": (
        FOUR + assign(5, 0) + got(5, 0, (0, 10), (1, 11)) + got(5, 0, (3, 13)) + got(5, 0, (2, 12)),
        {"A13"}, {"nonmonotonic-poll", "poll-skip"},
    ),
    "within a poll": (
        FOUR + assign(5, 0) + got(5, 0, (0, 10), (2, 12), (1, 11), (3, 13)),
        {"A13"}, {"int-nonmonotonic-poll", "int-poll-skip"},
    ),
    "back after the key was assigned once more": (
        FOUR + assign(5, 0) + got(5, 0, (0, 10), (1, 11)) + got(5, 0, (3, 13)) + assign(5, 0, 1)
        + got(5, 0, (2, 12)),
        {"A13"}, {"nonmonotonic-poll", "poll-skip"},
    ),
    "back after the key was taken and given": (
        FOUR + assign(5, 0) + got(5, 0, (0, 10), (1, 11), (2, 12)) + assign(5, 1) + assign(5, 0)
        + got(5, 0, (1, 11), (2, 12), (3, 13)),
        set(), set(),
    ),
    "back after an assignment that failed": (
        FOUR + assign(5, 0) + got(5, 0, (0, 10), (1, 11)) + got(5, 0, (3, 13))
        + assign(5, 1, kind="fail") + got(5, 0, (2, 12)),
        {"A13"}, {"nonmonotonic-poll", "poll-skip"},
    ),
    "one passes over what another gets": (
        FOUR + assign(5, 0) + assign(6, 0) + got(5, 0, (0, 10)) + got(5, 0, (2, 12))
        + got(5, 0, (3, 13)) + got(6, 0, (1, 11)),
        {"A14"}, {"poll-skip"},
    ),
    "a later send lies before": (
        sent(0, 0, (1, 11)) + sent(0, 0, (0, 10)) + got(5, 0, (0, 10), (1, 11)),
        {"A11"}, {"nonmonotonic-send", "G0-realtime"},
    ),
    "of another process": (
        sent(0, 0, (1, 11)) + sent(1, 0, (0, 10)) + got(5, 0, (0, 10), (1, 11)),
        {"A11"}, {"G0-realtime"},
    ),
    "offsets with gaps": (
        sent(0, 0, (0, 10)) + sent(0, 0, (5, 15)) + assign(5, 0) + got(5, 0, (0, 10))
        + got(5, 0, (5, 15)),
        set(), set(),
    ),
}  # fmt: skip
"""By name what happened, which checks find something, and what Jepsen calls it."""
MORE = {"G0", "duplicate", "unseen", "lost-write", "duplicated", "int-poll-skip", "poll-skip",
        "int-nonmonotonic-poll", "nonmonotonic-poll", "nonmonotonic-send",
        "G0-realtime", "G1c-realtime"}  # fmt: skip
"""What follows for Jepsen where one message has no one place."""
QUEUES: dict[str, tuple[Lines, set[str], dict[str, int]]] = {
    "all was drained": (
        both(0, "enqueue", "1") + both(0, "enqueue", "2") + both(1, "dequeue", "nil", "1")
        + both(1, "drain", "nil", "[2]"),
        set(), {},
    ),
    "one is lost": (
        both(0, "enqueue", "1") + both(0, "enqueue", "2") + both(1, "drain", "nil", "[2]"),
        {"A1"}, {"lost": 1},
    ),
    "one that nobody put there": (
        both(0, "enqueue", "1") + both(1, "drain", "nil", "[1 7]"), {"A5"}, {"unexpected": 1}
    ),
    # Jepsen asks not whether a send was refused: it was tried, and recovered.
    "a refused one came": (
        both(0, "enqueue", "1") + both(0, "enqueue", "2", kind="fail")
        + both(1, "drain", "nil", "[1 2]"),
        {"A7"}, {"recovered": 1},
    ),
    # For both that is no reason to call it invalid.
    "one came twice": (
        both(0, "enqueue", "1") + both(1, "dequeue", "nil", "1") + both(1, "drain", "nil", "[1]"),
        {"A9"}, {"duplicated": 1},
    ),
    "one of unknown outcome came": (
        both(0, "enqueue", "1", kind="info") + both(1, "drain", "nil", "[1]"),
        set(), {"recovered": 1},
    ),
}  # fmt: skip


def write(lines: Lines, path: Path) -> Path:
    path.write_text("".join(
        f"{{:index {n}, :process {process}, :type :{kind}, :f :{f}, :value {value}, "
        f":time {n * MS}}}\n"
        for n, (process, kind, f, value) in enumerate(lines)
    ))  # fmt: skip
    return path


def found_by_us(lines: Lines, path: Path) -> set[str]:
    history = write(lines, path / "history.edn")
    assert run(["import", "--from", "jepsen-edn", str(history), "--out", str(path / "run")]) == 0
    results = check_history(load_history(path / "run")).results
    unsure = {"A1?"} if results["A1"].verdict == "unknown" else set()
    return unsure | {name for name in FOUND_BY_JEPSEN if results[name].count}


@pytest.mark.parametrize("name", HISTORIES)
def test_our_import_finds_what_is_wrong(name, tmp_path):
    lines, ours, _ = HISTORIES[name]
    assert found_by_us(lines, tmp_path) == ours


@pytest.mark.parametrize("name", QUEUES)
def test_our_import_finds_what_is_wrong_with_a_queue(name, tmp_path):
    lines, ours, _ = QUEUES[name]
    assert found_by_us(lines, tmp_path) == ours


@pytest.mark.jepsen
@pytest.mark.timeout(900)
def test_jepsen_calls_them_so(tmp_path):
    every = {**HISTORIES, **QUEUES}
    for name, (lines, _, _) in every.items():
        write(lines, tmp_path / f"{name}.edn")
    found = judge_all(tmp_path)
    for name, (_, _, kinds) in HISTORIES.items():
        said = found[f"{name}.edn"].kinds()
        more = MORE if said & {"duplicate", "inconsistent-offsets"} else set()
        assert kinds <= said <= kinds | more, (name, said)
    for name, (_, _, counts) in QUEUES.items():
        told = found[f"{name}.edn"].queues[""]
        assert {what: n for what, n in told.items() if n} == counts, name
