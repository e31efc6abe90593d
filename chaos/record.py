"""Append-only recording of a run, one file per process, safe against the writer's death.

A line is ``[n, table, row]`` with ``n`` dense from 0, so that a hole is seen. Lines are handed to
the kernel in one write before the call returns: whoever is killed leaves a prefix, and an operation
is on record before it is sent. (Power loss of the machine that tests is not covered.)

It knows nothing of what the rows mean; `chaos.convert` makes the tables from them.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

Line = tuple[int, str, dict[str, Any]]
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(tuple[int, str, dict[str, Any]])


class DamagedRecording(Exception):  # noqa: N818 - it says what was found
    """A line other than the last is broken, or lines are missing. Names file and line."""


class Recorder:
    """Appends rows to one file. Errors: OSError of the write passes, a history must be whole.

    A write that fails is the last: rows behind it would hide the hole. Whoever goes on all the same
    is told again as the file is closed, and does not end as though all were on record.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        self._count = 0
        self._failed = ""
        """Why no row is taken any more; empty while they are."""

    def write(self, table: str, row: Mapping[str, Any]) -> None:
        """Append one row."""
        self._append(_encoder.encode((self._count, table, row)) + b"\n", 1)

    def write_all(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append rows that belong together, in one write."""
        lines = [_encoder.encode((n, table, row)) for n, row in enumerate(rows, self._count)]
        if lines:
            self._append(b"\n".join(lines) + b"\n", len(lines))

    def _append(self, text: bytes, lines: int) -> None:
        if self._failed:
            raise OSError(f"the recording ended early: {self._failed}")
        try:
            written = os.write(self._fd, text)
        except OSError as error:
            self._failed = str(error)
            raise
        if written != len(text):
            self._failed = f"short write to the recording: {written} of {len(text)} bytes"
            raise OSError(self._failed)
        self._count += lines

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()
        if self._failed and kind is None:
            raise OSError(f"the recording ended early: {self._failed}")


def read_recording(path: Path) -> Iterator[Line]:
    """Yield the lines of a recording; a torn last line is left out.

    Errors: `DamagedRecording` for any other broken or missing line.
    """
    if not path.is_file():  # nobody may ever write into a pipe
        raise DamagedRecording(f"{path}: not a regular file")
    lines = path.read_bytes().split(b"\n")
    for at, raw in enumerate(lines[:-1]):
        try:
            line = _decoder.decode(raw)
        except msgspec.MsgspecError as error:
            raise DamagedRecording(f"{path}:{at + 1}: {error}") from error
        if line[0] != at:
            raise DamagedRecording(f"{path}:{at + 1}: record {line[0]}, expected {at}")
        yield line
