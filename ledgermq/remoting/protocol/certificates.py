"""What a certificate of a cluster says: whose it is, and whether the cluster's CA says so.

A cluster has one CA, which issues every certificate itself: there are no chains. A certificate
names its owner in one URI among its subject alternative names:

- ``ledgermq:node/GROUP/ID``: the replica ID of the Raft group GROUP;
- ``ledgermq:admin/NAME``: somebody who may administer the cluster.

Pure: bytes and times come in; files are read by `ledgermq.remoting.transport.credentials`. The
library that reads certificates takes 50 ms to import, so it is imported when the first one is read.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from ledgermq.remoting.protocol.errors import LocalProtocolError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate

SCHEME: Final = "ledgermq:"


class BadCertificate(LocalProtocolError):  # noqa: N818  # says what is
    """The text is not a certificate, or this group does not accept it; the message says why."""


class Role(StrEnum):
    """As what somebody is known."""

    KEY = "key"
    """By the shared key. Whoever has it can call itself anything."""
    NODE = "node"
    ADMIN = "admin"


class Identity(NamedTuple):
    """A proven identity."""

    role: Role
    name: str
    """For a node, ``GROUP/ID``."""

    def __str__(self) -> str:
        return f"{self.role}/{self.name}"

    @property
    def uri(self) -> str:
        """How a certificate names it."""
        return f"{SCHEME}{self.role}/{self.name}"


def node_identity(group: str, self_id: str) -> Identity:
    """Return the identity of a replica."""
    return Identity(Role.NODE, f"{group}/{self_id}")


def identity_of_uris(uris: list[str]) -> Identity:
    """Return the one identity among the URIs of a certificate. Errors: `BadCertificate`."""
    found = [uri.removeprefix(SCHEME) for uri in uris if uri.startswith(SCHEME)]
    if len(found) != 1:
        raise BadCertificate(f"it names {len(found)} owners as {SCHEME}..., not one")
    role, _, name = found[0].partition("/")
    if role not in {Role.NODE, Role.ADMIN} or not name:
        raise BadCertificate(f"{SCHEME}{found[0]} is neither node/GROUP/ID nor admin/NAME")
    return Identity(Role(role), name)


def read_certificates(data: bytes) -> list[Certificate]:
    """Return the certificates of a PEM file. Errors: `BadCertificate`."""
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificates(data)
    except ValueError as error:
        raise BadCertificate("no certificate in PEM") from error


def read_private_key(data: bytes) -> EllipticCurvePrivateKey:
    """Return the key of a PEM file. Errors: `BadCertificate`."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BadCertificate("no private key in PEM without a password") from error
    if not isinstance(key, EllipticCurvePrivateKey):
        raise BadCertificate("a key on an elliptic curve is expected, see: ledgermq certs")
    return key


def identity_of(certificate: Certificate) -> Identity:
    """Return whose certificate it is, whoever issued it. Errors: `BadCertificate`."""
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError) as error:
        raise BadCertificate("it has no subject alternative name") from error
    return identity_of_uris(names.value.get_values_for_type(x509.UniformResourceIdentifier))


def expires_ms(certificate: Certificate) -> int:
    """Return the wall time after which the certificate is not valid any more."""
    return int(certificate.not_valid_after_utc.timestamp() * 1000)


def check_certificate(
    certificate: Certificate, authorities: tuple[Certificate, ...], now_ms: int
) -> Identity:
    """Return whose certificate it is, once it is known that one of the CAs says so.

    Errors: `BadCertificate`.
    """
    if not any(_is_issued_by(certificate, authority) for authority in authorities):
        raise BadCertificate("it was not issued by the CA of this cluster")
    begins_ms = int(certificate.not_valid_before_utc.timestamp() * 1000)
    if now_ms < begins_ms:
        raise BadCertificate(f"it is valid from {certificate.not_valid_before_utc} on only")
    if now_ms > expires_ms(certificate):
        raise BadCertificate(f"it expired at {certificate.not_valid_after_utc}")
    return identity_of(certificate)


def check_encoded(data: bytes, authorities: tuple[Certificate, ...], now_ms: int) -> Identity:
    """Do the same for a certificate in DER. Errors: `BadCertificate`."""
    from cryptography import x509

    try:
        certificate = x509.load_der_x509_certificate(data)
    except ValueError as error:
        raise BadCertificate("it is no certificate") from error
    return check_certificate(certificate, authorities, now_ms)


def _is_issued_by(certificate: Certificate, authority: Certificate) -> bool:
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return certificate != authority
