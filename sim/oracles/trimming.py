"""A leader keeps what a follower that lives still has to be sent.

A follower that needs entries which are gone is sent a snapshot, with all that this costs. Nothing
is lost by it, so that nothing else tells. Judged at the plan, by the follower's own log.
Source: docs/raft.md; `dledger.trimming`; Raft paper 7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dledger.core.model import LEADER
from sim.oracles.base import Findings, Violation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dledger.core.model import LogIndex
    from dledger.storage.trim import TrimPlan
    from sim.oracles.replica import Change, Replica

NAME: Final = "A43 trimmed past a living follower"


class Trimming:
    """Judges where leaders let their logs begin.

    Args:
        replicas: all brokers of the group, by name.
    """

    name = NAME

    def __init__(self, findings: Findings, replicas: Mapping[str, Replica]) -> None:
        self._findings = findings
        self._replicas = replicas

    def on_boot(self, replica: Replica) -> None:
        """Listen to what is planned from now on."""
        trimmer = replica.node.trimmer
        plan = trimmer.plan

        def checked(limit_index: LogIndex) -> TrimPlan | None:
            planned = plan(limit_index)
            if planned is not None:
                self._check(replica, planned.first_index)
            return planned

        trimmer.plan = checked  # type: ignore[method-assign]  # to listen to it

    def on_change(self, replica: Replica, change: Change) -> None:
        """What is planned is judged then."""

    def _check(self, replica: Replica, first_index: int) -> None:
        state = replica.state
        if state.role is not LEADER:
            return  # who does not lead sends nothing
        for name, progress in state.progress.items():
            follower = self._replicas.get(name)
            silent = state.tick - progress.contact_tick
            if follower is None or not follower.is_up or silent >= state.config.election_ticks_min:
                continue
            # What it has acknowledged it may have lost since then; what it has, it may yet tell.
            held = max(progress.match_index, follower.last_index)
            if held < first_index - 1:
                text = f"{name} answered {silent} ticks ago and holds no more than {held}"
                self._findings.report(
                    Violation(
                        NAME,
                        f"the log of {replica.name} is to begin at {first_index}, {text}",
                        node=replica.name,
                    )
                )
