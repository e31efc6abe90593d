"""``python -m bench.history DIRECTORY``: write a sound recorded run of any size, for the checkers.

Of each message there is a send, a delivery, and an entry in the logs of three replicas: five rows.
``--skew queue`` puts all messages into one queue, ``--skew key`` delivers one message again and
again, and ``--lost`` leaves out so many deliveries. Nothing is kept in memory but a chunk.
"""

import argparse
import json
import shutil
import struct
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from chaos.history import payload
from chaos.history.arrow import arrow_schema

NODES: Final = ("n0", "n1", "n2")
ROWS_PER_MESSAGE: Final = 5
CHUNK: Final = 250_000
SEGMENT_BYTES: Final = 256 << 20
TOPIC, GROUP, RUN_ID = "orders", "billing", "large"
SPACING_NS: Final = 100_000
BODY_BYTES: Final = 100
_HEAD: Final = struct.Struct(">iIIiiqqiq4siq4siiqi")
_ENTRY: Final = struct.Struct(">iiqqqiiIi")
_TAIL: Final = bytes([len(TOPIC)]) + TOPIC.encode() + b"\0\0"
_HOST: Final = b"\x7f\0\0\1"
_PORT: Final = 10_911
_MAGIC: Final = 0xDAA320A7


@dataclass
class Log:
    """The log of one replica, as its segments."""

    directory: Path
    start: int = 0
    used: int = 0
    file: BinaryIO | None = None
    paths: list[Path] = field(default_factory=list)

    def append(self, index: int, queue_id: int, offset: int, body: bytes) -> None:
        """Add the entry of a message."""
        size = _ENTRY.size + _HEAD.size + len(body) + len(_TAIL)
        if self.file is None or self.used + size > SEGMENT_BYTES:
            self.roll()
        assert self.file is not None, "rolled"
        at = self.start + self.used
        record = (
            _HEAD.pack(
                size - _ENTRY.size, _MAGIC, zlib.crc32(body) & 0x7FFFFFFF, queue_id, 0, offset,
                at + _ENTRY.size, 0, 1, _HOST, _PORT, 2, _HOST, _PORT, 0, 0, len(body),
            )
            + body
            + _TAIL
        )  # fmt: skip
        crc = zlib.crc32(record)
        self.file.write(_ENTRY.pack(1, size, index, 1, at, 0, 0, crc, len(record)) + record)
        self.used += size

    def roll(self) -> None:
        """Begin the next segment."""
        self.close()
        self.start, self.used = self.start + self.used, 0
        self.paths.append(self.directory / f"{self.start:020d}")
        self.file = self.paths[-1].open("wb", buffering=1 << 20)

    def close(self) -> None:
        """End the segment that is open."""
        if self.file is not None:
            self.file.close()


def write_history(out: Path, messages: int, *, skew: str = "", lost: int = 0) -> None:
    """Write a run of so many messages."""
    (out / "tables").mkdir(parents=True)
    data = [out / "replicas" / node / "data" for node in NODES]
    for directory in data:
        directory.mkdir(parents=True)
    log = Log(data[0])
    queues = 1 if skew == "queue" else 8
    for chunk, first in enumerate(range(0, messages, CHUNK)):
        numbers = range(first, min(messages, first + CHUNK))
        hashes = _write_log(log, numbers, queues)
        _write(out, "sends", chunk, _sends(numbers, queues, hashes))
        gaps = [n for n in numbers if n < lost * 2 and n % 2]
        _write(out, "deliveries", chunk, _deliveries(numbers, queues, hashes, gaps, skew))
    log.close()
    for directory, node in zip(data, NODES, strict=True):
        for path in log.paths if directory != data[0] else ():
            shutil.copyfile(path, directory / path.name)
        meta = {"node": node, "group": "g", "commit_index": messages - 1, "first_index": 0}
        (directory.parent / "meta.json").write_text(json.dumps(meta | {"end_index": messages - 1}))
    ends = [-(-(messages - queue_id) // queues) for queue_id in range(queues)]
    _write(out, "drain", 0, {
        "run_id": [RUN_ID] * queues, "grp": [GROUP] * queues, "topic": [TOPIC] * queues,
        "queue_id": list(range(queues)), "min_off": [0] * queues, "end_off": ends,
        "read_to": ends, "empty_polls": [2] * queues, "drained": [True] * queues,
    })  # fmt: skip
    contract = {"durability": "quorum", "flush": "ASYNC_FLUSH"}
    about = {"run_id": RUN_ID, "nodes": list(NODES), "contract": contract, "coverage": {}}
    (out / "run.json").write_text(json.dumps(about))


def _write_log(log: Log, numbers: range, queues: int) -> list[int]:
    """Append the messages; return the hashes of their bodies."""
    tag, hashes = bytes.fromhex(payload.run_tag(RUN_ID)), []
    for number in numbers:
        body = payload.encode_body(tag, payload.make_key(1, number), BODY_BYTES)
        hashes.append(payload.body_hash(body))
        log.append(number, number % queues, number // queues, body)
    return hashes


def _sends(numbers: range, queues: int, hashes: list[int]) -> dict[str, Any]:
    count = len(numbers)
    return _placed(numbers, queues) | {
        "pid": [1] * count, "seq": numbers, "body_hash": hashes, "body_len": [BODY_BYTES] * count,
        "t_inv": [n * SPACING_NS for n in numbers],
        "t_cmp": [n * SPACING_NS + SPACING_NS // 2 for n in numbers],
        "outcome": ["ok"] * count, "attempts": [1] * count, "kind": ["plain"] * count,
        "phase": ["main"] * count, "raft_index": numbers,
    }  # fmt: skip


def _deliveries(
    numbers: range, queues: int, hashes: list[int], gaps: Sequence[int], skew: str
) -> dict[str, Any]:
    left_out = set(gaps)
    given = [n for n in numbers if n not in left_out]
    if skew == "key":
        given = [n if n % 10 else numbers[0] for n in given]
    count = len(given)
    return _placed(given, queues) | {
        "pos": [0] * count, "grp": [GROUP] * count, "consumer": ["c0"] * count,
        "generation": [1] * count, "body_hash": [hashes[n - numbers[0]] for n in given],
        "payload_run_id": [payload.run_tag(RUN_ID)] * count, "reconsume": [0] * count,
        "is_retry": [False] * count, "is_dlq": [False] * count, "auditor": [False] * count,
        "t_fetch_inv": [n * SPACING_NS + SPACING_NS for n in given],
        "t_recv": [n * SPACING_NS + 2 * SPACING_NS for n in given],
    }  # fmt: skip


def _placed(numbers: Sequence[int], queues: int) -> dict[str, Any]:
    count = len(numbers)
    return {
        "run_id": [RUN_ID] * count, "op_id": numbers, "topic": [TOPIC] * count,
        "msg_key": [payload.make_key(1, n) for n in numbers], "node": ["n0"] * count,
        "queue_id": [n % queues for n in numbers],
        "queue_offset": [n // queues for n in numbers],
    }  # fmt: skip


def _write(out: Path, table: str, chunk: int, columns: dict[str, Any]) -> None:
    schema = pa.schema(f for f in arrow_schema(table) if f.name in columns)
    arrays = [pa.array(columns[f.name], f.type) for f in schema]
    directory = out / "tables" / table
    directory.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), directory / f"{chunk}.parquet")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the run that the arguments describe."""
    parser = argparse.ArgumentParser(prog="python -m bench.history", description=__doc__)
    parser.add_argument("out", type=Path, help="a directory that does not exist yet")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of all tables and logs")
    parser.add_argument("--skew", choices=("", "queue", "key"), default="")
    parser.add_argument("--lost", type=int, default=0, help="messages that nobody got")
    options = parser.parse_args(arguments)
    messages = max(1, options.rows // ROWS_PER_MESSAGE)
    write_history(options.out, messages, skew=options.skew, lost=options.lost)
    return 0


if __name__ == "__main__":
    sys.exit(main())
