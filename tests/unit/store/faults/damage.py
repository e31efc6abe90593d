"""Files of a store as a dict, and everything that may befall them."""

from dataclasses import dataclass
from random import Random

from hypothesis import strategies as st

from sim.disk import SimDisk
from sim.names import Directory
from sim.rng import SplitRng

GARBAGE_MAX = 6000


def image(disk):
    """Return the files of a disk as they are: bytes by path."""
    return {path: disk.read(path) for path in disk.paths() if not path.endswith("/lock")}


def disk_of(files, seed=1):
    """Return a disk that holds these files, all of it durable."""
    disk = SimDisk(SplitRng(seed))
    for path, data in files.items():
        parent = path.rpartition("/")[0]
        if not isinstance(disk._names.find(parent), Directory):
            disk.make_directories(parent)
        disk.replace(path, data)
    return disk


@dataclass(frozen=True)
class Damage:
    """One thing that befalls one file; what of it is meant is chosen by fractions of it."""

    kind: str
    file: float | str
    """Which one, of those that are there, in order of their names; or its path."""
    places: tuple[float, ...]
    """Where in the part of it that holds data."""
    seed: int

    def path(self, files):
        if isinstance(self.file, str):
            return self.file
        paths = sorted(files)
        return paths[int(self.file * len(paths))]

    def befall(self, files):
        """Change ``files``; returns the paths that are not what they were."""
        path = self.path(files)
        random = Random(self.seed)
        if self.kind in NAMES:
            return _befall_name(self.kind, files, path, random)
        data = files[path]
        end = max(1, len(data.rstrip(b"\0")))
        offsets = [int(place * end) for place in self.places]
        files[path] = _changed(self.kind, data, offsets, random)
        return [path]


def _changed(kind, data, offsets, random):
    """Return the bytes of a file as they are after a damage."""
    at = offsets[0]
    size = min(random.randrange(1, 600), len(data) - at)
    if kind == "truncate":
        return data[:at]
    if kind == "grow":
        return data + random.randbytes(size + 1)
    if kind == "zero":
        return data[:at] + bytes(size) + data[at + size :]
    if kind == "overwrite":
        return data[:at] + random.randbytes(size) + data[at + size :]
    if kind == "garbage":
        return random.randbytes(random.choice((len(data), random.randrange(GARBAGE_MAX))))
    assert kind == "flip", kind
    changed = bytearray(data)
    for offset in offsets:
        if offset < len(changed):
            changed[offset] ^= 1 << random.randrange(8)
    return bytes(changed)


def _befall_name(kind, files, path, random):
    """Change which names there are."""
    beside = f"{path.rpartition('/')[0]}/{_name_like(path, random)}"
    other = random.choice(sorted(files))
    if kind == "copy_over":
        files[other] = files[path]
        return [other]
    if kind == "copy_beside":
        files[beside] = files[path]
        return [beside]
    data = files.pop(path)
    if kind == "rename":
        files[beside] = data
        return [path, beside]
    assert kind == "remove", kind
    return [path]


def _name_like(path, random):
    name = path.rpartition("/")[2]
    if len(name) == 20 and name.isdigit():
        step = random.choice((400, 512, 4096, -400, -512, -4096, 1, 8192, 1 << 40))
        return f"{max(0, int(name) + step):020}"
    return random.choice((name + ".tmp", name + ".bak", "0" * 20, name + "~", name[:-1] or "x"))


CONTENT = ("truncate", "flip", "flip", "flip", "zero", "overwrite", "garbage", "grow")
"""What happens to the bytes of a file."""
NAMES = ("remove", "copy_over", "copy_beside", "rename")
"""What happens to files as a whole."""
FRACTIONS = st.floats(0, 1, exclude_max=True)


def damages(kinds=CONTENT + NAMES, *, min_size=1, max_size=3):
    """Return a strategy of lists of damages."""
    one = st.builds(
        Damage,
        kind=st.sampled_from(kinds),
        file=FRACTIONS,
        places=st.lists(FRACTIONS, min_size=1, max_size=4).map(tuple),
        seed=st.integers(0, 1 << 32),
    )
    return st.lists(one, min_size=min_size, max_size=max_size)
