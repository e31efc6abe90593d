"""Power cuts and full disks at any step, whatever the disk has made of unsynced writes.

What a start finds is exactly a beginning of what was written, with everything that was synced;
SYNC_FLUSH acknowledges only that. The disk is the simulator's: a loss of power keeps none of what
was not synced, or a torn beginning, or any mixture of sectors.
"""

import errno

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from dledger.errors import DLedgerError
from dledger.segments.row import Segments
from ledgermq.runtime.errors import FatalError
from sim.disk import SimCrash, SimDisk
from sim.disk_rules import SYNCS, Action, Rule
from sim.inode import PowerLossMode
from sim.rng import SplitRng
from store.plain import record as records
from store.plain.writer import Writer
from tests.unit.store.plain.records import T0, Log, record, size_of

SEGMENT = 8192
"""Two blocks, so that a full disk may take a part of a write."""
SIZES = (1, 40, 411, 412, 413, 1900, 2700, 3900, SEGMENT - size_of(body=b"") - 8)
OPTIONS = {"segment_bytes": SEGMENT, "clean_walk_bytes": 6000}


class Machine:
    """A log, the model of it, and the power switch."""

    def __init__(self, seed):
        self.disk = SimDisk(SplitRng(seed))
        self.history = []
        """Every record written and not refused: position and bytes."""
        self.durable = 0
        """How many of them were synced."""
        self.count = 0
        self.clean = False
        self.start()

    def start(self):
        clean, self.clean = self.clean, False
        safe = 0 if not self.durable else stored_of(self.history[self.durable - 1]) + 1
        self.log = Log(self.disk, clean=clean, safe_timestamp_ms=safe, **OPTIONS)

    def make(self, size):
        self.count += 1
        body = (b"%d." % self.count * size)[:size]
        position = self.log.put(body=body, stored=T0 + self.count)
        self.history.append((position, record(position, body=body, stored=T0 + self.count)))

    # What may happen

    def append(self, sizes):
        for size in sizes:
            self.make(size)
        assert self.log.flush() is None

    def sync(self, _):
        count = len(self.history)
        self.log.sync()
        self.durable = count

    def prepare(self, _):
        self.log.files.prepare(self.log.files.end)

    def fail_to_sync(self, _):
        """The process ends; the page cache keeps what will never be durable by a sync."""
        rule = self.disk.add_rule(Rule(action=Action.FAIL, ops=SYNCS, error=errno.EIO))
        try:
            self.log.sync()
        except OSError:
            self.disk.drop_rule(rule)
            self.kill(None)
        finally:
            self.disk.drop_rule(rule)

    def append_to_a_full_disk(self, choice):
        sizes, blocks = choice
        self.disk.limit(blocks << 12)
        for size in sizes:
            self.make(size)
        refused_from = self.log.flush()
        if refused_from is not None:
            self.history = [entry for entry in self.history if entry[0] < refused_from]
        self.disk.limit(None)

    def drop(self, segments):
        """Retention: of what is synced, or everything goes when power does."""
        if self.durable == len(self.history):
            files = self.log.files
            files.remove(files.drop_below(min(segments * SEGMENT, files.end - SEGMENT)))

    def stop(self, _):
        self.sync(None)
        self.log.files.close()
        self.clean = True
        self.restart()

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
        found = self.log.entries()
        first = self.log.first_position
        held = [entry for entry in self.history if entry[0] >= first]
        dropped = len(self.history) - len(held)
        assert found == held[: len(found)], (len(found), len(held))
        assert len(found) >= self.durable - dropped, (len(found), self.durable, dropped)
        self.history = self.history[:dropped] + found
        self.durable = len(self.history)
        if found:
            assert bytes(self.log.last_body()) == found[-1][1]
            assert self.log.end_position == found[-1][0] + len(found[-1][1])

    def do(self, name, argument, crash):
        """Do one thing; with ``crash``, power goes at a step of it, and again while starting."""
        if crash is None:
            getattr(self, name)(argument)
            return
        skip, action, mode, seed = crash
        rule = self.disk.add_rule(Rule(action=action, skip=skip, count=1))
        try:
            getattr(self, name)(argument)
        except SimCrash:
            self.disk.drop_rule(rule)
            self.disk.limit(None)
            self.clean = False
            self.lose_power_while_starting(mode, seed, skip)
        else:
            self.disk.drop_rule(rule)

    def lose_power_while_starting(self, mode, seed, skip):
        self.disk.power_loss(mode, seed)
        rule = self.disk.add_rule(Rule(action=Action.CRASH_BEFORE, skip=skip, count=1))
        try:
            self.start()
        except SimCrash:
            self.disk.power_loss(mode, seed + 1)
        self.disk.drop_rule(rule)
        self.disk.crash()
        self.restart()


def stored_of(entry):
    return int.from_bytes(entry[1][56:64], "big")


MODES = st.sampled_from(PowerLossMode)
SEEDS = st.integers(0, 1 << 16)
BATCHES = st.lists(st.sampled_from(SIZES), min_size=1, max_size=5)
STEPS = st.one_of(
    st.tuples(st.just("append"), BATCHES),
    st.tuples(st.just("append"), BATCHES),
    st.tuples(st.just("append_to_a_full_disk"), st.tuples(BATCHES, st.integers(0, 3))),
    st.tuples(st.just("sync"), st.none()),
    st.tuples(st.just("prepare"), st.none()),
    st.tuples(st.just("fail_to_sync"), st.none()),
    st.tuples(st.just("drop"), st.integers(1, 4)),
    st.tuples(st.just("stop"), st.none()),
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


@settings(max_examples=300, **LIMITS)
@given(RUNS)
def test_start_finds_a_beginning_with_everything_synced(steps):
    run(steps)


@pytest.mark.parametrize("mode", PowerLossMode)
@pytest.mark.parametrize("action", [Action.CRASH_BEFORE, Action.CRASH_AFTER])
def test_power_goes_at_every_step_of_a_life(mode, action):
    """Appends over several segments, syncs, a full disk: crash at each operation of the disk."""
    steps = (
        ("append", [600, 3900, 3900]),
        ("prepare", None),
        ("sync", None),
        ("append", [3900, 40, 3900]),
        ("append_to_a_full_disk", ([3900, 2700, 3900], 1)),
        ("append", [412]),
        ("sync", None),
        ("append", [3900, 3900]),
    )
    for skip in range(200):
        machine = Machine(skip)
        rule = machine.disk.add_rule(Rule(action=action, skip=skip, count=1))
        try:
            for name, argument in steps:
                getattr(machine, name)(argument)
        except SimCrash:
            machine.disk.drop_rule(rule)
            machine.disk.limit(None)
            machine.lose_power_while_starting(mode, skip, skip % 7)
            continue
        assert skip > 20, "the rule met no step"
        return
    raise AssertionError("more steps than expected")


def hunt(examples=1500):
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


def no_sync(self, files):
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


def take_nothing_back(self, position):
    """What a full disk left of a write stays."""
    self._buffers.clear()
    self._restart(self.written)


class AnyCrc:
    """Equals whatever is stated."""

    __hash__ = None

    def __and__(self, mask):
        return self

    def __eq__(self, other):
        return True


BUGS = {
    "nothing synced": (Segments, "sync", no_sync),
    "rolled segment not synced": (Segments, "take_dirty", sync_newest_only),
    "found but not synced": (Segments, "sync_from", lambda self, position: None),
    "refused record stays": (Writer, "_take_back", take_nothing_back),
    "CRC not looked at": (records, "crc32", lambda data: AnyCrc()),
    "only synced again": (Segments, "rewrite", lambda self, position, end: {}),
    "names not synced": (SimDisk, "sync_directory", lambda self, path: None),
}


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bug_is_caught(monkeypatch, bug):
    owner, name, planted = BUGS[bug]
    monkeypatch.setattr(owner, name, planted)
    assert hunt()


def refused_records_found(seeds=100):
    """Let the power go after a full disk refused records, some of them perhaps written whole.

    Returns for how many of ``seeds`` any of them is found at the next start.
    """
    found = 0
    for seed in range(seeds):
        disk = SimDisk(SplitRng(seed))
        log = Log(disk, segment_bytes=4 * SEGMENT)
        log.put()
        log.flush()
        log.sync()
        disk.limit((seed % 3) << 12)
        for _ in range(40):
            log.put(body=b"z" * 300)
        assert log.flush() == size_of()
        disk.power_loss(PowerLossMode.REORDERED, seed)
        disk.heal()
        found += len(Log(disk, segment_bytes=4 * SEGMENT).entries()) > 1
    return found


def test_refused_record_is_never_found():
    assert refused_records_found() == 0


def test_refused_record_would_be_found_if_its_removal_were_not_synced(monkeypatch):
    monkeypatch.setattr(Segments, "cut", cut_without_sync)
    assert refused_records_found() > 0
