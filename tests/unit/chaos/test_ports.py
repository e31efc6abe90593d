"""Ports that are taken: below what the kernel hands out, and never given twice."""

import os
import socket
import subprocess
import sys

import pytest

from chaos.backends import ports
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted

OTHER = """
import sys
from chaos.backends import ports
ports.FIRST, ports.LAST = map(int, sys.argv[1:])
print(*ports.take_ports(3))
"""


def taken_by_another(first: int, last: int) -> set[int]:
    """Return what a process of its own takes in a range."""
    words = [sys.executable, "-c", OTHER, str(first), str(last)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return set(map(int, done.stdout.split()))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """A range with few ports, of which three are taken here."""
    base = ports.take_port_block(12)
    ports._held.difference_update(range(base, base + 12))
    monkeypatch.setattr(ports, "FIRST", base)
    monkeypatch.setattr(ports, "LAST", base + 12)
    return base, base + 12


def test_ports_are_below_those_of_clients_and_distinct() -> None:
    found = ports.take_ports(20)
    assert len(set(found)) == 20
    low = int(ports.EPHEMERAL.read_text().split()[0])
    assert all(ports.FIRST <= port < low for port in found)


def test_a_block_is_in_a_row_and_nobody_has_it() -> None:
    base = ports.take_port_block(5)
    assert not set(range(base, base + 5)) & set(ports.take_ports(50))


def test_another_process_does_not_get_what_is_taken_here(few: tuple[int, int]) -> None:
    assert taken_by_another(*few) == set()  # all twelve are locked by this process


def test_ports_without_locks_are_given_twice(few: tuple[int, int]) -> None:
    with planted(HARNESS_BUGS["ports-only-found-free"]):
        mine = set(ports.take_ports(12))
    assert mine == set(range(*few))
    bug = "from mutants.patches import HARNESS_BUGS; HARNESS_BUGS['ports-only-found-free']()\n"
    words = [sys.executable, "-c", bug + OTHER, *map(str, few)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert set(map(int, done.stdout.split())) <= mine
    assert done.stdout.split()


def test_a_port_with_a_listener_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert not ports._take_one(port)


def test_what_is_taken_is_free_again_when_its_process_has_ended(few: tuple[int, int]) -> None:
    os.close(ports._locks.pop(os.getpid()))  # as the kernel does at its end
    assert len(taken_by_another(*few)) == 3
    assert len(taken_by_another(*few)) == 3


def test_too_few_ports_are_an_error(few: tuple[int, int]) -> None:
    with pytest.raises(OSError, match="no 13 free ports"):
        ports.take_port_block(13)
