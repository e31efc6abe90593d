"""Planted bugs of what the in-process checker excuses by faults: each hides what is wrong.

Tests find them, see ``HARNESS_BUGS`` in `mutants.patches`.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

EXCUSES: Final = (
    Mutant(
        name="loss-of-what-others-have",
        breaks="Where disks were taken, a loss is excused of what others have, or all logs.",
        source="Seen in this system: a group that missed 361 messages, all of them on three logs.",
        plant=patch(
            "chaos.checker.taken:_Others.have", ("return is_everywhere or", "return 0 and")
        ),
    ),
    Mutant(
        name="loss-of-any-group",
        breaks="The disks of one Raft group excuse what another group acknowledged and lost.",
        source="Two groups in one history: a disk of the one holds nothing of the other.",
        plant=patch("chaos.checker.taken:_is_of", ("return bool(told)", "return 0 > 1")),
    ),
    Mutant(
        name="wipes-excuse-later-lives",
        breaks="A node whose disk was wiped once may forget its term at each later start.",
        source="Raft 5.1: a term never falls; a wipe is over once its node has started again.",
        plant=patch("chaos.checker.events:_disks", ("if disk and not", "if 0 and not")),
    ),
    Mutant(
        name="namesakes-die-together",
        breaks="What a consumer passed over is excused by the death of one of another group.",
        source="Consumers are told apart by their group and name.",
        plant=patch(
            "chaos.checker.reading:_has_died",
            ("for group in (None, reader[0])", "for group in {one for one, _ in deaths}"),
        ),
    ),
    Mutant(
        name="loss-of-what-lies-anywhere",
        breaks="Where disks were taken, a loss is excused of what others got since, at any place.",
        source="A message that came to a place of its own was passed over by nobody.",
        plant=patch(
            "chaos.checker.taken:_Places.were_of_others",
            (
                "any(self._was_of_another(place, key) for place in self._now[key])",
                "bool(self._now[key])",
            ),
        ),
    ),
    Mutant(
        name="loss-excuses-what-came-soon-after",
        breaks="What is lost of what was sent for ten seconds after disks were taken is excused.",
        source="Seen in this system: sent 2.8 s after the wipe was lifted, and lost.",
        plant=patch(
            "chaos.checker.excuses:without_excuse",
            ("check, spans)", "check, [(begin, end + SETTLED_NS) for begin, end in spans])"),
        ),
    ),
    Mutant(
        name="majority-of-nobody",
        breaks="One disk is a majority where nobody knows of how many brokers.",
        source="Seen in this system: an imported history without nodes, and one flipped bit.",
        plant=patch(
            "chaos.load:promised_copies",
            ("max(size[group], named[group])", "max(1, size[group], named[group])"),
        ),
    ),
    Mutant(
        name="witness-not-asked",
        breaks="Faults excuse whatever a fault may, though their witness saw them do nothing.",
        source="docs/checking.md: only faults that their witness saw take effect count.",
        plant=patch(
            "chaos.checker.model:_took_effect", ("(is_seen or is_half_applied(fault)) and ", "")
        ),
    ),
    Mutant(
        name="whatever-unsettles-brokers",
        breaks="Any fault is one of a broker: of a producer, of a name server, of another system.",
        source="Seen in this system: one leader change, where there was none.",
        plant=patch(
            "chaos.checker.redelivery:_of_faults",
            (" and unsettles(kind, targets, history.nodes)", ""),
        ),
    ),
    Mutant(
        name="unrest-without-end",
        breaks="A half that is not asked about in its first seconds, amid unrest, never need be.",
        source="Seen in this system: a change of the leader in the first eight seconds.",
        plant=patch(
            "chaos.checker.check_back:_Judge._calm_from", ("since = over", "since = 1 << 62")
        ),
    ),
    Mutant(
        name="copies-by-their-number",
        breaks="A message may come again as often as it likes, if each copy has a number allowed.",
        source="Seen in this system: three repeats under a limit of two.",
        plant=patch(
            "chaos.checker.retries:_too_many_copies",
            ("len(times) <= len(delays)", "len(times) <= len(delays) + 9"),
        ),
    ),
    Mutant(
        name="received-as-its-listener-begins",
        breaks="A broker may hand out a retry at once, if its listener begins with it in time.",
        source="Seen in this system: a retry that was received 78 ms early.",
        plant=patch(
            "chaos.checker.retries:_given_at",
            ('row["reconsume"] > first', "True"),
        ),
    ),
    Mutant(
        name="wiped-once-forgotten-always",
        breaks="A node whose disk was wiped at some time may vote as it likes, in all its lives.",
        source="Seen in this system: a wipe 25 s after both votes.",
        plant=patch(
            "chaos.checker.events:_Memory.kept",
            (' or row.get("boot_id")', ""),
        ),
    ),
    Mutant(
        name="failed-calls-take-disks",
        breaks="Calls that fail at a majority excuse loss, though their witness knows of none.",
        source="Seen in this system: the library refuses calls, and what was written stays.",
        plant=patch("chaos.catalogue.faults:_kept_all", ("only_there == 0", "only_there == -1")),
    ),
)
