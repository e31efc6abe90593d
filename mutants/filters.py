"""Planted bugs in filters by SQL92: what matches, and what an expression may cost.

Tests find them, see ``BY_TESTS`` in `mutants.patches`.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

FILTERS: Final = (
    Mutant(
        name="sql-null-is-false",
        breaks="A comparison with a property that a message lacks is false, its opposite true.",
        source="LogicExpression, ComparisonExpression: three values.",
        plant=patch(
            "broker.pulls.sql92:_negated",
            ("return None if found is None else not found", "return not found"),
        ),
    ),
    Mutant(
        name="sql-words-unbounded",
        breaks="An SQL92 expression may have any number of words.",
        source="A chain of a thousand comparisons: 60 ms to compile, in one turn of the loop.",
        plant=patch("broker.pulls.sql92:compile_sql92", (") > SQL_TOKENS_MAX:", ") > 2**31:")),
    ),
    Mutant(
        name="filtered-read-unbounded",
        breaks="A pull that filters looks into as many bytes as its units name.",
        source="800 messages of 4 MiB: seconds in one turn of the loop.",
        plant=patch(
            "store.read.reader:_looked_into", ("if left < 0 and", "if left < -(2**62) and")
        ),
    ),
    Mutant(
        name="held-sql-pull-answered-empty",
        breaks="A held pull is answered when a message comes that its expression refuses.",
        source="PullRequestHoldService: only what the filter lets through wakes a pull.",
        plant=patch(
            "broker.processor.pull:PullProcessor._rerun",
            ("pull.wanted is not None", "isinstance(pull.wanted, frozenset)"),
        ),
    ),
    Mutant(
        name="held-though-forbidden",
        breaks="A pull that was held before its group or topic lost its permission gets messages.",
        source="RocketMQ PullRequestHoldService runs a held pull anew, with all its checks.",
        plant=patch(
            "broker.processor.pull:PullProcessor._serve",
            ("_tell(pull, _FORBIDDEN)\n        return 0", "pass"),
        ),
    ),
    Mutant(
        name="held-by-what-was-wanted",
        breaks="A held pull passes over what its group subscribed to meanwhile.",
        source="RocketMQ PullMessageProcessor.executeRequestWhenWakeup: all of it is looked at.",
        plant=patch(
            "broker.processor.pull:PullProcessor._serve", ("self._is_outdated(pull)", "False")
        ),
    ),
    Mutant(
        name="other-properties-read",
        breaks="A filter finds a property behind the end of another one's value.",
        source="MessageDecoder.string2messageProperties: a property begins behind a separator.",
        plant=patch("broker.pulls.filters:_seeker", ('f"\\x02({sought})', 'f"({sought})')),
    ),
)
