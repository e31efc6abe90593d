"""Planted bugs in delayed delivery."""

from typing import Final

from mutants.planting import Mutant, patch

DELAYS: Final = (
    Mutant(
        name="delivery-known-to-its-leader",
        breaks="Who reads a delivered copy back from the log does not know what it stands for:"
        " the next leader delivers it again.",
        source="RocketMQ #1934, #2357: delayed messages twice after a switch.",
        plant=patch(
            "store.dispatch.dispatcher:Dispatcher._apply_said",
            ("if said is not None and", "if False and"),
        ),
    ),
    Mutant(
        name="delivery-goes-on-behind-a-refusal",
        breaks="A delayed message whose copy the log refuses is not tried again.",
        source="RocketMQ #3473: lost when the put fails.",
        plant=patch(
            "broker.delays.service:DelayedDelivery._go_back",
            ("level.next_offset = min(level.next_offset, offset)", "pass"),
        ),
    ),
    Mutant(
        name="delivery-told-too-early",
        breaks="A copy that waits long for its majority counts as refused, and is put once more.",
        source="RocketMQ #7927; docs/adr/0005.",
        plant=patch(
            "store.write.uncommitted:OwnCopy.answer",
            ("if status in LATE and", "if False and"),
        ),
    ),
    Mutant(
        name="delayed-left-aside-for-a-unit",
        breaks="A broker on its own never delivers a sound delayed message, since the unit that"
        " names it is damaged.",
        source="As `store.read.reader.Reader._judge` tells pulls: the log makes a unit good.",
        plant=patch(
            "broker.delays.service:DelayedDelivery._on_damaged",
            ("self._is_repaired or status is not GetStatus.LOST", "self._is_repaired"),
        ),
    ),
    Mutant(
        name="next-look-by-the-wrong-clock",
        breaks="A level of delay whose first message a wrong clock stamped is not looked at before"
        " that time, though the clock was put right long ago.",
        source="Stamps that a majority puts right fall by a day or more, and the leader stays.",
        plant=patch(
            "broker.delays.agenda:Level.is_due",
            ("due_ms > now_ms + delay_ms", "False"),
        ),
    ),
    Mutant(
        name="passed-over-again-when-late",
        breaks="Where the record that passes over a delayed message is late, all that is delivered"
        " behind that is delivered once more.",
        source="A broker on its own whose disk is slow to sync answers FLUSH_TIMEOUT.",
        plant=patch(
            "broker.delays.service:DelayedDelivery._on_passed_over",
            (" or status in LATE", " or status.outcome_unknown"),
        ),
    ),
    Mutant(
        name="progress-ahead-of-the-log",
        breaks="A lone broker that lost the end of its log believes what it had delivered there.",
        source="RocketMQ's tables outlive such a log; a message that waits would never come.",
        plant=patch(
            "broker.state.shared_snapshot:SharedSnapshot.load_for",
            ("self._tables[name].is_told_by_log", "False"),
        ),
    ),
    Mutant(
        name="delivery-a-level-early",
        breaks="All that follows a message that is due is delivered with it.",
        source="RocketMQ ScheduleMessageService looks at each message's own time.",
        plant=patch(
            "broker.delays.agenda:Level.ready",
            ("if due_ms > now_ms:", "if due_ms > now_ms and not count:"),
        ),
    ),
)
"""Tests find them."""
