"""A real disk that fails, fills up, hangs or is corrupted on demand."""

import errno
import fnmatch
import threading
import time

from ledgermq.runtime.disk import RealDisk

HANG_LIMIT_S = 20


class FaultyDisk(RealDisk):
    """Faults by operation (``write sync replace open``) and by a glob of the path."""

    def __init__(self):
        super().__init__()
        self.errors = {}
        self.stalls = {}
        self.counts = {}
        self.held = 0
        """How many operations have come to hang so far."""
        self._released = threading.Event()
        self._released.set()
        self._hanging = ()

    def fail(self, error, *faults):
        """Let each ``"op glob"`` of ``faults`` fail with an errno from now on."""
        self.errors = {tuple(fault.split()): error for fault in faults}

    def fill(self, *globs):
        self.fail(errno.ENOSPC, *(f"{op} {glob}" for glob in globs for op in ("write", "replace")))

    def stall(self, seconds, fault):
        """Let the next operation of this kind take so long."""
        self.stalls[tuple(fault.split())] = seconds

    def hang(self, *faults):
        """Let operations of these kinds wait until `heal`."""
        self._hanging = tuple(tuple(fault.split()) for fault in faults)
        self._released.clear()

    def heal(self):
        self.errors = {}
        self._hanging = ()
        self._released.set()

    def meet(self, op, path):
        self.counts[op] = self.counts.get(op, 0) + 1
        for (kind, glob), error in self.errors.items():
            if kind == op and fnmatch.fnmatch(path, glob):
                raise OSError(error, "planted", path)
        for fault in [f for f in self.stalls if f[0] == op and fnmatch.fnmatch(path, f[1])]:
            time.sleep(self.stalls.pop(fault))
        if any(kind == op and fnmatch.fnmatch(path, glob) for kind, glob in self._hanging):
            self.held += 1
            assert self._released.wait(HANG_LIMIT_S), f"{op} {path} was never released"

    def open(self, path, *, size):
        self.meet("open", path)
        return FaultyFile(super().open(path, size=size), self)

    def replace(self, path, data):
        self.meet("replace", path)
        super().replace(path, data)


class FaultyFile:
    def __init__(self, file, disk):
        self._file, self._disk = file, disk

    def __getattr__(self, name):
        return getattr(self._file, name)

    def pwrite(self, offset, buffers):
        self._disk.meet("write", self._file.path)
        self._file.pwrite(offset, buffers)

    def fdatasync(self):
        self._disk.meet("sync", self._file.path)
        self._file.fdatasync()


def flip(path, offset):
    """Corrupt one byte of a file; the page cache, and with it every map, sees it at once."""
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes((byte ^ 0x55,)))
