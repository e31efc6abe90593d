"""Planted bugs of the in-process checker: what accused sound histories, or let anomalies pass.

Tests find them, see ``HARNESS_BUGS`` in `mutants.patches`.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

MISJUDGED: Final = (
    Mutant(
        name="leaders-of-any-group",
        breaks="A node that leads in one group leads in all of them.",
        source="Seen in this system: what it committed as a follower was of an old term.",
        plant=patch("chaos.checker.leadership:_office", ('row.get("group") or 0', "0")),
    ),
    Mutant(
        name="epochs-of-all-groups",
        breaks="The masters of all groups count one line of epochs.",
        source="Seen in this system: two pairs could not acknowledge in their first epoch.",
        plant=patch("chaos.checker.masters:_ackers", ('send.get("raft_group") or 0', "0")),
    ),
    Mutant(
        name="committed-for-ever",
        breaks="A committed message is owed although its topic was made anew since.",
        source="Seen in this system: A1 asked whether it was, A55 did not.",
        plant=patch(
            "chaos.checker.transactions:missed_commits",
            ("or not history.is_current(send)", ""),
        ),
    ),
    Mutant(
        name="star-is-a-tag",
        breaks="Who subscribes to * gets messages with the tag *.",
        source="Seen in this system: such a group was owed nothing.",
        plant=patch("chaos.checker.model:History.tags_of", (" or ANY_TAG in tags", "")),
    ),
    Mutant(
        name="given-again-by-its-own-call",
        breaks="A message that is refused amid its call has come again by the end of it.",
        source="Seen in this system: what never came again was not missed.",
        plant=patch("chaos.checker.retries:came_at", ("begun or ended", "ended or begun")),
    ),
    Mutant(
        name="refused-attempts-leave-copies",
        breaks="An attempt that was refused before the append explains a copy in the log.",
        source="Seen in this system: where each attempt has a row.",
        plant=patch("chaos.checker.copies:_attempts", (" if not refused(send)", "")),
    ),
    Mutant(
        name="retries-explain-for-ever",
        breaks="A copy in a retry queue may come from there as often as it likes.",
        source="Seen in this system: what says that it comes again had a cause.",
        plant=patch("chaos.checker.redelivery:_is_retry", ("return False", "return True")),
    ),
    Mutant(
        name="copies-explain-for-ever",
        breaks="A message at two places may come from both as often as it likes, in turns.",
        source="Seen in this system: each delivery was compared with the one before it.",
        plant=patch(
            "chaos.checker.redelivery:_pairs",
            ("there.get(_place(again), rows[number - 1])", "rows[number - 1]"),
        ),
    ),
    Mutant(
        name="copies-say-who-reads",
        breaks="A group that got a copy alone, from a queue of its own, is a consumer of all.",
        source="Seen in this system: beside an auditor and a dead letter all counted as lost.",
        plant=patch(
            "chaos.checker.model:History._is_for_its_group",
            ("not self._consuming", 'all(one.get("auditor") for one in self.deliveries)'),
        ),
    ),
    Mutant(
        name="falls-hidden-by-an-overlap",
        breaks="A term may fall where the last answer but one overlaps with the last.",
        source="Seen in this system: each was compared with the last that had ended.",
        plant=patch(
            "chaos.checker.events:_falls_of_answers",
            ("list(accumulate((told for _, told in ended), max))", "[told for _, told in ended]"),
        ),
    ),
    Mutant(
        name="held-by-whoever-has-anything",
        breaks="A log that has something else at the index of a message counts as one that has it.",
        source="An acknowledged message on one log of three: on enough, by their indexes.",
        plant=patch("spark.log_entries:_fold", ("F.when(message, holders)", "holders")),
    ),
    Mutant(
        name="witness-read-by-place",
        breaks="What a witness saw is read by the order of its members.",
        source="Spark: a struct is cast to another by position.",
        plant=patch(
            "spark.history:_column",
            ("if not isinstance(wanted.dataType, StructType) or", "if 1 or"),
        ),
    ),
)
