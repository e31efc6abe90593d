"""A copy of what lies on a simulated disk now, synced or not: what happens to it harms nobody.

Nothing of the run is drawn from, traced or charged for it.
"""

from random import Random

from sim.disk import SimDisk
from sim.inode import Inode
from sim.names import Directory, Names, Node
from sim.rng import SplitRng


def copy_below(disk: SimDisk, directory: str, seed: str) -> SimDisk:
    """Return a disk that has what lies below ``directory``; what goes wrong there is of ``seed``.

    No process lives on it: it is as after a kill.
    """
    made = SimDisk(SplitRng(seed))
    made._names = _names(disk._names, directory + "/")
    made._boots = disk._boots
    made._damage_random = Random(seed)
    return made


def _names(names: Names, prefix: str) -> Names:
    made, copies = Names(), dict[int, Inode]()

    def copied(node: Node) -> Node:
        if not isinstance(node, Inode):
            return node
        if id(node) not in copies:
            copies[id(node)] = _inode(node)
        return copies[id(node)]

    made._nodes = {
        path: copied(node)
        for path, node in names._nodes.items()
        if isinstance(node, Directory) or path.startswith(prefix)
    }
    made._unsynced = [
        entries._replace(
            changes=tuple((path, copied(old), copied(new)) for path, old, new in entries.changes)
        )
        for entries in names._unsynced
        if (entries.directory + "/").startswith(prefix)
    ]
    made.operations_made = names.operations_made
    return made


def _inode(inode: Inode) -> Inode:
    made = Inode()
    made.make_room(len(inode.data))
    for start, end in inode.extents(0):
        made.data[start:end] = inode.data[start:end]
    made.size = inode.size
    made.view = memoryview(made.data).toreadonly()[: len(inode.view)]
    made.journal, made.changes_made = list(inode.journal), inode.changes_made
    made.has_lost, made.blocks = inode.has_lost, set(inode.blocks)
    return made
