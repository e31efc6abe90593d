"""Checks of replicas, service and harness: A30 to A63. Source: spec/proof.md 3."""

from typing import Final

from chaos.catalogue.kinds import CRIT, INFO, MAJOR, CheckEntry

CHECKS: Final = (
    CheckEntry(
        id="A30", title="leader uniqueness: one leader a term",
        question="does a term have one leader?", severity=CRIT, needs="raft_event or raft_probe",
        in_process=True, on_spark=True, simulated=True,
    ),
    CheckEntry(
        id="A31", title="vote uniqueness: one vote a term",
        question="does a node vote for one candidate a term, over restarts too?", severity=CRIT,
        needs="raft_event",
        weighs="faults",
        in_process=True, on_spark=True, simulated=True,
    ),
    CheckEntry(
        id="A32", title="term regress", question="does the term of a node never fall?",
        severity=CRIT, needs="raft_event or raft_probe",
        weighs="faults",
        in_process=True, on_spark=True,
        simulated=True,
    ),
    CheckEntry(
        id="A33", title="commit or applied index regress inside one life",
        question="do commit and applied index never fall within one life of a node?",
        severity=MAJOR, needs="raft_event or raft_probe", in_process=True, on_spark=True,
        simulated=True,
    ),
    CheckEntry(
        id="A34", title="log matching: one (index, term), two contents",
        question="do equal index and term mean equal content on all replicas?", severity=CRIT,
        needs="replicas",
        weighs="faults",
        in_process=True, on_spark=True, simulated=True,
    ),
    CheckEntry(
        id="A35", title="committed, then lost or replaced",
        question="do replicas agree on what they call committed, and does a majority hold "
        "what was acknowledged and read?",
        severity=CRIT, needs="replicas",
        weighs="faults, quorum, nodes",
        in_process=True, on_spark=True, simulated=True,
        excusable=True,
    ),
    CheckEntry(
        id="A36", title="leader without what was committed before it",
        question="does a leader have all that earlier terms committed?", severity=CRIT,
        needs="raft_event",
        weighs="faults",
        in_process=True, on_spark=True, simulated=True, excusable=True,
    ),
    CheckEntry(
        id="A37", title="commit of an old term",
        question="are entries of earlier terms committed only with one of the leader's own?",
        severity=CRIT, needs="raft_event", in_process=True, on_spark=True, simulated=True,
    ),
    CheckEntry(
        id="A38", title="told before it is committed",
        question="is nothing told before it is committed, and durable as it must be?",
        severity=CRIT, needs="sends",
        weighs="faults, raft_probe, contract, nodes, quorum, clock_tolerance_ns",
        in_process=True, on_spark=True, simulated=True,
    ),
    CheckEntry(
        id="A39", title="applied differs from the log",
        question="are queues, key index and tables what the committed log says?", severity=CRIT,
        needs="queue_index, replicas",
        weighs="sends, faults",
        in_process=True, on_spark=True, simulated=True,
    ),
    CheckEntry(
        id="A40", title="answer of a replica that does not lead",
        question="does only a leader answer what only a leader may?", severity=MAJOR,
        simulated=True, lacks="requests in a history", asked_as=("A30", "A38"),
    ),
    CheckEntry(
        id="A41", title="time without acknowledgements around each kill",
        question="for how long was nothing acknowledged around each kill?", severity=INFO,
        needs="sends, faults", in_process=True, on_spark=True, simulated=True,
    ),
    CheckEntry(
        id="A42", title="appended during a transfer",
        question="does a leader that hands over append nothing more?", severity=MAJOR,
        simulated=True, lacks="from when on a leader hands over",
    ),
    CheckEntry(
        id="A43", title="deposed without a cause, or leading without a quorum",
        question="is a leader deposed for a cause, and does one without a quorum or a disk "
        "step down?",
        severity=MAJOR, simulated=True, lacks="a cause of each change in a history",
        asked_as=("A58", "A60", "A61"),
    ),
    CheckEntry(
        id="A44", title="answer that is not what the log says",
        question="is every answer what the log says?", severity=CRIT, simulated=True,
        lacks="each answer with the log that it rests on", asked_as=("A15", "A50"),
    ),
    CheckEntry(
        id="A45", title="enough was recorded to judge",
        question="is there enough in the record to judge, without gaps and by one clock?",
        severity=INFO, needs="sends, deliveries, events",
        weighs="clock_tolerance_ns",
        in_process=True, on_spark=True,
        simulated=True,
    ),
    CheckEntry(
        id="A46", title="delivered to a group that did not subscribe to it",
        question="did a group get only the tags that it subscribed to?", severity=MAJOR,
        needs="sends, deliveries",
        weighs="subscriptions",
        in_process=True, on_spark=True, simulated=True,
    ),
    CheckEntry(
        id="A47", title="the planned faults took effect",
        question="did enough faults take effect while sends were in flight?", severity=INFO,
        needs="faults",
        weighs="coverage",
        in_process=True, on_spark=True,
    ),
    CheckEntry(
        id="A48", title="the harness itself worked",
        question="did the harness itself work: no dead worker, no hole in the record, every "
        "fault lifted?",
        severity=INFO, needs="faults", in_process=True, on_spark=True,
    ),
    CheckEntry(
        id="A49", title="the client's word contradicts its attempts",
        question="does what the client library says of a send fit its attempts?", severity=MAJOR,
        needs="sends", in_process=True, on_spark=True,
    ),
    CheckEntry(
        id="A50", title="what was asked at the end was answered rightly",
        question="were the questions of the end answered rightly?", severity=MAJOR,
        needs="answers", in_process=True, on_spark=True,
    ),
    CheckEntry(
        id="A51", title="no process ended that no fault ended",
        question="did any process end that no fault ended?", severity=MAJOR,
        weighs="exits",
        in_process=True,
        on_spark=True,
    ),
    CheckEntry(
        id="A52", title="redelivered after a durable acknowledgement",
        question="was a message delivered again that its group had durably acknowledged?",
        severity=MAJOR, needs="sends, acks, deliveries",
        weighs="clock_tolerance_ns",
        in_process=True, on_spark=True,
    ),
    CheckEntry(
        id="A53", title="rolled back and visible",
        question="was a message of a transaction delivered that was rolled back?", severity=CRIT,
        needs="sends, txn, deliveries",
        in_process=True, on_spark=True, simulated=True,
    ),
    CheckEntry(
        id="A54", title="half message visible early",
        question="was a message of a transaction delivered before it was decided?", severity=CRIT,
        needs="sends, txn, deliveries",
        weighs="clock_tolerance_ns",
        in_process=True, on_spark=True, simulated=True,
    ),
    CheckEntry(
        id="A55", title="committed transaction missing",
        question="was every message of a committed transaction delivered?", severity=CRIT,
        needs="sends, txn, deliveries",
        weighs="drain, faults, subscriptions",
        in_process=True, on_spark=True, simulated=True,
        excusable=True,
    ),
    CheckEntry(
        id="A56", title="delivered too early",
        question="was a delayed message delivered before its time?", severity=MAJOR,
        needs="sends, deliveries",
        weighs="faults, clock_tolerance_ns",
        in_process=True, on_spark=True, simulated=True,
    ),
    CheckEntry(
        id="A57", title="missing dead letter",
        question="is in the dead letter queue whatever was refused too often?", severity=CRIT,
        needs="sends, acks, deliveries",
        weighs="drain, faults, reconsume_max",
        in_process=True, on_spark=True, simulated=True,
        excusable=True,
    ),
    CheckEntry(
        id="A58", title="election storm",
        question="how many elections were there, and how many terms in a row without a leader?",
        severity=INFO, needs="raft_event", in_process=True, on_spark=True,
    ),
    CheckEntry(
        id="A59", title="span of what was lost",
        question="from when to when, and how many bytes, of what A1 found?", severity=INFO,
        needs="sends, deliveries",
        weighs="drain, faults, subscriptions",
        in_process=True, on_spark=True,
    ),
    CheckEntry(
        id="A60", title="no recovery after the heal",
        question="is service back soon after the last fault is lifted?", severity=MAJOR,
        needs="sends, faults", in_process=True, on_spark=True,
    ),
    CheckEntry(
        id="A61", title="availability floor",
        question="which part of the sends is acknowledged while no fault is near?",
        severity=MAJOR, needs="sends",
        weighs="faults",
        in_process=True, on_spark=True,
    ),
    CheckEntry(
        id="A62", title="exceptions and log patterns",
        question="did a node log an error, or a client raise what nobody expects?", severity=MAJOR,
        needs="node_log",
        weighs="faults",
        in_process=True, on_spark=True,
    ),
    CheckEntry(
        id="A63", title="masters whom no controller named",
        question="does an epoch have one master, whom the controllers named, and do epochs rise?",
        severity=CRIT, needs="masters", in_process=True, on_spark=True,
    ),
)  # fmt: skip
"""In the order of their ids."""
