"""Container health: asks the server of this container one question; exit 0 if all is well.

A broker is asked for its Raft status (code 29001) and is healthy once it knows a leader; a name
server is asked for the cluster (code 106). Where nobody is served without TLS, it is asked with it.
Only the standard library, so that it starts in 50 ms.
Usage: healthcheck.py broker|namesrv.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys

CODES = {"broker": 29001, "namesrv": 106}
PORTS = {"broker": "10911", "namesrv": "9876"}
PORT_VARIABLE = "LEDGERMQ_listenPort"
TLS = "LEDGERMQ_tls.server."
"""How the variables of TLS begin."""
TIMEOUT_SECONDS = 2.0


def secured(connection: socket.socket) -> socket.socket:
    """Return the connection, with TLS if the server takes no other.

    It asks itself, so any certificate will do. The server's own is shown where there must be one:
    where there may be, one from another CA than that of clients would be refused.
    """
    if os.environ.get(f"{TLS}mode", "").lower() != "enforcing":
        return connection
    import ssl  # noqa: PLC0415  # it takes as long as all the rest

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if os.environ.get(f"{TLS}need.client.auth", "").lower() == "require":
        context.load_cert_chain(os.environ[f"{TLS}certPath"], os.environ[f"{TLS}keyPath"])
    return context.wrap_socket(connection)


def ask(host: str, port: int, code: int) -> tuple[dict[str, object], bytes]:
    """Send one request without body; return the header and the body of the answer."""
    header = json.dumps(
        {"code": code, "flag": 0, "language": "JAVA", "opaque": 1, "version": 407}
    ).encode()
    plain = socket.create_connection((host, port), timeout=TIMEOUT_SECONDS)
    with plain, secured(plain) as connection:
        connection.sendall(struct.pack(">II", 4 + len(header), len(header)) + header)
        with connection.makefile("rb") as stream:
            (total,) = struct.unpack(">I", stream.read(4))
            frame = stream.read(total)
    (size,) = struct.unpack(">I", frame[:4])
    size &= 0xFFFFFF  # the top byte is the serialization type
    return json.loads(frame[4 : 4 + size]), frame[4 + size :]


def healthy(role: str) -> bool:
    """Return whether the server of this container answers well."""
    port = int(os.environ.get(PORT_VARIABLE, PORTS[role]))
    header, body = ask(socket.gethostbyname(socket.gethostname()), port, CODES[role])
    if header.get("code") != 0:
        return False
    return role == "namesrv" or bool(json.loads(body).get("leader"))


if __name__ == "__main__":
    sys.exit(0 if healthy(sys.argv[1]) else 1)
