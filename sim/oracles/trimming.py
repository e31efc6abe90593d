"""A leader keeps what a follower that lives still has to be sent, and no more than that.

A follower that needs entries which are gone is sent a snapshot, with all that this costs. Nothing
is lost by it, so that nothing else tells. For one that is gone it keeps nothing: its disk would
fill. Judged at the plan, by the follower's own log.
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
KEPT: Final = "A43 kept for a follower that is gone"
GONE_TIMEOUTS: Final = 2
"""Who has said nothing for this many longest timeouts, and is down, is gone."""


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
            self._check_limit(replica, trimmer.limit().last_index)
            planned = plan(limit_index)
            if planned is not None:
                self._check(replica, planned.first_index)
            return planned

        trimmer.plan = checked  # type: ignore[method-assign]  # to listen to it

    def on_change(self, replica: Replica, change: Change) -> None:
        """What is planned is judged then."""

    def _check_limit(self, replica: Replica, limit_index: LogIndex) -> None:
        """Those who are gone hold nothing back."""
        state = replica.state
        if state.role is not LEADER:
            return
        silent = state.tick - GONE_TIMEOUTS * state.config.election_ticks_max
        owed = [
            progress.match_index
            for name, progress in state.progress.items()
            if progress.contact_tick > silent or self._replicas[name].is_up
        ]
        may_go = min([state.delivered_index, *owed])
        if len(owed) < len(state.progress) and limit_index < may_go:
            text = f"{replica.name} keeps its log from {limit_index} on, all others have {may_go}"
            self._findings.report(Violation(KEPT, text, node=replica.name))

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
