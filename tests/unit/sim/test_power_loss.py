"""What a loss of power leaves, for any writes and syncs: synced bytes, and a legal rest."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sim.disk import SimDisk
from sim.inode import SECTOR_BYTES, PowerLossMode
from sim.rng import SplitRng

SIZE = 4 * SECTOR_BYTES

writes = st.tuples(
    st.just("write"), st.integers(0, SIZE - 1), st.integers(1, 700), st.integers(1, 255)
)
operations = st.lists(
    st.one_of(writes, st.tuples(st.just("sync")), st.tuples(st.just("zero"), st.integers(0, SIZE))),
    max_size=12,
)
modes = st.sampled_from(list(PowerLossMode))
seeds = st.integers(0, 1 << 30)


class Model:
    """What was written, as images: the synced one, and each after it."""

    def __init__(self):
        self.images = [bytes(SIZE)]

    def write(self, offset, content):
        image = bytearray(self.images[-1])
        image[offset : offset + len(content)] = content
        self.images.append(bytes(image))

    def sync(self):
        self.images = self.images[-1:]


def do(disk, steps):
    """Carry the steps out on a file and on the model."""
    model = Model()
    file = disk.open("/f", size=SIZE)
    for step, *args in steps:
        if step == "write":
            offset, length, value = args
            content = bytes([value]) * min(length, SIZE - offset)
            file.pwrite(offset, [content])
            model.write(offset, content)
        elif step == "sync":
            file.fdatasync()
            model.sync()
        else:
            end = file.nonzero_end(args[0])
            extents = file._inode.extents(args[0])
            file.zero_from(args[0])
            for start, stop in extents:
                model.write(start, bytes(stop - start))
            assert file.nonzero_end(args[0]) == args[0] <= end
    return file, model


def sectors(image):
    return [image[at : at + SECTOR_BYTES] for at in range(0, SIZE, SECTOR_BYTES)]


def image_of(disk):
    return disk.open("/f", size=SIZE).pread(0, SIZE)


@given(operations, modes, seeds)
def test_a_crash_of_the_process_loses_nothing(steps, mode, seed):
    disk = SimDisk(SplitRng(seed))
    _, model = do(disk, steps)
    disk.crash()
    assert image_of(disk) == model.images[-1]
    disk.open("/f", size=SIZE).fdatasync()
    disk.power_loss(mode, seed)
    assert image_of(disk) == model.images[-1]


@given(operations, seeds)
def test_lost_leaves_exactly_what_was_synced(steps, seed):
    disk = SimDisk(SplitRng(seed))
    _, model = do(disk, steps)
    loss = disk.power_loss(PowerLossMode.LOST)
    assert loss.changes == len(model.images) - 1
    assert image_of(disk) == model.images[0]


@given(operations, seeds)
def test_torn_leaves_a_prefix_of_the_writes_and_of_the_sectors_of_the_next(steps, seed):
    disk = SimDisk(SplitRng(1))
    _, model = do(disk, steps)
    disk.power_loss(PowerLossMode.TORN, seed)
    image = image_of(disk)
    assert image in model.images or any(
        sectors(image) == sectors(after)[:cut] + sectors(before)[cut:]
        for before, after in pairwise(model.images)
        for cut in range(SIZE // SECTOR_BYTES + 1)
    )


@given(operations, seeds)
def test_reordered_leaves_in_each_sector_some_number_of_its_writes(steps, seed):
    disk = SimDisk(SplitRng(1))
    _, model = do(disk, steps)
    disk.power_loss(PowerLossMode.REORDERED, seed)
    versions = zip(*map(sectors, model.images), strict=True)
    for sector, possible in zip(sectors(image_of(disk)), versions, strict=True):
        assert sector in possible


@given(operations, modes, seeds)
def test_bytes_that_were_not_written_since_the_sync_are_untouched(steps, mode, seed):
    disk = SimDisk(SplitRng(1))
    file, model = do(disk, steps)
    touched = set()
    for change in file._inode.journal:
        touched.update(range(change.offset, change.offset + len(change.before)))
    disk.power_loss(mode, seed)
    image = image_of(disk)
    assert all(image[at] == model.images[0][at] for at in range(SIZE) if at not in touched)


@given(operations, operations, modes, modes, seeds)
def test_what_a_loss_left_survives_the_next_one(steps, more, mode, next_mode, seed):
    disk = SimDisk(SplitRng(seed))
    do(disk, steps)
    disk.power_loss(mode, seed)
    image = image_of(disk)
    assert disk.power_loss(next_mode) == (0, 0)
    assert image_of(disk) == image
    do(disk, [*more, ("sync",)])
    image = image_of(disk)
    disk.power_loss(mode, seed)
    assert image_of(disk) == image


@given(operations, modes, seeds)
def test_the_same_seed_leaves_the_same(steps, mode, seed):
    images = []
    for _ in range(2):
        disk = SimDisk(SplitRng(1))
        do(disk, steps)
        disk.power_loss(mode, seed)
        images.append(image_of(disk))
    assert images[0] == images[1]


def test_every_outcome_of_two_sectors_is_possible_when_reordered():
    """And only prefixes when torn."""
    first, second = b"1" * SECTOR_BYTES, b"2" * SECTOR_BYTES
    found = {mode: set() for mode in PowerLossMode}
    for mode in PowerLossMode:
        for seed in range(60):
            disk = SimDisk(SplitRng(1))
            file = disk.open("/f", size=SIZE)
            file.pwrite(0, [first])
            file.pwrite(SECTOR_BYTES, [second])
            disk.power_loss(mode, seed)
            image = image_of(disk)
            found[mode].add((image[:1] == b"1", image[SECTOR_BYTES : SECTOR_BYTES + 1] == b"2"))
    every = {(False, False), (True, False), (False, True), (True, True)}
    assert found[PowerLossMode.REORDERED] == every
    assert found[PowerLossMode.TORN] == every - {(False, True)}
    assert found[PowerLossMode.LOST] == {(False, False)}


# Directory entries

names = st.sampled_from(["/a", "/b", "/d/a", "/d/b"])
small = st.binary(min_size=1, max_size=3)


@given(st.lists(st.tuples(names, st.one_of(st.none(), small)), max_size=8), modes, seeds)
def test_what_replace_and_remove_did_survives_everything(steps, mode, seed):
    disk = SimDisk(SplitRng(1))
    disk.make_directories("/d")
    expected = {}
    for path, content in steps:
        if content is None:
            disk.remove(path)
            expected.pop(path, None)
        else:
            disk.replace(path, content)
            expected[path] = content
    disk.power_loss(mode, seed)
    assert {path: disk.read(path) for path in disk.paths()} == expected


@given(modes, seeds)
def test_unsynced_rename_is_whole_or_not_at_all(mode, seed):
    disk = SimDisk(SplitRng(1))
    disk.replace("/s", b"old")
    disk.sync_directory = lambda path: None
    disk.replace("/s", b"new")
    disk.power_loss(mode, seed)
    found = {path: disk.read(path) for path in disk.paths()}
    assert found in ({"/s": b"old"}, {"/s": b"old", "/s.tmp": b"new"}, {"/s": b"new"})
    if mode is PowerLossMode.LOST:
        assert found == {"/s": b"old"}


def test_renamed_file_whose_bytes_were_not_synced_may_be_empty():
    """What ext4 users knew as the zero-length file after a rename."""
    found = set()
    for seed in range(60):
        disk = SimDisk(SplitRng(1))
        disk.replace("/s", b"old")
        disk.sync_inode = lambda path, inode: None
        disk.replace("/s", b"new")
        disk.power_loss(PowerLossMode.REORDERED, seed)
        found.add(disk.read("/s"))
    assert found == {b"new", b"", b"\0\0\0"}


def test_entries_of_a_directory_that_never_was_are_gone():
    disk = SimDisk(SplitRng(1))
    sync = disk.sync_directory
    disk.sync_directory = lambda path: None if path == "/" else sync(path)
    disk.make_directories("/d")
    disk.replace("/d/s", b"x")
    disk.power_loss(PowerLossMode.LOST)
    assert disk.paths() == []
    assert disk.names("/") == []


@given(st.lists(st.sampled_from(["write", "make", "sync"]), max_size=8), modes, seeds)
def test_a_sync_of_everything_keeps_files_names_and_directories(steps, mode, seed):
    disk = SimDisk(SplitRng(seed))
    disk.make_directories("/store")
    synced = {}
    content = {}
    for number, step in enumerate(steps):
        name = f"/store/queues/{number if step == 'make' else 0}/file"
        if step == "sync":
            disk.sync_all("/store/queues")
            synced = dict(content)
        else:
            disk.open_unsynced(name, size=SIZE).pwrite(0, (bytes([number + 1]) * SIZE,))
            content[name] = number + 1
    disk.power_loss(mode, seed)
    for name, value in synced.items():
        found = disk.open(name, size=SIZE).pread(0, SIZE)
        assert found == bytes([value]) * SIZE or content[name] != value
    assert set(synced) <= set(disk.paths()) <= set(content)
