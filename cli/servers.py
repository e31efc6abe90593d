"""``ledgermq namesrv`` and ``ledgermq broker``: start a server in the foreground.

Knows nothing of the servers but their entry points; they read the configuration and check it
themselves.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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


def namesrv(
    config: ConfigFile = None,
    port: Annotated[
        int | None,
        typer.Option(
            "-p",
            "--port",
            min=1,
            max=65535,
            help="Port, over listenPort of the file (default 9876).",
        ),
    ] = None,
) -> None:
    """Run a name server in the foreground until SIGTERM or Ctrl-C.

    Example: ledgermq namesrv -p 9876
    """
    from namesrv.__main__ import main

    arguments = [] if config is None else ["-c", str(config)]
    if port is not None:
        arguments += ["-p", str(port)]
    raise typer.Exit(main(arguments))


def broker(
    config: Annotated[
        Path, typer.Option("-c", "--config", metavar="FILE", help="Your broker.conf.")
    ],
) -> None:
    """Run a broker in the foreground until SIGTERM or Ctrl-C.

    A member of a Raft group has enableDLegerCommitLog=true, dLegerGroup, dLegerSelfId and
    dLegerPeers in FILE, as RocketMQ has them. An unknown key or a bad value ends with exit code 2
    and names it.

    Example: ledgermq broker -c broker-n0.conf
    """
    from broker.__main__ import main

    raise typer.Exit(main(["-c", str(config)]))
