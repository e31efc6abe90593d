"""Makes keys and certificates of a cluster.

`ledgermq.remoting.protocol.certificates` says what they mean.
Keys are on the curve P-256. Every file is written whole, and nothing that is there is overwritten
unless its renewal was asked for.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ledgermq.remoting.protocol.certificates import (
    BadCertificate,
    Identity,
    identity_of,
    read_certificates,
    read_private_key,
)
from ledgermq.runtime.errors import FatalError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

CA_CERTIFICATE: Final = "ca.crt"
CA_KEY: Final = "ca.key"
CA_DAYS: Final = 3650
CERTIFICATE_DAYS: Final = 825
CLOCK_SLACK: Final = datetime.timedelta(hours=1)
"""A certificate counts from a little before it was made: clocks differ."""


class Authority:
    """The CA of a cluster, in its directory."""

    def __init__(
        self, directory: Path, certificate: x509.Certificate, key: EllipticCurvePrivateKey
    ) -> None:
        self.directory = directory
        self.certificate = certificate
        self._key = key

    @classmethod
    def create(cls, directory: Path, name: str, days: int) -> Authority:
        """Make a CA. Errors: `FatalError`: there is one already."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec

        for file in (CA_CERTIFICATE, CA_KEY):
            if (directory / file).exists():
                raise FatalError(
                    f"{directory / file} exists: a new CA would make every certificate of the old"
                    " one worthless; remove it by hand if that is what you want"
                )
        _make_directory(directory)
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(name, days).issuer_name(_name(name)).public_key(key.public_key())
        builder = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = builder.add_extension(identifier, critical=False)
        certificate = _sign(builder, key)
        _write(directory / CA_KEY, _key_pem(key), secret=True)
        _write(directory / CA_CERTIFICATE, _certificate_pem(certificate))
        return cls(directory, certificate, key)

    @classmethod
    def open(cls, directory: Path) -> Authority:
        """Return the CA in a directory. Errors: `FatalError`: there is none."""
        try:
            certificate = read_certificates((directory / CA_CERTIFICATE).read_bytes())[0]
            key = read_private_key((directory / CA_KEY).read_bytes())
        except OSError as error:
            raise FatalError(
                f"{error.filename}: {error.strerror};"
                f" make a CA with: ledgermq certs init {directory}"
            ) from error
        except BadCertificate as error:
            raise FatalError(f"{directory}: {error}") from error
        return cls(directory, certificate, key)

    def issue(
        self,
        identity: Identity,
        stem: str,
        *,
        hosts: Iterable[str] = (),
        days: int = CERTIFICATE_DAYS,
        renew: bool = False,
    ) -> tuple[Path, Path]:
        """Make a key and a certificate for ``identity``; return their files, certificate first.

        Renewal keeps the key, and the hosts unless others are given. Errors: `FatalError`: the
        files exist, or do not, or cannot be read; a host that is none.
        """
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID

        paths = self.directory / f"{stem}.crt", self.directory / f"{stem}.key"
        for path in paths:
            if path.exists() and not renew:
                raise FatalError(f"{path} exists; renew it with --renew, or remove it by hand")
            if renew and not path.exists():
                raise FatalError(f"{path} does not exist: there is nothing to renew")
        former: list[x509.GeneralName] = []
        if renew:
            key, former = _former(identity, *paths)
        else:
            key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(identity.uri)]
        names += [_host(host) for host in hosts] or former
        issuer = self.certificate.subject
        builder = _builder(identity.name, days).issuer_name(issuer).public_key(key.public_key())
        builder = builder.add_extension(
            x509.BasicConstraints(ca=False, path_length=None), critical=True
        )
        builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        own = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(own, critical=False)
        if not renew:
            _write(paths[1], _key_pem(key), secret=True)
        _write(paths[0], _certificate_pem(_sign(builder, self._key)))
        return paths


def _former(
    identity: Identity, certificate: Path, key: Path
) -> tuple[EllipticCurvePrivateKey, list[x509.GeneralName]]:
    """Return the key of a certificate that is there, and its hosts. Errors: `FatalError`."""
    from cryptography import x509

    try:
        own = read_private_key(key.read_bytes())
        (found, *_) = read_certificates(certificate.read_bytes())
        who = identity_of(found)
    except OSError as error:
        raise FatalError(f"{error.filename}: {error.strerror}") from error
    except BadCertificate as error:
        raise FatalError(f"{certificate}, {key}: {error}") from error
    if who != identity:
        raise FatalError(f"{certificate} is of {who}, not of {identity}")
    named = x509.SubjectAlternativeName
    try:
        names = found.extensions.get_extension_for_class(named).value
    except x509.ExtensionNotFound:
        return own, []
    return own, [one for one in names if not isinstance(one, x509.UniformResourceIdentifier)]


def make_shared_key() -> str:
    """Return a new shared key as text."""
    return os.urandom(32).hex()


def write_shared_key(path: Path) -> None:
    """Write a new shared key. Errors: `FatalError`: the file exists."""
    if path.exists():
        raise FatalError(f"{path} exists; to change the key see docs/operations.md")
    _make_directory(path.parent)
    _write(path, f"{make_shared_key()}\n".encode(), secret=True)


def _builder(name: str, days: int) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SLACK)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _name(text: str) -> x509.Name:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text[:64])])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise FatalError(f"{host!r} is no name of a host: {error}") from error


def _sign(builder: x509.CertificateBuilder, key: EllipticCurvePrivateKey) -> x509.Certificate:
    from cryptography.hazmat.primitives import hashes

    return builder.sign(key, hashes.SHA256())


def _key_pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _certificate_pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return certificate.public_bytes(serialization.Encoding.PEM)


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FatalError(f"{directory}: {error.strerror}") from error


def _write(path: Path, data: bytes, *, secret: bool = False) -> None:
    """Write a file whole; who reads it at the same time sees the old one or the new one."""
    part = path.with_name(f"{path.name}.part")
    try:
        mode = 0o600 if secret else 0o644
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            file.write(data)
        part.replace(path)
    except OSError as error:
        raise FatalError(f"{path}: {error.strerror}") from error
