"""Planted bugs that show to clients that ask for what a broker can do, and few others do.

Expressions of SQL92, halves with a level of delay, batches that are alike in length alone, many
requests behind one that waits for room, queues that are read and not written, locks that are given
back late, groups that could not be made at once. None takes a fault. Sources: spec/wire.md;
docs/transactions.md; docs/consumption.md.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

SKILLED: Final = (
    Mutant(
        name="range-without-its-end",
        breaks="A range of SQL92 refuses the larger of its ends.",
        source="spec/wire.md 7.3; RocketMQ SelectorParser.",
        plant=patch(
            "broker.pulls.sql_integers:between_integers",
            ("low <= integer(text) <= high", "low <= integer(text) < high"),
        ),
    ),
    Mutant(
        name="refused-by-one-read-held",
        breaks="A pull whose filter refuses all that one read looks at is held before the end.",
        source="spec/wire.md 7.2.",
        plant=patch(
            "broker.processor.pull:PullProcessor._rerun",
            ("and pull.wanted is not None and seen_all:", "and pull.wanted is not None:"),
        ),
    ),
    Mutant(
        name="delayed-half-needs-no-end",
        breaks="A half with a level of delay is delivered when that is due, whatever its end is.",
        source="docs/transactions.md.",
        plant=patch(
            "broker.sends.door:Door.put_by",
            ("and not (level and message.reconsume_times > 0)", "and not level"),
        ),
    ),
    Mutant(
        name="commit-forgets-the-level",
        breaks="A half with a level of delay is delivered as soon as it is committed.",
        source="docs/transactions.md; RocketMQ EndTransactionProcessor.",
        plant=patch(
            "broker.processor.transaction:TransactionProcessor._finish",
            (
                "copy = self._schedule(committed_of(half, said, whole))",
                "copy = committed_of(half, said, whole)",
            ),
        ),
    ),
    Mutant(
        name="batch-cut-as-its-first",
        breaks="A batch of equally long messages is cut as the first one is, bodies and all.",
        source="RocketMQ MessageDecoder.decodeMessages.",
        plant=patch(
            "ledgermq.remoting.protocol.message:_split_alike",
            (
                "if size == layout.size and first == content_bytes and second == text_bytes",
                "if size == layout.size",
            ),
        ),
    ),
    Mutant(
        name="room-share-kept",
        breaks="What waited for room in the log counts as waiting for ever.",
        source="`broker.sends.room`.",
        plant=patch(
            "broker.sends.room:LogRoom._let_in",
            ("    self._share.take(party_of(one.remote[0]), -size_bytes)\n", ""),
        ),
    ),
    Mutant(
        name="frames-behind-a-large-one-forgotten",
        breaks="Requests behind a send that waits for room are never served where a turn was over.",
        source="`ledgermq.remoting.transport.room`.",
        plant=patch(
            "ledgermq.remoting.transport.connection:Connection._wait_for_room",
            ("later = frames + self._later", "later = frames"),
        ),
    ),
    Mutant(
        name="read-queues-not-locked",
        breaks="A queue that is read and not written any more cannot be locked.",
        source="spec/wire.md 3.7; RocketMQ RebalanceLockManager.",
        plant=patch(
            "broker.processor.lock:LockProcessor._exists",
            ("0 <= queue.queue_id < entry.queues", "0 <= queue.queue_id < entry.write_queues"),
        ),
    ),
    Mutant(
        name="late-release-frees-another",
        breaks="Who gives a lock back that ran out frees it for the one who has it by now.",
        source="`broker.state.queue_lock`: only the owner's release counts.",
        plant=patch(
            "broker.state.queue_lock:QueueLockTable.apply_unlock",
            (
                "if lease is not None and lease.client_id == change.client_id:",
                "if lease is not None:",
            ),
        ),
    ),
    Mutant(
        name="failed-creation-remembered",
        breaks="A group whose creation failed once is never made again by that broker.",
        source="`broker.sends.creation`: only requests in flight share a proposal.",
        plant=patch(
            "broker.sends.creation:Creator.put_group",
            (
                "        del self._pending_groups[config.group_name]\n",
                "        if status is PutStatus.OK:\n"
                "            del self._pending_groups[config.group_name]\n",
            ),
        ),
    ),
)
