"""Free loopback ports for the processes that a benchmark starts."""

import socket

FIRST_PORT = 20_000
LAST_PORT = 32_000  # below the kernel's ephemeral range, so that clients do not take them


def free_port_block(count: int) -> int:
    """Return the first of ``count`` consecutive loopback ports that are free now.

    Raises:
        OSError: no such block exists.
    """
    for base in range(FIRST_PORT, LAST_PORT, 97):
        if all(_is_free(base + i) for i in range(count)):
            return base
    raise OSError(f"no {count} consecutive free loopback ports")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
