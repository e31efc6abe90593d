"""Checks of messages, groups and queues: A1 to A29. Source: spec/proof.md 3."""

from typing import Final

from chaos.catalogue.kinds import CRIT, INFO, MAJOR, MINOR, CheckEntry

CHECKS: Final = (
    CheckEntry(
        id="A1", title="acknowledged but lost",
        question="was every acknowledged message delivered to each group that is owed it?",
        severity=CRIT, needs="sends, deliveries, drain",
        weighs="faults, subscriptions",
        in_process=True, on_spark=True,
        simulated=True, excusable=True,
    ),
    CheckEntry(
        id="A2", title="lost by progress",
        question="did a group commit past a message that it had not got?", severity=CRIT,
        needs="sends, acks, deliveries",
        weighs="drain, faults, subscriptions, clock_tolerance_ns",
        in_process=True, on_spark=True, excusable=True,
    ),
    CheckEntry(
        id="A3", title="unknown sends that took effect",
        question="what became of sends whose outcome nobody knew?", severity=INFO,
        needs="sends, deliveries", in_process=True, on_spark=True,
    ),
    CheckEntry(
        id="A4", title="unseen and lag",
        question="how far were groups behind what was acknowledged?",
        severity=INFO, needs="sends, deliveries",
        weighs="subscriptions",
        in_process=True, on_spark=True,
    ),
    CheckEntry(
        id="A5", title="phantom: delivered but never sent",
        question="was anything delivered that nobody sent?", severity=CRIT,
        needs="sends, deliveries", in_process=True, on_spark=True, simulated=True,
    ),
    CheckEntry(
        id="A6", title="corrupt body", question="was a body changed?", severity=CRIT,
        needs="sends, deliveries", in_process=True, on_spark=True, simulated=True,
    ),
    CheckEntry(
        id="A7", title="aborted read: a refused send was delivered",
        question="was a send delivered, or committed, that had certainly failed?", severity=CRIT,
        needs="sends, deliveries", in_process=True, on_spark=True, simulated=True,
    ),
    CheckEntry(
        id="A8", title="duplicate in the log beyond the attempts made",
        question="is a message in the log more often than attempts were made?", severity=MINOR,
        needs="sends, deliveries", in_process=True, on_spark=True, simulated=True,
    ),
    CheckEntry(
        id="A9", title="redelivery without a cause",
        question="was anything delivered again that nothing explains?", severity=MAJOR,
        needs="sends, deliveries, events",
        weighs="acks, faults, raft_probe, contract, clock_tolerance_ns",
        in_process=True, on_spark=True,
    ),
    CheckEntry(
        id="A10", title="handed out again without a cause",
        question="did one consumer hand a message out again without a cause, or out of a "
        "queue it had given back?",
        severity=MAJOR, simulated=True, lacks="what a client kept and handed out by itself",
        asked_as=("A9", "A52"),
    ),
    CheckEntry(
        id="A11", title="append order: sent later, stored before",
        question="do sends lie in the order in which they were acknowledged, by the queue "
        "that was told?",
        severity=CRIT, needs="sends",
        weighs="faults, clock_tolerance_ns",
        in_process=True, on_spark=True, simulated=True,
        excusable=True,
    ),
    CheckEntry(
        id="A12", title="producer order",
        question="do one producer's sends of a queue lie in their order, within a batch too?",
        severity=MAJOR, needs="sends",
        in_process=True, on_spark=True, simulated=True,
    ),
    CheckEntry(
        id="A13", title="poll that goes back",
        question="does a consumer read a queue forwards while it holds it?", severity=MAJOR,
        needs="sends, deliveries",
        weighs="faults, clock_tolerance_ns",
        in_process=True, on_spark=True, simulated=True,
        excusable=True,
    ),
    CheckEntry(
        id="A14", title="poll that skips",
        question="does a consumer pass over nothing that is owed to it?", severity=MAJOR,
        needs="sends, deliveries",
        weighs="events, faults, clock_tolerance_ns",
        in_process=True, on_spark=True, simulated=True,
        excusable=True,
    ),
    CheckEntry(
        id="A15", title="inconsistent offset: two messages at one place",
        question="does one offset of a queue hold one message, for producer, consumers and "
        "replicas, and is it in the logs?",
        severity=CRIT, needs="sends, deliveries",
        weighs="faults",
        in_process=True, on_spark=True, simulated=True,
        excusable=True,
    ),
    CheckEntry(
        id="A16", title="queue with a hole",
        question="did the auditor find a message at each offset of a queue?", severity=MAJOR,
        needs="sends, deliveries, drain",
        in_process=True, on_spark=True, simulated=True,
    ),
    CheckEntry(
        id="A17", title="order of a shard",
        question="is a shard's order of delivery its order in the log, by one consumer at a time?",
        severity=MAJOR, needs="sends, deliveries",
        weighs="acks, reconsume_max, clock_tolerance_ns",
        in_process=True, on_spark=True, simulated=True,
    ),
    CheckEntry(
        id="A18", title="group's progress falls",
        question="is an offset that a group committed ever told lower again?", severity=MAJOR,
        needs="acks",
        weighs="sends, faults, raft_probe, contract, clock_tolerance_ns",
        in_process=True, on_spark=True, simulated=True,
    ),
    CheckEntry(
        id="A19", title="progress beyond the end",
        question="did a group commit an offset behind the end of its queue?", severity=MAJOR,
        needs="acks, drain",
        weighs="sends",
        in_process=True, on_spark=True, simulated=True,
    ),
    CheckEntry(
        id="A20", title="order of a chosen queue",
        question="do a producer's ordered sends lie in their order, in the queue that it chose?",
        severity=CRIT, simulated=True, lacks="the simulator's ordered producers",
        asked_as=("A11", "A12", "A49"),
    ),
    CheckEntry(
        id="A21", title="lock without a reason",
        question="is a lock given with a reason, to one client, until its lease ends?",
        severity=CRIT, simulated=True, lacks="locks in a history", asked_as=("A17",),
    ),
    CheckEntry(
        id="A22", title="passed over by a read",
        question="does a read pass over nothing that was asked for, and drop nothing before "
        "its time?",
        severity=CRIT, simulated=True, lacks="reads in a history", asked_as=("A1", "A14", "A16"),
    ),
    CheckEntry(
        id="A23", title="half message without a decision",
        question="is each half message asked about, often enough and not more often?",
        severity=MAJOR, needs="sends, txn",
        weighs="faults, raft_probe, check_back, clock_tolerance_ns",
        in_process=True, on_spark=True, simulated=True,
    ),
    CheckEntry(
        id="A24", title="offset that was never committed",
        question="is a group's offset one that was committed, and does a group begin where "
        "it may?",
        severity=MAJOR, simulated=True, lacks="each answer with the log that it rests on",
        asked_as=("A18", "A19", "A50"),
    ),
    CheckEntry(
        id="A25", title="late delivery of a delayed message",
        question="how late are delayed messages?", severity=MAJOR, needs="sends, deliveries",
        weighs="faults, clock_tolerance_ns",
        in_process=True, on_spark=True, simulated=True,
    ),
    CheckEntry(
        id="A26", title="ladder of retries",
        question="does each retry come when its level says, and no more of them than allowed?",
        severity=MAJOR, needs="sends, acks, deliveries",
        weighs="faults, raft_probe, reconsume_max, clock_tolerance_ns",
        in_process=True, on_spark=True, simulated=True,
    ),
    CheckEntry(
        id="A27", title="refused by a listener and not delivered again",
        question="did what a listener refused come again?", severity=MAJOR,
        needs="sends, acks, deliveries",
        weighs="drain, faults, reconsume_max, clock_tolerance_ns",
        in_process=True, on_spark=True, simulated=True,
        excusable=True,
    ),
    CheckEntry(
        id="A28", title="dead letter before its time",
        question="is only in the dead letter queue what was refused often enough?", severity=MAJOR,
        needs="sends, acks, deliveries",
        weighs="reconsume_max",
        in_process=True, on_spark=True, simulated=True,
    ),
    CheckEntry(
        id="A29", title="dead letter twice, or late",
        question="is a dead letter there once, and soon?", severity=MINOR,
        needs="sends, acks, deliveries",
        weighs="faults, raft_probe, reconsume_max, clock_tolerance_ns",
        in_process=True, on_spark=True, simulated=True,
    ),
)  # fmt: skip
"""In the order of their ids."""
