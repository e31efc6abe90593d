"""Jepsen's Kafka and total-queue checkers and ours say the same of what we export."""

import random

import pytest

from chaos.checker import check_history
from chaos.exchange.export import export_history
from tests.jepsen.driver import judge_all
from tests.jepsen.histories import sound
from tests.jepsen.mapping import (
    DUPLICATED,
    EARLY,
    LOST,
    NO_WRITER,
    UNEXPECTED,
    differences,
    our_kinds,
)
from tests.jepsen.plants import PLANTS, NoPlaceError

EACH = 8
"""So many histories of each plant; sound ones, and such with several, five times as many."""
MIXED = "two to four plants"
pytestmark = [pytest.mark.jepsen, pytest.mark.timeout(900)]

PLANTED = {
    "lost": ("A1", {"lost-write", "unseen", LOST}),
    "lost at the end": ("A1", {"unseen", LOST}),
    "lost to one group": ("A1", {LOST}),
    "phantom": ("A5", {NO_WRITER, UNEXPECTED}),
    "aborted": ("A7", {"G1a"}),
    "stored twice": ("A8", {"duplicate", DUPLICATED}),
    "stored twice by two attempts": ("A8 places", {"duplicate", DUPLICATED}),
    "stored in two queues": ("A8", {NO_WRITER, DUPLICATED}),
    "two at one place": ("A15", {"inconsistent-offsets"}),
    "two readings of one place": ("A15", {"inconsistent-offsets"}),
    "acknowledged elsewhere": ("A15", {"duplicate"}),
    "polled back": ("A13", {"nonmonotonic-poll"}),
    "turned in a call": ("A13", {"int-nonmonotonic-poll"}),
    "polled again": ("A9", {"nonmonotonic-poll", DUPLICATED}),
    "passed over": ("A14", set()),
    "overtaken by another producer": ("A11", {"G0-realtime"}),
    "overtaken by an unknown one": ("A11", {"G0-realtime"}),
    "overtaken by itself": ("A11", {"G0-realtime", "nonmonotonic-send"}),
    "read before it was sent": (EARLY, {"G1c-realtime"}),
}
"""By plant the check that finds it in each history, and what Jepsen says of each."""
MAY_BE_VALID = {
    "lost to one group",
    "overtaken by another producer",
    "overtaken by an unknown one",
    "read before it was sent",
}
"""Somebody else got it, and order in real time between processes is named (G0-realtime,
G1c-realtime) and allowed: transactions of Kafka are not isolated."""
ONLY_JEPSEN = {
    # Jepsen knows of no retention: what is gone was lost.
    "trimmed": {"lost-write", "unseen", LOST},
    # Jepsen knows of no tags: what a group did not ask for, it passed over and lost.
    "filtered by tag": {LOST},
}
"""What Jepsen finds where its definitions differ from ours, and we say valid."""


@pytest.fixture(scope="session")
def judged(tmp_path_factory):
    """Return by plant the pairs of our verdict and Jepsen's of each history."""
    folder = tmp_path_factory.mktemp("jepsen")
    ours = {}
    for name in ("sound", MIXED, *PLANTS):
        for number, history in enumerate(made(name, EACH if name in PLANTS else 5 * EACH)):
            file = f"{name}-{number}.edn"
            export_history(history, "jepsen-edn", folder / file)
            ours[file] = name, check_history(history)
    theirs = judge_all(folder)
    assert theirs.keys() == ours.keys()
    found = {}
    for file, (name, verdict) in ours.items():
        found.setdefault(name, []).append((verdict, theirs[file]))
    return found


def made(name, count):
    """Yield histories with one plant, from seeds that have a place for it."""
    for seed in range(count * 40):
        world = sound(random.Random(f"{name} {seed}"))
        plants = [name] if name in PLANTS else []
        if name == MIXED:
            plants = world.rng.sample(list(PLANTED), world.rng.randint(2, 4))
        try:
            for plant in plants:
                PLANTS[plant](world)
        except NoPlaceError:
            continue
        yield world.history()
        count -= 1
        if not count:
            return


def test_there_are_a_hundred_histories_and_more(judged):
    assert {*judged} == {"sound", MIXED, *PLANTED, *ONLY_JEPSEN}
    assert all(len(pairs) >= EACH for pairs in judged.values())
    assert sum(map(len, judged.values())) >= 100


def test_what_is_sound_is_sound_to_both(judged):
    for ours, theirs in judged["sound"]:
        assert (ours.verdict, theirs.is_valid, theirs.kinds() - {DUPLICATED}) == (
            "valid",
            True,
            set(),
        )
        assert differences(ours, theirs) == []


@pytest.mark.parametrize("plant", PLANTED)
def test_what_is_planted_is_found_by_both(plant, judged):
    check, kinds = PLANTED[plant]
    for ours, theirs in judged[plant]:
        assert differences(ours, theirs) == []
        assert check in our_kinds(ours.results)
        assert kinds <= theirs.kinds()
        assert not theirs.is_valid or plant in MAY_BE_VALID


def test_both_agree_where_several_things_are_wrong(judged):
    for ours, theirs in judged[MIXED]:
        assert differences(ours, theirs) == []


@pytest.mark.parametrize("plant", ONLY_JEPSEN)
def test_what_jepsen_does_not_know_of_it_calls_lost(plant, judged):
    for ours, theirs in judged[plant]:
        assert ours.verdict == "valid"
        assert theirs.kinds() >= ONLY_JEPSEN[plant]
        assert not theirs.is_valid
