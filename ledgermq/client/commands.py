"""Requests of clients as commands, and the numbers in their answers. Pure."""

import re
from typing import Final

from ledgermq.remoting.protocol.codes import LanguageCode, RequestCode
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.errors import RemoteProtocolError

_INT64: Final = re.compile(r"[+-]?[0-9]{1,19}\Z")
_INT64_MAX: Final = 2**63 - 1


def make_command(code: RequestCode, fields: dict[str, str], body: bytes = b"") -> RemotingCommand:
    """Return a request of this client."""
    return RemotingCommand(code=code, language=LanguageCode.PYTHON, ext_fields=fields, body=body)


def number_in(response: RemotingCommand, name: str) -> int:
    """Return a field of an answer as a number. Errors: `RemoteProtocolError` if it is none."""
    text = (response.ext_fields or {}).get(name)
    if text is None or _INT64.match(text) is None:
        raise RemoteProtocolError(f"response field {name}: {str(text)[:30]!r} is not a number")
    number = int(text)
    if not -_INT64_MAX <= number <= _INT64_MAX:
        raise RemoteProtocolError(f"response field {name}: {text} is no number of 64 bits")
    return number
