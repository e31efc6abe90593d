"""Epochs of logs: the file, and up to where two logs are the same."""

from __future__ import annotations

import random
import zlib

import pytest

from ledgermq.runtime.errors import FatalError
from mutants.patches import BY_TESTS
from mutants.planting import Mutant, planted
from sim.disk import SimDisk
from sim.rng import SplitRng
from store.ha.switch import epochs
from store.ha.switch.epoch_file import EpochFile
from store.ha.switch.epochs import (
    BadEpochs,
    Epoch,
    check,
    clip,
    decode_epochs,
    encode_epochs,
)
from store.limits import EPOCHS_MAX

THREE = (Epoch(1, 0), Epoch(4, 700), Epoch(6, 900))


def test_the_file_is_laid_out_as_rocketmqs() -> None:
    lines = b"1-0\n4-700\n6-900\n"
    data = encode_epochs(THREE)
    assert data == b"3\n%d\n%b" % (zlib.crc32(lines) & 0x7FFFFFFF, lines)
    assert decode_epochs(data) == THREE
    assert decode_epochs(b"3\n0\n" + lines) == THREE  # 0: not compared
    assert decode_epochs(encode_epochs(())) == ()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not a number"),
        (b"2\n0\n1-0\n", "1 epochs, and it states 2"),
        (b"1\n5\n1-0\n", "CRC"),
        (b"1\n0\n1:0\n", "not a number"),
        (b"1\n0\n0-0\n", "cannot follow"),
        (b"2\n0\n2-0\n1-5\n", "cannot follow"),
        (b"2\n0\n1-9\n2-5\n", "cannot follow"),
        (b"1\n0\n1-99999999999999999999\n", "not a number"),
        (b"1\n0\n4294967296-0\n", "cannot follow"),
        (b"9" * 1_000_000, "too many"),
    ],
)
def test_what_is_no_list_of_epochs_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(BadEpochs, match=words):
        decode_epochs(data)


def test_any_byte_that_changes_is_noticed_or_means_the_same() -> None:
    data = bytearray(encode_epochs(THREE))
    for at in range(len(data)):
        for value in (0, 0x2D, 0x30, 0x39, 0xFF):
            other = bytes(data[:at]) + bytes([value]) + bytes(data[at + 1 :])
            try:
                found = decode_epochs(other)
            except BadEpochs:
                continue
            assert found == THREE


@pytest.mark.parametrize(
    ("own", "own_end", "other", "other_end", "point"),
    [
        (THREE, 1000, THREE, 1000, 1000),
        (THREE, 950, THREE, 1000, 950),  # behind: nothing to cut
        (THREE, 1000, THREE, 950, 950),
        (THREE[:2], 1000, THREE, 2000, 900),  # a former master's tail
        (THREE, 950, (*THREE[:2], Epoch(7, 850)), 2000, 850),
        ((Epoch(1, 0), Epoch(2, 500)), 600, (Epoch(1, 0), Epoch(3, 500)), 600, 500),
        ((Epoch(1, 0), Epoch(2, 500)), 600, (Epoch(1, 0), Epoch(3, 400)), 600, 400),
        ((Epoch(1, 0), Epoch(2, 400)), 600, (Epoch(1, 0), Epoch(3, 500)), 600, 400),
        ((Epoch(5, 0),), 600, THREE, 2000, None),
        ((), 600, THREE, 2000, None),
        (THREE, 700, (Epoch(1, 0), Epoch(5, 700)), 700, 700),  # nothing was written in epoch 4
        ((Epoch(1, 0),), 600, (Epoch(1, 0), Epoch(3, 0)), 0, 0),  # a tail, and an empty log
        ((Epoch(1, 0),), 600, (Epoch(1, 0), Epoch(3, 0)), 900, 0),
        ((Epoch(1, 0), Epoch(3, 700)), 600, (Epoch(3, 700), Epoch(4, 800)), 900, None),
        ((Epoch(3, 700),), 700, (Epoch(3, 700), Epoch(4, 800)), 900, 700),
    ],
)
def test_up_to_where_two_logs_are_the_same(own, own_end, other, other_end, point) -> None:
    assert epochs.consistent_point(own, own_end, other, other_end) == point


def test_an_epoch_begins_where_the_log_ends_and_empty_ones_go() -> None:
    assert epochs.begin_epoch(THREE, 8, 900) == (*THREE[:2], Epoch(8, 900))
    assert epochs.begin_epoch(THREE, 8, 901) == (*THREE, Epoch(8, 901))
    with pytest.raises(BadEpochs, match="cannot follow"):
        epochs.begin_epoch(THREE, 6, 901)
    many = tuple(Epoch(one, one) for one in range(1, EPOCHS_MAX + 1))
    assert len(epochs.begin_epoch(many, EPOCHS_MAX + 1, 1 << 40)) == EPOCHS_MAX
    with pytest.raises(BadEpochs, match="more than"):
        check((*many, Epoch(1 << 30, 1 << 40)))


def test_an_empty_log_keeps_its_first_epoch() -> None:
    """What a former master has of that epoch alone is a tail then, and it knows that it is."""
    first = Epoch(1, 0)
    assert epochs.begin_epoch((first,), 2, 0) == (first, Epoch(2, 0))
    assert epochs.begin_epoch((first, Epoch(2, 0)), 3, 0) == (first, Epoch(3, 0))
    assert epochs.begin_epoch((first, Epoch(2, 500)), 3, 0) == (first, Epoch(3, 0))
    assert epochs.begin_epoch((Epoch(2, 500),), 3, 0) == (Epoch(3, 0),)
    assert epochs.begin_epoch((first,), 2, 1) == (first, Epoch(2, 1))
    with planted(BY_TESTS["switch-first-epoch-forgotten"]):
        assert epochs.begin_epoch((first,), 2, 0) == (Epoch(2, 0),)


class Group:
    """Three logs; a message is its epoch and a number of its own, and takes one position."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.logs: list[list[tuple[int, int]]] = [[], [], []]
        self.epochs: list[tuple[Epoch, ...]] = [(), (), ()]
        self.epoch = self.number = 0

    def lead(self) -> None:
        """Have one be master for a while: it appends, and some follow as far as they come."""
        self.epoch += 1
        master = self.rng.randrange(3)
        log = self.logs[master]
        self.epochs[master] = epochs.begin_epoch(self.epochs[master], self.epoch, len(log))
        for _ in range(self.rng.randrange(6)):
            for _ in range(self.rng.randrange(4)):
                self.number += 1
                log.append((self.epoch, self.number))
            slave = self.rng.randrange(3)
            if slave != master:
                self.follow(slave, master)

    def follow(self, slave: int, master: int) -> None:
        mine, its = self.logs[slave], self.logs[master]
        if mine:
            point = epochs.consistent_point(
                self.epochs[slave], len(mine), self.epochs[master], len(its)
            )
            same = next(
                (n for n, (a, b) in enumerate(zip(mine, its, strict=False)) if a != b),
                min(len(mine), len(its)),
            )
            assert point is not None or not same, "they share a beginning"
            assert (point or 0) <= same, "what is kept differs"
            assert (point or 0) == same, "what is cut was the same"
            del mine[same:]
        self.epochs[slave] = self.epochs[master]
        mine += its[len(mine) : len(mine) + self.rng.randrange(5)]


def campaign(seeds: int) -> None:
    for seed in range(seeds):
        group = Group(seed)
        for _ in range(12):
            group.lead()


def test_logs_are_cut_exactly_where_they_begin_to_differ() -> None:
    campaign(1_000)


@pytest.mark.parametrize(
    "bug",
    [
        BY_TESTS["switch-empty-epochs-count"], BY_TESTS["switch-tail-kept"],
        BY_TESTS["switch-longer-epoch-counts"],
    ],
    ids=lambda bug: bug.name,
)  # fmt: skip
def test_planted_logs_are_cut_elsewhere(bug: Mutant) -> None:
    with planted(bug), pytest.raises((AssertionError, BadEpochs)):
        campaign(1_000)


def test_epochs_are_durable_when_they_are_saved_and_damage_ends_the_start() -> None:
    disk = SimDisk(SplitRng(1))
    disk.make_directories("store")
    file = EpochFile("store", disk)
    file.load()
    assert file.epochs == ()
    file.begin(3, 0)
    file.begin(5, 80)
    again = EpochFile("store", disk)
    again.load()
    assert again.epochs == (Epoch(3, 0), Epoch(5, 80))
    with pytest.raises(FatalError, match="other controllers"):
        again.begin(5, 90)
    disk.replace(again.path, b"nonsense")
    with pytest.raises(FatalError, match="is damaged"):
        EpochFile("store", disk).load()


def test_an_epoch_is_on_the_disk_when_it_has_begun() -> None:
    def survives() -> bool:
        disk = SimDisk(SplitRng(1))
        disk.make_directories("store")
        file = EpochFile("store", disk)
        file.begin(3, 0)
        return disk.durable(file.path) == encode_epochs((Epoch(3, 0),))

    assert survives()
    with planted(BY_TESTS["switch-epoch-not-on-disk"]):
        assert not survives()


def test_what_begins_at_the_end_says_nothing_of_the_log() -> None:
    assert clip(THREE, 900) == THREE[:2]
    assert clip(THREE, 0) == ()
