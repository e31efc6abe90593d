"""Reads a run from disk into the history that the in-process checker takes.

Accepts histories of others: run.json and all tables but ``sends`` and ``deliveries`` may be absent.
What cannot be read is left out and named in ``problems``, so that the verdict is at best unknown.
Source: spec/proof.md 4.3; layout of RUN as docs/chaos.md draws it.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

from chaos.catalogue.checks import (
    BARE,
    EMPTY,
    LEFT_OUT,
    MISSING,
    ODD,
    PARTIAL,
    REFUSED,
    REPLICAS,
    RUN_JSON,
    UNREAD,
    UNSETTLED,
)
from chaos.catalogue.contracts import NONE, QUORUM, copies
from chaos.checker.clocks import tolerance_of, widened
from chaos.checker.model import History, Replica, lacking
from chaos.foreign import TableReader, misplaced, table_files
from chaos.history.columns import Row
from chaos.history.domains import DLEDGER, MEMBERS, NUMBERS_MAX, PLAIN, TELLING
from chaos.history.entries import Entries
from chaos.history.payload import run_tag
from chaos.history.plain_segment import decode_plain
from chaos.history.segment import EntryRow, decode_segment
from chaos.validate import (
    clock_complaints,
    complaints_about,
    unfilled,
    unknown_bounds,
    usable_contract,
    usable_limits,
)
from ledgermq.runtime.regular import READ_BYTES_MAX, read_named

SEGMENT_NAME_DIGITS = 20
TABLES_READ = (
    "sends", "deliveries", "acks", "events", "faults", "drain", "raft_event", "raft_probe",
    "answers", "txn", "masters", "queue_index", "node_log",
)  # fmt: skip


def load_history(run: Path) -> History:
    """Return the history of a run; what is wrong with its files is in ``problems``."""
    problems: list[str] = []
    unusable: dict[str, str] = {}
    about = _look_at_about(run, problems, unusable)
    tables = _read_tables(run, about, problems, unusable)
    tolerance = tolerance_of(about)
    tables = {name: widened(name, rows, tolerance) for name, rows in tables.items()}
    known = len(problems)
    replicas = load_replicas(run, problems)
    if len(problems) > known:
        unusable[REPLICAS] = REFUSED
    elif not replicas and "replica_log" in unusable:
        unusable[REPLICAS] = unusable["replica_log"]
    elif missing := lacking("replica_log", tables["replica_log"], *TELLING["replica_log"]):
        unusable[REPLICAS] = f"{BARE} {missing}"
    replicas = replicas or replicas_of(tables["replica_log"])
    if REPLICAS not in unusable and _is_unsettled(replicas):
        unusable[REPLICAS] = UNSETTLED
    nodes = about.get("nodes")
    named = list(nodes) if isinstance(nodes, list | dict) else []
    problems += missing_logs(named, replicas)
    run_id = find_run_id(run, about, tables["sends"])
    coverage = about.get("coverage")
    promised = promised_copies(about, replicas, told_nodes(tables))
    modes, asked = (about.get(k) for k in ("modes", "check_back"))
    return History(
        run_ids=frozenset({run_id, run_tag(run_id)}),
        quorum=max(promised.values()),
        promised=promised,
        named_nodes=[str(node) for node in named],
        is_one_group=isinstance(nodes, list) and not isinstance(about.get("quorum"), dict),
        topic=_word(about.get("topic")),
        group=_word(about.get("group")),
        sends=tables["sends"],
        deliveries=tables["deliveries"],
        acks=tables["acks"],
        txn=tables["txn"],
        events=tables["events"],
        faults=tables["faults"],
        drain=tables["drain"],
        raft_events=tables["raft_event"],
        probes=tables["raft_probe"],
        masters=tables["masters"],
        node_log=tables["node_log"] if table_files(run, "node_log") else None,
        queue_index=tables["queue_index"],
        replicas=replicas,
        coverage=numbers_of(coverage) if isinstance(coverage, dict) else None,
        subscriptions=tags_by_group(about.get("subscriptions")),
        modes={k: str(v) for k, v in modes.items()} if isinstance(modes, dict) else {},
        reconsume_max=usable_limits(about.get("reconsume_max")),
        check_back=numbers_of(asked) if isinstance(asked, dict) else {},
        exits=[row for row in about.get("exits") or () if isinstance(row, dict)],
        answers=tables["answers"],
        contract=usable_contract(about.get("contract")),
        clock_tolerance_ns=tolerance,
        problems=problems,
        unusable=unusable,
    )


def _look_at_about(run: Path, problems: list[str], unusable: dict[str, str]) -> dict[str, Any]:
    """Return what run.json says; what is wrong with it, or was with the run, is noted."""
    about = read_about(run, problems)
    if problems:
        unusable |= dict.fromkeys((RUN_JSON, *MEMBERS), UNREAD)
    odd = complaints_about(about)
    unusable |= {name: ODD for name in map(_first_word, odd) if name in MEMBERS}
    odd += unknown_bounds(about.get("contract"))
    problems += [f"{run / 'run.json'}: {line}" for line in odd]
    lacking = about.get(LEFT_OUT)
    unusable |= {str(name): PARTIAL for name in lacking} if isinstance(lacking, list) else {}
    told = about.get("problems")
    problems += [str(line) for line in told] if isinstance(told, list) else []
    return about


def _first_word(line: str) -> str:
    """Return the member of run.json that a complaint begins with."""
    return re.split(r"\W", line, maxsplit=1)[0]


def _read_tables(
    run: Path, about: dict[str, Any], problems: list[str], unusable: dict[str, str]
) -> dict[str, list[Row]]:
    """Return the tables of a run; what is of no use is named, and why, and has no rows."""
    reader = TableReader(run, problems)
    tables = {name: reader.read(name) for name in TABLES_READ}
    # Decoded by somebody else: read only where there are no dumps.
    is_decoded = not dumps_of(run)
    tables["replica_log"] = reader.read("replica_log") if is_decoded else []
    unusable |= dict.fromkeys(reader.refused, REFUSED)
    for name, line in misplaced(run):  # half of a table would look like loss
        problems.append(line)
        if name in tables:
            tables[name], unusable[name] = [], REFUSED
    for name, line in clock_complaints(tables).items():
        problems.append(f"{run / 'tables'}: {line}")
        tables[name], unusable[name] = [], REFUSED
    recorded = about.get("tables")
    for name in map(str, recorded if isinstance(recorded, list) else ()):
        if not table_files(run, name):
            problems.append(f"{run}: the table {name}, which run.json names, is missing")
            unusable[name] = MISSING
    counts = {name: len(rows) for name, rows in tables.items() if name not in unusable}
    for name in unfilled(about, counts):
        if name != "replica_log" or is_decoded:
            problems.append(f"{run / 'tables' / name}: the table {name} is empty")
            unusable[name] = EMPTY
    if not tables["events"] and "events" not in unusable and table_files(run, "events"):
        problems.append(f"{run / 'tables' / 'events'}: the table events is empty")
    return tables


def told_nodes(tables: dict[str, list[Row]]) -> set[str]:
    """Return the nodes that said or noted anything of themselves."""
    return {row["node"] for name in ("raft_probe", "raft_event") for row in tables[name]}


def promised_copies(
    about: dict[str, Any], replicas: Sequence[Replica], told_of: Collection[str] = ()
) -> dict[str, int]:
    """Return by group how many logs hold what it acknowledged, by run.json, else by its contract.

    A node whose log is missing counts where there is one group, or where ``nodes`` names its group;
    ``told_of``: nodes of the group, where it is one. 0: nobody knows of how many a majority is.
    """
    told, contract, nodes = (about.get(key) for key in ("quorum", "contract", "nodes"))
    durability = str(contract.get("durability", QUORUM)) if isinstance(contract, dict) else QUORUM
    durability = QUORUM if durability == NONE else durability  # where a message lies is told
    size = Counter(replica.group for replica in replicas)
    named = Counter(map(str, nodes.values())) if isinstance(nodes, dict) else Counter[str]()
    groups = sorted(size) or ["0"]
    if len(groups) == 1:
        number = nodes if isinstance(nodes, int) else len(nodes) if nodes else 0
        named = Counter({groups[0]: max(number, len(told_of))})
    found = {group: copies(durability, max(size[group], named[group])) for group in groups}
    if isinstance(told, dict):
        found |= {group: n for group, n in numbers_of(told).items() if group in found and n > 0}
    elif isinstance(told, int) and told > 0:
        found = dict.fromkeys(found, told)
    return found


def tags_by_group(told: object) -> dict[str, dict[str, list[str]]]:
    """Return the subscriptions that run.json tells of, as far as they have the right shape."""
    groups = told.items() if isinstance(told, dict) else ()
    return {
        str(group): {str(t): list(tags) for t, tags in topics.items() if isinstance(tags, list)}
        for group, topics in groups
        if isinstance(topics, dict)
    }


def _word(told: object) -> str:
    return told if isinstance(told, str) else ""


def numbers_of(coverage: dict[str, Any]) -> dict[str, int]:
    """Return what of a coverage are numbers; the rest is complained of elsewhere."""
    return {str(kind): least for kind, least in coverage.items() if isinstance(least, int)}


def read_about(run: Path, problems: list[str]) -> dict[str, Any]:
    """Return what run.json says, {} if it is absent or broken (then a problem)."""
    path = run / "run.json"
    if not path.exists():
        return {}
    if not path.is_file():  # nobody may ever write into a pipe
        problems.append(f"{path}: not a JSON object: not a file")
        return {}
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        problems.append(f"{path}: not a JSON object: {error}")
        return {}
    if not isinstance(found, dict):
        problems.append(f"{path}: not a JSON object, but a {type(found).__name__}")
        return {}
    return found


def find_run_id(run: Path, about: dict[str, Any], sends: Sequence[Row]) -> str:
    """Return the run's id: run.json's, else the one that all sends name, else the directory's."""
    told = about.get("run_id")
    if told and isinstance(told, str):
        return told
    named = {send["run_id"] for send in sends if send["run_id"]}
    return str(named.pop()) if len(named) == 1 else run.resolve().name


def missing_logs(nodes: Sequence[object], replicas: Sequence[Replica]) -> list[str]:
    """Return a line if there is no log of a node that run.json names."""
    held = {replica.node for replica in replicas}
    absent = [str(node) for node in nodes if str(node) not in held]
    if not absent:
        return []
    return [f"the logs of {', '.join(absent)} are missing: run.json names {len(nodes)} nodes"]


def load_replicas(run: Path, problems: list[str]) -> list[Replica]:
    """Return the dumped logs; a dump without a usable meta.json is a problem."""
    found = []
    for directory in dumps_of(run):
        try:
            found.append(load_replica(directory))
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            problems.append(
                f"{directory}: needs meta.json with at least commit_index: "
                f"{type(error).__name__}: {error}"
            )
    groups = sorted({replica.group for replica in found})
    return [replace(replica, number=groups.index(replica.group)) for replica in found]


def _is_unsettled(replicas: Sequence[Replica]) -> bool:
    """Tell whether logs hold entries, and no node calls any committed: then none can be lost."""
    return any(one.rows for one in replicas) and all(one.commit_index < 0 for one in replicas)


def dumps_of(run: Path) -> list[Path]:
    """Return the folders of the nodes whose disks were copied."""
    root = run / "replicas"
    return sorted(one for one in root.iterdir() if one.is_dir()) if root.is_dir() else []


def replicas_of(rows: Sequence[Row]) -> list[Replica]:
    """Return the logs that somebody else decoded: the rows of ``replica_log`` by node."""
    logs: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        logs.setdefault((str(row["group"] or 0), row["node"]), []).append(row)
    return [
        Replica(
            node=node,
            rows=Entries(map(entry_of, log)),
            commit_index=max((row["index"] for row in log if row["committed"]), default=-1),
            first_index=min(row["index"] for row in log),
            end_index=max(row["index"] for row in log),
            group=group,
            number=int(group),
        )
        for (group, node), log in sorted(logs.items())
    ]


def entry_of(row: Row) -> EntryRow:
    """Return a row of ``replica_log`` as the decoder would; where it has no CRC, words do."""
    words = ("type", "topic", "queue_id", "queue_offset", "msg_key", "body_hash")
    crc = row["entry_crc"]
    if crc is None:
        crc = crc32(repr([row[word] for word in words]).encode())
    columns = {name: row[name] for name in EntryRow._fields if name in row}
    columns |= {"entry_index": row["index"], "entry_crc": crc, "crc_ok": row["crc_ok"] is not False}
    return EntryRow(**columns)


def load_replica(directory: Path) -> Replica:
    """Return one replica's log from its copied segments.

    Errors: OSError, ValueError, TypeError, KeyError for a meta.json that cannot be used.
    """
    path = directory / "meta.json"
    meta = dict(json.loads(read_named(str(path), READ_BYTES_MAX)))
    commit, first = index_of(meta["commit_index"]), index_of(meta.get("first_index") or 0)
    told = meta.get("end_index")
    end = None if told is None else index_of(told)
    paths = [path for path in sorted((directory / "data").glob("*")) if is_segment(path)]
    for one in paths:
        if not one.is_file():  # nobody may ever write into a pipe
            raise ValueError(f"{one} is not a regular file")
    form = str(meta.get("format") or DLEDGER)
    if form not in {DLEDGER, PLAIN}:
        raise ValueError(f"format is {form!r}; write {DLEDGER} or {PLAIN}")
    is_plain = form == PLAIN
    decode = decode_plain if is_plain else decode_segment
    kept = Entries()
    for path in paths:
        rows = decode(path.read_bytes(), int(path.name), end)
        kept.add(row for row in rows if end is None or row.entry_index <= end)
    return Replica(
        node=str(meta.get("node") or directory.name),
        rows=kept,
        commit_index=commit,
        first_index=first,
        group=str(meta.get("group") or 0),
        is_plain=is_plain,
        end_index=max((row.entry_index for row in kept), default=-1) if end is None else end,
    )


def index_of(told: str | float) -> int:
    """Return an index that a meta.json tells. Errors: ValueError, TypeError for what is none."""
    try:
        index = int(told)
    except OverflowError as error:
        raise ValueError(f"{told!r} is no index") from error
    is_cut = isinstance(told, float) and told != index
    if isinstance(told, bool) or is_cut or abs(index) >= NUMBERS_MAX:
        raise ValueError(f"{told!r} is no index")
    return index


def is_segment(path: Path) -> bool:
    """Return whether a file is named as a data segment: 20 digits, its start position."""
    return len(path.name) == SEGMENT_NAME_DIGITS and path.name.isdigit()
