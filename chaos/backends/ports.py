"""Ports of loopback for the servers of a run, taken so that nobody else gets them.

A port that is only found free may be gone when its server starts: the kernel hands it to any
client, and another run finds it free as well. So a port is chosen below those that the kernel
hands out, and is held by a lock on its byte of one file per user: whoever uses this module gets
another one. The kernel lifts the locks when the process ends, however it ends.
"""

import errno
import fcntl
import itertools
import os
import random
import socket
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
FIRST: Final = 12_000
"""Above the usual ports of name servers and brokers."""
LAST: Final = 32_000
EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")

_held: Final[set[int]] = set()
_locks: dict[int, int] = {}
"""The open file of the locks, by process: a forked child holds none of its parent's."""


def take_ports(count: int) -> list[int]:
    """Return ports that are free, one by one, and belong to this process until it ends.

    Errors: `OSError` if there are not enough.
    """
    return list(itertools.chain.from_iterable(_take(1) for _ in range(count)))


def take_port_block(count: int) -> int:
    """Return the first of ``count`` ports in a row, taken as by `take_ports`."""
    return _take(count)[0]


def _take(count: int) -> list[int]:
    for base in _candidates(count):
        block = range(base, base + count)
        if all(map(_take_one, block)):
            return list(block)
    raise OSError(errno.EADDRINUSE, f"no {count} free ports in a row on {HOST}")


def _candidates(count: int) -> Iterable[int]:
    """Return where a block may begin, from a place that differs from call to call."""
    last = min(LAST, _first_ephemeral()) - count
    if last < FIRST:
        return ()
    start = random.randint(FIRST, last)
    return itertools.chain(range(start, last + 1), range(FIRST, start))


def _first_ephemeral() -> int:
    try:
        return int(EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return LAST


def _take_one(port: int) -> bool:
    if port in _held or not _lock(port):
        return False
    if not _is_free(port):
        return False  # the lock is kept: who listens there is likely to stay
    _held.add(port)
    return True


def _lock(port: int) -> bool:
    own = os.getpid()
    if own not in _locks:
        path = Path(tempfile.gettempdir()) / f"ledgermq-ports-{os.getuid()}"
        _locks[own] = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.lockf(_locks[own], fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


def _is_free(port: int) -> bool:
    """Return whether a server may listen, and none does: not on loopback, not on all addresses."""
    for host in (HOST, "0.0.0.0"):  # noqa: S104 - probed, not served
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                return False
    return True
