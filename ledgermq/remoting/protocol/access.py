"""Requests signed with an account's key, as RocketMQ's ``acl`` module signs and checks them.

| field | meaning |
|---|---|
| ``AccessKey`` | the name of the account |
| ``SecurityToken`` | optional, signed along; brokers of ours and of 4.9.7 give it no meaning, services that lend keys do |
| ``Signature`` | base64: HMAC-SHA1, with the account's secret key, of what is signed |

What is signed: the values of all extFields but ``Signature`` and ``_UNIQUE_KEY_QUERY`` (which Java
adds after signing), in the order of their names, and the body. Neither the code nor a time is in
it: who reads a connection can send its requests again. TLS keeps readers out.

Pure. Source: AclClientRPCHook, AclUtils, AclSigner, PlainAccessValidator 4.9.7.
"""  # noqa: E501  # a table

import base64
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from ledgermq.remoting.protocol.command import RemotingCommand

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
SECURITY_TOKEN: Final = "SecurityToken"  # noqa: S105  # the name of a field
ACCESS_FIELDS: Final = frozenset({ACCESS_KEY, SIGNATURE, SECURITY_TOKEN})
KEY_LENGTH_MIN: Final = 7
"""RocketMQ asks for more than six characters, of either key."""
_NOT_SIGNED: Final = frozenset({SIGNATURE, "_UNIQUE_KEY_QUERY"})


def signed_text(fields: Mapping[str, str], body: bytes) -> bytes:
    """Return what is signed of a request."""
    values = "".join(fields[name] for name in sorted(fields) if name not in _NOT_SIGNED)
    return values.encode(errors="replace") + body


def signature_of(secret: bytes, fields: Mapping[str, str], body: bytes) -> str:
    """Return the signature of a request with a secret key."""
    return base64.b64encode(hmac.digest(secret, signed_text(fields, body), "sha1")).decode()


@dataclass(frozen=True, slots=True)
class AccountKey:
    """The two keys of an account, which a client signs with, and what it was lent with them."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str = field(default="", repr=False)

    def sign(self, command: RemotingCommand) -> RemotingCommand:
        """Return the same request, signed."""
        fields = {**(command.ext_fields or {}), ACCESS_KEY: self.access_key}
        if self.security_token:
            fields[SECURITY_TOKEN] = self.security_token
        fields[SIGNATURE] = signature_of(self.secret_key.encode(), fields, command.body)
        return msgspec.structs.replace(command, ext_fields=fields)
