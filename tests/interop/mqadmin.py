"""RocketMQ's mqadmin, 4.9.7 or 5.3.3, in one JVM for many commands."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from tests.interop.program import Program

if TYPE_CHECKING:
    from pathlib import Path

    from bench.java import JavaTools

WITHIN_S = 20
LATE = "LATE"


class MqAdmin(Program):
    """A run of Admin.java, which runs the commands of the tool itself."""

    def __init__(self, tools: JavaTools, namesrv_addr: str, home: Path) -> None:
        """Start the JVM; what the tools leave behind is in ``home``."""
        (home / "conf").mkdir(parents=True)
        logback = home / "conf" / "logback_tools.xml"
        logback.write_text('<configuration><root level="OFF"/></configuration>')
        command = tools.command("ledgermq.Admin", [namesrv_addr, str(WITHIN_S)], heap_mb=192)
        command[1:1] = [
            f"-Drocketmq.home.dir={home}", f"-Duser.home={home}", f"-Duser.dir={home}",
            f"-Drocketmq.client.localOffsetStoreDir={home / 'offsets'}",
            f"-Dlogback.configurationFile={logback}",
        ]  # fmt: skip
        self._home = home
        super().__init__(command, home / "mqadmin.log")
        self.wait_for(lambda: bool(self.words("COMMANDS")), 120, "the commands")

    @property
    def commands(self) -> list[str]:
        """Return the names of all subcommands."""
        return self.words("COMMANDS")[0]

    def run(self, *words: str) -> str:
        """Return what a command prints; `LATE` at the end if it does not end by itself."""
        begin = len(self.lines)
        self.tell("\t".join(words))
        self.wait_for(
            lambda: any(line in {"DONE", LATE} for line in self.lines[begin:]),
            WITHIN_S * 3,
            f"end of {words}",
        )
        printed = [line.removeprefix("OUT ") for line in self.lines[begin:]]
        return "\n".join(" ".join(line.split()) for line in printed if line not in {"DONE", ""})

    def finish(self) -> None:
        """End the JVM, and remove what updateStaticTopic and its like have left."""
        super().finish()
        shutil.rmtree(self._home / "offsets", ignore_errors=True)
