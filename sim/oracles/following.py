"""A follower that runs, and that nothing keeps from its leader, has what the leader has.

Messages are lost, and sent again; a follower that lacks something until the next message comes is
one replica less meanwhile, and nobody is told. Strict about what it calls undisturbed: for some
seconds no fault was on, none began or ended, and every broker ran.
Source: Raft paper 5.3 (AppendEntries are retried for ever); `dledger.core.progress`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.oracles.base import Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sim.oracles.replica import Replica
    from sim.oracles.truth import Truth

NAME: Final = "A43 follower left behind"
LOOK_TICKS: Final = 10
CALM_NS: Final = 2_000_000_000
"""Links that were cut or lost packets work again, and what was lost was sent again."""
LAG_NS: Final = 2_000_000_000


class Following:
    """Judges what followers of a leader lack."""

    def __init__(self, truth: Truth, replicas: Mapping[str, Replica]) -> None:
        self._truth = truth
        self._replicas = replicas
        self._before: dict[str, tuple[int, int, int]] = {}
        """By leader: its term, where its log ended, and when."""
        self.disturbed_ns: Callable[[], int] = lambda: truth.now_ns()  # noqa: PLW0108 - it is set later

    def on_tick(self, leader: Replica) -> None:
        """Look at the followers of a leader. Errors: `Violation`."""
        state, now_ns = leader.state, self._truth.now_ns()
        term, index, at_ns = self._before.get(leader.name, (-1, -1, 0))
        if term != state.term:
            self._before[leader.name] = (state.term, leader.last_index, now_ns)
            return
        if now_ns - at_ns < LAG_NS:
            return
        self._before[leader.name] = (state.term, leader.last_index, now_ns)
        if now_ns - self.disturbed_ns() < CALM_NS + LAG_NS:
            return
        for name in state.progress:
            follower = self._replicas.get(name)
            if follower is None or not follower.is_up or self._is_hindered(follower):
                continue
            if follower.last_index < index:
                raise Violation(
                    NAME,
                    f"{leader.name} leads term {term}, had {index} entries"
                    f" {LAG_NS // 1_000_000} ms ago, and {name} has {follower.last_index}; nothing"
                    " keeps it from having them",
                    node=name,
                )

    @staticmethod
    def _is_hindered(follower: Replica) -> bool:
        """Tell whether its disk keeps a follower from taking what it is sent."""
        return follower.disk.is_watched or follower.hangs() or follower.is_corrupt
