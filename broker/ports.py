"""Checks at start that change nothing: are the ports free, is the directory ours.

They run before anything is created or written, so that a wrong start leaves no trace.
"""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING, Final

from remoting.protocol.hosts import parse_address
from runtime.errors import FatalError

if TYPE_CHECKING:
    from runtime.disk import Disk

_PREFIX: Final = "dledger-"


async def check_port_free(key: str, host: str, port: int) -> None:
    """Find out whether ``host:port`` can be listened on.

    Raises:
        FatalError: it cannot; the message names key, host and port.
    """
    loop = asyncio.get_running_loop()
    try:
        probe = await loop.create_server(asyncio.Protocol, host or None, port)
    except OSError as error:
        in_use = error.errno == errno.EADDRINUSE
        why = "is in use by another process" if in_use else str(error)
        raise FatalError(f"{key}: {host}:{port} {why}") from error
    probe.close()
    await probe.wait_closed()


async def check_peer_port_free(address: str) -> None:
    """As `check_port_free` for the own entry of dLegerPeers; "" needs no port."""
    if address:
        host, port = parse_address(address)
        await check_port_free("dLegerPeers", host, port)


def check_directory(disk: Disk, store_path: str, self_id: str) -> None:
    """Find out whether a store directory belongs to another replica.

    Raises:
        FatalError: it holds the log of another replica.
    """
    try:
        names = disk.names(store_path)
    except OSError as error:
        raise FatalError(f"storePathRootDir={store_path}: {error}") from error
    logs = [name for name in names if name.startswith(_PREFIX)]
    if logs and _PREFIX + self_id not in logs:
        owner = logs[0].removeprefix(_PREFIX)
        raise FatalError(
            f"storePathRootDir={store_path} is the directory of replica {owner}, not of {self_id}"
        )
