"""Power cuts at any step, whatever the disk has made of unsynced writes.

What recovery finds is exactly a beginning of what was written, with everything that was synced.

The disk is the simulator's: it journals every write and every change of a directory, and a loss of
power keeps none of what was not synced, or a torn beginning, or any mixture of sectors.
"""

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from dledger.codec.entry import END_RECORD_BYTES, HEADER_BYTES, encode_span
from dledger.codec.properties import Checkpoint
from dledger.core.model import HardState
from dledger.errors import DamagedEntry, DLedgerError
from dledger.segments.row import Segments
from dledger.storage import recovery
from dledger.storage.files import open_segments
from dledger.storage.log_store import LogStore
from dledger.storage.recovery import open_log_store
from dledger.storage.snapshot_files import SnapshotFiles
from dledger.storage.state_files import CheckpointFile, HardStateFile
from dledger.storage.synced_file import SyncedFile
from ledgermq.runtime.errors import FatalError
from sim.disk import SimCrash, SimDisk
from sim.disk_rules import SYNCS, Action, Rule
from sim.inode import PowerLossMode
from sim.rng import SplitRng

SEGMENT = 4096
INDEX_SEGMENT = 32 * 16
DIRECTORY = "/log"
SIZES = (0, 1, 40, 463, 464, 465, 700, 1900, SEGMENT - HEADER_BYTES - END_RECORD_BYTES)


class Machine:
    """A log, the model of it, and the power switch."""

    def __init__(self, seed):
        self.disk = SimDisk(SplitRng(seed))
        self.history = []
        """Every entry written: term and body."""
        self.durable = 0
        """How many of them were synced."""
        self.committed = -1
        self.term = 1
        self.candidates = []
        self.start()

    def start(self):
        self.disk.make_directories(DIRECTORY)
        self.hard_state = HardStateFile(self.disk, DIRECTORY)
        self.checkpoint = CheckpointFile(self.disk, DIRECTORY)
        noted = self.checkpoint.load()
        data = open_segments(self.disk, f"{DIRECTORY}/data", SEGMENT)
        index = open_segments(self.disk, f"{DIRECTORY}/index", INDEX_SEGMENT)
        snapshots = SnapshotFiles(self.disk, DIRECTORY)
        self.store = open_log_store(data, index, noted, 1 << 30, 2000, snapshots)
        self.store.before_cut = self.checkpoint.lower

    def contents(self):
        return [
            (self.store.entry(index)[2], bytes(self.store.body_view(index)))
            for index in range(self.store.last_index + 1)
        ]

    # What may happen

    def append(self, sizes):
        spans, position = [], self.store.end_position
        for size in sizes:
            index = len(self.history)
            body = (b"%d/%d." % (index, self.term) * size)[:size]
            position = self.store.place(position, size + HEADER_BYTES)
            spans.append(encode_span(index, self.term, position, [body]))
            position += size + HEADER_BYTES
            self.history.append((self.term, body))
        self.candidates = [(self.history, self.durable)]
        self.store.append(spans)

    def sync(self, _):
        dirty = self.store.take_dirty()
        if dirty is not None:
            self.store.sync(dirty)
            self.durable = dirty.last_index + 1
            self.checkpoint.mark(dirty.last_index)

    def note(self, _):
        self.committed = max(self.committed, self.durable - 2)
        noted = Checkpoint(self.durable - 1, self.committed)
        self.checkpoint.save(noted, self.checkpoint.cuts)

    def truncate(self, back):
        """A leader of a newer term has other entries from here on."""
        cut = max(self.committed + 1, len(self.history) - 1 - back)
        if cut >= len(self.history):
            return
        before, durable = list(self.history), min(self.durable, cut)
        self.term += 1
        del self.history[cut:]
        self.durable = durable
        self.candidates = [(before, durable), (self.history, durable)]
        self.store.truncate(cut)

    def kill(self, _):
        """End the process; the page cache stays."""
        self.disk.crash()
        self.restart()

    def lose_power(self, choice):
        mode, seed = choice
        self.disk.power_loss(mode, seed)
        self.restart()

    def restart(self):
        self.start()
        found = self.contents()
        for history, durable in self.candidates:
            if found == history[: len(found)] and len(found) >= durable:
                break
        else:
            counts = [(len(history), durable) for history, durable in self.candidates]
            raise AssertionError(f"found {len(found)} of (written, synced) {counts}")
        self.history = found
        self.durable = len(found)

    def do(self, name, argument, crash):
        """Do one thing; with ``crash``, power goes at a step of it."""
        self.candidates = [(self.history, self.durable)]
        if crash is not None:
            skip, action, mode, seed = crash
            rule = self.disk.add_rule(Rule(action=action, skip=skip, count=1))
        try:
            getattr(self, name)(argument)
        except SimCrash:
            self.disk.drop_rule(rule)
            self.lose_power((mode, seed))
        else:
            if crash is not None:
                self.disk.drop_rule(rule)
        self.candidates = [(self.history, self.durable)]


MODES = st.sampled_from(PowerLossMode)
SEEDS = st.integers(0, 1 << 16)
STEPS = st.one_of(
    st.tuples(st.just("append"), st.lists(st.sampled_from(SIZES), min_size=1, max_size=5)),
    st.tuples(st.just("append"), st.lists(st.sampled_from(SIZES), min_size=1, max_size=5)),
    st.tuples(st.just("sync"), st.none()),
    st.tuples(st.just("note"), st.none()),
    st.tuples(st.just("truncate"), st.integers(0, 4)),
    st.tuples(st.just("kill"), st.none()),
    st.tuples(st.just("lose_power"), st.tuples(MODES, SEEDS)),
)
CRASHES = st.one_of(
    st.none(),
    st.none(),
    st.tuples(
        st.integers(0, 6),
        st.sampled_from((Action.CRASH_BEFORE, Action.CRASH_AFTER)),
        MODES,
        SEEDS,
    ),
)
RUNS = st.lists(st.tuples(STEPS, CRASHES), min_size=1, max_size=14)


def run(steps):
    machine = Machine(1)
    for (name, argument), crash in steps:
        machine.do(name, argument, crash)
    machine.lose_power((PowerLossMode.LOST, 0))


LIMITS = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None}


@settings(max_examples=150, **LIMITS)
@given(RUNS)
def test_recovery_finds_a_beginning_with_everything_synced(steps):
    run(steps)


def hunt(examples=3_000):
    """Run the same property under a planted bug; True if it fails."""

    @settings(max_examples=examples, derandomize=True, phases=[Phase.generate], **LIMITS)
    @given(RUNS)
    def property_(steps):
        run(steps)

    try:
        property_()
    except (AssertionError, FatalError, DLedgerError):
        return True
    return False


def no_sync(self, dirty):
    """Nothing is synced."""


def sync_newest_only(self):
    """A rolled segment is forgotten."""
    dirty, self._dirty = self._dirty, {}
    return dict(list(dirty.items())[-1:])


def cut_without_sync(self, position):
    for base in reversed(self.bases):
        if base > position or (base == position and base != self.start):
            self._remove_last(base)
        elif base + self.segment_bytes > position:
            self._file(base).zero_from(position - base)


def no_sync_of_what_was_found(self, position):
    """A process that was killed left it in the page cache, and there it stays."""


BUGS = {
    "nothing synced": (LogStore, "sync", no_sync),
    "rolled segment not synced": (Segments, "take_dirty", sync_newest_only),
    "cut not synced": (Segments, "cut", cut_without_sync),
    "found but not synced": (Segments, "sync_from", no_sync_of_what_was_found),
    "CRC not looked at": (recovery, "body_matches", lambda crc, body: True),
    "names not synced": (SimDisk, "sync_directory", lambda self, path: None),
    "checkpoint ahead of a cut": (CheckpointFile, "lower", lambda self, index: None),
    "mark ahead of a cut": (CheckpointFile, "_lower_mark", lambda self, index: None),
    "lowered mark not synced": (SyncedFile, "sync", lambda self: None),
}


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bug_is_caught(monkeypatch, bug):
    owner, name, planted = BUGS[bug]
    monkeypatch.setattr(owner, name, planted)
    assert hunt()


# The small files: the old content or the new, whenever the power goes


@settings(max_examples=100, **LIMITS)
@given(
    st.lists(st.tuples(st.integers(0, 3), CRASHES), min_size=1, max_size=8),
    st.sampled_from(PowerLossMode),
)
def test_a_vote_that_was_saved_is_never_forgotten(saves, mode):
    disk = SimDisk(SplitRng(1))
    disk.make_directories(DIRECTORY)
    saved = HardStateFile(disk, DIRECTORY).load(log_is_empty=True)
    for term, (voted, crash) in enumerate(saves, 1):
        new = HardState(term, f"n{voted}")
        may_be = {saved, new}
        if crash is not None:
            rule = disk.add_rule(Rule(action=crash[1], skip=crash[0], count=1))
        try:
            HardStateFile(disk, DIRECTORY).save(new)
            may_be = {new}
        except SimCrash:
            disk.power_loss(crash[2], crash[3])
        if crash is not None:
            disk.drop_rule(rule)
        # A process is killed, the next one relies on what it reads, then the power goes.
        disk.crash()
        disk.make_directories(DIRECTORY)
        saved = HardStateFile(disk, DIRECTORY).load(log_is_empty=True)
        assert saved in may_be
        disk.power_loss(mode, term)
        disk.make_directories(DIRECTORY)
        assert HardStateFile(disk, DIRECTORY).load(log_is_empty=saved.term == 0) == saved


def test_half_written_end_record_is_a_torn_tail():
    for keep in range(8):
        machine = Machine(keep)
        machine.append([1900, 1900])
        machine.sync(None)
        machine.note(None)
        end = machine.store.end_position
        machine.append([1900])
        assert machine.store.entry(2)[0] == SEGMENT
        name = f"{DIRECTORY}/data/{0:020}"
        record = machine.disk.read(name)[end : end + 8]
        file = machine.disk.open(name, size=SEGMENT)
        file.pwrite(end, [record[:keep] + bytes(8 - keep)])
        machine.kill(None)
        assert len(machine.contents()) == 2
        machine.append([1900])
        machine.kill(None)
        assert len(machine.contents()) == 3


def test_a_sync_that_lies_is_not_survived_silently():
    """D2: outside the contract, but what is missing is known, and fetched, or refused."""
    machine = Machine(1)
    machine.append([700, 700])
    machine.disk.add_rule(Rule(action=Action.LIE, ops=SYNCS, glob="*data*"))
    machine.sync(None)
    machine.note(None)
    machine.disk.power_loss(PowerLossMode.LOST, 0)
    machine.disk.heal()
    machine.start()
    assert sorted(machine.store.corruption.damaged) == [0, 1]
    with pytest.raises(DamagedEntry):
        machine.contents()
