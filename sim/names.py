"""The directory entries of a simulated disk, and which of them a loss of power may take back.

Operations since the last sync of their directory are kept with what each path named before. A
rename is one operation: it is undone as a whole. Knows no faults and no time.
Source: spec/proof.md 2.1 (entries without a synced directory are undone).
"""

import errno
from collections.abc import Sequence
from random import Random
from typing import Final, NamedTuple

from sim.inode import Inode, PowerLossMode


class Missing:
    """What a path names that does not exist."""

    __slots__ = ()


class Directory:
    """A directory; its entries are the paths that begin with its own."""

    __slots__ = ()


Node = Inode | Directory | Missing
MISSING: Final = Missing()
DIRECTORY: Final = Directory()


class Entries(NamedTuple):
    """One unsynced operation on a directory."""

    number: int
    directory: str
    changes: tuple[tuple[str, Node, Node], ...]
    """Path, what it named before, what it names since."""


class Names:
    """Paths and what they name. The root, and the empty path, always exist."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {"/": DIRECTORY, "": DIRECTORY}
        self._unsynced: list[Entries] = []
        self._durable: dict[str, Node] = {}
        """What `durable` has found since the last sync; an operation changes nothing of it."""
        self.operations_made = 0

    def find(self, path: str) -> Node:
        """Return what ``path`` names."""
        return self._nodes.get(path, MISSING)

    def inode(self, path: str) -> Inode | None:
        """Return the file ``path`` names, None if there is none. `IsADirectoryError` passes."""
        node = self._nodes.get(path, MISSING)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return node if isinstance(node, Inode) else None

    def paths(self) -> list[str]:
        """Return the paths of all files, sorted."""
        return sorted(path for path, node in self._nodes.items() if isinstance(node, Inode))

    def inodes(self) -> list[Inode]:
        """Return all files, and those that are removed and not yet surely so."""
        found = {id(node): node for node in self._nodes.values() if isinstance(node, Inode)}
        for entries in self._unsynced:
            for _, before, after in entries.changes:
                found |= {id(node): node for node in (before, after) if isinstance(node, Inode)}
        return list(found.values())

    def children(self, directory: str) -> list[str]:
        """Return the sorted names in a directory. `NotADirectoryError` passes."""
        if isinstance(self.find(directory), Inode):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", directory)
        return sorted(
            path.rpartition("/")[2]
            for path in self._nodes
            if path not in {"", "/"} and parent(path) == directory
        )

    def below(self, directory: str) -> list[Inode]:
        """Return the files below a directory, however deep."""
        prefix = directory + "/"
        return [
            node
            for path, node in self._nodes.items()
            if isinstance(node, Inode) and path.startswith(prefix)
        ]

    def link(self, *entries: tuple[str, Node]) -> None:
        """Let paths of one directory name something else, in one operation."""
        changes = tuple((path, self.find(path), node) for path, node in entries)
        for path, node in entries:
            self._name(path, node)
        self._unsynced.append(Entries(self.operations_made, parent(entries[0][0]), changes))
        self.operations_made += 1

    def durable(self, path: str) -> Node:
        """Return what ``path`` certainly names after a loss of power now."""
        node = self._durable.get(path)
        if node is None:
            node = self._durable[path] = self._look_up_durable(path)
        return node

    def _look_up_durable(self, path: str) -> Node:
        for made in self._unsynced:
            for name, before, _ in made.changes:
                if name == path:
                    return before
        return self.find(path)

    @property
    def unsynced_count(self) -> int:
        """How many operations a loss of power may take back."""
        return len(self._unsynced)

    def sync_up_to(self, directory: str, mark: int) -> None:
        """Make the operations on a directory durable that are among the first ``mark``."""
        self._unsynced = [
            made for made in self._unsynced if made.number >= mark or made.directory != directory
        ]
        self._durable.clear()

    def sync_below(self, directory: str, mark: int) -> None:
        """Make operations among the first ``mark`` durable: on a directory, all below, its name."""
        prefix = directory + "/"
        above = parent(directory)
        self._unsynced = [
            made
            for made in self._unsynced
            if made.number >= mark
            or not (made.directory == above or (made.directory + "/").startswith(prefix))
        ]
        self._durable.clear()

    def take_back(self, mark: int) -> None:
        """Undo all but the first ``mark`` operations, as if nobody had made them."""
        while self._unsynced and self._unsynced[-1].number >= mark:
            for path, before, _ in reversed(self._unsynced.pop().changes):
                self._name(path, before)
        self._durable.clear()

    def lose_power(self, mode: PowerLossMode, random: Random) -> int:
        """Keep what the disk has: no unsynced operation, the first ones, or any of them."""
        unsynced = self._unsynced
        for made in reversed(unsynced):
            for path, before, _ in reversed(made.changes):
                self._name(path, before)
        for made in _surviving(unsynced, mode, random):
            for path, _, after in made.changes:
                self._name(path, after)
        self._unsynced = []
        self._durable.clear()
        for path in sorted(self._nodes):
            if path and not isinstance(self.find(parent(path)), Directory):
                del self._nodes[path]
        return len(unsynced)

    def clear(self) -> None:
        """Forget everything, for good."""
        self._nodes = {"/": DIRECTORY, "": DIRECTORY}
        self._unsynced = []
        self._durable.clear()

    def _name(self, path: str, node: Node) -> None:
        if isinstance(node, Missing):
            self._nodes.pop(path, None)
        else:
            self._nodes[path] = node


def parent(path: str) -> str:
    """Return the directory that ``path`` lies in."""
    head, _, name = path.rpartition("/")
    return head or ("/" if path.startswith("/") and name else "")


def _surviving(unsynced: Sequence[Entries], mode: PowerLossMode, random: Random) -> list[Entries]:
    if mode is PowerLossMode.LOST:
        return []
    if mode is PowerLossMode.TORN:
        return list(unsynced[: random.randint(0, len(unsynced))])
    return [made for made in unsynced if random.random() < 0.5]
