"""What checks note in arrays is what a dict would hold, also where nothing lies close together."""

import random

import pytest

from chaos.checker.agreement import Committed, Compared
from chaos.checker.compact import NOTHING, Firsts, Given, Places, SendsAt, SendsOf, Spots
from chaos.checker.model import History, Replica
from chaos.history.segment import EntryRow

OFFSETS = (0, 63, 64, -1, 1 << 40, -(1 << 62), 7)


def test_spots_hold_what_a_dict_does():
    stream, spots, known = random.Random(5), Spots(), dict[int, int]()
    for _ in range(3_000):
        at, value = stream.choice(OFFSETS) + stream.randrange(100), stream.randrange(-9, 9)
        if stream.random() < 0.5:
            assert spots.first(at, value) == known.setdefault(at, value)
        else:
            spots.put(at, value)
            known[at] = value
    assert (len(spots), list(spots)) == (len(known), sorted(known))
    assert all(spots.get(at) == value for at, value in known.items())
    assert 12345 not in spots
    assert spots.get(12345) == NOTHING


def test_places_are_of_their_queues():
    places = Places()
    places.put(("t", 0, 1, 5), 1)
    places.put(("t", 0, 1, 5), 2)
    assert places.first(("t", 0, 2, 5), 3) == 3
    assert (places.get(("t", 0, 1, 5)), ("t", 1, 1, 5) in places, len(places)) == (2, False, 2)


SENDS = [{"msg_key": key, "op_id": at} for at, key in enumerate((7, -1, 7, NOTHING))]


def test_the_sends_of_a_message_are_those_of_its_key():
    sends = SendsOf(SENDS)
    assert dict(sends) == {7: [SENDS[0], SENDS[2]], -1: [SENDS[1]], NOTHING: [SENDS[3]]}
    assert (len(sends), None in sends, sends.get(8, ())) == (3, False, ())
    with pytest.raises(KeyError):
        sends[8]
    at = Places()
    at.put(("t", 0, 0, 0), 3)
    assert SendsAt(SENDS, at).get(("t", 0, 0, 0)) is SENDS[3]
    assert SendsAt(SENDS, at).get(None) is None


def test_pairs_are_known_also_of_what_nobody_sent():
    given = Given(SendsOf(SENDS))
    pairs = [("a", 7), ("a", 7), ("b", 7), ("a", 99), ("a", None), ("a", 99), ("a", NOTHING)]
    assert [given.add(*pair) for pair in pairs] == [True, False, True, True, True, False, True]
    assert len(given) == 5
    assert all(pair in given for pair in pairs)
    assert ("b", -1) not in given
    assert ("b", 99) not in given


def test_the_first_time_counts():
    first = Firsts(SendsOf(SENDS))
    for t in (5, 3, 4):
        first.put("a", 7, t)
    first.put("a", 99, 1)  # nobody sent it
    assert first.of("a", 7) == 3
    with pytest.raises(KeyError):
        first.of("a", -1)


def entry(index: int, term: int = 1, crc: int = 9) -> EntryRow:
    return EntryRow(index, term, 0, crc, 0, crc_ok=True, type="message")


def history(*logs: list[EntryRow], commit: int = 9) -> History:
    return History(
        replicas=[
            Replica(node=f"n{at}", rows=rows, commit_index=commit, group="g")
            for at, rows in enumerate(logs)
        ]
    )


def test_logs_that_agree_have_nothing_to_look_at():
    whole = [entry(index) for index in range(10)]
    committed = Committed(history(whole, whole), without_damaged=True)
    assert (committed.odd, len(committed), ("g", 3) in committed) == (set(), 10, True)
    assert Compared(history(whole, whole)).several == set()


@pytest.mark.parametrize("other", [entry(4, crc=8), entry(4, term=2), entry(4, crc=NOTHING), None])
def test_what_differs_or_is_lacking_is_looked_at(other):
    whole = [entry(index) for index in range(10)]
    parts = [row if row.entry_index != 4 else other for row in whole]
    logs = history(whole, [row for row in parts if row is not None])
    assert Committed(logs, without_damaged=True).odd == {("g", 4)}
    assert Compared(logs).several == (set() if other is None else {("g", 4)})
    assert Compared(logs).number == 10


def test_two_dumps_of_one_node_are_looked_at_as_a_whole():
    twice = history([entry(0)], [entry(0)])
    same = [replica for replica in twice.replicas if replica.node == "n0"] * 2
    assert Committed(History(replicas=same), without_damaged=True).odd == {("g", 0)}
