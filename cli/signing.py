"""With what ``ledgermq admin`` signs the requests that change a group.

Knows the options, the variables of the environment and a broker's settings; what a signature is
says `ledgermq.remoting.protocol.signing`.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cli.account import AccessKey, SecretKey, take_account
from cli.admin import TIMEOUT_MS, AdminError, ask

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cli.admin import Answer
    from ledgermq.remoting.protocol.command import RemotingCommand
    from ledgermq.remoting.protocol.signing import Credentials
    from ledgermq.remoting.transport.client import RemotingClient

NAME: Final = "admin"
"""What who has but the shared key calls itself."""


class _Given:
    """The options of this run; the command line is read once."""

    key_file: str = ""
    cert: str = ""
    key: str = ""
    config: str = ""


def take_options(
    key_file: Annotated[
        str,
        typer.Option(
            "--key-file",
            metavar="FILE",
            envvar="LEDGERMQ_KEY_FILE",
            help="Sign with this shared key: the brokers' peerSharedKeyFile.",
        ),
    ] = "",
    cert: Annotated[
        str,
        typer.Option(
            "--cert",
            metavar="FILE",
            envvar="LEDGERMQ_CERT",
            help="Sign with this certificate (see: ledgermq certs admin); needs --key.",
        ),
    ] = "",
    key: Annotated[
        str, typer.Option("--key", metavar="FILE", envvar="LEDGERMQ_KEY", help="Its private key.")
    ] = "",
    config: Annotated[
        str,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            envvar="LEDGERMQ_BROKER_CONF",
            help="Sign with what this broker.conf names.",
        ),
    ] = "",
    access_key: AccessKey = "",
    secret_key: SecretKey = "",
) -> None:
    """Take the options that stand before the name of a command."""
    if bool(cert) != bool(key):
        raise typer.BadParameter("both are needed, or neither", param_hint="--cert, --key")
    take_account(access_key, secret_key)
    _Given.key_file, _Given.cert, _Given.key, _Given.config = key_file, cert, key, config


def find_credentials() -> Credentials | None:
    """Return what to sign with, None for nothing. Errors: `FatalError`."""
    from ledgermq.remoting.transport.credentials import CredentialStore, SecuritySettings
    from ledgermq.runtime.clock import SystemClock

    if _Given.cert or _Given.key:
        return _read_certificate()
    if _Given.key_file:
        settings = SecuritySettings(shared_key_file=_Given.key_file)
    elif _Given.config:
        from broker.server import load_config

        settings = load_config(_Given.config, {}).security
    else:
        return None
    store = CredentialStore(settings, NAME, SystemClock().wall_ms)
    store.load()
    return store.credentials


def _read_certificate() -> Credentials:
    from ledgermq.remoting.protocol.certificates import BadCertificate
    from ledgermq.remoting.protocol.signing import read_certificate_credentials
    from ledgermq.runtime.errors import FatalError

    try:
        files = [Path(path).read_bytes() for path in (_Given.cert, _Given.key)]
        return read_certificate_credentials(*files)
    except OSError as error:
        raise FatalError(f"{error.filename}: {error.strerror}") from error
    except BadCertificate as error:
        raise FatalError(f"{_Given.cert}, {_Given.key}: {error}") from error


async def ask_signed(
    client: RemotingClient,
    address: str,
    code: int,
    fields: Mapping[str, str] | None = None,
    timeout_ms: int = TIMEOUT_MS,
) -> Answer:
    """As `ask`, with a request signed for the replica at ``address`` if there is what to sign with.

    Errors: `AdminError`, `FatalError`.
    """
    from ledgermq.remoting.protocol.codes import RequestCode
    from ledgermq.remoting.protocol.signing import sign
    from ledgermq.runtime.clock import SystemClock

    credentials = find_credentials()
    if credentials is None:
        return await ask(client, address, code, fields, timeout_ms)
    status = await ask(client, address, RequestCode.RAFT_STATUS)
    node = status.get("node")
    if node is None:
        raise AdminError(f"{address} does not say who it is, to sign a request for it")
    audience = f"{status.get('group', node)}/{node}"  # in no group it has but its own name

    def seal(command: RemotingCommand) -> RemotingCommand:
        now_ms, nonce = SystemClock().wall_ms(), secrets.token_hex(16)
        return sign(command, credentials, now_ms=now_ms, nonce=nonce, audience=audience)

    return await ask(client, address, code, fields, timeout_ms, seal)
