"""Addresses packed as in message records and ids: 4 or 16 bytes, then the port in 4 bytes."""

import ipaddress
from functools import lru_cache

from ledgermq.remoting.protocol.errors import LocalProtocolError, RemoteProtocolError


@lru_cache(maxsize=4096)
def pack_host(address: str, port: int) -> bytes:
    """Return the packed form of a literal IPv4 or IPv6 address and a port.

    Errors: `LocalProtocolError` for a host name or a port out of range.
    """
    try:
        packed = ipaddress.ip_address(address.partition("%")[0])
        if isinstance(packed, ipaddress.IPv6Address) and packed.ipv4_mapped is not None:
            packed = packed.ipv4_mapped
        return packed.packed + port.to_bytes(4, "big")
    except (ValueError, OverflowError) as error:
        raise LocalProtocolError(f"{address}:{port} is no IP address with a port") from error


@lru_cache(maxsize=4096)
def unpack_host(packed: bytes) -> tuple[str, int]:
    """Return address and port of a packed host. Errors: `RemoteProtocolError` for other widths."""
    if len(packed) not in (8, 20):
        raise RemoteProtocolError(f"a packed host has 8 or 20 bytes, not {len(packed)}")
    return str(ipaddress.ip_address(packed[:-4])), int.from_bytes(packed[-4:], "big")


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of ``host:port`` or ``[v6]:port``.

    Errors: `LocalProtocolError` when there is no port or it is out of range.
    """
    host, separator, port = text.strip().rpartition(":")
    if not separator or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise LocalProtocolError(f"{text!r} is not host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def is_loopback(host: str) -> bool:
    """Tell whether an address is one of this machine that no other reaches."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host == "localhost"
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
