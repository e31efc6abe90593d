"""What a slave remembers of offsets that it gave its master, and what it believes of them."""

from __future__ import annotations

import msgspec
import pytest

from broker.slave_sync.service import NOBODY, QUIET_TRIES
from ledgermq.remoting.protocol.command import RemotingCommand
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.broker.slave_bench import KEY, MASTER, Master, Slave


def started_anew(slave: Slave, master: Master) -> Slave:
    """Return a slave with what another one has on disk."""
    files, again = slave.state(), Slave(master)
    for name, table in again.tables.state.tables.items():
        table.restore(files[name])
    return again


def given_behind_a_restart(*, is_told: bool) -> list[tuple[str, int, int]]:
    """Return what a master is given, whose slave starts anew after 9, and then takes 12."""
    master = Master()
    slave = Slave(master)
    slave.follow()
    slave.own.commit("g", "orders", 0, 9)
    slave.follow()
    if is_told:
        slave.own.commit("g", "orders", 0, 10)
        slave.follow()
    slave.own.commit("g", "orders", 0, 12)
    again = started_anew(slave, master)
    assert again.offset() == 12
    again.follow(times=2)
    return master.commits


def test_a_slave_that_starts_anew_knows_what_it_gave():
    assert given_behind_a_restart(is_told=False) == [(KEY, 0, 9), (KEY, 0, 12)]
    assert given_behind_a_restart(is_told=True) == [(KEY, 0, 9), (KEY, 0, 10), (KEY, 0, 12)]
    with planted(BY_TESTS["given-offset-forgotten-by-a-restart"]):
        assert given_behind_a_restart(is_told=False) == [(KEY, 0, 9)]


def test_a_row_of_before_is_read_and_one_without_more_is_written_so():
    slave = Slave(Master())
    slave.follow()
    slave.own.commit("g", "orders", 0, 9)
    rows = msgspec.json.decode(slave.own.snapshot())["offsetTable"]
    assert rows == {KEY: {"0": [9, 5]}}
    slave.follow()
    rows = msgspec.json.decode(slave.own.snapshot())["offsetTable"]
    assert rows == {KEY: {"0": [9, 5, 9]}}
    slave.own.restore(b'{"offsetTable": {"orders@g": {"0": [11, 5]}}}')
    assert slave.offset() == 11


def offset_after_a_reset(to: int) -> tuple[int, list[tuple[str, int, int]]]:
    """Return offset and gifts of a group that is moved at the master once that told a gift."""
    master = Master()
    slave = Slave(master)
    slave.follow()
    for offset in (9, 12):
        slave.own.commit("g", "orders", 0, offset)
        slave.follow()
    slave.own.commit("g", "orders", 0, 14)
    master.offsets = {KEY: {0: to}}
    slave.follow(times=2)
    return slave.offset(), master.commits[2:]


@pytest.mark.parametrize("to", [5, 9])
def test_a_reset_to_what_was_before_is_the_last_word(to):
    if to == 5:
        assert offset_after_a_reset(to) == (to, [])
        with planted(BY_TESTS["reset-to-what-was-before-undone"]):
            assert offset_after_a_reset(to) == (14, [(KEY, 0, 14)])
    else:  # nobody has heard yet that it has the last one: it may have lost that
        assert offset_after_a_reset(to) == (14, [(KEY, 0, 14)])


def offset_and_gifts(said: int) -> tuple[int, list[tuple[str, int, int]]]:
    master = Master()
    slave = Slave(master)
    slave.follow()
    slave.own.commit("g", "orders", 0, 9)
    master.offsets = {KEY: {0: said}}
    answers = master.offset
    master.offset = lambda **asked: answers(**asked) if master.commits else master_says(22)
    slave.follow(times=2)
    return slave.offset(), master.commits


def master_says(code: int) -> RemotingCommand:
    return RemotingCommand(code=code)


def test_a_master_that_says_minus_one_has_no_offset():
    assert offset_and_gifts(-1) == (9, [(KEY, 0, 9)])
    with planted(BY_TESTS["offset-of-minus-one-believed"]):
        assert offset_and_gifts(-1)[1] == []


def test_minus_one_is_not_taken_over():
    master = Master()
    slave = Slave(master)
    slave.follow()
    master.offsets = {KEY: {0: -1}}
    slave.follow(times=3)
    assert slave.offset() == 5


def test_a_lost_offset_that_the_slave_has_gone_back_to_is_given():
    master = Master()
    slave = Slave(master)
    slave.follow()
    slave.own.commit("g", "orders", 0, 9)
    slave.own.commit("g", "orders", 0, 5)
    master.offsets = {}
    slave.follow(times=2)
    assert master.commits == [(KEY, 0, 5)]


def test_a_slave_whose_master_nobody_has_told_yet_says_so_after_a_moment(caplog):
    slave = Slave(Master())
    slave.followed = ""
    slave.follow(times=QUIET_TRIES)
    assert "tables_do_not_follow" not in caplog.text
    slave.follow(times=3)
    assert caplog.text.count("event=tables_do_not_follow master=- reason=" + NOBODY) == 1
    slave.followed = MASTER
    slave.follow()
    slave.followed = ""
    slave.follow(times=2)
    assert caplog.text.count("event=tables_do_not_follow") == 2, "once it had one, at once"
