"""Planted bugs in transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mutants.planting import Mutant, patch, replace
from store.write.commit_log import CommitLog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.results import PutBatch, PutCallback, PutStatus


def answered_as_one() -> None:
    """Answer all messages that say state and were put together as the first that is answered."""
    put_each = CommitLog.put_each

    def together(self: CommitLog, batch: PutBatch, dones: Sequence[PutCallback]) -> None:
        waiting = list(dones)

        def answer(status: PutStatus, queue_offset: int, physical: int) -> None:
            while waiting:
                waiting.pop(0)(status, queue_offset, physical)

        put_each(self, batch, [answer] * len(dones))

    replace(CommitLog, "put_each", together)


TRANSACTIONS: Final = (
    Mutant(
        name="any-half-resumed",
        breaks="A half that is open, or was ended, is opened once more by 323.",
        source="RocketMQ AdminBrokerProcessor.resumeCheckHalfMessage takes any message.",
        plant=patch(
            "broker.processor.resume:ResumeProcessor._read",
            ("or message.topic != PARK_TOPIC", ""),
        ),
    ),
    Mutant(
        name="half-committed-twice-in-a-turn",
        breaks="Two commits of one half that come together are both taken: two copies.",
        source="RocketMQ EndTransactionProcessor looks at the half alone, and puts it each time.",
        plant=patch(
            "broker.processor.transaction:TransactionProcessor._refusal_of",
            ("self._endings.is_under_way(half)", "False"),
        ),
    ),
    Mutant(
        name="next-pass-by-the-wrong-clock",
        breaks="Nobody is asked how a half ends before the time that a wrong clock has set, though"
        " it was put right long ago.",
        source="Stamps that a majority puts right fall by a day or more, and the leader stays.",
        plant=patch(
            "broker.transactions.service:Transactions._run",
            ("min(self._next_ms, now_ms + self._settings.interval_ms)", "self._next_ms"),
        ),
    ),
    Mutant(
        name="half-of-a-wrong-clock-left-alone",
        breaks="A half that a wrong clock has stamped is asked for when that time has come.",
        source="Stamps that a majority puts right fall by a day or more, and the leader stays.",
        plant=patch(
            "broker.transactions.service:Transactions._is_due",
            ("half.stored_ms if half.stored_ms <= now_ms else self._since_ms", "half.stored_ms"),
        ),
    ),
    Mutant(
        name="end-forgotten-before-it-is-applied",
        breaks="A commit that is answered before dispatch comes to it counts as over, and the half"
        " as open: the next one is taken as well.",
        source="Answers are given at the commit, state follows at the dispatch: docs/adr/0002.",
        plant=patch(
            "broker.transactions.endings:Endings._is_applied",
            ("return half is None or half.asked == COPIED", "return True"),
        ),
    ),
    Mutant(
        name="copy-unknown-to-followers",
        breaks="Who reads a committed copy and its op message back from the log does not know what"
        " they stand for: the next leader commits the half again.",
        source="RocketMQ's slaves know op messages by their queue only.",
        plant=patch(
            "store.dispatch.dispatcher:Dispatcher._apply_said",
            ("if said is not None and", "if said is not None and said[0] == 'tx-half' and"),
        ),
    ),
    Mutant(
        name="copied-half-taken-again",
        breaks="A half whose copy is in the log without its op message is committed again.",
        source="RocketMQ: a master lost between sendFinalMessage and deletePrepareMessage.",
        plant=patch(
            "broker.transactions.table:HalfTable.mark_copied",
            ("if half is not None:", "if False:"),
        ),
    ),
    Mutant(
        name="op-message-left-out-for-good",
        breaks="An op message that its leader could not put is put by nobody: the row stays.",
        source="RocketMQ's check service asks for such a half, and finds it finished.",
        plant=patch(
            "broker.transactions.service:Transactions._look_at_rows",
            ("if half.asked == COPIED or half", "if half"),
        ),
    ),
    Mutant(
        name="half-unknown-to-followers",
        breaks="A follower does not open a row for a half that it reads back from the log.",
        source="docs/adr/0002: all replicas apply the same.",
        plant=patch(
            "store.dispatch.dispatcher:Dispatcher._dispatch_records",
            ("if queue.says:", "if False:"),
        ),
    ),
    Mutant(
        name="questions-not-counted",
        breaks="Producers are asked for a half for ever, and it is never parked.",
        source="RocketMQ keeps the number in the half, which it stores anew each time.",
        plant=patch(
            "broker.transactions.table:HalfTable.count",
            ("if half is not None and", "if False and"),
        ),
    ),
    Mutant(
        name="parked-copy-closes-nothing",
        breaks="A half that was parked stays open, and may be committed after that.",
        source="RocketMQ parks a half and moves on; it can be committed still.",
        plant=patch(
            "store.origins:maybe_said",
            ("if mark == _PARKED else None", "if False else None"),
        ),
    ),
    Mutant(
        name="opened-again-by-a-take-over",
        breaks="A half that is finished while a directory is taken over is opened again.",
        source="docs/transactions.md: each half has one end.",
        plant=patch(
            "broker.transactions.table:HalfTable.close",
            ("if self.closed is not None:", "if False:"),
        ),
    ),
    Mutant(
        name="late-counts-ask-nobody",
        breaks="A question whose count commits late is asked of nobody, and counts.",
        source="docs/transactions.md: what is counted is asked.",
        plant=patch(
            "broker.transactions.service:Transactions._on_counted",
            ("or status in LATE", "or False"),
        ),
    ),
    Mutant(
        name="slow-producers-are-asked",
        breaks="Producers that do not read are asked on, until their connection is closed.",
        source="docs/security.md: bytes that a connection may have unsent.",
        plant=patch(
            "broker.transactions.service:Transactions._send",
            ("if not client.connection.slow]", "]"),
        ),
    ),
    Mutant(
        name="left-alone-for-months",
        breaks="A half may say that nobody asks about it for months.",
        source="RocketMQ takes CHECK_IMMUNITY_TIME_IN_SECONDS as it is.",
        plant=patch(
            "broker.transactions.service:Transactions._is_due",
            (
                "min(half.immunity_s * 1_000, max(wait_ms, IMMUNITY_MS_MAX))",
                "half.immunity_s * 1_000",
            ),
        ),
    ),
    Mutant(
        name="half-answered-before-its-row",
        breaks="A half is acknowledged while dispatch stands still, and its commit is refused.",
        source="Read in this system: a leader answers what is committed and not dispatched.",
        plant=patch(
            "store.write.uncommitted:Uncommitted.acknowledge",
            ("head.said[0] == HALF", "head.said[0] is None"),
        ),
    ),
    Mutant(
        name="postponed-half-opened-again",
        breaks="A half that RocketMQ postponed is opened although its producer has ended it.",
        source="RocketMQ TransactionalMessageServiceImpl.checkPrepareQueueOffset.",
        plant=patch(
            "broker.transactions.takeover:_open_halves",
            ("if postponed in finished:", "if False:"),
        ),
    ),
    Mutant(
        name="ended-before-it-is-saved",
        breaks="A half is finished before the row that a take-over made for it is on disk.",
        source="docs/transactions.md: each half has one end.",
        plant=patch(
            "broker.processor.transaction:TransactionProcessor._find",
            ("if taken_over and", "if False and"),
        ),
    ),
    Mutant(
        name="halves-without-shares",
        breaks="One producer group may open all the transactions that there is room for.",
        source="Dynamic thresholds of shared buffers (Choudhury and Hahne).",
        plant=patch(
            "broker.transactions.service:Transactions.let_in",
            (
                "if not self.table.fits(group_number(group), source_number(message.born_host)):",
                "if len(self.table.rows) > 10**6:",
            ),
        ),
    ),
    Mutant(
        name="halves-by-group-alone",
        breaks="Whoever invents producer groups may open all the transactions there is room for.",
        source="A quarter of what is free for each of thirty names that one client made up.",
        plant=patch(
            "broker.transactions.table:HalfTable.fits", (" and self.sources.fits(source)", "")
        ),
    ),
    Mutant(
        name="half-read-for-anybody",
        breaks="A half is read from the log for whoever names its place, and refused then.",
        source="Oneway requests of 200 bytes had 4 MiB read and copied each.",
        plant=patch(
            "broker.processor.transaction:TransactionProcessor._refusal_of",
            ("if half.group not in {", "if half.group not in {half.group, "),
        ),
    ),
    Mutant(
        name="half-copied-for-anybody",
        breaks="A half is copied before it is known to be the one that a request means.",
        source="As above.",
        plant=patch(
            "broker.processor.transaction:_properties_of",
            ("return bytes(read_record(message)[6])", "return decode_record(message).properties"),
        ),
    ),
    Mutant(
        name="op-message-without-its-copy",
        breaks="A half whose copy was cut off the log is closed by its op message: it is lost.",
        source="docs/transactions.md: between the copy and its op message.",
        plant=patch(
            "broker.transactions.endings:Endings._on_copied",
            ("is_cut_off = status is not PutStatus.OK", "is_cut_off = False"),
        ),
    ),
    Mutant(
        name="half-open-behind-its-copy",
        breaks="An op message that is refused opens its half again, though its copy is committed"
        " and only dispatch has not come to it: a second commit is a second copy.",
        source="docs/transactions.md: each half has one end.",
        plant=patch(
            "broker.transactions.endings:Endings._on_end",
            ("and offset not in self._copied", ""),
        ),
    ),
    Mutant(
        name="op-messages-answered-as-one",
        breaks="Op messages that were put together and torn apart are all told to have failed: a"
        " half that is rolled back in the log is taken for open.",
        source="Answers of one batch are one, of messages with ends of their own they are not.",
        plant=answered_as_one,
    ),
    Mutant(
        name="op-message-of-an-earlier-term",
        breaks="An end that its leader had not put when it lost its term is put in its next one.",
        source="docs/transactions.md: who leads next has applied all that may commit.",
        plant=patch(
            "broker.transactions.service:Transactions.stop",
            ("self.endings.put_ops()", "pass"),
        ),
    ),
)
"""Tests find them."""
