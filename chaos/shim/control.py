"""Commands to the library in a broker's process, and its counts: one mapped file for each broker.

Layout, native order, signed 64 bits each; that of ``struct control`` in shim.h:

========  ==================================================
offset    field
========  ==================================================
0         what syncs fail with (errno), 0: they do not
8         how many more of them do
16, 24    the same of writes
32        how long each sync and write takes longer, us
40        by how much the wall clock is wrong, ns
48        for how long it is wrong, and right, in turn, ns; 0: always wrong
56        by how much all clocks go faster, millionths
64        whether what is written is noted until it is synced
72        whether syncs return and do nothing
80        how long each sync takes longer, us
88        at which step from now the process ends, 0: at none
96        which steps count: 1 writes, 2 syncs; 4 more: once it is done
104, 112  syncs, writes that failed
120       calls that were made to wait
128       wrong times that were told
136       syncs that did nothing
144       where the next note begins in the journal
152       changes that could not be noted
160       ends at a step
========  ==================================================
"""

import mmap
import os
import struct
from pathlib import Path
from typing import Final

COMMANDS: Final = (
    "sync_errno", "sync_fails", "write_errno", "write_fails", "delay_us", "skew_ns", "strobe_ns",
    "drift_ppm", "notes", "lies", "sync_us", "crash_in", "crash_of",
)  # fmt: skip
COUNTS: Final = (
    "syncs_failed", "writes_failed", "delayed", "times_told", "syncs_lied", "notes_end",
    "notes_lost", "crashes",
)  # fmt: skip
_FIELDS: Final = {name: 8 * at for at, name in enumerate((*COMMANDS, *COUNTS))}
_NUMBER: Final = struct.Struct("=q")
SIZE: Final = 4096


class Control:
    """The control file of one broker; it is made if there is none."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(fd, SIZE)
            self._map = mmap.mmap(fd, SIZE)
        finally:
            os.close(fd)

    def command(self, **values: int) -> None:
        """Set fields of the commands; the others stay.

        Where noting begins by it, what was noted before is forgotten: syncs that nobody noted may
        have reached it since. While syncs lie all is noted already, and stays.
        """
        if (values.get("notes") or values.get("lies")) and not self.is_noting:
            self._forget_notes()
        for name, value in values.items():
            assert name in COMMANDS, name
            self._write(name, value)

    def commanded(self, name: str) -> int:
        """Return what a command is set to; 0: it is not."""
        assert name in COMMANDS, name
        return self._read(name)

    def begin_notes(self) -> None:
        """Have what is written from now on noted until it is synced; see `command`."""
        self.command(notes=1)

    def end_notes(self) -> None:
        """Forget what was noted, and note no more unless syncs lie; other commands stay."""
        self.command(notes=0, sync_us=0)
        self._forget_notes()

    @property
    def is_noting(self) -> bool:
        """Whether what is written is noted."""
        return bool(self._read("notes") or self._read("lies"))

    def _forget_notes(self) -> None:
        for name in ("notes_end", "notes_lost"):
            self._write(name, 0)

    @property
    def journal(self) -> Path:
        """The file of the notes; see `chaos.shim.unsynced`."""
        return self.path.with_name(f"{self.path.name}.unsynced")

    def lift(self) -> None:
        """Set all commands to nothing; idempotent."""
        self.command(**dict.fromkeys(COMMANDS, 0))

    def count(self, name: str) -> int:
        """Return a count."""
        assert name in COUNTS, name
        return self._read(name)

    def _write(self, name: str, value: int) -> None:
        at = _FIELDS[name]
        self._map[at : at + 8] = _NUMBER.pack(value)

    def _read(self, name: str) -> int:
        return int(_NUMBER.unpack_from(self._map, _FIELDS[name])[0])
