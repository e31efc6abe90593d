"""``ledgermq certs``: the CA of a cluster, certificates of its members and administrators, keys.

Files of a directory: ``ca.crt`` and ``ca.key``, ``node-GROUP-ID.crt`` and ``.key``,
``admin-NAME.crt`` and ``.key``. Keys are readable by their owner alone. A member needs its own two
files and ``ca.crt``; ``ca.key`` stays where certificates are made.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="Where the files of the CA are.")]
Days = Annotated[int, typer.Option("--days", min=1, max=36_500, help="How long it counts.")]
Renew = Annotated[
    bool, typer.Option("--renew", help="Make a new certificate for the same key and name.")
]
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,63}\Z")
_GROUP: Final = re.compile(r"[%|a-zA-Z0-9_-]{1,127}\Z")

app = typer.Typer(
    name="certs",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help=(
        "Make the CA of a cluster, certificates of members and administrators, shared keys.\n\n"
        "Example: ledgermq certs init certs"
    ),
)


@app.command()
def init(
    directory: Directory,
    name: Annotated[str, typer.Option("--name", help="What the CA is called.")] = "LedgerMQ CA",
    days: Days = 3650,
) -> None:
    """Make the CA of a cluster: DIR/ca.crt and DIR/ca.key.

    Every member needs ca.crt. Keep ca.key away from them: who has it can be any member.

    Example: ledgermq certs init certs
    """
    from cli.certificates import Authority

    if not name.strip():
        raise typer.BadParameter("a name is expected", param_hint="--name")
    authority = Authority.create(directory, name, days)
    typer.echo(f"{directory}/ca.crt: {describe(authority.certificate)}")
    typer.echo(f"{directory}/ca.key: keep it secret, and away from the members")
    typer.echo(f"next: ledgermq certs node {directory} --group G --id n0 --host 127.0.0.1")


@app.command()
def node(
    directory: Directory,
    group: Annotated[str, typer.Option("--group", "-g", help="Its Raft group (dLegerGroup).")],
    self_id: Annotated[str, typer.Option("--id", help="Its id in the group (dLegerSelfId).")],
    hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            help="A name or address of it, for other tools; may be repeated (--renew keeps them).",
        ),
    ] = None,
    days: Days = 825,
    renew: Renew = False,
) -> None:
    """Make the key and the certificate of a member; running members read a renewed one by itself.

    Example: ledgermq certs node certs --group broker-a --id n0 --host 127.0.0.1
    """
    from dledger.limits import NODE_ID
    from ledgermq.remoting.protocol.certificates import node_identity

    if not _GROUP.match(group):
        raise typer.BadParameter(f"{group!r} is no name of a group", param_hint="--group")
    if not NODE_ID.match(self_id):
        raise typer.BadParameter(f"{self_id!r} does not end in a number", param_hint="--id")
    from cli.certificates import Authority

    paths = Authority.open(directory).issue(
        node_identity(group, self_id),
        f"node-{re.sub(r'[^A-Za-z0-9_-]', '_', group)}-{self_id}",
        hosts=hosts or (),
        days=days,
        renew=renew,
    )
    typer.echo(f"peerTlsCertPath={paths[0]}")
    typer.echo(f"peerTlsKeyPath={paths[1]}")
    typer.echo(f"peerTlsCaPath={directory / 'ca.crt'}")


@app.command()
def admin(
    directory: Directory,
    name: Annotated[str, typer.Option("--name", help="Who administers.")] = "admin",
    days: Days = 825,
    renew: Renew = False,
) -> None:
    """Make the key and the certificate of an administrator, to sign requests with.

    Example: ledgermq certs admin certs --name alice
    """
    from ledgermq.remoting.protocol.certificates import Identity, Role

    if not _NAME.match(name):
        raise typer.BadParameter("letters, digits, dot, - and _ are expected", param_hint="--name")
    from cli.certificates import Authority

    paths = Authority.open(directory).issue(
        Identity(Role.ADMIN, name), f"admin-{name}", days=days, renew=renew
    )
    typer.echo(f"{paths[0]}, {paths[1]}: use them with")
    typer.echo(f"ledgermq admin --cert {paths[0]} --key {paths[1]} remove --id n0")


@app.command()
def key(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")],
) -> None:
    """Make a shared key, for a group that has no certificates: peerSharedKeyFile.

    All members need the same file. To change the key, see docs/operations.md.

    Example: ledgermq certs key cluster.key
    """
    from cli.certificates import write_shared_key

    write_shared_key(file)
    typer.echo(f"peerSharedKeyFile={file}")


@app.command()
def show(
    path: Annotated[Path, typer.Argument(metavar="DIR|FILE", help="A directory, or a file.")],
) -> None:
    """Show whose certificates these are, and how long they count.

    Exit code 1 if one of them has expired, or is none.

    Example: ledgermq certs show certs
    """
    from ledgermq.remoting.protocol.certificates import BadCertificate, read_certificates
    from ledgermq.runtime.clock import SystemClock

    files = sorted(path.glob("*.crt")) if path.is_dir() else [path]
    if not files:
        typer.echo(f"ledgermq: no certificates (*.crt) in {path}", err=True)
        raise typer.Exit(1)
    now_ms, failed = SystemClock().wall_ms(), False
    for file in files:
        try:
            for certificate in read_certificates(file.read_bytes()):
                failed = failed or _is_over(certificate, now_ms)
                typer.echo(f"{file}: {describe(certificate)}")
        except OSError as error:
            failed = True
            typer.echo(f"{file}: {error.strerror}")
        except BadCertificate as error:
            failed = True
            typer.echo(f"{file}: {error}")
    raise typer.Exit(1 if failed else 0)


def describe(certificate: Certificate) -> str:
    """Return who a certificate is, and until when, in words."""
    from ledgermq.remoting.protocol.certificates import BadCertificate, expires_ms, identity_of
    from ledgermq.runtime.clock import SystemClock

    try:
        who = str(identity_of(certificate))
    except BadCertificate:
        is_ca = certificate.subject == certificate.issuer
        who = f"CA {certificate.subject.rfc4514_string()}" if is_ca else "nobody we know"
    days = (expires_ms(certificate) - SystemClock().wall_ms()) // 86_400_000
    left = f"{days} days left" if days >= 0 else "EXPIRED"
    return f"{who}, until {certificate.not_valid_after_utc:%Y-%m-%d}, {left}"


def _is_over(certificate: Certificate, now_ms: int) -> bool:
    from ledgermq.remoting.protocol.certificates import expires_ms

    return expires_ms(certificate) < now_ms
