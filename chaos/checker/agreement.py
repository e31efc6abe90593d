"""At which indexes logs have the same, in the arrays of `chaos.checker.compact`: for A34 and A35.

Where they do not, or one lacks an entry, whoever asks looks at each log once more.
"""

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator

from chaos.checker.compact import NOTHING, Spots
from chaos.checker.model import History, Replica
from chaos.history.segment import EntryRow

Index = tuple[str, int]
"""Raft group and index."""


class Compared:
    """Where logs have the same entry and where they do not."""

    def __init__(self, history: History) -> None:
        self.several: set[Index] = set()
        """Group and index at which sound entries differ, by term or content."""
        terms, crcs = defaultdict[str, Spots](Spots), defaultdict[str, Spots](Spots)
        for replica in history.replicas:
            term_of, crc_of = terms[replica.group], crcs[replica.group]
            for row in replica.rows:
                if row.crc_ok:
                    index, term, crc = row.entry_index, row.term, row.entry_crc
                    same = term_of.first(index, term) == term and crc_of.first(index, crc) == crc
                    if not same or NOTHING in {term, crc}:  # which arrays cannot hold
                        self.several.add((replica.group, index))
        self.number = sum(map(len, terms.values()))
        """At how many indexes a log has a sound entry."""


class Committed:
    """Which indexes logs call committed, and at which of them something may be wrong.

    ``without_damaged``: what a fault spoiled on a node's disk does not count.
    """

    def __init__(self, history: History, *, without_damaged: bool) -> None:
        self.odd: set[Index] = set()
        """Where logs may differ, or one lacks what it calls committed."""
        self._terms, self._crcs = defaultdict[str, Spots](Spots), defaultdict[str, Spots](Spots)
        self._excused = history.damaged_nodes if without_damaged else frozenset()
        held = [(replica, self._hold(replica)) for replica in history.replicas]
        names = Counter((replica.group, replica.node) for replica in history.replicas)
        for replica, mine in held:
            is_twice = names[replica.group, replica.node] > 1
            if replica.node not in history.damaged_nodes or is_twice:
                low, high = replica.first_index, replica.commit_index
                for index in self._terms[replica.group]:
                    if is_twice or (low <= index <= high and index not in mine):
                        self.odd.add((replica.group, index))

    def __len__(self) -> int:
        """Return how many indexes there are."""
        return sum(map(len, self._terms.values()))

    def __contains__(self, at: Index) -> bool:
        """Tell whether a log has an index, and calls it committed."""
        return at[0] in self._terms and at[1] in self._terms[at[0]]

    def indexes(self) -> dict[str, "array[int]"]:
        """Return them by group, in their order."""
        return {group: array("q", spots) for group, spots in self._terms.items()}

    def rows(self, replica: Replica) -> Iterator[EntryRow]:
        """Yield the entries of a log that count."""
        is_excused = replica.node in self._excused
        return (row for row in replica.committed() if row.crc_ok or not is_excused)

    def _hold(self, replica: Replica) -> Spots:
        """Note what a log has, and return which indexes those are."""
        terms, crcs, mine = self._terms[replica.group], self._crcs[replica.group], Spots()
        for row in self.rows(replica):
            index, term, crc = row.entry_index, row.term, row.entry_crc
            mine.first(index, 0)
            same = terms.first(index, term) == term and crcs.first(index, crc) == crc
            if not same or NOTHING in {term, crc}:  # which arrays cannot hold
                self.odd.add((replica.group, index))
        return mine
