"""What a process is told about the machine it runs on: its number, its address towards others.

These enter the components as settings (`ClientConfig.process_id`, `BrokerConfig.process_id`,
``source_address``), so that a simulator can give other values.
"""

import os
import socket


def process_id() -> int:
    """Return the number of this process; ids are made of it."""
    return os.getpid()


def address_towards(host: str, port: int) -> str:
    """Return the local address that faces another one; nothing is sent. Errors: `OSError`."""
    family, kind, protocol, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(target)
        return str(probe.getsockname()[0]).partition("%")[0]
