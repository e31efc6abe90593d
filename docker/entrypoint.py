"""Container entry: turns environment variables into a configuration file, becomes the server.

Every variable ``LEDGERMQ_<key>`` is the RocketMQ setting ``<key>`` (``LEDGERMQ_dLegerSelfId=n0``
gives the line ``dLegerSelfId=n0``), but for those of the commands that are run beside it.
``brokerIP1`` defaults to the address of this container, ``storePathRootDir`` to the volume,
``bindAddress`` of a name server to all addresses. Knows nothing of the packages of LedgerMQ;
arguments: ``broker``, ``namesrv``, ``mutant NAME`` (a broker with a planted bug, for the chaos
suite), ``certificates GROUP ID...`` (makes a CA and a certificate for each member, once, in
directories below `CERTIFICATES`), ``key`` (makes a shared key, once), or any other command, which
is run as it is. A server waits for its certificate or key.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

PREFIX = "LEDGERMQ_"
OF_COMMANDS = frozenset(
    {"ACCESS_KEY", "SECRET_KEY", "TLS_CA", "TLS_CERT", "TLS_KEY", "CERT", "KEY", "KEY_FILE",
     "BROKER_CONF", "TRACE"}
)  # fmt: skip
"""What ``ledgermq`` reads in this container; no settings of a server."""
ROOT = Path("/var/lib/ledgermq")
CERTIFICATES = Path("/var/lib/ledgermq-certs")
CERTIFICATE_WAIT_S = 60
OWN_FILES = ("node.crt", "node.key", "ca.crt")
"""What a member is given."""
SHARED_KEY = CERTIFICATES / "own" / "peers.key"
FILES = ("peerTls", "peerSharedKeyFile")
"""How settings begin that name such a file."""


def own_address() -> str:
    """Return the address under which the other containers reach this one."""
    return socket.gethostbyname(socket.gethostname())


def settings(environment: dict[str, str], role: str) -> dict[str, str]:
    """Return the settings of ``role`` as the environment and the defaults give them."""
    named = {k.removeprefix(PREFIX): v for k, v in environment.items() if k.startswith(PREFIX)}
    found = {key: value for key, value in named.items() if key not in OF_COMMANDS}
    if role == "broker":
        found.setdefault("brokerIP1", own_address())
        found.setdefault("storePathRootDir", str(ROOT / "store"))
    else:
        found.setdefault("bindAddress", "0.0.0.0")  # noqa: S104  # the network is the cluster's own
    return found


def write_config(path: Path, values: dict[str, str]) -> None:
    """Write a properties file, one ``key=value`` a line, whatever a value holds."""
    path.write_text("".join(f"{key}={_escape(value)}\n" for key, value in sorted(values.items())))


def _escape(value: str) -> str:
    """Return a value as a properties file spells it: a backslash and a line's end mean others."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


def make_certificates(group: str, members: list[str]) -> None:
    """Make what is missing: a CA, and a key and a certificate for each member."""
    authority = CERTIFICATES / "ca"
    if not list(authority.glob("*.crt")):
        begin_anew(authority / "ca")
        call("certs", "init", str(authority))
    for member in members:
        made = authority / f"node-{group}-{member}"
        if not made.with_suffix(".crt").exists():
            begin_anew(made)
            call("certs", "node", str(authority), "--group", group, "--id", member)
        sources = (made.with_suffix(".crt"), made.with_suffix(".key"), authority / "ca.crt")
        for source, name in zip(sources, OWN_FILES, strict=True):
            part = CERTIFICATES / member / f"{name}.part"
            shutil.copy(source, part)
            part.replace(CERTIFICATES / member / name)


def begin_anew(made: Path) -> None:
    """Remove a key that was written before its certificate, which then was not."""
    made.with_suffix(".key").unlink(missing_ok=True)


def call(*arguments: str) -> None:
    """Run ``ledgermq``; raises if it fails."""
    subprocess.run([sys.executable, "-P", "-m", "cli", *arguments], check=True)  # noqa: S603  # our own


def await_certificates(values: dict[str, str]) -> None:
    """Wait until the files that the settings name are there; the broker says what is wrong."""
    paths = [Path(value) for key, value in values.items() if key.startswith(FILES)]
    deadline = time.monotonic() + CERTIFICATE_WAIT_S  # noqa: TID251  # no package of ours is known
    while not all(path.exists() for path in paths) and time.monotonic() < deadline:  # noqa: TID251
        time.sleep(0.1)  # noqa: TID251


def main(arguments: list[str]) -> NoReturn:
    """Write the configuration and replace this process by the server."""
    command = arguments[0] if arguments else "broker"
    python = sys.executable
    if command == "certificates":
        make_certificates(arguments[1], arguments[2:])
        sys.exit(0)
    if command == "key":
        if not SHARED_KEY.exists():
            call("certs", "key", str(SHARED_KEY))
        sys.exit(0)
    if command not in {"broker", "namesrv", "mutant"}:
        os.execvp(command, arguments)  # noqa: S606  # that is what an entry point does
    role = "namesrv" if command == "namesrv" else "broker"
    config = ROOT / f"{role}.conf"
    values = settings(dict(os.environ), role)
    await_certificates(values)
    write_config(config, values)
    server = [role, "-c", str(config)]
    if command == "mutant":
        server = ["mutants", arguments[1], "--", *server]
    os.execv(python, [python, "-P", "-m", *server])  # noqa: S606  # that is what an entry point does


if __name__ == "__main__":
    main(sys.argv[1:])
