"""``ledgermq namesrv`` and ``ledgermq broker``: start a server in the foreground.

Knows nothing of the servers but their entry points; they read the configuration and check it
themselves.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ledgermq.remoting.protocol.hosts import is_port

PANEL = "Servers"
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "-c", "--config", metavar="FILE", help="Properties file with RocketMQ's own keys."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module to ``app``."""
    app.command(rich_help_panel=PANEL)(namesrv)
    app.command(rich_help_panel=PANEL)(broker)


def _check_ports(given: list[str] | None) -> list[str] | None:
    for word in given or []:
        if "=" not in word and not is_port(word):
            raise typer.BadParameter(f"{word!r} is neither a port nor KEY=VALUE")
    return given


def _check_settings(given: list[str] | None) -> list[str] | None:
    for word in given or []:
        if "=" not in word:
            raise typer.BadParameter(f"{word!r} is not KEY=VALUE")
    return given


def namesrv(
    config: ConfigFile = None,
    port: Annotated[
        list[str] | None,
        typer.Option(
            "-p",
            "--port",
            metavar="PORT|KEY=VALUE",
            help="The port to listen on (default 9876), or a setting; both win over the file.",
            callback=_check_ports,
        ),
    ] = None,
) -> None:
    """Run a name server in the foreground until SIGTERM or Ctrl-C.

    Example: ledgermq namesrv -p 9876

    Example: ledgermq namesrv -p listenPort=9876 -p bindAddress=127.0.0.1
    """
    from namesrv.__main__ import main

    arguments = [] if config is None else ["-c", str(config)]
    for given in port or []:
        arguments += ["--property" if "=" in given else "-p", given]
    raise typer.Exit(main(arguments))


def broker(
    config: Annotated[
        Path | None, typer.Option("-c", "--config", metavar="FILE", help="Your broker.conf.")
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "-p",
            "--property",
            metavar="KEY=VALUE",
            help="A setting that wins over the file; may be repeated.",
            callback=_check_settings,
        ),
    ] = None,
    namesrv: Annotated[
        str,
        typer.Option(
            "-n",
            "--namesrv",
            metavar="HOST:PORT;...",
            help="Name servers; wins over namesrvAddr, as NAMESRV_ADDR in the environment does.",
        ),
    ] = "",
) -> None:
    """Run a broker in the foreground until SIGTERM or Ctrl-C.

    A member of a Raft group has enableDLegerCommitLog=true, dLegerGroup, dLegerSelfId and
    dLegerPeers in FILE, as RocketMQ has them. An unknown key or a bad value ends with exit code 2
    and names it.

    Example: ledgermq broker -c broker-n0.conf

    Example: ledgermq broker -c broker-n0.conf -p listenPort=10921 -p preferredLeaderId=n1

    Example: ledgermq broker -n 127.0.0.1:9876 -p brokerName=a -p storePathRootDir=/tmp/a
    """
    from broker.__main__ import main

    if config is None and not properties:
        raise typer.BadParameter("Missing option '-c' / '--config', or settings with -p")
    file = [] if config is None else ["-c", str(config)]
    settings = [word for item in properties or [] for word in ("-p", item)]
    if namesrv:
        settings += ["-n", namesrv]
    raise typer.Exit(main([*file, *settings]))
