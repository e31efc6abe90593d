"""Container entry: turns environment variables into a configuration file, becomes the server.

Every variable ``LEDGERMQ_<key>`` is the RocketMQ setting ``<key>`` (``LEDGERMQ_dLegerSelfId=n0``
gives the line ``dLegerSelfId=n0``). ``brokerIP1`` defaults to the address of this container,
``storePathRootDir`` to the volume. Knows nothing of the packages of LedgerMQ; arguments:
``broker``, ``namesrv`` or ``mutant NAME`` (a broker with a planted bug, for the chaos suite), or
any other command, which is run as it is.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import NoReturn

PREFIX = "LEDGERMQ_"
ROOT = Path("/var/lib/ledgermq")


def own_address() -> str:
    """Return the address under which the other containers reach this one."""
    return socket.gethostbyname(socket.gethostname())


def settings(environment: dict[str, str], role: str) -> dict[str, str]:
    """Return the settings of ``role`` as the environment and the defaults give them."""
    found = {k.removeprefix(PREFIX): v for k, v in environment.items() if k.startswith(PREFIX)}
    if role == "broker":
        found.setdefault("brokerIP1", own_address())
        found.setdefault("storePathRootDir", str(ROOT / "store"))
    return found


def write_config(path: Path, values: dict[str, str]) -> None:
    """Write a properties file, one ``key=value`` a line."""
    path.write_text("".join(f"{key}={value}\n" for key, value in sorted(values.items())))


def main(arguments: list[str]) -> NoReturn:
    """Write the configuration and replace this process by the server."""
    command = arguments[0] if arguments else "broker"
    python = sys.executable
    if command not in {"broker", "namesrv", "mutant"}:
        os.execvp(command, arguments)  # noqa: S606  # that is what an entry point does
    role = "namesrv" if command == "namesrv" else "broker"
    config = ROOT / f"{role}.conf"
    write_config(config, settings(dict(os.environ), role))
    server = [role, "-c", str(config)]
    if command == "mutant":
        server = ["mutants", arguments[1], "--", *server]
    os.execv(python, [python, "-m", *server])  # noqa: S606  # that is what an entry point does


if __name__ == "__main__":
    main(sys.argv[1:])
