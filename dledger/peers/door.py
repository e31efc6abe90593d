"""What a member asks of whoever connects to it, and what it shows of itself: see `Mode`."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from enum import Enum
from typing import Final

from dledger.codec.handshake import Acceptor, Dialler, NotProven
from dledger.core.model import NodeId
from ledgermq.remoting.protocol.certificates import BadCertificate, identity_of_uris, node_identity
from ledgermq.remoting.transport.credentials import CredentialStore
from ledgermq.runtime.errors import FatalError

_log: Final = logging.getLogger(__name__)

COMPLAINT_INTERVAL_S: Final = 10.0
COMPLAINTS_PER_INTERVAL: Final = 5
COMPLAINTS_MAX: Final = 256
"""Most others of whom it is remembered when the last line about them was written."""


class Mode(Enum):
    """How members know each other."""

    OPEN = "open"
    """They do not: a member believes everybody who reaches its port."""
    KEY = "key"
    """By a shared key, see `dledger.codec.handshake`."""
    TLS = "tls"
    """By certificates: mutual TLS 1.3."""


class Door:
    """Makes the two sides of a handshake, with the keys and certificates of the moment."""

    def __init__(
        self,
        names: tuple[str, NodeId],
        credentials: CredentialStore,
        make_nonce: Callable[[int], bytes],
    ) -> None:
        """Make it; ``names`` are group and own id."""
        settings = credentials.settings
        self.mode = Mode.OPEN
        if settings.has_certificate:
            self.mode = Mode.TLS
        elif settings.has_key:
            self.mode = Mode.KEY
        self._group, self._self_id = names
        self._credentials = credentials
        self._make_nonce = make_nonce
        self._version = -1
        self._contexts: dict[bool, ssl.SSLContext] = {}
        self._complained: dict[str, tuple[float, int]] = {}
        """Since when, and how many lines, by whom they are about."""

    def refresh(self) -> None:
        """Read what has changed on disk; connections made from now on use it."""
        self._credentials.refresh()

    def accept(self) -> Acceptor:
        """Return the acceptor's half of a handshake with the shared key."""
        return Acceptor(self._credentials.keys, (self._group, self._self_id), self._make_nonce)

    def dial(self, peer: NodeId) -> Dialler:
        """Return the dialler's half."""
        names = (self._group, self._self_id, peer)
        return Dialler(self._credentials.keys[0], names, self._make_nonce(32))

    def context(self, *, is_server: bool) -> ssl.SSLContext:
        """Return what TLS needs. Errors: `NotProven`: the files are not usable now."""
        if self._version != self._credentials.version:
            self._version = self._credentials.version
            self._contexts.clear()
        found = self._contexts.get(is_server)
        if found is None:
            try:
                found = self._credentials.tls_context(is_server=is_server)
            except FatalError as error:
                raise NotProven(error.message) from error
            self._contexts[is_server] = found
        return found

    def member(self, transport: asyncio.BaseTransport) -> NodeId:
        """Return whom the certificate at the other end of a TLS connection names.

        Errors: `NotProven`: it is of another group, or of no member.
        """
        names = transport.get_extra_info("ssl_object").getpeercert().get("subjectAltName", ())
        try:
            identity = identity_of_uris([value for kind, value in names if kind == "URI"])
        except BadCertificate as error:
            raise NotProven(f"its certificate names no member: {error}") from error
        self_id = identity.name.rpartition("/")[2]
        if identity != node_identity(self._group, self_id) or self_id == self._self_id:
            raise NotProven(f"its certificate is that of {identity}, no other member of this group")
        return self_id

    def check(self, transport: asyncio.BaseTransport | None, key: bytes) -> None:
        """See that what a connection was made with counts still: certificate or shared key.

        Errors: `NotProven`: it has expired, or is not valid since the files were exchanged.
        """
        if self.mode is Mode.KEY and key not in self._credentials.keys:
            raise NotProven("its shared key is not set here any more")
        if self.mode is not Mode.TLS or transport is None or transport.is_closing():
            return
        certificate = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        try:
            self._credentials.check(certificate)
        except BadCertificate as error:
            raise NotProven(f"its certificate is not valid any more: {error}") from error

    def complain(self, event: str, who: str, error: Exception) -> None:
        """Write a line about ``who``, if there were not many about it just now."""
        now = asyncio.get_running_loop().time()
        since, lines = self._complained.get(who, (now, 0))
        if now - since >= COMPLAINT_INTERVAL_S:
            since, lines = now, 0
        if len(self._complained) >= COMPLAINTS_MAX:
            self._complained.clear()
        self._complained[who] = since, lines + 1
        if lines >= COMPLAINTS_PER_INTERVAL:
            return
        _log.warning(
            "event=%s %s reason=%r files=%s",
            event, who, str(error) or type(error).__name__,
            ",".join(self._credentials.settings.paths),
        )  # fmt: skip
