"""TLS between clients and servers: settings under RocketMQ's names, contexts, files read anew.

RocketMQ's servers make up a certificate where there is none, and its clients believe any. Ours have
TLS where a certificate is set, and our clients believe those of a CA that is named; the name in a
certificate is not compared with the address, since brokers are found by addresses of routes.

Source: RocketMQ TlsSystemConfig, TlsHelper, TlsMode.
"""

from __future__ import annotations

import logging
import pathlib
import ssl
import stat
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ledgermq.runtime.config import key
from ledgermq.runtime.errors import FatalError

_log: Final = logging.getLogger(__name__)

FILE_BYTES_MAX: Final = 64 * 1024
LOOK_S: Final = 5.0
"""How often files are looked at for changes, at most."""


class TlsMode(StrEnum):
    """Who may speak without TLS (``tls.server.mode``)."""

    DISABLED = "disabled"
    """Everybody; nobody has TLS."""
    PERMISSIVE = "permissive"
    """Everybody; whose first byte begins a handshake gets TLS."""
    ENFORCING = "enforcing"
    """Nobody."""


class ClientAuth(StrEnum):
    """Whether clients show a certificate (``tls.server.need.client.auth``)."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


_VERIFY: Final = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.OPTIONAL: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRE: ssl.CERT_REQUIRED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTlsSettings:
    """TLS of the port for clients; RocketMQ has these as system properties."""

    tls_mode: TlsMode = key("tls.server.mode", TlsMode.DISABLED)  # noqa: RUF009 - a field
    tls_cert_path: str = key("tls.server.certPath", "")
    """PEM: the certificate, and those between it and the CA."""
    tls_key_path: str = key("tls.server.keyPath", "")
    """PEM: its private key, without a password."""
    tls_trust_path: str = key("tls.server.trustCertPath", "")
    """PEM: the CA of clients that show a certificate."""
    tls_client_auth: ClientAuth = key(  # noqa: RUF009 - a field declaration
        "tls.server.need.client.auth", ClientAuth.NONE
    )

    def server_tls(self) -> ServerTls | None:
        """Return what the port for clients needs, None without TLS. Errors: `FatalError`."""
        if self.tls_mode is TlsMode.DISABLED:
            return None
        server = ServerTls(self)
        server.load()
        return server


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings(ServerTlsSettings):
    """The same, and that of a broker as a client of other servers."""

    tls_enable: bool = key("tls.enable", default=False)
    """Speak TLS to name servers and the master."""
    tls_client_trust_path: str = key("tls.client.trustCertPath", "")
    """PEM: the CA that they must have their certificates from."""
    tls_client_cert_path: str = key("tls.client.certPath", "")
    """PEM: the certificate to show them, if they ask for one."""
    tls_client_key_path: str = key("tls.client.keyPath", "")

    def client_tls(self) -> ssl.SSLContext | None:
        """Return what connections to other servers need, None without. Errors: `FatalError`."""
        if not self.tls_enable:
            return None
        try:
            return client_context(
                self.tls_client_trust_path, self.tls_client_cert_path, self.tls_client_key_path
            )
        except ValueError as error:
            raise FatalError(f"tls.enable: {error}") from error


class ServerTls:
    """The context of a server, made anew when the files have changed."""

    def __init__(self, settings: ServerTlsSettings) -> None:
        self._settings = settings
        self._stamps: list[tuple[int, int]] = []
        self._told = ""
        """Why the files could not be read the last time, which is told once."""
        self._looked_s = 0.0
        self._context: ssl.SSLContext | None = None

    @property
    def is_enforced(self) -> bool:
        """Whether nobody may speak without."""
        return self._settings.tls_mode is TlsMode.ENFORCING

    def load(self) -> None:
        """Read the files. Errors: `FatalError` names the setting and what is wrong."""
        settings = self._settings
        if not settings.tls_cert_path or not settings.tls_key_path:
            raise FatalError(
                f"tls.server.mode={settings.tls_mode}: set tls.server.certPath and"
                " tls.server.keyPath (ledgermq certs makes both)"
            )
        if settings.tls_client_auth is not ClientAuth.NONE and not settings.tls_trust_path:
            raise FatalError(
                f"tls.server.need.client.auth={settings.tls_client_auth}: set"
                " tls.server.trustCertPath: nobody's certificate could be believed"
            )
        self._stamps = self._stat()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2  # RocketMQ's clients on Java 8
        context.options |= ssl.OP_NO_RENEGOTIATION  # handshakes that no turn is waited for
        try:
            _check(settings.tls_cert_path, settings.tls_key_path, settings.tls_trust_path)
            context.load_cert_chain(settings.tls_cert_path, settings.tls_key_path, _no_password)
            if settings.tls_trust_path:
                context.load_verify_locations(settings.tls_trust_path)
        except (OSError, ValueError) as error:
            files = [settings.tls_cert_path, settings.tls_key_path, settings.tls_trust_path]
            named = ", ".join(filter(None, files))
            raise FatalError(f"tls.server: TLS cannot use {named}: {error}") from error
        context.verify_mode = _VERIFY[settings.tls_client_auth]
        self._context = context

    def context(self, now_s: float) -> ssl.SSLContext:
        """Return what a new connection needs; what could be read last counts."""
        if now_s - self._looked_s >= LOOK_S:
            self._looked_s = now_s
            if self._stat() != self._stamps:
                try:
                    self.load()
                    self._told = ""
                    _log.info("event=tls_read file=%s", self._settings.tls_cert_path)
                except FatalError as error:
                    # Half of a renewal, perhaps; or rights are given later, and no stamp differs.
                    self._stamps = []
                    if error.message != self._told:
                        self._told = error.message
                        _log.warning("event=tls_not_read error=%r", error.message)
        assert self._context is not None, "context before load"
        return self._context

    def _stat(self) -> list[tuple[int, int]]:
        found = []
        settings = self._settings
        for path in (settings.tls_cert_path, settings.tls_key_path, settings.tls_trust_path):
            try:
                status = pathlib.Path(path).stat()
                found.append((status.st_mtime_ns, status.st_ino))
            except OSError:
                found.append((0, 0))
        return found


def client_context(trust_path: str, cert_path: str = "", key_path: str = "") -> ssl.SSLContext:
    """Return what a client needs: whose certificates it believes, and the one that it shows.

    Errors: `ValueError` says which file cannot be used.
    """
    if not trust_path:
        raise ValueError("the CA of the servers is needed (a PEM file)")
    if bool(cert_path) != bool(key_path):
        raise ValueError("a certificate and its key: both are needed, or neither")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False  # servers are found by addresses
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        _check(trust_path)
        context.load_verify_locations(trust_path)
    except (OSError, ValueError) as error:
        raise ValueError(f"{trust_path}: no CA can be read from it: {error}") from error
    if cert_path:
        try:
            _check(cert_path, key_path)
            context.load_cert_chain(cert_path, key_path, _no_password)
        except (OSError, ValueError) as error:
            raise ValueError(f"{cert_path}, {key_path}: TLS cannot use them: {error}") from error
    return context


def _check(*paths: str) -> None:
    """Refuse what nobody could have meant: OpenSSL would wait for a pipe, and read all of a disk.

    Errors: `ValueError`; `OSError` for a file that is not there.
    """
    for path in filter(None, paths):
        status = pathlib.Path(path).stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > FILE_BYTES_MAX:
            raise ValueError(f"{path} is not a file of at most {FILE_BYTES_MAX} bytes")


def _no_password() -> str:
    """Refuse a key with a password: OpenSSL would ask for it at the terminal, and wait."""
    raise ValueError("the private key has a password; write it without one")
