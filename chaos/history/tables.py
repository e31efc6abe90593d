"""The tables of a run's history: column names, types and meaning, as plain data.

This is the contract between whoever records a history (our harness, or a foreign one) and whoever
checks it (``spark/``, ``chaos.checker``). It knows neither Parquet nor Spark: types are written as
Spark DDL words (``string int long double boolean timestamp array<..> map<..> struct<..>``).
A recorder writes every column it can; a reader accepts missing columns as null unless the column
is not nullable. All ``t_*`` are nanoseconds on the harness's one monotonic clock.

Source: spec/proof.md 4.3.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, its DDL type, and whether a row may leave it empty."""

    name: str
    type: str
    nullable: bool = True


Table = tuple[Column, ...]


def parse_columns(text: str) -> Table:
    """Return the columns written one per line as ``name type``; a ``!`` after the type: required.

    Errors: ValueError if a line has not exactly two words.
    """
    columns = []
    for line in text.strip().splitlines():
        name, type_ = line.split(maxsplit=1)
        columns.append(Column(name, type_.rstrip("!").strip(), not type_.endswith("!")))
    return tuple(columns)


# One row per run. `contract` is JSON: what the scenario promises (flush, quorum, tolerated faults).
RUNS: Final = parse_columns("""
run_id string!
scenario string
seed long
plan_hash string
backend string
caps map<string,string>
versions map<string,string>
config string
t0_wall timestamp
verdict string
contract string
""")

# One row per invocation and one per completion; `idx` is dense from 0: a hole is a lost record.
EVENTS: Final = parse_columns("""
run_id string!
idx long!
worker int
process long
role string
node string
phase string
type string!
f string!
op_id long
t_mono_ns long!
t_wall_us long
err_code int
err_class string
definite boolean
value string
trace_id long
""")

# One row per message sent. `outcome` is ok, fail (definitely not appended) or info (may be): what
# the client said. `tries`: how each of its attempts ended (ok, fail, info), by the code that came
# back and not by the client's opinion of it. `attempts`: how often it was sent, without those that
# certainly stored nothing (refused before the append): the log holds no more copies.
# `asked_queue`: the queue that the sender demanded, null where any would do. `tag`: by which groups
# subscribe (run.json's `subscriptions`), null for none. `kind`: plain batch orderly delay txn; one
# that waits (`delay`, by `delay_ms` at the least) has no place yet when it is acknowledged, so its
# queue and offset are null. `shard_key`: whose order an orderly send is part of.
SENDS: Final = parse_columns("""
run_id string!
op_id long!
msg_key long!
pid int
seq long
process long
topic string!
epoch int
queue_id int
shard_key string
kind string
delay_ms long
txn_id long
body_hash long
body_len int
t_inv long!
t_first_byte long
t_cmp long
outcome string!
err_code int
attempts int
node string
queue_offset long
raft_group int
raft_index long
raft_term long
msg_id string
phase string
tries array<string>
asked_queue int
tag string
""")

# One row per message handed to a consumer. `auditor`: the final reader, not a member of a group.
# `t_proc_begin` to `t_proc_end`: when the listener had it, one call being one `op_id`. Each member
# of a broadcasting group is a group of its own here: it is owed everything. `is_dlq`: found in the
# dead letter queue of the group, `topic` being the one that it was sent to.
DELIVERIES: Final = parse_columns("""
run_id string!
op_id long
pos int
grp string!
consumer string
process long
generation long
topic string!
epoch int
queue_id int!
queue_offset long!
msg_key long
body_hash long
payload_run_id string
reconsume int
is_retry boolean
is_dlq boolean
orig_offset long
t_fetch_inv long
t_recv long!
t_proc_begin long
t_proc_end long
node string
auditor boolean
""")

# One row per statement of a consumer to the broker. `kind`: ack nack commit reset fetch;
# for a commit `value_offset` is the committed (next to read) offset of the queue, for a fetch the
# one that was told. For a nack: `reconsume`, how often the message had come again before, and
# `delay_ms`, how long it must stay away at the least.
ACKS: Final = parse_columns("""
run_id string!
op_id long
grp string!
consumer string
generation long
topic string
queue_id int
queue_offset long
msg_key long
kind string!
value_offset long
t_inv long
t_cmp long
outcome string
durable boolean
reconsume int
delay_ms long
""")

# One row per step of a transaction. `step`: half commit rollback checkback; for a check-back
# `answer` is what the producer said: commit rollback unknown.
TXN: Final = parse_columns("""
run_id string!
txn_id long
msg_key long!
step string!
answer string
t_inv long!
t_cmp long
outcome string
""")

# One row per status question to a node; `ok` false: it did not answer.
RAFT_PROBE: Final = parse_columns("""
run_id string!
node string!
boot_id string
t0 long!
t1 long
ok boolean
role string
group int
term long
voted_for string
leader string
commit long
applied long
first_index long
last_index long
last_term long
members string
fsync_p99_us long
disk_free long
node_wall_us long
node_mono_ns long
""")

# One row per step a node reported about its own Raft state (optional audit log).
RAFT_EVENT: Final = parse_columns("""
run_id string!
node string!
boot_id string
seq long
node_mono_ns long
group int
kind string!
term long
index long
prev_index long
peer string
hash long
extra string
""")

# One row per log entry per replica, decoded from its data segments after the run.
# `entry_crc` covers the whole stored record, `size` is its length; `payload_run_id` tells our own
# messages from foreign ones; `type` is message, state, noop or unreadable.
REPLICA_LOG: Final = parse_columns("""
run_id string!
node string!
boot_id string
dump_id string
group int
index long!
term long!
type string!
topic string
queue_id int
queue_offset long
msg_key long
body_hash long
crc_ok boolean
file string
pos long
committed boolean
entry_crc long
size int
payload_run_id string
""")

# One row per queue index unit per replica (optional).
QUEUE_INDEX: Final = parse_columns("""
run_id string!
node string!
dump_id string
topic string!
queue_id int!
queue_offset long!
index long
msg_key long
""")

# One row per (group, queue) of the final drain: what was there and how far the reading came.
DRAIN: Final = parse_columns("""
run_id string!
grp string!
topic string!
queue_id int!
min_off long
end_off long
read_to long
empty_polls int
drained boolean
""")

# One row per fault of the plan, with what the witness saw. `only_there`: of a fault that takes a
# disk, how many messages no other node had at that moment; null where nobody counted them.
FAULTS: Final = parse_columns("""
run_id string!
fault_id string!
parent_id string
kind string!
spec string
targets array<string>
method string
t_sched long
t_on0 long
t_on1 long
t_off0 long
t_off1 long
status string
witness struct<probe:string,before:double,during:double,after:double,effective:boolean>
only_there long
""")

# One row per answer of a controller that led: who is master of a group (`node`, null for none), in
# which epoch, and which replicas are in sync, by the ids that controllers gave them; asked from
# `t0` to `t1`. `set_epoch` counts the changes of the set.
MASTERS: Final = parse_columns("""
run_id string!
controller string!
t0 long!
t1 long!
grp string
epoch long!
node string
set_epoch long
in_sync array<int>
""")

# One row per question that was asked when all was quiet, and per reply to a request that came in a
# run: of what (`subject`), what the answer had to be by what is recorded elsewhere, and what was
# said; `told` null: nobody answered.
ANSWERS: Final = parse_columns("""
run_id string!
kind string!
node string
topic string
queue_id int
grp string
subject string
expected string!
told string
t long
""")

# One row per kind of line in the log of a process that tells of a bug, of damage or of a machine
# that fails: what differs in time and numbers only is one. `kind`: traceback assertion panic error
# corrupt removed resource slow; `t` the first such line and `t_last` the last by the run's clock,
# null where nobody knows; `line` the first one, cut.
NODE_LOG: Final = parse_columns("""
run_id string!
node string!
role string
kind string!
level string
event string
exception string
t long
t_last long
count long!
line string!
""")

# One row per anomaly: the checker's output.
ANOMALIES: Final = parse_columns("""
run_id string!
anomaly string!
severity string!
ir boolean
key string
evidence array<struct<table:string,op_id:long,t:long>>
fault_ids array<string>
explain string
""")

TABLES: Final[dict[str, Table]] = {
    "runs": RUNS,
    "events": EVENTS,
    "sends": SENDS,
    "deliveries": DELIVERIES,
    "acks": ACKS,
    "txn": TXN,
    "raft_probe": RAFT_PROBE,
    "raft_event": RAFT_EVENT,
    "replica_log": REPLICA_LOG,
    "queue_index": QUEUE_INDEX,
    "drain": DRAIN,
    "faults": FAULTS,
    "answers": ANSWERS,
    "masters": MASTERS,
    "node_log": NODE_LOG,
    "anomalies": ANOMALIES,
}
