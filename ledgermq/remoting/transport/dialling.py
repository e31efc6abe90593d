"""Connections that are dialled: names are looked up before, so that whoever dials can give up.

uvloop looks a name up in a future of its own and awaits it with others. A dial that is cancelled
meanwhile, by its time limit or because the peer is none any more, leaves that future behind; when
the lookup then fails nobody takes the error, and the loop tells of it as uncaught. An address that
is none leads there: a forged route, a learner with a host that nobody knows.
"""

import asyncio
import contextlib
import ipaddress
import socket
import ssl
from collections.abc import Callable
from typing import Any, TypeVar

Made = TypeVar("Made", bound=asyncio.BaseProtocol)


async def dial(
    make: Callable[[], Made],
    host: str,
    port: int,
    *,
    source_address: str | None = None,
    tls: ssl.SSLContext | None = None,
) -> tuple[asyncio.Transport, Made]:
    """Connect to the first address of a host that takes it; it may be cancelled at any time.

    ``source_address`` is the local one. Errors: `OSError`, `UnicodeError` for what is no name.
    """
    loop = asyncio.get_running_loop()
    local = (source_address, 0) if source_address else None
    # A simulated network knows no TLS, nor its arguments.
    secure: dict[str, Any] = {} if tls is None else {"ssl": tls, "server_hostname": host}
    failure: OSError | None = None
    for address in await _addresses(host, port):
        try:
            return await loop.create_connection(make, address, port, local_addr=local, **secure)
        except ssl.SSLError:
            raise
        except OSError as error:
            failure = failure or error
    raise failure or OSError(f"{host} has no address")


def give_up_after(transport: asyncio.BaseTransport, timeout_ms: int) -> None:
    """Have a connection end whose peer acknowledges nothing for so long.

    A process that stands still acknowledges by its kernel, as long as that has room.
    """
    sock = transport.get_extra_info("socket")
    if sock is not None and hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        with contextlib.suppress(OSError):  # It may be closed already.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout_ms)


async def _addresses(host: str, port: int) -> list[str]:
    """Return the addresses of a name; an address is its own. Errors: `OSError`, `UnicodeError`."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        loop = asyncio.get_running_loop()
        # Awaited alone, so that it is cancelled along with the dial.
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(str(address[0]) for _, _, _, _, address in found))
    return [host]
