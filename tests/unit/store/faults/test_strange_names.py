"""Things in a store's directories that no broker made: folders, links, pipes, junk with good names.

On the real file system, since no other knows all of this.
"""

import os
import shutil
import stat
import tempfile
from contextlib import contextmanager
from pathlib import Path
from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ledgermq.runtime.disk import RealDisk
from tests.unit.store.faults.promises import START_MS, check_refusal, check_service, logged
from tests.unit.store.faults.stores import built
from tests.unit.store.faults.world import ROOT, Cluster, no_hang

FAULTS = settings(settings.get_profile("faults"))
MEMORY = Path("/dev/shm")


class Disk(RealDisk):
    """Remembers what it opened, since a case ends where the process would."""

    __slots__ = ("opened", "root")

    def __init__(self, root):
        super().__init__()
        self.root = root
        self.opened = []

    def open(self, path, *, size):
        self.opened.append(super().open(path, size=size))
        return self.opened[-1]

    def open_unsynced(self, path, *, size):
        self.opened.append(super().open_unsynced(path, size=size))
        return self.opened[-1]

    def lock(self, path):
        self.opened.append(super().lock(path))
        return self.opened[-1]

    def close(self):
        for file in self.opened:
            file.close()


@contextmanager
def store_folder(files):
    """Write the files of a store into a new folder."""
    where = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(dir=where) as name:
        root = Path(name)
        for path, data in files.items():
            target = root / path.removeprefix(f"{ROOT}/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        yield root


def put_folder(path, random):
    path.mkdir()
    (path / "0").write_bytes(random.randbytes(20))


def put_link_to_nothing(path, random):
    path.symlink_to(random.choice(("nowhere", "../nowhere", str(path))))


def put_link(path, random):
    """Not to a folder: two names for one folder of queues is one too many for its owner."""
    targets = [one for one in path.parent.parent.rglob("*") if one.is_file() and one != path]
    path.symlink_to(random.choice(sorted(targets) or [Path("/dev/null")]))


def put_pipe(path, _random):
    os.mkfifo(path)


def put_junk(path, random):
    path.write_bytes(random.randbytes(random.choice((0, 1, 20, 400, 512, 4096))))


def befall(root, put, folder, name, seed):
    """Put something into one of the folders, in place of what has the name; returns its path."""
    folders = sorted(
        path for path in [root, *root.rglob("*")] if stat.S_ISDIR(path.lstat().st_mode)
    )
    path = folders[folder % len(folders)] / name
    if name in {".", ".."} or len(os.fsencode(name)) > 255:
        return None
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    put(path, Random(seed))
    return f"{root}/{path.relative_to(root)}"


THINGS = (put_folder, put_link_to_nothing, put_link, put_pipe, put_junk)
NAMES = st.one_of(
    st.sampled_from(
        (
            "0" * 20, "00000000000000000400", "00000000000000065536", "9" * 20, "-1", "0", "7",
            "checkpoint.tmp", "checkpoint", "currterm.tmp", "snapshot", "snapshot.part",
            "snapshot.install", "synced", "membership", "identity", "abort", "lock", "data", "t9",
            "consumequeue.checkpoint", "index.checkpoint", "consumequeue.clean",
            "appliedIndex.json", "topics.json", "topics.json.bak",
            "٣", "²", "a" * 255, "\n", " ", "x\udcff",
        )
    ),
    st.text(st.characters(exclude_characters="/\0", codec="utf-8"), min_size=1, max_size=20),
)  # fmt: skip


@FAULTS
@given(
    st.lists(
        st.tuples(st.sampled_from(THINGS), st.integers(0, 99), NAMES, st.integers(0, 1 << 20)),
        min_size=1,
        max_size=3,
    ),
    st.booleans(),
)
@example([(put_folder, 1, f"{0:020}", 0), (put_link_to_nothing, 1, f"{0:020}", 0)], False)
def test_strange_things_with_any_name_are_passed_over_or_refused(things, raft):
    files, sent = built(raft=raft)
    with store_folder(files) as root:
        touched = [path for thing in things if (path := befall(root, *thing)) is not None]
        disk = Disk(str(root))
        cluster = Cluster({"n0": disk}, raft=raft)
        with no_hang(), logged() as lines:
            try:
                error = cluster.start(limit_ms=START_MS)
                if error is None:
                    check_service(cluster, sent, touched, lines)
                else:
                    check_refusal(error, root)
            finally:
                cluster.close()
                disk.close()
