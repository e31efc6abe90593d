"""Both sides of the HA stream where controllers say who is master; wires are fake, logs real."""

from __future__ import annotations

import errno
import os
import random
import struct
from typing import TYPE_CHECKING

import pytest

from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.errors import FatalError
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.ha.channel import SealedChannel
from store.ha.codec import BadStream
from store.ha.config import HaConfig
from store.ha.intake import DiskFull
from store.ha.switch.codec import (
    EPOCH,
    HEADER,
    WELCOME,
    HelloDecoder,
    Welcome,
    WelcomeDecoder,
    encode_hello,
    encode_report,
    encode_welcome,
)
from store.ha.switch.epoch_file import EpochFile
from store.ha.switch.epochs import Epoch
from store.ha.switch.in_sync import InSync
from store.ha.switch.logs import SwitchMasterLog, SwitchSlaveLog
from store.ha.switch.master import SwitchHaMaster, SwitchSlaveLink
from store.ha.switch.slave import Place, Surplus, SwitchHaSlave
from store.limits import HA_TRANSFER_BYTES_MAX
from tests.unit.store.ha.test_sides import Heard, Wire, config, door_of, fail, put

if TYPE_CHECKING:
    from pathlib import Path

WELCOMED = Welcome(900, 6, (Epoch(1, 0), Epoch(6, 700)))


def pieces(data: bytes, most: int) -> list[bytes]:
    rng, found = random.Random(most), []
    while data:
        size = rng.randint(1, most)
        found.append(data[:size])
        data = data[size:]
    return found


@pytest.mark.parametrize("most", [1, 5, 40, 1000])
def test_what_a_master_says_comes_out_however_it_is_cut(most: int) -> None:
    stream = b"".join((
        encode_welcome(WELCOMED), HEADER.pack(2, 5, 100, 6, 700, 90), b"abcde",
        HEADER.pack(2, 0, 105, 6, 700, 105), HEADER.pack(2, 3, 105, 6, 700, 108), b"fgh",
    ))  # fmt: skip
    welcomed, confirmed, found, beats = [], [], b"", 0
    decoder = WelcomeDecoder(welcomed.append, lambda *told: confirmed.append(told))
    for chunk in pieces(stream, most):
        for position, data in decoder.feed(chunk):
            assert position == 100 + len(found)
            found += data
            beats += not len(data)
    assert (found, beats) == (b"abcdefgh", 1)
    assert welcomed == [WELCOMED]
    assert confirmed == [(6, 90), (6, 105), (6, 108)]


@pytest.mark.parametrize("most", [1, 5, 1000])
def test_what_a_slave_says_comes_out_however_it_is_cut(most: int) -> None:
    stream = encode_hello(3) + b"".join(map(encode_report, (0, 7, 7, 900)))
    decoder = HelloDecoder()
    found = [decoder.feed(chunk) for chunk in pieces(stream, most)]
    assert decoder.slave_id == 3
    assert [one for one in found if one is not None][-1] == 900


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        (struct.pack(">qq", 0, 0), "enableControllerMode"),  # a slave of the other kind
        (struct.pack(">ihhq", 1, 0, 0, 0), "enableControllerMode"),
        (encode_hello(1) + struct.pack(">iq", 1, 5), "cannot have"),
        (encode_hello(1) + struct.pack(">iq", 2, -1), "cannot have"),
        (encode_hello(1) + encode_report(9) + encode_report(8), "cannot have"),
    ],
)
def test_a_slave_that_says_what_cannot_be_is_refused(stream: bytes, words: str) -> None:
    with pytest.raises(BadStream, match=words):
        HelloDecoder().feed(stream)


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        (struct.pack(">qi", 100, 50) + b"x" * 20, "a controller has elected"),  # of the other kind
        (WELCOME.pack(1, 11, 0, 1), "a controller has elected"),
        (WELCOME.pack(1, -12, 0, 1), "a controller has elected"),
        (WELCOME.pack(1, 2**30, 0, 1), "a controller has elected"),
        (WELCOME.pack(1, 0, 0, 1), "no such epoch"),
        (WELCOME.pack(1, 12, 0, 2) + EPOCH.pack(1, 0), "no such epoch"),
        (WELCOME.pack(1, 24, 9, 1) + EPOCH.pack(2, 0) + EPOCH.pack(1, 0), "cannot follow"),
        (encode_welcome(WELCOMED) + HEADER.pack(1, 0, 0, 6, 0, 0), "no transfer has"),
        (encode_welcome(WELCOMED) + HEADER.pack(2, -1, 0, 6, 0, 0), "no transfer has"),
        (
            encode_welcome(WELCOMED) + HEADER.pack(2, HA_TRANSFER_BYTES_MAX + 1, 0, 6, 0, 0),
            "no transfer has",
        ),
    ],
)
def test_a_master_that_says_what_cannot_be_is_refused(stream: bytes, words: str) -> None:
    decoder = WelcomeDecoder(lambda _: None, lambda *_: None)
    with pytest.raises(BadStream, match=words):
        list(decoder.feed(stream))


class Slave:
    """A slave with a log of some messages, written in epochs 1 and 2."""

    def __init__(self, path: Path, messages: int = 4, epoch: int = 3) -> None:
        log = SwitchMasterLog(
            config(path / "log"), InSync(9, 1_000), disk=RealDisk(), clock=SystemClock(),
            on_fatal=fail,
        )  # fmt: skip
        log.open()
        self.ends = []
        for number in range(messages):
            put(log, b"message %d" % number)
            self.ends.append(log.next_position)
        log._segments.close()
        self.log = SwitchSlaveLog(
            config(path / "log"), disk=RealDisk(), clock=SystemClock(), on_fatal=fail
        )
        self.log.open()
        self.log._user = Heard()
        self.log._running = True
        self.epochs = EpochFile(str(path), RealDisk())
        self.epochs.save((Epoch(1, 0), Epoch(2, self.ends[1])))
        self.cuts: list[int] = []
        self.side = SwitchHaSlave(
            HaConfig(), self.log, SystemClock(), door_of("1"), Place(2, epoch, self.epochs),
            self.cuts.append,
        )  # fmt: skip

    def welcome(self, *epochs: tuple[int, int], end: int) -> None:
        found = tuple(Epoch(*one) for one in epochs)
        self.side.on_welcome(Welcome(end, found[-1].epoch, found))


def test_a_slave_takes_over_the_epochs_of_the_right_master(tmp_path: Path) -> None:
    slave = Slave(tmp_path)
    two, four = slave.ends[1], slave.ends[3]
    slave.welcome((1, 0), (2, two), (3, four), end=four + 500)
    again = EpochFile(str(tmp_path), RealDisk())
    again.load()
    assert again.epochs == (Epoch(1, 0), Epoch(2, two), Epoch(3, four))


def stale(slave: Slave) -> None:
    slave.welcome((1, 0), (2, slave.ends[1]), end=slave.ends[3] + 500)


def test_a_slave_refuses_the_master_of_another_epoch(tmp_path: Path) -> None:
    slave = Slave(tmp_path)
    with pytest.raises(BadStream, match="master of epoch 2, and that of epoch 3"):
        stale(slave)
    with pytest.raises(BadStream, match="sends for epoch 2"):
        slave.side.on_confirmed(2, 100)
    with planted(BY_TESTS["switch-stale-epoch-followed"]):
        stale(slave)


def test_a_slave_that_knows_a_later_epoch_takes_over_no_earlier_one(tmp_path: Path) -> None:
    slave = Slave(tmp_path, epoch=1)
    before = slave.epochs.epochs
    with pytest.raises(BadStream, match="master of epoch 1, and this log knows 2"):
        slave.welcome((1, 0), end=slave.ends[3])
    with planted(BY_TESTS["switch-earlier-epoch-followed"]), pytest.raises(Surplus):
        slave.welcome((1, 0), end=slave.ends[3])  # and would cut off what is of epoch 2
    assert slave.epochs.epochs == before


class FullDisk(RealDisk):
    """A disk without space for another file."""

    def replace(self, path: str, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "no space left", path)


def test_a_disk_that_is_full_when_a_master_comes_is_waited_for(tmp_path: Path) -> None:
    slave = Slave(tmp_path)
    slave.epochs._disk = FullDisk()
    with pytest.raises(DiskFull):
        newer(slave)
    with planted(BY_TESTS["switch-full-disk-ends-the-slave"]), pytest.raises(FatalError):
        newer(slave)
    slave.epochs._disk = RealDisk()
    newer(slave)
    assert slave.epochs.epochs[-1].epoch == 3


def newer(slave: Slave) -> None:
    slave.welcome((1, 0), (2, slave.ends[1]), (3, slave.ends[3]), end=slave.ends[3])


def surplus(slave: Slave) -> None:
    """Welcome by a master that took over when it had two messages."""
    slave.welcome((1, 0), (3, slave.ends[1]), end=slave.ends[3])


def test_what_the_master_has_not_is_found_and_nothing_is_written_before(tmp_path: Path) -> None:
    slave = Slave(tmp_path)
    before = slave.epochs.epochs
    with pytest.raises(Surplus) as raised:
        surplus(slave)
    assert raised.value.position == slave.ends[1]
    assert slave.epochs.epochs == before
    with planted(BY_TESTS["switch-surplus-not-seen"]):
        surplus(slave)
    assert slave.epochs.epochs != before


@pytest.mark.parametrize("end", [0, 500])
def test_a_log_that_is_a_tail_from_its_beginning_goes_whole(tmp_path: Path, end: int) -> None:
    """A slave that had got nothing was elected: its log began after the epoch that both know."""
    slave = Slave(tmp_path)
    with pytest.raises(Surplus) as raised:
        slave.welcome((1, 0), (3, 0), end=end)
    assert raised.value.position == 0
    slave.side.on_confirmed(3, slave.ends[0])
    with pytest.raises(BadStream, match="it was acknowledged"):
        slave.welcome((1, 0), (3, 0), end=end)


def test_what_was_acknowledged_is_never_cut(tmp_path: Path) -> None:
    slave = Slave(tmp_path)
    slave.side.on_confirmed(3, slave.ends[2])
    assert slave.log.committed_position == slave.ends[2]
    with pytest.raises(BadStream, match="it was acknowledged") as raised:
        surplus(slave)
    assert not isinstance(raised.value, Surplus)
    with (
        planted(BY_TESTS["switch-acknowledged-cut-off"]),
        pytest.raises(Surplus),
    ):
        surplus(slave)


def test_another_groups_log_is_left_alone(tmp_path: Path) -> None:
    slave = Slave(tmp_path)
    with pytest.raises(BadStream, match="no epoch in common"):
        slave.welcome((3, 0), end=5_000)
    older = Slave(tmp_path / "older")
    older.epochs.save(())
    with pytest.raises(BadStream, match=r"from before there was a controller.*-b 2 --accept-loss"):
        older.welcome((3, 0), end=5_000)
    empty = Slave(tmp_path / "empty", messages=2)
    empty.log._segments.close()
    assert not slave.cuts


def test_the_log_is_cut_when_it_is_opened_and_goes_on_there(tmp_path: Path) -> None:
    slave = Slave(tmp_path)
    slave.log._segments.close()
    for _ in range(2):  # the second time there is nothing behind it
        log = SwitchSlaveLog(
            config(tmp_path / "log"), disk=RealDisk(), clock=SystemClock(), on_fatal=fail
        )
        log.cut_from = slave.ends[1]
        log.open()
        assert log.next_position == slave.ends[1]
        assert log.committed_position == 0
        log._segments.close()


def counted(slave: Slave) -> tuple[int, int]:
    """Return what counts before and after the master has said what is confirmed."""
    slave.log._tell()
    before = slave.log.committed_position
    slave.side.on_confirmed(3, slave.ends[1])
    return before, slave.log.committed_position


def test_a_slave_counts_what_is_confirmed_and_no_more(tmp_path: Path) -> None:
    slave = Slave(tmp_path / "right")
    assert counted(slave) == (0, slave.ends[1])
    with planted(BY_TESTS["switch-read-before-it-counts"]):
        slave = Slave(tmp_path / "planted")
        assert counted(slave)[0] == slave.ends[3]


def running_log(tmp_path: Path, in_sync: InSync) -> SwitchMasterLog:
    log = SwitchMasterLog(
        config(tmp_path), in_sync, disk=RealDisk(), clock=SystemClock(), on_fatal=fail
    )
    log.open()
    log._user = Heard()
    log._running = True
    return log


def test_a_slave_that_says_another_id_than_it_has_proven_is_refused(tmp_path: Path) -> None:
    in_sync = InSync(1, 1_000)
    in_sync.on_decided((1, 2), 1)
    log = running_log(tmp_path, in_sync)
    key = os.urandom(32)
    master = SwitchHaMaster(
        HaConfig(), log, SystemClock(), ("127.0.0.1", 0), door_of("0", key), in_sync
    )
    master.epochs = (Epoch(4, 0),)
    master._server = object()  # type: ignore[assignment]  # it listens

    def is_closed(proven: str, said: int) -> bool:
        side = SealedChannel(door_of(proven, key).dial("0"))
        link, wire = master.make_link(), Wire()
        link.connection_made(wire)  # type: ignore[arg-type]  # stands for one
        link.take_bytes(side.greeting)
        _, proof = side.take(wire.sent)
        link.take_bytes(proof + side.wrap(encode_hello(said)))
        return wire.closed

    assert not is_closed("2", 2)
    assert is_closed("3", 2)
    assert in_sync.follows(2)
    with planted(BY_TESTS["switch-any-id-is-believed"]):
        assert not is_closed("3", 2)


class Clock:
    """A clock that is set."""

    ms = 0

    def monotonic_ms(self) -> int:
        return self.ms


def wanted_where_nothing_was_sent(tmp_path: Path) -> frozenset[int] | None:
    """Return the set that a master asks for whose slave has said for long that it has nothing."""
    in_sync, clock = InSync(1, 15_000), Clock()
    in_sync.on_decided((1, 2), 1)
    log = running_log(tmp_path, in_sync)
    address = ("127.0.0.1", 0)
    master = SwitchHaMaster(HaConfig(), log, clock, address, door_of("1"), in_sync)  # type: ignore[arg-type]
    master.epochs = (Epoch(1, 0),)
    master._server = object()  # type: ignore[assignment]  # it listens
    link = master.make_link()
    link.connection_made(Wire())  # type: ignore[arg-type]  # stands for one
    link.take_bytes(encode_hello(2) + encode_report(0))
    for clock.ms in range(0, 60_000, 5_000):
        link.take_bytes(encode_report(0))
    return in_sync.wanted(log.committed_position, clock.ms)


def test_a_slave_of_an_empty_log_stays_in_sync(tmp_path: Path) -> None:
    assert wanted_where_nothing_was_sent(tmp_path / "a") is None
    with planted(BY_TESTS["switch-nothing-is-not-confirmed"]):
        assert wanted_where_nothing_was_sent(tmp_path / "b") == {1}


def test_a_master_counts_what_a_known_slave_confirms_in_its_epoch(tmp_path: Path) -> None:
    in_sync = InSync(1, 1_000)
    in_sync.on_decided((1, 2), 1)
    log = running_log(tmp_path, in_sync)
    master = SwitchHaMaster(HaConfig(), log, SystemClock(), ("127.0.0.1", 0), door_of("1"), in_sync)
    master.epochs = (Epoch(4, 0),)
    master._server = object()  # type: ignore[assignment]  # it listens
    put(log, b"first")
    end = log.next_position
    link, wire = master.make_link(), Wire()
    assert isinstance(link, SwitchSlaveLink)
    link.connection_made(wire)  # type: ignore[arg-type]  # stands for one
    link.take_bytes(encode_hello(2))
    assert wire.sent == encode_welcome(Welcome(end, 4, master.epochs))
    wire.sent = b""
    link.take_bytes(encode_report(0))
    assert wire.sent.startswith(HEADER.pack(2, end, 0, 4, 0, 0))
    assert log.committed_position == 0
    link.take_bytes(encode_report(end))
    assert log.committed_position == end
    other, wire = master.make_link(), Wire()
    other.connection_made(wire)  # type: ignore[arg-type]  # stands for one
    other.take_bytes(encode_hello(1))
    assert wire.closed, "it has the master's own id"
    again, wire = master.make_link(), Wire()
    again.connection_made(wire)  # type: ignore[arg-type]  # stands for one
    again.take_bytes(encode_hello(2))
    assert not wire.closed
    assert in_sync.limit(end) == 0, "it may have lost it since"
    master.on_report()
    assert in_sync.limit(end) == 0, "the connection before says nothing any more"
    link.connection_lost(None)
    with planted(BY_TESTS["switch-closed-link-confirms"]):
        again.take_bytes(encode_report(0))
        again.take_bytes(encode_report(end))
        third = master.make_link()
        third.connection_made(Wire())  # type: ignore[arg-type]  # stands for one
        third.take_bytes(encode_hello(2))
        master.on_report()
        assert in_sync.limit(end) == end
    assert in_sync.wanted(end, 10**12) == {1}
    in_sync.on_decided((1,), 2)
    master.drop_outsiders()
    assert not in_sync.follows(2), "what lets it in, it has to confirm over another connection"
