"""A replica asks its peers for what is damaged: what they say to each other, without a network."""

from collections import deque
from types import SimpleNamespace

import pytest

from dledger.config import DLedgerConfig
from dledger.core.messages import FetchEntries
from dledger.core.model import Role, SnapshotId
from dledger.repair import RETRY_MS, Repairer
from dledger.storage.corruption import Place
from mutants.patches import BY_TESTS
from mutants.planting import planted

PEERS = ("n1", "n2")
CHUNK = 256 * 1024
SNAPSHOT = SnapshotId(99, 3, 3 * CHUNK + 7, 1)
CONTENT = bytes(range(256)) * 4096


class Store:
    """A log of 200 entries, some of them damaged; or one that begins behind a snapshot."""

    last_index, end_position = 199, 0

    def __init__(self, *damaged: int, snapshot: SnapshotId | None = None) -> None:
        places = {index: Place(0, 48, 3) for index in damaged}
        self.corruption = SimpleNamespace(damaged=places, describe=lambda _: "")
        self.snapshot = snapshot
        self.first_index = 0 if snapshot is None else snapshot.last_index + 1
        self.is_replaced = False

    def position_after(self, index: int) -> int:
        return 0

    def read_snapshot(self, offset: int, size: int) -> bytes:
        return b"" if self.is_replaced else CONTENT[: SNAPSHOT.size][offset : offset + size]

    def read(self, first_index: int, last_index: int, bytes_max: int) -> None:
        return None


class Side:
    """A repairer and what it has said."""

    def __init__(self, self_id: str, store: Store) -> None:
        log = SimpleNamespace(commit_index=199, term_at=lambda _: 3)
        ids = ("n0", *PEERS)
        state = SimpleNamespace(
            log=log, role=Role.FOLLOWER, term=3, delivered_index=199,
            others=tuple(one for one in ids if one != self_id),
        )  # fmt: skip
        config = DLedgerConfig(
            group="g", self_id=self_id, peers=dict.fromkeys(ids, ""), directory="/none"
        )
        self.said: deque = deque()
        self.repairer = Repairer(config, SimpleNamespace(state=state), store, self.said.append)


def exchange(asker: Side, peer: Side, *, lost: int | None = None) -> int:
    """Let two talk until they are silent; the message of that number gets lost. Return how many."""
    for number in range(1000):
        if asker.said:
            message, receiver = asker.said.popleft(), peer
        elif peer.said:
            message, receiver = peer.said.popleft(), asker
        else:
            return number
        if number != lost and message.receiver == receiver.repairer._self_id:
            receiver.repairer.on_message(message)
    return 1000


def snapshot_behind_a_lost_message(lost: int) -> bytes | None:
    asker, peer = Side("n0", Store(5)), Side("n1", Store(snapshot=SNAPSHOT))
    for turn in range(3):  # n1, n2 that is down, n1
        asker.repairer.pass_time(turn * RETRY_MS)
        exchange(asker, peer, lost=lost if turn == 0 else None)
    replacement = asker.repairer.replacement
    return replacement and replacement[1]


@pytest.mark.parametrize("lost", range(8))
def test_a_snapshot_for_damaged_entries_goes_on_behind_a_lost_message(lost):
    assert snapshot_behind_a_lost_message(lost) == CONTENT[: SNAPSHOT.size]


def test_with_the_planted_bug_it_never_does():
    with planted(BY_TESTS["repair-stuck-behind-a-lost-chunk"]):
        assert snapshot_behind_a_lost_message(3) is None


def test_nobody_asks_in_haste_for_a_snapshot_that_another_one_replaces():
    store = Store(snapshot=SNAPSHOT)
    asker, peer = Side("n0", Store(5)), Side("n1", store)
    store.is_replaced = True
    asker.repairer.pass_time(0)
    assert exchange(asker, peer) == 1


def asked_for(*damaged: int, questions: int) -> list[tuple[str, int, int]]:
    """Return whom a replica asks for what while nobody answers."""
    asker = Side("n0", Store(*damaged))
    for turn in range(questions):
        asker.repairer.pass_time(turn * RETRY_MS)
    said = [message for message in asker.said if isinstance(message, FetchEntries)]
    return [(one.receiver, one.first_index, one.last_index) for one in said]


def test_an_entry_that_no_peer_has_holds_up_nothing_behind_it():
    assert asked_for(5, 6, 9, questions=8) == [
        ("n1", 5, 6), ("n2", 5, 6),
        ("n1", 6, 6), ("n2", 6, 6),
        ("n1", 9, 9), ("n2", 9, 9),
        ("n1", 5, 6), ("n2", 5, 6),
    ]  # fmt: skip


def test_with_the_planted_bug_the_first_one_is_asked_for_alone():
    with planted(BY_TESTS["repair-held-up-by-the-first"]):
        assert {first for _, first, _ in asked_for(5, 6, 9, questions=8)} == {5}
