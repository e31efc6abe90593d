"""A JVM that runs one class of the Java driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.interop.program import Program

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench.cluster import Cluster
    from bench.java import JavaTools

HALF_S, REST_S = 90.0, 120.0


class JavaProgram(Program):
    """One run of ``main``."""

    def __init__(
        self,
        tools: JavaTools,
        main: str,
        args: Sequence[str],
        log: Path,
        flags: Sequence[str] = (),
    ) -> None:
        """Start the JVM, with more ``flags``; stderr goes into ``log``, offsets beside it.

        With IPv6, where the name server's address, the first argument, is one of that.
        """
        command = tools.command(main, args, heap_mb=256)
        command[1:1] = [
            f"-Drocketmq.client.localOffsetStoreDir={log.parent / 'offsets'}",
            f"-Djava.net.preferIPv6Addresses={args[0].startswith('[')}",
            *flags,
        ]
        super().__init__(command, log)


def secured(
    cluster: Cluster, tools: JavaTools, words: Sequence[str], home: Path, flags: Sequence[str] = ()
) -> None:
    """Run Secured with a kill of the leader in its midst: all that was acknowledged comes again."""
    leader = cluster.leader()
    arguments = [cluster.namesrv_addr, *words]
    with JavaProgram(tools, "ledgermq.Secured", arguments, home / "java.log", flags) as running:
        running.wait_for(lambda: "HALF" in running.lines, HALF_S, "first half")
        cluster.kill(leader)
        running.go_on()
        running.wait_for(lambda: "SENT" in running.lines, REST_S, "second half")
        assert cluster.leader() != leader
        sent = set(running.firsts("ACK"))
        running.wait_for(
            lambda: sent <= {body for _, body, _, times, _ in running.words("GOT") if times == "1"},
            REST_S,
            "second delivery of everything",
        )
        assert running.words("ERR") == []
        assert set(running.firsts("CHECK")) <= sent
        assert len(sent) == int(words[1])
