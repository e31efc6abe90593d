"""Addresses packed as in message records and ids: 4 or 16 bytes, then the port in 4 bytes."""

import ipaddress
from functools import lru_cache
from typing import Final

from ledgermq.remoting.protocol.errors import LocalProtocolError, RemoteProtocolError

_PORT_MAX: Final = 65535
_PORT_DIGITS_MAX: Final = 5
_SHOWN_MAX: Final = 80


def is_port(text: str) -> bool:
    """Tell whether a text is the number of a port that can be dialled."""
    is_number = text.isascii() and text.isdigit() and len(text) <= _PORT_DIGITS_MAX
    return is_number and 0 < int(text) <= _PORT_MAX


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
        raise LocalProtocolError(f"{address}:{port} is not an IP address with a port") from error


def are_of_two_kinds(host: str, other: str) -> bool:
    """Tell whether one is an address of IPv4 and the other one of IPv6; of a name it is not known.

    A socket of this product that listens for one kind is not reached by the other.
    """
    try:
        return len(pack_host(host, 0)) != len(pack_host(other, 0))
    except LocalProtocolError:
        return False


@lru_cache(maxsize=4096)
def unpack_host(packed: bytes) -> tuple[str, int]:
    """Return address and port of a packed host. Errors: `RemoteProtocolError` for other widths."""
    if len(packed) not in (8, 20):
        raise RemoteProtocolError(f"a packed host has 8 or 20 bytes, not {len(packed)}")
    return str(ipaddress.ip_address(packed[:-4])), int.from_bytes(packed[-4:], "big")


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of ``host:port`` or ``[v6]:port``.

    Errors: `LocalProtocolError` when there is no port, it is out of range, or no resolver takes a
    host of that name.
    """
    host, _, port = text.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    is_number = port.isascii() and port.isdigit() and len(port) <= _PORT_DIGITS_MAX
    if not is_number or int(port) > _PORT_MAX or not _is_host(host):
        raise LocalProtocolError(f"{text[:_SHOWN_MAX]!r} is not host:port")
    return host, int(port)


def _is_host(host: str) -> bool:
    """Tell whether a resolver can be asked for a name: others it does not refuse, it raises."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return bool(host) and host.isprintable()


def party_of(address: str) -> str:
    """Return by what name an address shares with others: itself, of IPv6 its network of 64 bits.

    Whoever has one IPv6 address mostly has all of its network, and could be as many as they like.
    """
    return address if ":" not in address else _network_of(address)


@lru_cache(maxsize=4096)
def _network_of(address: str) -> str:
    try:
        found = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(found) >> 64 << 64, 64)))


def is_loopback(host: str) -> bool:
    """Tell whether an address is one of this machine that no other reaches."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host == "localhost"
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
