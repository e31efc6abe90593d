"""What the values of the history's columns may be: words, least numbers, the one clock.

Plain data beside `chaos.history.tables`. A value outside its domain is not a fact about the system
but a mistake of whoever wrote the history: ``outcome='OK'`` looks like no acknowledgement at all,
and a history without acknowledgements loses nothing. Both checkers read these tables and refuse
such a history with code of their own; null is no matter of a domain, but of ``Column.nullable``.

Source: spec/proof.md 4.3.
"""

from typing import Final

from chaos.catalogue.contracts import DURABILITIES

Place = tuple[str, str]
"""Table and column."""

OUTCOMES: Final = ("ok", "fail", "info")
LOG_KINDS: Final = (
    "traceback", "assertion", "panic", "error", "corrupt", "removed", "resource", "slow",
)  # fmt: skip
"""What a line in the log of a process may be: `chaos.history.log_lines`."""
WORDS: Final[dict[Place, tuple[str, ...]]] = {
    ("sends", "outcome"): OUTCOMES,
    ("sends", "kind"): ("plain", "batch", "orderly", "delay", "txn"),
    ("acks", "outcome"): OUTCOMES,
    ("acks", "kind"): ("ack", "nack", "commit", "reset", "fetch"),
    ("txn", "step"): ("half", "commit", "rollback", "checkback"),
    ("txn", "answer"): ("commit", "rollback", "unknown"),
    ("txn", "outcome"): OUTCOMES,
    ("events", "type"): ("invoke", *OUTCOMES),
    ("faults", "status"): ("planned", "active", "skipped", "failed", "healed", "heal_failed"),
    ("replica_log", "type"): ("message", "state", "half", "noop", "unknown", "unreadable"),
    ("raft_probe", "role"): (
        "leader", "follower", "candidate", "pre_candidate", "learner",
        "LEADER", "FOLLOWER", "CANDIDATE", "PRE_CANDIDATE", "LEARNER", "master", "slave",
    ),
    ("node_log", "kind"): LOG_KINDS,
    ("node_log", "role"): ("broker", "namesrv", "client"),
}  # fmt: skip
"""The words that a column may hold, spelled so."""

LEADING: Final = ("leader", "master")
"""The roles of a node that leads, in lower case: brokers that elect nobody have masters."""
TRIES: Final = OUTCOMES
"""The words in ``sends.tries``: how each attempt ended, by the code that came back."""

LEAST: Final[dict[Place, int]] = {
    ("sends", "queue_id"): 0,
    ("sends", "queue_offset"): 0,
    ("sends", "epoch"): 0,
    ("sends", "attempts"): 0,
    ("sends", "t_inv"): 0,
    ("sends", "t_cmp"): 0,
    ("sends", "t_first_byte"): 0,
    ("sends", "delay_ms"): 0,
    ("sends", "body_len"): 0,
    ("sends", "raft_index"): 0,
    ("sends", "raft_term"): 0,
    ("sends", "asked_queue"): 0,
    ("deliveries", "queue_id"): 0,
    ("deliveries", "queue_offset"): 0,
    ("deliveries", "epoch"): 0,
    ("deliveries", "pos"): 0,
    ("deliveries", "reconsume"): 0,
    ("deliveries", "t_fetch_inv"): 0,
    ("deliveries", "t_recv"): 0,
    ("deliveries", "t_proc_begin"): 0,
    ("deliveries", "t_proc_end"): 0,
    ("acks", "queue_id"): 0,
    ("acks", "queue_offset"): 0,
    ("acks", "value_offset"): 0,
    ("acks", "t_inv"): 0,
    ("acks", "t_cmp"): 0,
    ("acks", "reconsume"): 0,
    ("acks", "delay_ms"): 0,
    ("txn", "t_inv"): 0,
    ("txn", "t_cmp"): 0,
    ("events", "idx"): 0,
    ("events", "t_mono_ns"): 0,
    ("drain", "queue_id"): 0,
    ("drain", "min_off"): 0,
    ("drain", "end_off"): 0,
    ("drain", "read_to"): 0,
    ("faults", "t_on0"): 0,
    ("faults", "t_on1"): 0,
    ("faults", "t_off0"): 0,
    ("faults", "t_off1"): 0,
    ("faults", "only_there"): 0,
    ("raft_probe", "t0"): 0,
    ("raft_probe", "t1"): 0,
    ("raft_event", "seq"): 0,
    ("raft_event", "term"): 0,
    ("masters", "t0"): 0,
    ("masters", "t1"): 0,
    ("masters", "epoch"): 0,
    ("node_log", "t"): 0,
    ("node_log", "t_last"): 0,
    ("node_log", "count"): 1,
    ("replica_log", "queue_id"): 0,
    ("replica_log", "queue_offset"): 0,
    ("queue_index", "queue_id"): 0,
    ("queue_index", "queue_offset"): 0,
}
"""The smallest number that a column may hold."""

TELLING: Final[dict[str, tuple[str, ...]]] = {"replica_log": ("committed",)}
"""Columns without which a table says nothing of what it is read for, though rows may be known."""

EVEN: Final[dict[str, tuple[str, str]]] = {"replica_log": ("entry_crc", "type")}
"""A column that all rows of a table fill, or none, which have the same word in the other: what is
told by other words beside it differs."""

THERE: Final[dict[str, tuple[str, ...]]] = {"deliveries": ("msg_key",)}
"""Columns that a table has, though rows may leave them empty: without one it says nothing of all
that it is read for, and each row would count as one that nobody could read."""

CLOCKS: Final[dict[str, tuple[str, ...]]] = {
    "sends": ("t_inv", "t_first_byte", "t_cmp"),
    "deliveries": ("t_recv", "t_fetch_inv", "t_proc_begin", "t_proc_end"),
    "acks": ("t_inv", "t_cmp"),
    "txn": ("t_inv", "t_cmp"),
    "events": ("t_mono_ns",),
    "raft_probe": ("t0", "t1"),
    "masters": ("t0", "t1"),
    "node_log": ("t", "t_last"),
    "faults": ("t_on0", "t_on1", "t_off0", "t_off1"),
}
"""The columns of each table that are times of the run's one monotonic clock."""
ORDERED: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "sends": (("t_inv", "t_cmp"), ("t_inv", "t_first_byte")),
    "deliveries": (("t_fetch_inv", "t_recv"), ("t_proc_begin", "t_proc_end")),
    "acks": (("t_inv", "t_cmp"),),
    "txn": (("t_inv", "t_cmp"),),
    "raft_probe": (("t0", "t1"),),
    "masters": (("t0", "t1"),),
    "node_log": (("t", "t_last"),),
    "faults": (
        ("t_on0", "t_on1"), ("t_off0", "t_off1"), ("t_on1", "t_off0"), ("t_on0", "t_off1"),
        ("t_on0", "t_off0"), ("t_on1", "t_off1"),
    ),
}  # fmt: skip
"""What begins and what ends in one row, by one host's clock: no end lies before its begin."""
KEYS: Final[dict[str, tuple[str, ...]]] = {
    "sends": ("op_id", "msg_key"),
    "deliveries": (
        "op_id", "msg_key", "t_recv", "pos", "grp", "consumer", "topic", "queue_id", "queue_offset",
        "t_proc_begin", "reconsume",
    ),
    "acks": (
        "op_id", "t_inv", "grp", "consumer", "topic", "queue_id", "queue_offset", "msg_key",
        "kind", "value_offset",
    ),
    "events": ("idx",),
    "txn": ("msg_key", "txn_id", "step", "answer", "t_inv", "t_cmp", "outcome"),
    "drain": ("grp", "topic", "queue_id", "min_off", "end_off", "read_to", "drained"),
    "replica_log": (
        "index", "node", "group", "term", "pos", "msg_key", "entry_crc", "boot_id", "dump_id",
        "file",
    ),
    "faults": ("fault_id", "kind", "t_on0", "t_on1"),
    "raft_event": ("seq", "node", "group", "boot_id", "kind", "term", "index", "peer"),
}  # fmt: skip
"""What tells the rows of a table apart: two that agree in it are one row that stands there twice.
A row without the first of them says nothing of it."""
UNITS_APART: Final = 500
"""Times of two tables that differ by this factor, at both ends, are of two units (or of two
clocks): the next unit is a thousand times as large."""
BEGIN_NS: Final = 1_000_000
"""Before that the begin of a history whose times count from 0 tells no unit."""
LONG_RUNNING_NS: Final = 1_000_000_000_000
"""Where sends begin so late their clock ran long before: one time alone then tells its unit."""

TOLERANCE: Final = "clock_tolerance_ns"
"""The member of run.json that says by how much the clocks of several hosts may differ (ns)."""
TOLERANCE_MAX_NS: Final = 60_000_000_000
"""More than that is no clock that was set: nothing could be told of order any more."""
SPANS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "sends": (("t_inv",), ("t_cmp",)),
    "acks": (("t_inv",), ("t_cmp",)),
    "txn": (("t_inv",), ("t_cmp",)),
    "faults": (("t_on0", "t_on1"), ("t_off0", "t_off1")),
}
"""What has a beginning and an end, and the columns of both. Where clocks may differ it began so
much earlier and ended so much later, by anybody's clock; what then still lies before or after it
does so by all."""

CONTRACT_WORDS: Final[dict[str, tuple[str, ...]]] = {
    "durability": DURABILITIES,
    "flush": ("ASYNC_FLUSH", "SYNC_FLUSH", "async", "sync", "async_flush", "sync_flush"),
    "duplicates": ("at-least-once", "exactly-once", "idempotent"),
}
"""What run.json's ``contract`` may say, by word."""

DLEDGER, PLAIN = "dledger", "plain"
"""What ``format`` in a replica's meta.json may say: of its segments, the first if it is absent."""

TIMES: Final = ("late_ms_max", "late_ms_half_max", "offsets_settle_ms", "recovery_ms_max")
"""What of run.json's ``contract`` is a number of milliseconds."""
SHARES: Final = ("redelivery_ratio_max", "availability_min")
"""What of it is a number of 0 to 1."""
FILLED: Final = (
    "acks", "answers", "deliveries", "drain", "masters", "queue_index", "raft_event", "raft_probe",
    "replica_log", "sends",
)  # fmt: skip
"""Tables that have rows where run.json names them: somebody recorded them, so that none is a loss.
Not so ``faults`` and ``txn``: there may have been none."""
WITHOUT_RAFT: Final = ("pair", "master", "in-sync")
"""The ``durability`` of brokers that note no steps of Raft: their ``raft_event`` has no rows."""

MEMBERS: Final = (
    "check_back", "contract", "coverage", "exits", "modes", "nodes", "quorum", "reconsume_max",
    "subscriptions", TOLERANCE,
)  # fmt: skip
"""What of run.json checks go by: they are without it where that cannot be read."""

ANY_TAG: Final = "*"
"""What RocketMQ's consumers say for all tags: in run.json's ``subscriptions`` it means so, too."""
MODES: Final = ("concurrent", "orderly", "broadcast")
"""What run.json's ``modes`` may say of a group: how it consumes."""
CHECK_BACK: Final = ("after_ms", "interval_ms", "max")
"""What run.json's ``check_back`` says of the questions how a transaction ends: how old a half is
before its producers are asked, how long at the least until they are asked again, and how often."""
ASKED_WITHIN_NS: Final = 5_000_000_000
"""So much longer than ``after_ms`` and two intervals may pass before a question is missed."""
HALF_OF: Final = 20
"""Of so many delayed messages at the least half is something to judge by."""
EARLY_NS: Final = 10_000_000
"""How much sooner than told something may come again: brokers count in milliseconds, and their
clock may be set forward a little meanwhile."""
NUMBERS_MAX: Final = 1 << 62
"""Indexes of logs lie below it."""
QUEUES_MAX: Final = 1 << 31
"""Numbers of queues lie below it: RocketMQ has 32 bits for them."""
COPY: Final = ("grp", "msg_key", "consumer", "topic", "queue_id", "queue_offset", "t_recv")
"""What deliveries have in common that were received once: their consumer tried again by itself."""
RECEPTION: Final = ("grp", "msg_key", "consumer", "t_recv")
"""The same, wherever a row says that they came from."""
PLACE: Final = ("grp", "msg_key", "topic", "queue_id", "queue_offset")
"""What deliveries of one copy to a group have in common."""
ANSWERED_NS: Final = 10_000_000_000
"""So long after a refusal whose answer is lost its client may give the message back once more."""
HARMLESS: Final = "slow"
"""The one of `LOG_KINDS` that is no anomaly: the machine was slow, and the node coped with it."""
SHARED: Final = "removed"
"""The one that a fault on any node explains: what one member cuts off its log others get so."""
PASSING: Final = "resource"
"""The one that is over with the fault that brings it about; damage may be met much later."""
LOGGED_EARLY_NS: Final = 1_000_000_000
"""So much before a fault what it brings about may be dated: logs have milliseconds of a clock that
is set."""
LOGGED_LATE_NS: Final = 10_000_000_000
"""So long after a fault its effect may still be told: brokers tell of a full disk once in 10 s."""
LETTERS_MORE: Final = 3
"""How many more dead letters there may be of a refusal whose answer may be lost: a message is given
back by a request and by a send, each to an old and to a new leader."""
