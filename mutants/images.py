"""Planted bugs of snapshots: a member takes what no log can go on behind.

Tests find them, see ``BY_TESTS`` in `mutants.patches`.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

IMAGES: Final = (
    Mutant(
        name="tables-of-a-snapshot-not-read",
        breaks="A table of a snapshot only has to be JSON; its log is gone once it is read.",
        source="topics.json of [] from a member: the log was removed, and no start went on.",
        plant=patch(
            "broker.state.snapshot:Snapshot.find_problem", ("table.check(document)", "pass")
        ),
    ),
    Mutant(
        name="bad-snapshot-without-a-name",
        breaks="A start that finds a table of its snapshot to be none ends with a trace.",
        source="A snapshot that a version took which looked at less.",
        plant=patch(
            "broker.retention.compaction:Compactor.load",
            ("except BAD_CONTENT as error:", "except FileNotFoundError as error:"),
        ),
    ),
    Mutant(
        name="queues-of-a-snapshot-begin-anywhere",
        breaks="A snapshot lets a queue begin at 2^62, where its bytes have no number.",
        source="OverflowError in the thread of the loop, and at each start again.",
        plant=patch(
            "store.queues.start:find_problem_of_starts",
            ("if not 0 <= offset <= START_MAX:", "if False:"),
        ),
    ),
    Mutant(
        name="queues-begin-in-one-turn",
        breaks="All that lies before the beginnings of queues is written in one turn of the loop.",
        source="60 queues that begin at 299,999: 9.9 s.",
        plant=patch("store.queues.start:LogStart._begin", ("if work >= STEP_UNITS:", "if False:")),
    ),
    Mutant(
        name="queues-begin-on-a-full-disk",
        breaks="Units that found no space are kept in memory, those of all queues.",
        source="A snapshot that comes while the disk is full.",
        plant=patch(
            "store.queues.start:LogStart._end_step",
            ("while not self._queues.flush():", "while self._queues.flush() is None:"),
        ),
    ),
    Mutant(
        name="compaction-while-queues-begin",
        breaks="A compaction notes where queues begin while they do not yet: offsets come again.",
        source="Review of what may run between two steps.",
        plant=patch(
            "broker.retention.compaction:Compactor.compact",
            ("if not self._store.log_start.is_whole:", "if False:"),
        ),
    ),
    Mutant(
        name="former-queues-left-at-a-stop",
        breaks="Files of queues that a snapshot replaced stay when a stop comes in between.",
        source="A clean stop with many queues: the next start does not look for strangers.",
        plant=patch(
            "store.message_store:MessageStore.stop", ("self.log_start.remove_left()", "pass")
        ),
    ),
    Mutant(
        name="deep-configuration-ends-a-member",
        breaks="JSON nested 100,000 deep in the place of a configuration ends who reads it.",
        source="RecursionError is none of msgspec's errors.",
        plant=patch(
            "dledger.codec.configuration:decode_configuration",
            ("except NOT_DECODED as error:", "except msgspec.MsgspecError as error:"),
        ),
    ),
    Mutant(
        name="deep-snapshot-ends-a-member",
        breaks="JSON nested 100,000 deep in the head of a snapshot ends who reads it.",
        source="RecursionError is none of msgspec's errors.",
        plant=patch(
            "dledger.codec.snapshot:_decode_configuration",
            ("except NOT_DECODED as error:", "except msgspec.MsgspecError as error:"),
        ),
    ),
    Mutant(
        name="deep-index-ends-a-start",
        breaks="JSON nested 100,000 deep in appliedIndex.json ends a start with a trace.",
        source="RecursionError is none of msgspec's errors.",
        plant=patch(
            "broker.state.snapshot:Snapshot._maybe_read_index",
            ("except NOT_DECODED as error:", "except msgspec.MsgspecError as error:"),
        ),
    ),
    Mutant(
        name="snapshot-ends-anywhere",
        breaks="A snapshot is taken behind which nothing can be appended, as indexes end there.",
        source="last_index 2^53, position 2^63 - 2^18: such a member took no entry any more.",
        plant=patch(
            "dledger.storage.snapshot_files:find_problem",
            ("if not is_room or meta.state_index > INDEX_MAX", "if meta.state_index > INDEX_MAX"),
        ),
    ),
    Mutant(
        name="members-at-no-address",
        breaks="A snapshot is taken whose members cannot be dialled.",
        source="Addresses such as x, :99999 and an end of line.",
        plant=patch("dledger.storage.snapshot_files:find_problem", ("if bad:", "if False:")),
    ),
)
