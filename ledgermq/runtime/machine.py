"""What a process is told about the machine it runs on: its number, its memory, its address.

These enter the components as settings (`ClientConfig.process_id`, `BrokerConfig.process_id`,
``source_address``), so that a simulator can give other values.
"""

import os
import socket
from contextlib import suppress
from pathlib import Path


def process_id() -> int:
    """Return the number of this process; ids are made of it."""
    return os.getpid()


def memory_bytes() -> int:
    """Return how much memory there is: the machine's, or less if this process is confined."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):
        found = min(found, int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    return found


def address_towards(host: str, port: int) -> str:
    """Return the local address that faces another one; nothing is sent. Errors: `OSError`."""
    family, kind, protocol, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(target)
        return str(probe.getsockname()[0]).partition("%")[0]
