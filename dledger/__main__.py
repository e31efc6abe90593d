"""A bare replicated log: each line of standard input becomes an entry, if this node leads.

    python -m dledger --id n0 --peers n0-127.0.0.1:4001;n1-127.0.0.1:4002 --dir /tmp/n0

Roles and commits are printed as they happen. Good to watch an election; nobody's production.
"""

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence

from dledger.config import DLedgerConfig, FlushDiskType
from dledger.core.model import LogIndex, NodeId, Role, Term
from dledger.errors import DLedgerError
from dledger.listener import DLedgerListener
from dledger.node import DLedgerNode
from ledgermq.runtime.errors import FatalError


class Printer(DLedgerListener):
    """Tells what it hears."""

    def noop_body(self, physical_offset: int) -> bytes:
        """Return the body of a leader's first entry."""
        return b"(leader)"

    def on_committed(self, commit_index: LogIndex) -> None:
        """Tell how far the log is committed."""
        print(f"committed {commit_index}", flush=True)  # noqa: T201  # it is the output

    def on_role(self, role: Role, term: Term, leader_id: NodeId | None) -> None:
        """Tell who leads."""
        print(f"role {role.value} term {term} leader {leader_id}", flush=True)  # noqa: T201  # it is the output


def parse_peers(text: str) -> dict[str, str]:
    """Read ``n0-host:port;n1-host:port``. Errors: `FatalError`."""
    peers: dict[str, str] = {}
    for part in text.split(";"):
        node_id, _, address = part.strip().partition("-")
        if not node_id or not address:
            raise FatalError(f"{part!r} is not of the form id-host:port")
        peers[node_id] = address
    return peers


async def run(config: DLedgerConfig) -> None:
    """Run until standard input ends. Errors: `FatalError`."""
    node = DLedgerNode(config)
    await node.start(Printer())
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        while line := await reader.readline():
            body = line.rstrip(b"\n")
            try:
                node.reserve(len(body))
                node.append((body,), len(body))
            except DLedgerError as error:
                print(f"refused: {error}", flush=True)  # noqa: T201  # it is the output
    finally:
        await node.stop()


def main(argv: Sequence[str] | None = None) -> int:
    """Run a node from the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m dledger", description=__doc__)
    parser.add_argument("--id", required=True, help="own id among the peers")
    parser.add_argument("--peers", required=True, help="n0-host:port;n1-host:port;...")
    parser.add_argument("--dir", required=True, help="directory of the replica")
    parser.add_argument("--group", default="group", help="name of the group")
    parser.add_argument("--sync", action="store_true", help="SYNC_FLUSH instead of ASYNC_FLUSH")
    options = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    flush = FlushDiskType.SYNC_FLUSH if options.sync else FlushDiskType.ASYNC_FLUSH
    try:
        config = DLedgerConfig(
            group=options.group,
            self_id=options.id,
            peers=parse_peers(options.peers),
            directory=options.dir,
            flush_disk_type=flush,
            data_segment_bytes=64 * 1024 * 1024,
            index_segment_bytes=2 * 1024 * 1024,
        )
        asyncio.run(run(config))
    except (FatalError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201  # it is the output
        return error.exit_code if isinstance(error, FatalError) else 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
