"""Packed addresses: 4 or 16 address bytes and an int32 port, as message records hold them.

Source: spec/wire.md 4.1 (bornHost, storeHost).
"""

from __future__ import annotations

from typing import Final, Protocol

from ledgermq.remoting.protocol.errors import LocalProtocolError
from ledgermq.remoting.protocol.hosts import pack_host

_KEY: Final = "packed_peer"
_UNKNOWN: Final = b"\x00" * 8


class PeerConnection(Protocol):
    """What is needed of a connection to know its peer."""

    @property
    def remote(self) -> tuple[str, int]:
        """Address and port of the peer."""

    @property
    def state(self) -> dict[str, object]:
        """Attachments."""


def packed_peer(connection: PeerConnection) -> bytes:
    """Return the packed address of a connection's peer, remembered with the connection."""
    packed = connection.state.get(_KEY)
    if packed is None:
        host, port = connection.remote
        try:
            packed = pack_host(host, port)
        except LocalProtocolError:
            packed = _UNKNOWN
        connection.state[_KEY] = packed
    assert isinstance(packed, bytes), packed
    return packed
