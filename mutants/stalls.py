"""Planted bugs of a process that stood still, or stops: what it blames others for, or forgets."""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

STALLS: Final = (
    Mutant(
        name="stall-taken-for-a-hung-disk",
        breaks="A leader whose whole process stood still gives up: it blames its disk.",
        source="A pause of a virtual machine while a sync was under way.",
        plant=patch(
            "dledger.disk.watch:DiskWatch.look",
            ("if self._looked_ms - looked_ms >= self._late_ms:", "if False:"),
        ),
    ),
    Mutant(
        name="stall-taken-for-silence",
        breaks="A controller that stood still takes a living master for dead: another is elected.",
        source="Timers are run before sockets are read; a pause of a virtual machine.",
        plant=patch("namesrv.controller.node:Controller._watch", ("late_ms > WATCH_MS", "False")),
    ),
    Mutant(
        name="fatal-error-of-a-stop-is-lost",
        breaks="A sync that fails while a process stops is no failure: it ends with 0.",
        source="Review of what runs while a broker stops.",
        plant=patch(
            "ledgermq.runtime.tasks:Supervisor.on_error",
            ("if self.stopping and not isinstance(error, FatalError):", "if self.stopping:"),
        ),
    ),
    Mutant(
        name="accepted-and-forgotten",
        breaks="A connection that is accepted in the turn in which a server stops stays open.",
        source="A warning of a socket that was never closed.",
        plant=patch(
            "ledgermq.remoting.transport.acceptor:Acceptor._on_done", ("taken.close()", "pass")
        ),
    ),
)
