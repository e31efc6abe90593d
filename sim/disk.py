"""A disk in memory for one simulated machine, and all that can go wrong with it.

It is a `ledgermq.runtime.disk.Disk`. Files outlive the process that wrote them, as a page cache
does; `SimDisk.power_loss` takes back what was not synced: bytes (`sim.inode`) and directory entries
(`sim.names`). Each operation is made of the steps that `RealDisk` makes of it; a `Rule` may have a
step be slow, hang, fail, or be the last one of the process.

It knows no event loop; used outside of a simulation it is a disk that takes no time.
Source: docs/simulation.md#what-makes-a-run-repeatable; spec/proof.md D1-D10, P5.
"""

import contextlib
import errno
import zlib
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from random import Random
from typing import Final

from ledgermq.runtime.disk import (
    NO_SPACE,
    SCAN_BYTES,
    Buffer,
    Closeable,
    DirectoryInUse,
    File,
    Space,
)
from ledgermq.runtime.errors import EXIT_BAD_INPUT, EXIT_ENVIRONMENT, FatalError
from ledgermq.runtime.rng import Rng
from sim.context import SimCrash
from sim.disk_hardware import Hardware, Trace
from sim.disk_rules import Op
from sim.inode import BLOCK_BITS, Inode, PowerLossMode
from sim.names import DIRECTORY, MISSING, Directory, Names, parent
from sim.power import PowerLoss, Standing

CAPACITY_BYTES: Final = 1 << 40


class SimFile:
    """A `File` of a `SimDisk`."""

    __slots__ = ("_disk", "_inode", "_life", "_number", "is_closed", "path", "size")

    def __init__(self, disk: "SimDisk", path: str, inode: Inode) -> None:
        self._disk = disk
        self._inode = inode
        self._life = disk.life
        self._number = disk.path_number(path)
        self.is_closed = False
        self.path = path
        self.size = inode.size

    def pwrite(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write all ``buffers``; see `ledgermq.runtime.disk.File.pwrite`."""
        content = buffers[0] if len(buffers) == 1 else b"".join(buffers)
        size = len(content)
        assert 0 <= offset <= self.size - size, (self.path, offset, size, self.size)
        disk = self._begin()
        if size == 0:
            return
        disk.writes += 1
        if disk.is_watched:
            disk.write_watched(self.path, self._inode, offset, content)
        else:
            self._inode.write(offset, content)
        if disk.trace is not None:
            disk.trace.disk(disk.host, "write", self._number, offset, size, zlib.crc32(content))

    def pread(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes; see `ledgermq.runtime.disk.File.pread`."""
        disk = self._begin()
        if disk.is_watched:
            disk.step(Op.READ, self.path, _nothing)
        return bytes(self._inode.data[offset : min(offset + size, self._inode.size)])

    def view(self) -> memoryview:
        """Return the live bytes, as a shared map does."""
        disk = self._disk
        if disk.may_settle or self.is_closed or self._life != disk.life:
            self._begin()
        return self._inode.view

    def fdatasync(self) -> None:
        """Sync what was written; see `ledgermq.runtime.disk.File.fdatasync`."""
        self._begin().sync_inode(self.path, self._inode)

    def zero_from(self, offset: int) -> None:
        """Write zeros over what is there; see `ledgermq.runtime.disk.File.zero_from`."""
        assert 0 <= offset <= self.size, (self.path, offset, self.size)
        self._begin()
        for start, end in self._inode.extents(offset):
            for position in range(start, end, SCAN_BYTES):
                self.pwrite(position, (bytes(min(SCAN_BYTES, end - position)),))

    def nonzero_end(self, offset: int) -> int:
        """Return where the data ends; see `ledgermq.runtime.disk.File.nonzero_end`."""
        self._begin()
        return self._inode.end_of_data(offset)

    def close(self) -> None:
        """Close it; a second call does nothing."""
        self.is_closed = True

    def _begin(self) -> "SimDisk":
        disk = self._disk
        if self._life != disk.life:
            raise SimCrash(self.path)
        if self.is_closed:
            raise OSError(errno.EBADF, "closed", self.path)
        if disk.may_settle:
            disk.settle_earlier()
        return disk


class SimDisk(Hardware):
    """The file system of one machine. Paths are plain strings; ``/`` always exists."""

    def __init__(self, rng: Rng, trace: Trace | None = None, *, host: str = "") -> None:
        """Make an empty disk.

        Args:
            rng: asked for two seeds now, and never again: what happens here shifts nobody else.
            trace: where each operation is noted.
            host: the name of the machine in the trace.
        """
        super().__init__(rng, trace, host)
        self.life = 0
        """How many processes of this machine have ended."""
        self._boots = 0
        """How often it has lost its power."""
        self.writes = 0
        """How often bytes of open files were changed."""
        self.writes_refused = 0
        """Writes that met a full disk."""
        self._names = Names()
        self._locks: set[str] = set()
        self._synced: set[str] = set()
        """Directories whose content was synced by this process."""
        self.on_rename: list[Callable[[str, str], None]] = []  # each hears source and target

    # The Disk of the process

    def open(self, path: str, *, size: int) -> File:
        """Open or make a file of fixed size; see `ledgermq.runtime.disk.Disk.open`."""
        inode = self._open_node(path)
        if inode.size == 0:
            self.sync_directory(parent(path))
            inode.make_room(size)
            self.step(Op.TRUNCATE, path, lambda: inode.grow(size), size)
            self.sync_inode(path, inode)
        elif inode.size != size:
            raise FatalError(f"{path} has {inode.size} bytes, the configured size is {size}")
        return SimFile(self, path, inode)

    def open_unsynced(self, path: str, *, size: int) -> File:
        """Open or make a file, nothing synced; see `ledgermq.runtime.disk.Disk.open_unsynced`."""
        self._make_unsynced(parent(path))
        inode = self._open_node(path)
        if inode.size == 0:
            inode.make_room(size)
            self.step(Op.TRUNCATE, path, lambda: inode.grow(size), size)
        elif inode.size != size:
            raise FatalError(f"{path} has {inode.size} bytes, the configured size is {size}")
        return SimFile(self, path, inode)

    def sync_all(self, directory: str) -> None:
        """Sync everything below a directory; see `ledgermq.runtime.disk.Disk.sync_all`."""
        below = self._names.below(directory)
        marks = [(inode, inode.changes_made) for inode in below]
        mark = self._names.operations_made

        def sync() -> None:
            for inode, changes in marks:
                inode.sync_up_to(changes)
            self._names.sync_below(directory, mark)

        try:
            self._sync(Op.SYNC, directory, sync)
        except OSError:
            for inode in below:
                inode.lose_unsynced()
            raise

    def _make_unsynced(self, path: str) -> None:
        node = self._names.find(path)
        if isinstance(node, Directory):
            return
        if node is not MISSING:
            raise FatalError(f"{path} cannot be made: not a directory", EXIT_BAD_INPUT)
        self._make_unsynced(parent(path))
        self.step(Op.MKDIR, path, lambda: self._names.link((path, DIRECTORY)))

    def read(self, path: str) -> bytes | None:
        """Return the content of a small file; see `ledgermq.runtime.disk.Disk.read`."""
        self.step(Op.READ, path, _nothing)
        inode = self._names.inode(path)
        return None if inode is None else inode.content()

    def replace(self, path: str, data: bytes | bytearray) -> None:
        """Replace a small file as a whole; see `ledgermq.runtime.disk.Disk.replace`."""
        temporary = path + ".tmp"
        try:
            self._write_whole(temporary, bytes(data))
            self.rename(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                self._unlink(temporary)
            raise
        self.sync_directory(parent(path))

    def names(self, directory: str) -> list[str]:
        """Return the sorted names in a directory; see `ledgermq.runtime.disk.Disk.names`."""
        self.step(Op.READ, directory, _nothing)
        return self._names.children(directory)

    def remove(self, path: str) -> None:
        """Remove a file for good; see `ledgermq.runtime.disk.Disk.remove`."""
        self._unlink(path)
        if isinstance(self._names.find(parent(path)), Directory):
            self.sync_directory(parent(path))

    def lock(self, path: str) -> Closeable:
        """Take an exclusive lock; see `ledgermq.runtime.disk.Disk.lock`."""
        self._open_node(path)
        if path in self._locks:
            raise DirectoryInUse(path)
        self._locks.add(path)
        return _SimLock(self, path, self._locks)

    def make_directories(self, path: str) -> None:
        """Make a directory and its parents; see `ledgermq.runtime.disk.Disk.make_directories`."""
        above = parent(path)
        if isinstance(self._names.find(path), Directory):
            if path not in self._synced:
                self.sync_directory(path)
                self.sync_directory(above)
                self._synced.add(path)
            return
        if above and above != path:
            self.make_directories(above)
        if self._names.find(path) is not MISSING:
            return
        if not isinstance(self._names.find(above), Directory):
            raise FatalError(f"{path} cannot be made: not a directory", EXIT_BAD_INPUT)
        try:
            self.step(Op.MKDIR, path, lambda: self._names.link((path, DIRECTORY)))
        except OSError as error:
            if error.errno in NO_SPACE:
                raise
            code = EXIT_ENVIRONMENT if error.errno == errno.EIO else EXIT_BAD_INPUT
            raise FatalError(f"{path} cannot be made: {error.strerror}", code) from error
        self.sync_directory(above)
        self._synced.add(path)

    def size(self, path: str) -> int | None:
        """Return the size of a file; see `ledgermq.runtime.disk.Disk.size`."""
        node = self._names.find(path)
        if isinstance(node, Directory):
            raise FatalError(f"{path} exists and is not a regular file")
        return node.size if isinstance(node, Inode) else None

    def space(self, path: str) -> Space:
        """Return the room on the disk; see `ledgermq.runtime.disk.Disk.space`."""
        assert path, "a path is expected"
        if self.told_used is not None:
            self.times_told += 1
            return Space(round(CAPACITY_BYTES * (1 - self.told_used)), CAPACITY_BYTES)
        capacity = CAPACITY_BYTES if self.capacity_bytes is None else self.capacity_bytes
        return Space(max(0, capacity - self.used_bytes()), max(1, capacity))

    # Steps of the operations

    def write_watched(self, path: str, inode: Inode, offset: int, content: Buffer) -> None:
        """Write bytes while something may go wrong: an error leaves any part of them written."""
        try:
            self._meet(Op.WRITE, path)
        except OSError:
            self._write_part(inode, offset, content, self._damage_random.randint(0, len(content)))
            raise
        room = self._room(inode, offset, len(content))
        if room < len(content):
            self.writes_refused += 1
            self._write_part(inode, offset, content, room)
            raise OSError(errno.ENOSPC, "no space left on the simulated disk", path)
        inode.write(offset, content)
        self._end_step(Op.WRITE, path)

    def _write_whole(self, path: str, data: bytes) -> None:
        inode = self._open_node(path, anew=True)
        if data:
            inode.make_room(len(data))
            inode.grow(len(data))
            if self.is_watched:
                self.write_watched(path, inode, 0, data)
            else:
                inode.write(0, data)
            self._note(Op.WRITE, path, 0, data)
        self.sync_inode(path, inode)

    def _unlink(self, path: str) -> None:
        if self._names.inode(path) is not None:
            self.step(Op.REMOVE, path, lambda: self._names.link((path, MISSING)))

    def sync_inode(self, path: str, inode: Inode) -> None:
        """Sync the bytes of a file. A sync that fails loses what it was to make durable."""
        mark = inode.changes_made
        try:
            self._sync(Op.SYNC, path, lambda: inode.sync_up_to(mark))
        except OSError:
            inode.lose_unsynced()
            raise

    def sync_directory(self, path: str) -> None:
        """Sync the entries of a directory."""
        mark = self._names.operations_made
        self._sync(Op.SYNC_DIRECTORY, path, lambda: self._names.sync_up_to(path, mark))

    def rename(self, source: str, target: str) -> None:
        """Let ``target`` name what ``source`` names, in one step; not synced."""
        if self.may_settle:
            self.settle_earlier()
        for listener in self.on_rename:
            listener(source, target)
        node = self._names.find(source)
        self.step(Op.RENAME, source, lambda: self._names.link((source, MISSING), (target, node)))

    def _open_node(self, path: str, *, anew: bool = False) -> Inode:
        """Return the file of that name; an empty one is made if there is none, or for ``anew``."""
        self.step(Op.OPEN, path, _nothing)
        inode = self._names.inode(path)
        if inode is not None and not anew:
            return inode
        if not isinstance(self._names.find(parent(path)), Directory):
            raise FileNotFoundError(errno.ENOENT, "no such file or directory", path)
        made = Inode()
        self.step(Op.CREATE, path, lambda: self._names.link((path, made)))
        return made

    # Space

    def used_bytes(self) -> int:
        """Return the space that all files use."""
        return sum(len(inode.blocks) for inode in self._names.inodes()) << BLOCK_BITS

    def used_by(self, path: str) -> int:
        """Return the space that a file uses, in bytes."""
        inode = self._names.inode(path)
        return 0 if inode is None else len(inode.blocks) << BLOCK_BITS

    def limit(self, free_bytes: int | None) -> None:
        """Leave only so much room from now on; None: there is enough again."""
        self.capacity_bytes = None if free_bytes is None else self.used_bytes() + free_bytes
        self._watch()

    def _room(self, inode: Inode, offset: int, size: int) -> int:
        """Return how many of the bytes to be written there is space for."""
        if self.capacity_bytes is None:
            return size
        free = (self.capacity_bytes - self.used_bytes()) >> BLOCK_BITS
        for block in range(offset >> BLOCK_BITS, ((offset + size - 1) >> BLOCK_BITS) + 1):
            if block not in inode.blocks:
                if free <= 0:
                    return max(0, (block << BLOCK_BITS) - offset)
                free -= 1
        return size

    @staticmethod
    def _write_part(inode: Inode, offset: int, content: Buffer, size: int) -> None:
        if size:
            inode.write(offset, memoryview(content)[:size])

    # Faults

    def heal(self) -> None:
        """Take all rules and limits away. Damage done stays."""
        for rule in list(self._rules):
            self.drop_rule(rule)
        self.limit(None)

    def corrupt(self, path: str, offset: int, mask: int = 1) -> bool:
        """Flip bits of a synced byte; returns whether there is one at ``offset``."""
        assert 0 < mask < 256, mask
        inode = self._names.inode(path)
        if inode is None or offset >= inode.size or not inode.is_synced(offset):
            return False
        inode.data[offset] ^= mask
        self.writes += 1
        self._note_damage("corruption", path, offset, mask)
        return True

    def wipe(self) -> None:
        """Lose all files, for good; no process may run."""
        self.crash()
        self._names.clear()
        self._note_damage("wipe", "", 0, 0)

    def crash(self) -> None:
        """End the process: its locks are free, what it opened is closed; files stay as they are."""
        self.life += 1
        self._crashed = False
        self.blocked = False
        self._hung.clear()
        self._locks.clear()
        self._synced.clear()
        self._watch()

    def power_loss(self, mode: PowerLossMode, seed: int | None = None) -> PowerLoss:
        """End the process and keep what a machine without power keeps; all of it is durable then.

        Args:
            mode: what becomes of unsynced changes.
            seed: of the choice among them; the disk's own chance if there is none.
        """
        if self._standing is not None and self._standing.life + 1 >= self.life:
            self._standing.take_back()  # nobody has lived here since
        self.crash()
        self._boots += 1
        random = self._damage_random if seed is None else Random(seed)
        inodes = self._names.inodes()
        entries = self._names.lose_power(mode, random)
        changes = sum(inode.lose_power(mode, random) for inode in inodes)
        self._note_damage(f"power_loss_{mode.value}", "", changes, entries)
        return PowerLoss(changes, entries)

    def _stand_still(self) -> None:
        self._standing = Standing(self._names, self.life)

    def boot_id(self) -> str:
        """Return which time with power this is; see `ledgermq.runtime.disk.Disk.boot_id`."""
        return f"boot-{self._boots}"

    # Looking from outside

    def paths(self) -> list[str]:
        """Return the paths of all files, sorted."""
        return self._names.paths()

    def paths_like(self, glob: str) -> list[str]:
        """Return the paths of the files that match, sorted; ``*`` matches ``/`` too."""
        return [path for path in self._names.paths() if fnmatchcase(path, glob)]

    def look(self, path: str) -> memoryview:
        """Return what a file holds as it is now, nothing where there is none; it costs no time."""
        inode = self._names.inode(path)
        return memoryview(b"") if inode is None else inode.view[: inode.size]

    def has_failed_syncs(self) -> bool:
        """Whether bytes are read that no sync will make durable, because one failed for them."""
        return any(inode.has_lost for inode in self._names.inodes())

    def nonzero_end(self, path: str) -> int:
        """Return how far a file has data, 0 when it does not exist."""
        inode = self._names.inode(path)
        return 0 if inode is None else inode.end_of_data()

    def durable(self, path: str) -> bytes | None:
        """Return what a small file certainly holds after a loss of power now, None if unsure."""
        return None if (file := self.durable_file(path)) is None else file.content()

    def possible(self, path: str) -> list[bytes]:
        """Return what a small file may hold after a loss of power now, in the order of its age."""
        node = self._names.durable(path)
        return node.images() if isinstance(node, Inode) else []

    def durable_file(self, path: str) -> Inode | None:
        """Return the file whose content `durable` tells."""
        node = self._names.durable(path)
        return node if isinstance(node, Inode) and not node.journal else None

    def is_durable(self, path: str, offset: int, size: int) -> bool:
        """Tell whether a range of a file is as it is after a loss of power now, too."""
        node = self._names.durable(path)
        return isinstance(node, Inode) and node.is_range_synced(offset, size)

    def unsynced(self) -> tuple[int, int]:
        """Return how many changes and directory operations a loss of power puts at stake."""
        changes = sum(len(inode.journal) for inode in self._names.inodes())
        return changes, self._names.unsynced_count


class _SimLock:
    """A lock of the process that took it."""

    __slots__ = ("_disk", "_held", "_life", "_path")

    def __init__(self, disk: SimDisk, path: str, held: set[str]) -> None:
        self._disk = disk
        self._path = path
        self._held = held
        self._life = disk.life

    def close(self) -> None:
        if self._life == self._disk.life:
            self._held.discard(self._path)


def _nothing() -> None:
    """Have no effect."""
