"""Reads fields of ordinary requests, with Java's tolerance for what is missing.

A missing number fails the handler as the null of Java does: code 1.
Source: protocol.md 1.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from remoting.protocol.errors import InvalidHeader

if TYPE_CHECKING:
    from remoting.protocol.command import RemotingCommand

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


class MissingField(InvalidHeader):
    """A required field is absent or no integer; the answer is code 1 with this text."""

    def __init__(self, request: RemotingCommand, name: str) -> None:
        super().__init__(f"request {request.code}: field {name} is missing or malformed")


def text(request: RemotingCommand, name: str) -> str:
    """Return a required text field. Raises: MissingField."""
    value = request.ext_fields.get(name)
    if value is None:
        raise MissingField(request, name)
    return value


def integer(request: RemotingCommand, name: str) -> int:
    """Return a required int64 field. Raises: MissingField."""
    try:
        value = int(request.ext_fields[name])
    except (KeyError, ValueError) as error:
        raise MissingField(request, name) from error
    if not -INT64_MAX - 1 <= value <= INT64_MAX:
        raise MissingField(request, name)
    return value


def boolean(request: RemotingCommand, name: str, *, default: bool = False) -> bool:
    """Return an optional boolean field."""
    value = request.ext_fields.get(name)
    return default if value is None else value.lower() == "true"
