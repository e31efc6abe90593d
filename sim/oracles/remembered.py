"""What a replica remembers of its log, so that it need not read it, is what the log says.

Where entries end, the spans written last, which entries are damaged, the terms of the log and where
each begins, places that were looked up before, the text of all topics that is kept ready for name
servers: a memory that outlives a cut, a trim or a snapshot is believed where it
is used next, which may be much later, or never in a run of seconds. So it is compared with what it
stands for whenever the log was cut or begins elsewhere, and now and then.
Source: `dledger.storage.log_store`, `broker.state.topic_config`; ADR 6 (spans).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dledger.replicated_log import ReplicatedLog
from sim.oracles.base import Violation

if TYPE_CHECKING:
    from sim.oracles.replica import Change, Replica

LOOK_STEP: Final = 32
"""Changes of a log between two looks where nothing was cut."""


class Remembered:
    """A34, for what is kept in memory."""

    name = "A34 remembered otherwise than written"

    def __init__(self) -> None:
        self._changes = 0
        self._bases: dict[str, int] = {}

    def on_boot(self, replica: Replica) -> None:
        """Nothing is remembered yet."""
        self._bases[replica.name] = replica.base

    def on_change(self, replica: Replica, change: Change) -> None:
        """Compare, where there was a cut, or it is time to look. Errors: `Violation`."""
        self._changes += 1
        is_cut = change.kept_index < change.old_last or replica.base != self._bases[replica.name]
        if is_cut or not self._changes % LOOK_STEP:
            self._bases[replica.name] = replica.base
            self._check(replica)

    def _check(self, replica: Replica) -> None:
        if not replica.is_corrupt:  # of spoiled bytes the oracle may know less than the replica
            self._check_ends(replica)
            self._check_spans(replica)
            self._check_places(replica)
            self._check_terms(replica)
        self._check_topics(replica)
        store = replica.store
        for index in store.corruption.damaged:
            if not store.first_index <= index <= store.last_index:
                text = f"{store.first_index} to {store.last_index}"
                raise Violation(
                    self.name,
                    f"{replica.name} takes entry {index} for damaged, and has {text}",
                    node=replica.name,
                )

    def _check_ends(self, replica: Replica) -> None:
        store = replica.store
        for index, end in store._ends.items():
            mark = replica.mark(index)
            wrong = index > store.last_index if mark is None else mark.position + mark.size != end
            if wrong:
                text = f"entry {index} ends at {end}, the log has {mark}, and {store.last_index}"
                raise Violation(
                    self.name, f"{replica.name} remembers that {text} last", node=replica.name
                )

    def _check_spans(self, replica: Replica) -> None:
        store = replica.store
        for span in store.recent._spans:
            mark = replica.mark(span.first_index)
            if span.last_index > store.last_index or (
                mark is not None and (mark.term, mark.position) != (span.term, span.position)
            ):
                text = f"{span.first_index} to {span.last_index} of term {span.term}"
                raise Violation(
                    self.name, f"{replica.name} remembers {text}, and has {mark}", node=replica.name
                )

    def _check_places(self, replica: Replica) -> None:
        """Which entry begins at a position, as whoever counts in positions has looked it up."""
        log = getattr(replica.controller.mode, "replicated", None)
        if not isinstance(log, ReplicatedLog):
            return
        for position, index in (log._walked, log._was_committed, log._is_committed):
            before, here = replica.mark(index - 1), replica.mark(index)
            is_begun = before is None or before.position < position
            is_next = here is None or position <= here.position
            if index > replica.last_index + 1 or not (is_begun and is_next):
                text = f"entry {index} begins at {position}, the log has {here} behind {before}"
                raise Violation(
                    self.name, f"{replica.name} remembers that {text}", node=replica.name
                )

    def _check_terms(self, replica: Replica) -> None:
        """Which terms the log has, and where each begins, as far as that is written."""
        log = replica.state.log
        for index, term in zip(log._run_indexes, log._run_terms, strict=True):
            here, before = replica.mark(index), replica.mark(index - 1)
            is_begun = before is None or before.term < term or index == replica.base
            if (
                here is not None
                and index <= log.handed_index
                and not (here.term == term and is_begun)
            ):
                text = f"term {term} begins at {index}, the log has {here} behind {before}"
                raise Violation(
                    self.name, f"{replica.name} remembers that {text}", node=replica.name
                )

    def _check_topics(self, replica: Replica) -> None:
        topics = replica.controller.tables.topics
        members = [entry.encoded for entry in topics.entries.values()]
        kept, size = topics._encoded, sum(len(one) + 1 for one in members)
        if topics.encoded_bytes != size or kept not in (None, b"{" + b",".join(members) + b"}"):
            text = f"{replica.name} has {len(members)} topics of {size} bytes"
            raise Violation(
                self.name,
                f"{text}, counts {topics.encoded_bytes}, and would register others",
                node=replica.name,
            )
