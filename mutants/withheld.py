"""Planted bugs of the in-process checker: what was refused, or lost, is read as an answer.

Tests find them, see ``HARNESS_BUGS`` in `mutants.patches`.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

WITHHELD: Final = (
    Mutant(
        name="refused-tables-read-as-empty",
        breaks="Checks go on without a table that was refused, as if it had no rows.",
        source="Seen in this system: for one negative offset 214 messages were called lost.",
        plant=patch(
            "chaos.checker.compose:_safely",
            ("if why := without(name, history.unusable):", "if why := '':"),
        ),
    ),
    Mutant(
        name="lost-tables-read-as-empty",
        breaks="A table that run.json names and that has no rows is one in which nothing was.",
        source="Seen in this system: no acknowledgements, and each dead letter was a false one.",
        plant=patch("chaos.load:_read_tables", ("unusable[name] = EMPTY", "pass")),
    ),
    Mutant(
        name="rows-twice-counted-twice",
        breaks="A row that stands in a table twice is two operations.",
        source="Seen in this system: a batch written twice lay out of its order.",
        plant=patch(
            "chaos.foreign:TableReader.read",
            ("if whole and (odd := doubled(name, rows) or uneven(name, rows)):", "if odd := '':"),
        ),
    ),
    Mutant(
        name="ends-before-begins",
        breaks="An operation may end before it begins.",
        source="Seen in this system: such a call overlaps with nothing.",
        plant=patch(
            "chaos.foreign:_declared", ("complaints += order_complaints(name, times)", "pass")
        ),
    ),
    Mutant(
        name="one-column-tells-the-unit",
        breaks="The unit of a table is that of one of its times; the others are not looked at.",
        source="Seen in this system: what was fetched in microseconds was fetched before all.",
        plant=patch(
            "chaos.load:_read_tables",
            ("in clock_complaints(tables).items():", "in {}.items():"),
        ),
    ),
    Mutant(
        name="faults-that-stay-are-over",
        breaks="Only a fault that could not be lifted was not lifted.",
        source="Seen in this system: one that was still active excused all that came.",
        plant=patch(
            "chaos.checker.effects:_not_lifted",
            ('return f"{name} was never lifted"', 'return ""'),
        ),
    ),
    Mutant(
        name="failed-resets-set-anew",
        breaks="An offset that somebody failed to set anew was set.",
        source="Seen in this system: a reset that was refused hid that a group was told less.",
        plant=patch(
            "chaos.checker.progress:_is_told",
            ("is_reset(ack) or (", 'ack["kind"] == "reset" or ('),
        ),
    ),
    Mutant(
        name="masters-lead-nothing",
        breaks="A node that answers that it is a master does not lead.",
        source="Seen in this system: the word was known, and never counted.",
        plant=patch("chaos.checker.events:_leads", ("in LEADING", "in LEADING[:1]")),
    ),
    Mutant(
        name="refusals-of-nothing",
        breaks="A refusal that does not say of what is no refusal.",
        source="Seen in this system: with such refusals alone nothing was missing.",
        plant=patch(
            "chaos.checker.retries:_letters",
            ("if missing := unnamed_refusals(history, groups=most):", "if missing := '':"),
        ),
    ),
    Mutant(
        name="indexes-without-end",
        breaks="What JSON calls a number is an index.",
        source="Seen in this system: 1e400 left a whole run unjudged.",
        plant=patch("chaos.load:index_of", ("except OverflowError", "except ZeroDivisionError")),
    ),
    Mutant(
        name="moments-are-numbers",
        breaks="The number of a timestamp or of a time span is taken as it is, in whatever unit.",
        source="Seen in this system: spans in microseconds were nanoseconds, timestamps seconds.",
        plant=patch("chaos.foreign:_cast", ("if _is_another_kind(given, wanted):", "if False:")),
    ),
    Mutant(
        name="words-of-no-are-yes",
        breaks="What a witness saw may be of any type; whatever it says is yes.",
        source="Seen in this system: the word false excused what a fault did not do.",
        plant=patch(
            "chaos.foreign:_cast",
            (
                "return _with_members(values, wanted) if is_struct else",
                "return values if is_struct else",
            ),
        ),
    ),
)
