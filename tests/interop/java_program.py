"""A JVM that runs one class of the Java driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.interop.program import Program

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench.java import JavaTools


class JavaProgram(Program):
    """One run of ``main``."""

    def __init__(self, tools: JavaTools, main: str, args: Sequence[str], log: Path) -> None:
        """Start the JVM; stderr goes into ``log``, its offsets into a folder beside it.

        With IPv6, where the name server's address, the first argument, is one of that.
        """
        command = tools.command(main, args, heap_mb=256)
        command[1:1] = [
            f"-Drocketmq.client.localOffsetStoreDir={log.parent / 'offsets'}",
            f"-Djava.net.preferIPv6Addresses={args[0].startswith('[')}",
        ]
        super().__init__(command, log)
