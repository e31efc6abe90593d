"""Which planted bugs plans of the simulator find that are about another mode than a Raft group.

Tests find them, too (`mutants.patches.BY_TESTS`). Names of modes are those of ``ledgermq sim``.
"""

from __future__ import annotations

from typing import Final

SHOWN_BY: Final[dict[str, tuple[str, ...]]] = {
    "sync-master": (
        "first-slave-is-the-best",
        "given-back-unasked",
        "ha-acknowledged-before-the-slave",
        "ha-counted-before-the-sync",
        "ha-lack-not-told",
        "ha-one-late-releases-all",
        "ha-reported-before-written",
        "ha-resumed-at-the-end",
        "ha-sent-before-the-sync",
        "ha-slave-far-behind-counts",
        "ha-slave-silent-to-its-readers",
        "ha-slave-that-has-gone-counts",
        "ha-timeout-not-told",
        "offsets-not-replicated",
        "report-a-look-late",
        "rest-of-a-share-waits-for-a-message",
        "slave-asks-from-its-end",
        "slave-not-asked-while-the-master-is-gone",
    ),
    "async-master": (
        "ha-resumed-at-the-end",
        "ha-slave-silent-to-its-readers",
        "slave-not-asked-while-the-master-is-gone",
    ),
    "alone": (
        "batch-told-where-the-first-one-was",
        "committed-before-the-move-counts",
        "half-unknown-to-followers",
        "handed-out-from-the-end",
        "offset-counted-twice",
        "offsets-not-replicated",
        "place-within-its-file",
        "pull-commits-one-too-far",
        "recovered-queue-one-short",
        "row-between-two-slices-lost",
        "stale-units-stay",
    ),
    "controller": (
        "another-set-and-nobody-looks",
        "changed-while-it-was-saved",
        "confirmed-before-it-reconnected",
        "controller-entry-not-synced",
        "controller-vote-not-kept",
        "controller-votes-for-the-longer-log",
        "elected-is-the-last-that-lives",
        "ended-claim-stays-counted",
        "loss-outside-the-set-unnoticed",
        "master-told-by-who-does-not-lead",
        "offsets-not-replicated",
        "second-queue-uncounted",
        "slave-asks-from-its-end",
        "started-broker-stays-master",
        "switch-acknowledged-before-the-set",
        "switch-asked-for-does-not-count",
        "switch-asked-set-waited-for",
        "switch-epoch-not-on-disk",
        "switch-longer-epoch-counts",
        "switch-read-before-it-counts",
        "switch-set-never-shrinks",
        "switch-surplus-not-seen",
        "switch-tail-kept",
        "switch-unanswered-taken-for-refused",
        "vote-in-memory-only",
    ),
}
