"""``python -m bench.history DIRECTORY``: write a sound recorded run of any size, for the checkers.

Of each message there are a send, a delivery, and an entry in the logs of three replicas: five rows.
``--whole`` writes what a run of the harness records as well, ten rows a message: two events of the
send, deliveries to three groups and to the auditor, and the commits and fetches of the groups.
``--skew queue`` puts all messages into one queue, ``--skew key`` delivers one message again and
again, and ``--lost`` leaves out so many deliveries. Nothing is kept in memory but a chunk.
"""

import argparse
import hashlib
import json
import shutil
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from chaos.history import payload
from chaos.history.arrow import arrow_schema

NODES: Final = ("n0", "n1", "n2")
ROWS_PER_MESSAGE: Final = 5
ROWS_PER_MESSAGE_WHOLE: Final = 10
CHUNK: Final = 250_000
SEGMENT_BYTES: Final = 256 << 20
TOPIC, GROUP, RUN_ID = "orders", "billing", "large"
GROUPS: Final = (GROUP, "search", "shipping")
READER: Final = "audit"
COMMIT_EVERY: Final = 32
"""Offsets of a queue between two commits of a group."""
SPACING_NS: Final = 100_000
BODY_BYTES: Final = 100
_TAIL: Final = bytes([len(TOPIC)]) + TOPIC.encode() + b"\0\0"
_HOST, _PORT, _MAGIC = 0x7F000001, 10_911, 0xDAA320A7
_MIX: Final = 0x9E3779B97F4A7C15
_UNITS: Final = (BODY_BYTES - payload.HEAD_BYTES) // 8
_BODY: Final = [
    ("mark", "S4"), ("tag", "V16"), ("key", ">i8"), ("padding", ">u8", (_UNITS,)),
]  # fmt: skip
_RECORD: Final = [
    ("total", ">i4"), ("magic", ">u4"), ("crc", ">u4"), ("queue_id", ">i4"), ("flag", ">i4"),
    ("queue_offset", ">i8"), ("physical", ">i8"), ("sys_flag", ">i4"), ("born", ">i8"),
    ("born_host", ">u4"), ("born_port", ">i4"), ("stored", ">i8"), ("host", ">u4"),
    ("port", ">i4"), ("times", ">i4"), ("half", ">i8"), ("length", ">i4"),
    ("body", np.dtype(_BODY)), ("tail", f"V{len(_TAIL)}"),
]  # fmt: skip
_ENTRY: Final = np.dtype([
    ("magic", ">i4"), ("size", ">i4"), ("index", ">i8"), ("term", ">i8"), ("pos", ">i8"),
    ("channel", ">i4"), ("chain_crc", ">i4"), ("body_crc", ">u4"), ("body_len", ">i4"),
    ("record", np.dtype(_RECORD)),
])  # fmt: skip
_RECORD_AT: Final = _ENTRY.itemsize - np.dtype(_RECORD).itemsize
_BODY_AT: Final = _ENTRY.itemsize - len(_TAIL) - BODY_BYTES
Numbers = npt.NDArray[np.int64]

assert _UNITS * 8 == BODY_BYTES - payload.HEAD_BYTES


@dataclass
class Log:
    """The log of one replica, as its segments; all entries have one size."""

    directory: Path
    used: int = 0
    file: BinaryIO | None = None
    paths: list[Path] = field(default_factory=list)

    def append(self, numbers: Numbers, queues: int) -> Numbers:
        """Add the entries of the messages; return the hashes of their bodies."""
        entries = _entries(numbers, queues)
        data, size = memoryview(entries.tobytes()), _ENTRY.itemsize
        room = SEGMENT_BYTES // size
        for first in range(0, len(entries), room):
            self._write(data[first * size : (first + room) * size], int(numbers[first]))
        starts = range(_BODY_AT, len(data), size)
        hashed = (hashlib.blake2b(data[at : at + BODY_BYTES], digest_size=8) for at in starts)
        return np.frombuffer(b"".join(one.digest() for one in hashed), ">i8").astype(np.int64)

    def _write(self, data: memoryview, index: int) -> None:
        """Write whole entries, the first of which has this index, into one segment or two."""
        size, room = _ENTRY.itemsize, SEGMENT_BYTES // _ENTRY.itemsize
        if self.file is None or self.used == room:
            self.close()
            self.paths.append(self.directory / f"{index * size:020d}")
            self.file, self.used = self.paths[-1].open("wb"), 0
        fits = min(room - self.used, len(data) // size)
        self.file.write(data[: fits * size])
        self.used += fits
        if fits * size < len(data):
            self._write(data[fits * size :], index + fits)

    def close(self) -> None:
        """End the segment that is open."""
        if self.file is not None:
            self.file.close()


def _entries(numbers: Numbers, queues: int) -> npt.NDArray[np.void]:
    """Return the entries of the messages as they lie on the disk."""
    made = np.zeros(len(numbers), _ENTRY)
    made["magic"], made["size"], made["term"] = 1, _ENTRY.itemsize, 1
    made["index"], made["pos"] = numbers, numbers * _ENTRY.itemsize
    made["body_len"] = _ENTRY.itemsize - _RECORD_AT
    record = made["record"]
    record["total"], record["magic"] = _ENTRY.itemsize - _RECORD_AT, _MAGIC
    record["queue_id"], record["queue_offset"] = numbers % queues, numbers // queues
    record["physical"] = made["pos"] + _RECORD_AT
    record["born"], record["stored"] = 1, 2
    record["born_host"], record["host"] = _HOST, _HOST
    record["born_port"], record["port"] = _PORT, _PORT
    record["length"], record["tail"] = BODY_BYTES, np.void(_TAIL)
    body, keys = record["body"], _keys(numbers)
    body["mark"], body["key"] = payload.MAGIC, keys
    body["tag"] = np.void(bytes.fromhex(payload.run_tag(RUN_ID)))
    body["padding"] = ((keys.astype(np.uint64) + np.uint64(1)) * np.uint64(_MIX))[:, None]
    record["crc"] = _crcs(made, _BODY_AT, BODY_BYTES) & 0x7FFFFFFF
    made["body_crc"] = _crcs(made, _RECORD_AT, _ENTRY.itemsize - _RECORD_AT)
    return made


def _crcs(entries: npt.NDArray[np.void], begin: int, size: int) -> npt.NDArray[np.uint32]:
    """Return the CRC of the same bytes of each entry."""
    data, step = memoryview(entries.tobytes()), entries.itemsize
    starts = range(begin, len(data), step)
    return np.fromiter((zlib.crc32(data[at : at + size]) for at in starts), np.uint32)


def write_history(
    out: Path, messages: int, *, skew: str = "", lost: int = 0, whole: bool = False
) -> None:
    """Write a run of so many messages."""
    (out / "tables").mkdir(parents=True)
    data = [out / "replicas" / node / "data" for node in NODES]
    for directory in data:
        directory.mkdir(parents=True)
    log = Log(data[0])
    queues = 1 if skew == "queue" else 8
    groups = GROUPS if whole else (GROUP,)
    for chunk, first in enumerate(range(0, messages, CHUNK)):
        numbers = np.arange(first, min(messages, first + CHUNK))
        hashes = log.append(numbers, queues)
        _write(out, "sends", chunk, _sends(numbers, queues, hashes))
        missing = (numbers < lost * 2) & (numbers % 2 == 1)
        given = at = numbers[~missing]
        if skew == "key":
            given = np.where(given % 10 == 0, numbers[0], given)
        got = _deliveries(given, queues, hashes[given - numbers[0]], at)
        for group in groups:
            _write(out, "deliveries", chunk, got | {"grp": group, "consumer": f"{group}-0"}, group)
        if whole:
            read = _deliveries(numbers, queues, hashes, numbers) | {"grp": READER, "auditor": True}
            _write(out, "deliveries", chunk, read, READER)
            _write(out, "events", chunk, _events(numbers))
            _write(out, "acks", chunk, _acks(numbers, queues))
    log.close()
    for directory, node in zip(data, NODES, strict=True):
        for path in log.paths if directory != data[0] else ():
            shutil.copyfile(path, directory / path.name)
        meta = {"node": node, "group": "g", "commit_index": messages - 1, "first_index": 0}
        (directory.parent / "meta.json").write_text(json.dumps(meta | {"end_index": messages - 1}))
    readers = (*groups, READER) if whole else groups
    for group in readers:
        _write(out, "drain", 0, _drain(group, messages, queues), group)
    contract = {"durability": "quorum", "flush": "ASYNC_FLUSH"}
    about = {"run_id": RUN_ID, "nodes": list(NODES), "contract": contract, "coverage": {}}
    if whole:
        about["modes"] = dict.fromkeys(groups, "concurrent")
        about["reconsume_max"] = dict.fromkeys(groups, 16)
    (out / "run.json").write_text(json.dumps(about))


def _keys(numbers: Numbers) -> Numbers:
    return payload.make_key(1, 0) + numbers


def _sends(numbers: Numbers, queues: int, hashes: Numbers) -> dict[str, Any]:
    return _placed(numbers, queues) | {
        "pid": 1, "seq": numbers, "body_hash": hashes, "body_len": BODY_BYTES,
        "t_inv": numbers * SPACING_NS, "t_cmp": numbers * SPACING_NS + SPACING_NS // 2,
        "outcome": "ok", "attempts": 1, "kind": "plain", "phase": "main", "raft_index": numbers,
    }  # fmt: skip


def _deliveries(given: Numbers, queues: int, hashes: Numbers, at: Numbers) -> dict[str, Any]:
    """Return the deliveries of these messages, each when the one of ``at`` was due."""
    return _placed(given, queues) | {
        "pos": 0, "generation": 1, "body_hash": hashes, "payload_run_id": payload.run_tag(RUN_ID),
        "reconsume": 0, "is_retry": False, "is_dlq": False, "auditor": False,
        "t_fetch_inv": at * SPACING_NS + SPACING_NS,
        "t_recv": at * SPACING_NS + 2 * SPACING_NS,
    }  # fmt: skip


def _events(numbers: Numbers) -> dict[str, Any]:
    """Return the beginning and the end of each send."""
    ends = np.tile(np.array([False, True]), len(numbers))
    twice = np.repeat(numbers, 2)
    return {
        "run_id": RUN_ID, "idx": twice * 2 + ends, "worker": 0, "process": 0, "role": "producer",
        "phase": "main", "type": pa.array(["invoke", "ok"]).take(pa.array(ends.astype(np.int8))),
        "f": "send", "op_id": twice, "t_mono_ns": twice * SPACING_NS + ends * (SPACING_NS // 2),
        "definite": True,
    }  # fmt: skip


def _acks(numbers: Numbers, queues: int) -> dict[str, Any]:
    """Return what groups committed behind these messages, and were told a little later."""
    behind = numbers // queues + 1
    last = np.flatnonzero(behind % COMMIT_EVERY == 0)
    which = np.repeat(last, 2 * len(GROUPS))
    told = np.tile(np.array([False, True]), len(which) // 2)
    group = np.tile(np.repeat(np.arange(len(GROUPS)), 2), len(last))
    begin = numbers[which] * SPACING_NS + (3 + 2 * told) * SPACING_NS
    return {
        "run_id": RUN_ID, "op_id": numbers[which], "generation": 1, "topic": TOPIC,
        "grp": pa.array(GROUPS).take(pa.array(group)), "queue_id": numbers[which] % queues,
        "kind": pa.array(["commit", "fetch"]).take(pa.array(told.astype(np.int8))),
        "value_offset": behind[which], "t_inv": begin, "t_cmp": begin + SPACING_NS // 2,
        "outcome": "ok",
    }  # fmt: skip


def _drain(group: str, messages: int, queues: int) -> dict[str, Any]:
    ends = np.array([-(-(messages - queue_id) // queues) for queue_id in range(queues)])
    return {
        "run_id": RUN_ID, "grp": group, "topic": TOPIC, "queue_id": np.arange(queues),
        "min_off": 0, "end_off": ends, "read_to": ends, "empty_polls": 2, "drained": True,
    }  # fmt: skip


def _placed(numbers: Numbers, queues: int) -> dict[str, Any]:
    return {
        "run_id": RUN_ID, "op_id": numbers, "topic": TOPIC, "msg_key": _keys(numbers),
        "node": "n0", "queue_id": numbers % queues, "queue_offset": numbers // queues,
    }  # fmt: skip


def _write(out: Path, table: str, chunk: int, columns: dict[str, Any], part: str = "") -> None:
    """Write columns as a file of a table; a column that is one value has it in each row."""
    schema = pa.schema(f for f in arrow_schema(table) if f.name in columns)
    arrays = list(_arrays(schema, columns))
    directory = out / "tables" / table
    directory.mkdir(exist_ok=True)
    name = f"{chunk}-{part}.parquet" if part else f"{chunk}.parquet"
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), directory / name)


def _arrays(schema: pa.Schema, columns: dict[str, Any]) -> Iterator[pa.Array]:
    count = max(len(c) for c in columns.values() if isinstance(c, np.ndarray | pa.Array))
    for one in schema:
        values = columns[one.name]
        if isinstance(values, np.ndarray):
            yield pa.array(values, pa.from_numpy_dtype(values.dtype)).cast(one.type)
        elif isinstance(values, pa.Array):
            yield values
        else:
            yield pa.repeat(pa.scalar(values, one.type), count)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the run that the arguments describe."""
    parser = argparse.ArgumentParser(prog="python -m bench.history", description=__doc__)
    parser.add_argument("out", type=Path, help="a directory that does not exist yet")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of all tables and logs")
    parser.add_argument("--whole", action="store_true", help="with all that the harness records")
    parser.add_argument("--skew", choices=("", "queue", "key"), default="")
    parser.add_argument("--lost", type=int, default=0, help="messages that nobody got")
    options = parser.parse_args(arguments)
    each = ROWS_PER_MESSAGE_WHOLE if options.whole else ROWS_PER_MESSAGE
    messages = max(1, options.rows // each)
    write_history(options.out, messages, skew=options.skew, lost=options.lost, whole=options.whole)
    return 0


if __name__ == "__main__":
    sys.exit(main())
