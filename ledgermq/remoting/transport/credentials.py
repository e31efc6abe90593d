"""Keys and certificates on disk: read at start, and again whenever the files change.

A broker proves with them who it is to its peers and name servers, and tells by them who may speak
to it. What is wrong with a file at start is fatal; later it is told in one line, and what was read
before goes on to count. Whoever has them calls `CredentialStore.refresh` now and then.

Knows no protocol; what a signature or a handshake does with them is said there.
"""

from __future__ import annotations

import codecs
import dataclasses
import logging
import pathlib
import ssl
from typing import TYPE_CHECKING, Final

from ledgermq.remoting.protocol.certificates import (
    BadCertificate,
    Identity,
    check_certificate,
    check_encoded,
    expires_ms,
    read_certificates,
    read_private_key,
)
from ledgermq.remoting.protocol.signing import (
    KEY_BYTES_MIN,
    CertificateCredentials,
    Credentials,
    KeyCredentials,
    Trust,
)
from ledgermq.runtime.errors import FatalError
from ledgermq.runtime.regular import read_named

if TYPE_CHECKING:
    from collections.abc import Callable

    from cryptography.x509 import Certificate

_log: Final = logging.getLogger(__name__)

FILE_BYTES_MAX: Final = 64 * 1024
DAY_MS: Final = 24 * 3_600_000
WARN_BEFORE_MS: Final = 30 * DAY_MS
"""How long before a certificate expires the log begins to say so, once a day."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings:
    """Where keys and certificates are; empty text for what there is not."""

    cert_path: str = ""
    """PEM: the own certificate (``peerTlsCertPath``)."""
    key_path: str = ""
    """PEM: its private key (``peerTlsKeyPath``)."""
    ca_path: str = ""
    """PEM: the CA, or several while one takes the place of another (``peerTlsCaPath``)."""
    shared_key: str = ""
    """The key itself (``peerSharedKey``)."""
    shared_key_file: str = ""
    """A file with a key on each line: the first is used, all are taken (``peerSharedKeyFile``)."""

    def __post_init__(self) -> None:
        """Check what concerns more than one field; raises `FatalError`."""
        if bool(self.cert_path) != bool(self.key_path):
            raise FatalError("peerTlsCertPath and peerTlsKeyPath: both are needed, or neither")
        if self.cert_path and not self.ca_path:
            raise FatalError(
                "peerTlsCertPath without peerTlsCaPath: no other member could be verified"
            )
        if self.shared_key and self.shared_key_file:
            raise FatalError("peerSharedKey and peerSharedKeyFile: set one of them")

    @property
    def has_certificate(self) -> bool:
        """Whether there is an own certificate: then links to peers carry TLS."""
        return bool(self.cert_path)

    @property
    def has_key(self) -> bool:
        """Whether there is a shared key."""
        return bool(self.shared_key or self.shared_key_file)

    @property
    def paths(self) -> tuple[str, ...]:
        """The files."""
        paths = (self.cert_path, self.key_path, self.ca_path, self.shared_key_file)
        return tuple(path for path in paths if path)


class CredentialStore:
    """What the files say, as of the last look.

    Args:
        settings: where they are.
        name: what the owner calls itself where it has a key but no certificate.
        wall_ms: the time by which certificates count.
    """

    def __init__(self, settings: SecuritySettings, name: str, wall_ms: Callable[[], int]) -> None:
        self.settings = settings
        self._name = name
        self._wall_ms = wall_ms
        self._stamps: tuple[tuple[int, int], ...] = ()
        self._told = ""
        """Why the files could not be read the last time, which is told once."""
        self._warned_ms = 0
        self.keys: tuple[bytes, ...] = ()
        """Shared keys; the first is the one to use."""
        self.trust = Trust()
        """Whose signatures count."""
        self.credentials: Credentials | None = None
        """To sign with: the certificate, or else the shared key."""
        self.identity: Identity | None = None
        """Whom the own certificate names."""
        self.version = 0
        """How often something else has been read."""
        self.expires_ms: int | None = None
        self._contexts: dict[bool, ssl.SSLContext] = {}
        """What TLS needs, of a client and of a server."""

    def load(self) -> None:
        """Read everything. Errors: `FatalError` names the file and what is wrong."""
        self._stamps = self._stat()
        settings = self.settings
        keys = _parse_keys(settings)
        authorities = tuple(_certificates("peerTlsCaPath", settings.ca_path))
        certificate = self._load_certificate(authorities)
        self.keys = keys
        self.trust.keys, self.trust.authorities = keys, authorities
        if certificate is None and keys:
            self.credentials = KeyCredentials(keys[0], self._name)
        self.version += 1
        self._maybe_warn()

    def begin(self) -> None:
        """Read everything; where that was done in another role of this process, what changed.

        Errors: `FatalError` the first time.
        """
        if self.version:
            self.refresh()
        else:
            self.load()

    def _load_certificate(self, authorities: tuple[Certificate, ...]) -> Certificate | None:
        settings = self.settings
        if not settings.has_certificate:
            return None
        certificate = _certificates("peerTlsCertPath", settings.cert_path)[0]
        try:
            identity = check_certificate(certificate, authorities, self._wall_ms())
        except BadCertificate as error:
            raise FatalError(f"peerTlsCertPath={settings.cert_path}: {error}") from error
        try:
            key = read_private_key(_read("peerTlsKeyPath", settings.key_path))
        except BadCertificate as error:
            raise FatalError(f"peerTlsKeyPath={settings.key_path}: {error}") from error
        if key.public_key() != certificate.public_key():
            raise FatalError(
                f"peerTlsKeyPath={settings.key_path}: not the key of {settings.cert_path}"
            )
        self.check_owner(identity)
        self._contexts = {side: self._make_context(is_server=side) for side in (False, True)}
        self.identity = identity
        self.credentials = CertificateCredentials(certificate, key)
        self.expires_ms = expires_ms(certificate)
        return certificate

    def check_owner(self, identity: Identity) -> None:
        """Refuse somebody else's certificate; here it may be anybody's. Errors: `FatalError`."""

    def refresh(self) -> bool:
        """Read the files anew if they have changed; return whether something else counts now."""
        self._maybe_warn()
        stamps = self._stat()
        if stamps == self._stamps:
            return False
        try:
            self.load()
        except FatalError as error:
            # Tried again though no stamp differs: rights may be given later, files be free again,
            # or the time come from which a certificate is valid.
            self._stamps = ()
            if error.message != self._told:
                self._told = error.message
                _log.warning("event=credentials_not_read error=%r", error.message)
            return False
        self._told = ""
        _log.info("event=credentials_read files=%s", ",".join(self.settings.paths))
        return True

    def _stat(self) -> tuple[tuple[int, int], ...]:
        found = []
        for path in self.settings.paths:
            try:
                status = pathlib.Path(path).stat()
                found.append((status.st_mtime_ns, status.st_ino))
            except OSError:
                found.append((0, 0))
        return tuple(found)

    def _maybe_warn(self) -> None:
        """Say once a day that the own certificate is about to expire, or has."""
        now_ms = self._wall_ms()
        if self.expires_ms is None or self.expires_ms - now_ms > WARN_BEFORE_MS:
            return
        if abs(now_ms - self._warned_ms) >= DAY_MS:
            self._warned_ms = now_ms
            _log.warning(
                "event=certificate_expires file=%s days_left=%d renew_with=%r",
                self.settings.cert_path, (self.expires_ms - now_ms) // DAY_MS,
                "ledgermq certs node ... --renew",
            )  # fmt: skip

    def check(self, certificate: bytes) -> Identity:
        """Return whose certificate (DER) it is, if it counts now. Errors: `BadCertificate`."""
        return check_encoded(certificate, self.trust.authorities, self._wall_ms())

    def tls_context(self, *, is_server: bool) -> ssl.SSLContext:
        """Return what a connection needs: own certificate, and one of the CA from the other side.

        It is that of the files as they were read. Errors: `FatalError`: there is no certificate.
        """
        return self._contexts.get(is_server) or self._make_context(is_server=is_server)

    def _make_context(self, *, is_server: bool) -> ssl.SSLContext:
        settings = self.settings
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # addresses change; who it is says the certificate
        context.verify_mode = ssl.CERT_REQUIRED
        if is_server:
            context.num_tickets = 0  # nobody resumes
        try:
            context.load_cert_chain(settings.cert_path, settings.key_path)
            context.load_verify_locations(settings.ca_path)
        except (OSError, ssl.SSLError) as error:
            files = f"{settings.cert_path}, {settings.key_path}, {settings.ca_path}"
            raise FatalError(f"TLS cannot use {files}: {error}") from error
        return context


def _parse_keys(settings: SecuritySettings) -> tuple[bytes, ...]:
    name, lines = "peerSharedKey", [settings.shared_key]
    if settings.shared_key_file:
        name = f"peerSharedKeyFile={settings.shared_key_file}"
        lines = (
            _read("peerSharedKeyFile", settings.shared_key_file)
            .removeprefix(codecs.BOM_UTF8)
            .decode(errors="replace")
            .split("\n")
        )
    keys = tuple(line.strip().encode() for line in lines if line.strip())
    if settings.has_key and not keys:
        raise FatalError(f"{name}: there is no key in it")
    if any(len(key) < KEY_BYTES_MIN for key in keys):
        raise FatalError(
            f"{name}: a key of at least {KEY_BYTES_MIN} characters is expected;"
            " make one with: ledgermq certs key"
        )
    return keys


def _certificates(name: str, path: str) -> list[Certificate]:
    if not path:
        return []
    try:
        return read_certificates(_read(name, path))
    except BadCertificate as error:
        raise FatalError(f"{name}={path}: {error}") from error


def _read(name: str, path: str) -> bytes:
    try:
        return read_named(path, FILE_BYTES_MAX)
    except ValueError as error:
        raise FatalError(f"{name}={path}: {error}") from error
    except OSError as error:
        raise FatalError(f"{name}={path}: cannot be read: {error.strerror or error}") from error
