"""A controller that has voted has written that down before it says so, whatever power it loses.

One that forgets its vote may give it to another candidate of the same term, and two lead in it:
that takes a restart at the wrong moment and two candidates, so what is on the disk is judged when
the vote is told. Asking for votes is a vote, too: for itself.
Source: Raft, figure 2 (votedFor is persistent state); docs/adr/0020.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from sim.oracles.base import Findings, Violation, guarded
from sim.switch.layout import CONTROLLER_STORE

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.context import Host
    from sim.disk import SimDisk

NAME: Final = "A31 vote told before it was synced"
FILE: Final = f"{CONTROLLER_STORE}/vote"
ASKED, GIVEN = "request_vote", "response_vote"


class Votes:
    """Judges what controllers tell each other of votes.

    Args:
        disk: returns that of a host.
    """

    def __init__(
        self, disk: Callable[[str], SimDisk], findings: Findings, count: Callable[[str], None]
    ) -> None:
        self._disk = disk
        self._count = count
        self.findings = findings

    @guarded
    def on_said(self, host: Host, peer: str, message: dict[str, Any]) -> None:
        """A controller says something to a peer."""
        if message["type"] not in {ASKED, GIVEN}:
            return
        whom = host.name if message["type"] == ASKED else peer
        self._count("votes_told")
        term, voted = self._kept(host)
        if term < message["term"] or (term == message["term"] and voted != whom):
            raise Violation(
                NAME,
                f"{host.name} tells {peer} that it votes for {whom} in term {message['term']}; a "
                f"loss of power now leaves it a vote for {voted} in term {term}",
                node=host.name,
            )

    def _kept(self, host: Host) -> tuple[int, str | None]:
        """Return the vote that is on a disk.

        While a call for the disk hangs nothing of the process goes on, and what it has asked for is
        taken for done.
        """
        disk, process = self._disk(host.name), host.process
        is_held = process is not None and process.is_blocked
        data = disk.look(FILE) if is_held else disk.durable(FILE)
        found = json.loads(bytes(data)) if data else {}
        return int(found.get("term", 0)), found.get("voted_for")
