"""The account with which commands speak to brokers that have access control.

The two keys come from options or, better for the secret one, from the environment; nothing prints
them. Where the certificates for TLS are says the environment alone.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

if TYPE_CHECKING:
    from ledgermq.client import ClientConfig
    from ledgermq.remoting.protocol.access import AccountKey

AccessKey = Annotated[
    str,
    typer.Option(
        "--access-key",
        metavar="NAME",
        envvar="LEDGERMQ_ACCESS_KEY",
        help="Account, where brokers have access control (aclEnable).",
    ),
]
SecretKey = Annotated[
    str,
    typer.Option(
        "--secret-key",
        metavar="KEY",
        envvar="LEDGERMQ_SECRET_KEY",
        show_envvar=True,
        help="Its secret key; other users of the machine see options, not the environment.",
    ),
]


class TlsFiles(NamedTuple):
    """PEM files: the CA of the servers, and a certificate with its key to show them."""

    ca: str
    cert: str
    key: str


def tls_of_run() -> TlsFiles:
    """Return what ``LEDGERMQ_TLS_CA``, ``LEDGERMQ_TLS_CERT`` and ``LEDGERMQ_TLS_KEY`` say."""
    found = (os.environ.get(f"LEDGERMQ_TLS_{name}", "") for name in ("CA", "CERT", "KEY"))
    return TlsFiles(*found)


class _Given:
    """The keys of this run; the command line is read once."""

    access_key: str = ""
    secret_key: str = ""


def take_account(access_key: str, secret_key: str) -> None:
    """Take the two keys. Errors: ``typer.BadParameter`` if only one is there."""
    if bool(access_key) != bool(secret_key):
        raise typer.BadParameter("both keys are needed, or neither", param_hint="--access-key")
    _Given.access_key, _Given.secret_key = access_key, secret_key


def account_of_run() -> AccountKey | None:
    """Return what requests are signed with, None for nothing."""
    from ledgermq.remoting.protocol.access import AccountKey

    return AccountKey(_Given.access_key, _Given.secret_key) if _Given.access_key else None


def config_of_run(addresses: tuple[str, ...], group: str) -> ClientConfig:
    """Return the settings of a client of this run."""
    from ledgermq.client import ClientConfig

    tls = tls_of_run()
    return ClientConfig(
        namesrv_addrs=addresses,
        group=group,
        access_key=_Given.access_key,
        secret_key=_Given.secret_key,
        tls_ca_path=tls.ca,
        tls_cert_path=tls.cert,
        tls_key_path=tls.key,
    )
