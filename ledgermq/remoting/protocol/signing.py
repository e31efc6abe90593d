"""Signed requests: who sent this, when, to whom, and that nobody has changed or repeated it.

A signature travels in the extFields of the request that it signs:

| field | meaning |
|---|---|
| ``signTime`` | the signer's clock, milliseconds |
| ``signNonce`` | text that no other request of the signer has |
| ``signer`` | whom the signer calls itself; with a certificate, what that says counts |
| ``signFor`` | whom it is for, such as ``GROUP/ID`` of one broker; left out: for whoever gets it |
| ``signCert`` | the signer's certificate, DER in base64; left out: signed with the shared key |
| ``signature`` | base64: HMAC-SHA256 with the shared key, or ECDSA-SHA256 with the certificate's |

What is signed: the code, all extFields but ``signature`` in the order of their names (those without
a value left out, as binary headers have none of them), and the SHA-256 of the body; each with its
length before it, so that nothing can move from one to the other. Opaque, flag and language are not:
a transport sets them. Nor are the fields of an account (`ledgermq.remoting.protocol.access`), whose
signature is made last and covers this one.

A request counts once: its time must be near, and its nonce new. Nonces are remembered only of
requests whose signature holds, so nobody else can fill the memory; when it is full, signed requests
are refused until the oldest is out of its time.

Pure: time and nonces come in. The certificates are those of
`ledgermq.remoting.protocol.certificates`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import struct
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from ledgermq.remoting.protocol.access import ACCESS_FIELDS
from ledgermq.remoting.protocol.certificates import (
    BadCertificate,
    Identity,
    Role,
    check_certificate,
    identity_of,
    read_certificates,
    read_private_key,
)
from ledgermq.remoting.protocol.errors import LocalProtocolError
from ledgermq.remoting.protocol.limits import (
    SIGN_CERTIFICATE_BYTES_MAX,
    SIGN_NONCES_MAX,
    SIGN_WINDOW_MS,
    SIGNER_LENGTH_MAX,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate

    from ledgermq.remoting.protocol.command import RemotingCommand

TIME: Final = "signTime"
NONCE: Final = "signNonce"
SIGNER: Final = "signer"
AUDIENCE: Final = "signFor"
NAMESRV_AUDIENCE: Final = "namesrv"
"""Whom a request for a name server names, so that no broker accepts it."""
CONTROLLER_AUDIENCE: Final = "controller "
"""Before the address of a controller: what one of them is asked, heard on the way, is worth nothing
at the next one, which would not know that it is used up."""
CERTIFICATE: Final = "signCert"
SIGNATURE: Final = "signature"

KEY_BYTES_MIN: Final = 16
"""A shared key shorter than this can be guessed by who has heard one signature."""

_LABEL: Final = b"LedgerMQ signed request 1"
_LENGTH: Final = struct.Struct(">I")
_TIME_DIGITS_MAX: Final = 15


class BadSignature(LocalProtocolError):  # noqa: N818  # says what is
    """A request is not signed, or not so that it counts here; the message says why."""


class WrongAudience(BadSignature):
    """A request is signed, and not for this server."""


class Credentials(Protocol):
    """What a signer signs with."""

    def fields(self) -> dict[str, str]:
        """Return the extFields that say who signs."""
        ...

    def sign(self, text: bytes) -> bytes:
        """Return the signature of a text."""
        ...


class KeyCredentials:
    """The shared key."""

    __slots__ = ("_key", "_name")

    def __init__(self, key: bytes, name: str) -> None:
        self._key = key
        self._name = name

    def fields(self) -> dict[str, str]:
        """Return the extFields that say who signs."""
        return {SIGNER: self._name}

    def sign(self, text: bytes) -> bytes:
        """Return the signature of a text."""
        return hmac.digest(self._key, text, "sha256")


class CertificateCredentials:
    """A certificate and its private key."""

    __slots__ = ("_encoded", "_key", "identity")

    def __init__(self, certificate: Certificate, key: EllipticCurvePrivateKey) -> None:
        from cryptography.hazmat.primitives.serialization import Encoding

        self.identity = identity_of(certificate)
        self._encoded = base64.b64encode(certificate.public_bytes(Encoding.DER)).decode()
        self._key = key

    def fields(self) -> dict[str, str]:
        """Return the extFields that say who signs."""
        return {SIGNER: str(self.identity), CERTIFICATE: self._encoded}

    def sign(self, text: bytes) -> bytes:
        """Return the signature of a text."""
        from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
        from cryptography.hazmat.primitives.hashes import SHA256

        return self._key.sign(text, ECDSA(SHA256()))


def read_certificate_credentials(certificate: bytes, key: bytes) -> CertificateCredentials:
    """Return the credentials in two PEM files. Errors: `BadCertificate`."""
    return CertificateCredentials(read_certificates(certificate)[0], read_private_key(key))


def sign(
    command: RemotingCommand,
    credentials: Credentials,
    *,
    now_ms: int,
    nonce: str,
    audience: str = "",
) -> RemotingCommand:
    """Return the same request, signed.

    Args:
        command: not signed yet.
        credentials: of the signer.
        now_ms: wall time.
        nonce: text that this signer uses once.
        audience: who alone is to take it, empty for everybody.
    """
    fields = {**command.ext_fields, **credentials.fields(), TIME: str(now_ms), NONCE: nonce}
    if audience:
        fields[AUDIENCE] = audience
    text = canonical_text(command.code, fields, command.body)
    fields[SIGNATURE] = base64.b64encode(credentials.sign(text)).decode()
    return msgspec.structs.replace(command, ext_fields=fields)


def canonical_text(code: int, fields: Mapping[str, str], body: bytes) -> bytes:
    """Return what is signed."""
    parts = [_LABEL, str(code).encode()]
    for name in sorted(fields):
        if fields[name] and name != SIGNATURE and name not in ACCESS_FIELDS:
            parts += (_encode(name), _encode(fields[name]))
    parts.append(hashlib.sha256(body).digest())
    return b"".join(_LENGTH.pack(len(part)) + part for part in parts)


def _encode(text: str) -> bytes:
    return text.encode(errors="surrogatepass")  # a tolerant reader may have let one in


FORGOTTEN_PER_USE: Final = 1_000
"""Nonces that one request forgets, in less than a millisecond: more than it adds."""


class Nonces:
    """Which nonces were used, as long as a request with them would still count."""

    def __init__(self, count_max: int = SIGN_NONCES_MAX) -> None:
        self._count_max = count_max
        self._until_ms: dict[str, int] = {}
        self._ahead_ms: dict[str, int] = {}
        """Those from before the clock was put back: their requests count again at their time."""

    def use(self, nonce: str, now_ms: int) -> None:
        """Remember one that was not used. Errors: `BadSignature`."""
        until_ms = self._until_ms
        if until_ms and next(reversed(until_ms.values())) > now_ms + 4 * SIGN_WINDOW_MS:
            # They would keep all that comes now from being forgotten before they are.
            self._ahead_ms |= until_ms
            until_ms = self._until_ms = {}
        _forget(until_ms, now_ms)
        _forget(self._ahead_ms, now_ms)
        if nonce in until_ms or nonce in self._ahead_ms:
            raise BadSignature("the request was sent before: its signature is used up")
        if len(self) >= self._count_max:
            raise BadSignature("too many signed requests in so short a time; try again later")
        until_ms[nonce] = now_ms + 2 * SIGN_WINDOW_MS

    def __len__(self) -> int:
        return len(self._until_ms) + len(self._ahead_ms)


def _forget(until_ms: dict[str, int], now_ms: int) -> None:
    """Forget some of those whose time is over."""
    # They go in the order in which they came. Taken in one pass: whoever looks for the first one
    # again and again passes over all that are gone. What is left over goes later.
    oldest = islice(until_ms.items(), FORGOTTEN_PER_USE)
    for one, _ in list(takewhile(lambda row: row[1] <= now_ms, oldest)):
        del until_ms[one]


class Trust:
    """What a server believes: keys, CAs, and which signatures are used up.

    Args:
        keys: shared keys; several while one takes the place of another.
        authorities: certificates of CAs.
    """

    def __init__(
        self, keys: tuple[bytes, ...] = (), authorities: tuple[Certificate, ...] = ()
    ) -> None:
        self.keys = keys
        self.authorities = authorities
        self.nonces = Nonces()

    def __bool__(self) -> bool:
        """Tell whether anything can be believed."""
        return bool(self.keys or self.authorities)


def verify(command: RemotingCommand, trust: Trust, *, now_ms: int, audience: str = "") -> Identity:
    """Return who has signed a request; it is used up then.

    Args:
        command: as it came.
        trust: what the server believes.
        now_ms: wall time.
        audience: whom the request must name; empty: it may be for anybody.

    Errors: `BadSignature`.
    """
    fields = command.ext_fields
    signature = _base64(fields.get(SIGNATURE, ""), "signature")
    if not signature:
        raise BadSignature("the request is not signed")
    nonce, signed_ms = _nonce(fields), _time(fields)
    text = canonical_text(command.code, fields, command.body)
    if CERTIFICATE in fields:
        identity = _check_certificate(fields[CERTIFICATE], signature, text, trust, now_ms)
    else:
        identity = _check_key(fields.get(SIGNER, ""), signature, text, trust)
    if abs(now_ms - signed_ms) > SIGN_WINDOW_MS:
        raise BadSignature(
            f"it was signed {(now_ms - signed_ms) / 1000:.0f} s ago by the clock of this server;"
            f" at most {SIGN_WINDOW_MS / 1000:.0f} s are allowed, so see to the clocks"
        )
    if audience and fields.get(AUDIENCE, "") != audience:
        raise WrongAudience(f"it is for {fields.get(AUDIENCE) or 'anybody'}, not for {audience}")
    trust.nonces.use(nonce, now_ms)
    return identity


def _check_key(signer: str, signature: bytes, text: bytes, trust: Trust) -> Identity:
    if not trust.keys:
        raise BadSignature("it is signed with a shared key, and none is set here")
    # All keys are tried, whichever fits: how long it takes says nothing.
    fits = [hmac.compare_digest(hmac.digest(key, text, "sha256"), signature) for key in trust.keys]
    if not any(fits):
        raise BadSignature("the signature is not that of the shared key")
    if not 0 < len(signer) <= SIGNER_LENGTH_MAX:
        raise BadSignature("the field signer is missing or too long")
    return Identity(Role.KEY, signer)


def _check_certificate(
    encoded: str, signature: bytes, text: bytes, trust: Trust, now_ms: int
) -> Identity:
    if not trust.authorities:
        raise BadSignature("it is signed with a certificate, and no CA is set here")
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.hashes import SHA256

    if len(encoded) > SIGN_CERTIFICATE_BYTES_MAX:
        raise BadSignature("the certificate is too large")
    try:
        certificate = x509.load_der_x509_certificate(_base64(encoded, "certificate"))
        identity = check_certificate(certificate, trust.authorities, now_ms)
        key = certificate.public_key()
    except BadCertificate as error:
        raise BadSignature(f"the certificate does not count: {error}") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise BadSignature("this is not a certificate") from error
    if not isinstance(key, EllipticCurvePublicKey):
        raise BadSignature("the certificate has a key that is not on an elliptic curve")
    try:
        key.verify(signature, text, ECDSA(SHA256()))
    except InvalidSignature:
        raise BadSignature("the signature is not that of the certificate") from None
    return identity


def _nonce(fields: Mapping[str, str]) -> str:
    nonce = fields.get(NONCE, "")
    if not 0 < len(nonce) <= SIGNER_LENGTH_MAX:
        raise BadSignature(f"the field {NONCE} is missing or too long")
    return nonce


def _time(fields: Mapping[str, str]) -> int:
    text = fields.get(TIME, "")
    if not (text.isascii() and text.isdigit() and len(text) <= _TIME_DIGITS_MAX):
        raise BadSignature(f"the field {TIME} is no time in milliseconds")
    return int(text)


def _base64(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadSignature(f"the {what} is not base64") from error
