"""The history as the checks see it, and what a check answers.

Rows have the columns of ``chaos.history.tables``. Source: spec/proof.md 3.0.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from chaos.catalogue.checks import CHECKS, CRIT, MAJOR
from chaos.catalogue.faults import Span, moves_clock, spoils_log, took_nothing
from chaos.checker.compact import Given, Place, Places, SendsAt, SendsOf
from chaos.history.columns import Row
from chaos.history.domains import ANY_TAG
from chaos.history.segment import EntryRow

VALID, UNKNOWN, INVALID, NOT_CHECKED = "valid", "unknown", "invalid", "not checked"
EVIDENCE_MAX = 20
Holder = tuple[str, str]
"""Group and node of a log."""
IDLE = frozenset({"planned", "skipped"})
"""What the status of a fault is that never was in force."""
FAILED = "failed"
"""What it is if it could not be applied: as a whole, or not at all."""
NOT_LIFTED = "heal_failed"
NEVER = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One node's log as it lay on its disk after the run; indexes are -1 where there is none."""

    node: str
    rows: Sequence[EntryRow]
    commit_index: int
    first_index: int = 0
    end_index: int = -1
    group: str = ""
    """The Raft group whose log it is; only logs of one group are compared."""
    number: int = 0
    """By which number sends name the group (``raft_group``)."""
    is_plain: bool = False
    """Whether it is a plain commit log: its entries are named by their last bytes."""

    def committed(self) -> Iterator[EntryRow]:
        """Yield the readable entries that this node calls committed."""
        for row in self.rows:
            if 0 <= row.entry_index <= self.commit_index:
                yield row


@dataclass(frozen=True, kw_only=True)
class History:
    """Everything that was recorded of a run.

    ``topic`` and ``group`` are what the run was to use; judged is every topic that was sent to and
    every group that consumed. Rows have all columns of their table.
    """

    topic: str = ""
    group: str = ""
    run_ids: frozenset[str] = frozenset()
    """What ``payload_run_id`` may be in a message of this run: its id or its tag."""
    quorum: int = 2
    """How many logs hold what is acknowledged, in each group that ``promised`` does not name."""
    named_nodes: Sequence[str] = ()
    """The brokers that run.json names."""
    is_one_group: bool = False
    """Whether it names them as the members of one group, or as a pair."""
    promised: Mapping[str, int] = field(default_factory=dict)
    """By Raft group, or pair of master and slave, how many logs hold what it acknowledged."""
    sends: Sequence[Row] = ()
    deliveries: Sequence[Row] = ()
    acks: Sequence[Row] = ()
    txn: Sequence[Row] = ()
    events: Sequence[Row] = ()
    faults: Sequence[Row] = ()
    drain: Sequence[Row] = ()
    replicas: Sequence[Replica] = ()
    raft_events: Sequence[Row] = ()
    probes: Sequence[Row] = ()
    masters: Sequence[Row] = ()
    """What controllers said of who is master."""
    node_log: Sequence[Row] | None = None
    """What processes logged that matters; None: nobody read their logs."""
    queue_index: Sequence[Row] = ()
    """What somebody read of nodes' queue files."""
    coverage: dict[str, int] | None = None
    """Least number of effective faults per kind; None: one of each kind that was planned."""
    contract: dict[str, Any] = field(default_factory=dict)
    subscriptions: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """By group and topic the tags that it subscribed to; what is not named is subscribed whole."""
    modes: dict[str, str] = field(default_factory=dict)
    """How groups consume, as far as somebody said: concurrent, orderly, broadcast."""
    reconsume_max: dict[str, int] = field(default_factory=dict)
    """How often a group gets a message again before it becomes a dead letter."""
    check_back: dict[str, int] = field(default_factory=dict)
    """When producers are asked how a transaction ended: after_ms, interval_ms, max."""
    exits: Sequence[Row] = ()
    """Processes of the system that ended by themselves: ``process``, ``exit``, ``log``."""
    answers: Sequence[Row] = ()
    """What the system was asked at the end, and what it said."""
    clock_tolerance_ns: int = 0
    """By how much the clocks of several hosts may differ; operations are widened by it already."""
    problems: Sequence[str] = ()
    """What went wrong with the harness itself, or with reading its record (A48)."""
    unusable: Mapping[str, str] = field(default_factory=dict)
    """Tables that were refused or lost, and members of run.json that nobody can use: why."""

    @cached_property
    def ok_sends(self) -> list[Row]:
        """Acknowledged sends."""
        return [s for s in self.sends if s["outcome"] == "ok"]

    @cached_property
    def by_key(self) -> SendsOf:
        """The sends of each message; more than one where each attempt has a row."""
        return SendsOf(self.sends)

    @cached_property
    def ok_places(self) -> SendsAt:
        """The acknowledged send of each place."""
        found = Places()
        for number, send in enumerate(self.ok_sends):
            place = self.place(send)
            if place is not None:
                found.put(place, number)
        return SendsAt(self.ok_sends, found)

    @cached_property
    def epochs(self) -> dict[str, tuple[int, int]]:
        """First and last epoch of each topic that was sent to (it was recreated in between)."""
        found: dict[str, tuple[int, int]] = {}
        for send in self.sends:
            epoch = send.get("epoch") or 0
            low, high = found.get(send.get("topic", ""), (epoch, epoch))
            found[send.get("topic", "")] = (min(low, epoch), max(high, epoch))
        # Only where nothing was sent to it: whoever counts from 1 has made nothing anew.
        return found if not self.topic else {self.topic: (0, 0)} | found

    @cached_property
    def anew(self) -> set[str]:
        """Topics that were deleted and made anew: offsets of their queues began once more."""
        return {topic for topic, (low, high) in self.epochs.items() if low != high}

    def promised_in(self, group: str) -> int:
        """Return how many logs of a group hold what it acknowledged."""
        return self.promised.get(group, self.quorum)

    def is_held(self, holders: Collection["Holder"]) -> bool:
        """Tell whether a message lies on as many logs of one group as were promised."""
        counts = Counter(group for group, _ in holders)
        return any(number >= self.promised_in(group) for group, number in counts.items())

    def is_subscribed(self, group: str, send: Row) -> bool:
        """Tell whether a group that consumes a topic subscribed to the tag of this message."""
        tags = self.tags_of(group, send["topic"])
        return tags is None or send.get("tag") in tags

    def tags_of(self, group: str, topic: str) -> list[str] | None:
        """Return the tags by which a group subscribed to a topic; None for all of it."""
        tags = self.subscriptions.get(group, {}).get(topic)
        return None if tags is None or ANY_TAG in tags else tags

    def is_current(self, send: Row) -> bool:
        """Tell whether the topic of a send was not deleted and made anew since."""
        return (send.get("epoch") or 0) >= self.epochs[send["topic"]][1]

    def place(self, row: Row) -> Place | None:
        """Return the place of a send or delivery; None if queue, offset or epoch is not known."""
        low, high = self.epochs.get(row["topic"], (0, 0))
        epoch = row.get("epoch")
        is_known = row["queue_id"] is not None and row["queue_offset"] is not None
        if not is_known or (epoch is None and low != high):
            return None
        return row["topic"], high if epoch is None else epoch, row["queue_id"], row["queue_offset"]

    @cached_property
    def own(self) -> list[Row]:
        """Deliveries on the run's topics, or copies of such, without another run's tag."""
        names = {None, *self.run_ids}
        return [
            d
            for d in self.deliveries
            if (d["topic"] in self.epochs or is_copy(d)) and d.get("payload_run_id") in names
        ]

    @cached_property
    def placed(self) -> list[Row]:
        """Deliveries on the run's topics that came from where the producer's send had put them."""
        return [d for d in self.deliveries if d["topic"] in self.epochs and not is_copy(d)]

    @cached_property
    def first_found(self) -> dict[tuple[int | None, str], tuple[int, int, int]]:
        """When and where (queue, offset) a message of a topic was seen first.

        Of those alone that nobody was told the place of.
        """
        told = {send["msg_key"] for send in self.sends if _is_untold(send)}
        found: dict[tuple[int | None, str], tuple[int, int, int]] = {}
        for row in self.placed if told else ():
            if row["msg_key"] in told:
                seen = (row["t_recv"], row["queue_id"], row["queue_offset"])
                of = (row["msg_key"], row["topic"])
                if None not in seen:
                    found[of] = min(found.get(of, seen), seen)
        return found

    @cached_property
    def to_groups(self) -> list[Row]:
        """Own deliveries to consumer groups."""
        return [d for d in self.own if not d.get("auditor") and not d.get("is_dlq")]

    @cached_property
    def auditors(self) -> set[str]:
        """Who read queues as an auditor: not the groups whose dead letters one read."""
        rows = (row for row in self.deliveries if row.get("auditor"))
        return {row["grp"] for row in rows if not row.get("is_dlq")}

    @cached_property
    def reset_queues(self) -> set[tuple[str, str | None, int | None]]:
        """Group, topic and queue of the offsets that were, or may have been, set anew."""
        return {(a["grp"], a["topic"], a["queue_id"]) for a in self.acks if is_reset(a)}

    @cached_property
    def read_out(self) -> set[str]:
        """Groups that read all their queues to the end, if whoever audited did so, too."""
        undrained = {row["grp"] for row in self.drain if not row["drained"]}
        if undrained & self.auditors:
            return set()
        return {row["grp"] for row in self.drain} - undrained

    @cached_property
    def groups(self) -> dict[str, set[str]]:
        """Groups and the topics whose messages they are owed; where none consumed, the auditors."""
        found: dict[str, set[str]] = defaultdict(set)
        for row in () if self._consuming else self.deliveries:
            if row.get("auditor") and not is_copy(row):
                found[row["grp"]].add(row["topic"])
        return self._consuming or dict(found)

    @cached_property
    def _consuming(self) -> dict[str, set[str]]:
        """Consumer groups and their topics; who got copies alone says nothing of the others."""
        found: dict[str, set[str]] = defaultdict(set)
        auditors = self.auditors
        rows = [d for d in self.deliveries if not d.get("auditor") and not is_copy(d)]
        rows += [d for d in self.drain if d["grp"] not in auditors]
        commits = (a for a in self.acks if a["kind"] == "commit" and a["outcome"] == "ok")
        rows += [a for a in commits if a["grp"] not in auditors and a["topic"] in self.epochs]
        for row in rows:
            found[row["grp"]].add(row["topic"])
        for group, topics in self.subscriptions.items():  # though it may have got nothing
            if group not in auditors and (told := topics.keys() & self.epochs.keys()):
                found[group] |= told
        return dict(found)

    @cached_property
    def end(self) -> int:
        """When a message was last sent or received."""
        sent = (s["t_inv"] if s["t_cmp"] is None else s["t_cmp"] for s in self.sends)
        return max((*sent, *(d["t_recv"] for d in self.deliveries)), default=0)

    @cached_property
    def got(self) -> Given:
        """Which group got which message; the auditor's reading counts where nobody else read."""
        found = Given(self.by_key)
        for row in self.own:
            if self._is_for_its_group(row):
                found.add(row["grp"], row["msg_key"])
        return found

    def _is_for_its_group(self, row: Row) -> bool:
        return not row.get("auditor") or (not self._consuming and row["grp"] in self.groups)

    @cached_property
    def audited(self) -> set[int]:
        """Keys that the auditor read."""
        return {d["msg_key"] for d in self.own if d.get("auditor") and d["msg_key"] is not None}

    @cached_property
    def nodes(self) -> set[str]:
        """The brokers whose names somebody said: run.json, their logs, statuses or events."""
        told = {row["node"] for row in (*self.probes, *self.raft_events)}
        return {*self.named_nodes, *(replica.node for replica in self.replicas), *told}

    def ours(self, targets: Sequence[str]) -> list[str]:
        """Return the nodes of this system among a fault's targets; all where nobody named any."""
        return [node for node in targets if not self.nodes or node in self.nodes]

    def is_here(self, targets: Sequence[str]) -> bool:
        """Tell whether a fault is one of this system: it hits a node of it, or names nobody."""
        return not targets or bool(self.ours(targets))

    @cached_property
    def witnessed(self) -> list[Row]:
        """Faults that were on at some time and that a witness saw take effect.

        Whatever a check excuses by a fault it asks for here: all others excuse nothing. Those that
        failed half applied are among them: nobody saw what they did, and the verdict is unknown by
        them (A48), so that nothing is accused of what they may have done.
        """
        return [fault for fault in self.faults if _took_effect(fault)]

    @cached_property
    def begun(self) -> list[Row]:
        """Faults that were on at some time, seen or not: they excuse nothing, but leave a doubt."""
        return [fault for fault in self.faults if _was_on(fault)]

    @cached_property
    def taking(self) -> list[Row]:
        """Those of them that may have taken something from nodes of this system."""
        spans = [span_of(fault) for fault in self.witnessed]
        return [
            fault
            for fault, span in zip(self.witnessed, spans, strict=True)
            if not took_nothing(span, spans, fault.get("only_there")) and self.is_here(span.targets)
        ]

    @cached_property
    def clock_moved_at(self) -> int:
        """From when on a fault may have moved a wall clock, by which brokers wait."""
        spans = [span_of(fault) for fault in self.witnessed if moves_clock(fault["kind"])]
        return min((one.begin for one in spans if self.is_here(one.targets)), default=NEVER)

    def waited_until(self, since: int, delay_ms: int) -> int:
        """Return when what waits is due; once a wall clock was moved, any time may be."""
        return min(since + delay_ms * 1_000_000, max(since, self.clock_moved_at))

    @cached_property
    def damaged_nodes(self) -> set[str]:
        """Nodes whose disks a fault spoiled on purpose."""
        return {
            node
            for fault in self.taking
            if spoils_log(fault["kind"])
            for node in fault["targets"] or ()
        }


def _is_untold(send: Row) -> bool:
    """Tell whether a message may lie somewhere, and its sender was not told where."""
    return send["outcome"] != "ok" or send["queue_id"] is None


def _took_effect(fault: Row) -> bool:
    """Tell whether a fault was on at some time, and a witness saw what it did, or nobody can."""
    is_seen = bool((fault.get("witness") or {}).get("effective"))
    return (is_seen or is_half_applied(fault)) and _was_on(fault)


def _was_on(fault: Row) -> bool:
    has_begun = fault["t_on0"] is not None or fault["t_on1"] is not None
    return has_begun and fault["status"] not in IDLE


def is_half_applied(fault: Row) -> bool:
    """Tell whether a fault failed once it had begun: some of it may have been in force."""
    return fault["status"] == FAILED and _was_on(fault)


def span_of(fault: Row) -> Span:
    """Return when a fault was in force; one that could not be lifted, until the end of the run."""
    begin = fault["t_on1"] if fault["t_on0"] is None else fault["t_on0"]
    end = fault.get("t_off0") if fault.get("t_off1") is None else fault["t_off1"]
    return Span(
        fault["kind"], fault["targets"] or (), begin, None if fault["status"] == NOT_LIFTED else end
    )


def lacking(table: str, rows: Sequence[Row], *columns: str) -> str:
    """Return the columns that some of the rows leave empty, as words; empty if none does."""
    names = [f"{table}.{name}" for name in columns if any(row.get(name) is None for row in rows)]
    return ", ".join(names)


def is_reset(ack: Row) -> bool:
    """Return whether the offset of a queue was, or may have been, set anew; one that failed not."""
    return bool(ack["kind"] == "reset" and ack["outcome"] != "fail")


def is_copy(row: Row | Mapping[str, Any]) -> bool:
    """Return whether a delivery came from a retry or dead letter queue: its place is another.

    What comes again, and of which nobody says whether from there, may have come from there.
    """
    is_retry = row.get("is_retry")
    again = (row.get("reconsume") or 0) > 0 if is_retry is None else is_retry
    return bool(again or row.get("is_dlq"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The answer of one check; ``count`` is exact, ``evidence`` the first few."""

    check: str
    verdict: str
    severity: str
    count: int = 0
    summary: str = ""
    evidence: Sequence[Row] = ()
    details: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the members of the verdict file for this check."""
        return {
            "title": CHECKS[self.check].title,
            "verdict": self.verdict,
            "severity": self.severity,
            "count": self.count,
            "summary": self.summary,
            "evidence": list(self.evidence)[:EVIDENCE_MAX],
            "details": self.details,
        }


def result(check: str, found: Sequence[Row], summary: str, **details: object) -> Result:
    """Return the result of a check that found these anomalies: invalid if severe and any."""
    severity = CHECKS[check].severity
    bad = bool(found) and severity in {CRIT, MAJOR}
    return Result(
        check=check,
        verdict=INVALID if bad else VALID,
        severity=severity,
        count=len(found),
        summary=summary,
        evidence=[row | {"key": _key_of(row)} for row in found[:EVIDENCE_MAX]],
        details=details,
    )


def result_of_drained(
    history: History, check: str, found: Sequence[tuple[str, Row]], summary: str, what: str
) -> Result:
    """Return the result of a check that found these, each of a group that may read on.

    Proved is only what a group lacks that read all its queues to the end. ``what``: in words, what
    is said of the others.
    """
    proved = [row for group, row in found if group in history.read_out]
    if found and not proved:
        return undecided(check, f"{len(found)} {what}, but queues were not drained")
    return result(check, proved, f"{summary}, {len(proved)} {what}")


def _key_of(row: Row) -> str:
    """Return by what both checkers name an anomaly: most are of a message, some of a place."""
    names = ("key", "msg_key", "place", "subject", "process", "topic", "epoch")
    return str(next((row[name] for name in names if row.get(name) is not None), ""))


def undecided(check: str, why: str, **details: object) -> Result:
    """Return the result of a check that cannot be decided."""
    return Result(
        check=check, verdict=UNKNOWN, severity=CHECKS[check].severity, summary=why, details=details
    )


def unchecked(check: str, why: str) -> Result:
    """Return the result of a check that the history has nothing for."""
    severity = CHECKS[check].severity
    return Result(check=check, verdict=NOT_CHECKED, severity=severity, summary=why)
