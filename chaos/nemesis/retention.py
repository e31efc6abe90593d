"""The beginning of a replica's log is dropped, as retention does: who lacks it needs a snapshot.

Witness: its log begins later. Numbers: the first index before, while it is on, and afterwards.
What goes is what all had applied before, less the last ``keep`` entries; a broker drops whole
segments, so a run has to have small ones (``mappedFileSizeCommitLog``).

Source: spec/proof.md C4; docs/raft.md (snapshots).
"""

from collections.abc import Mapping
from typing import Any

from chaos.backends.base import ClusterFailed
from chaos.nemesis.base import Setting, Witness
from chaos.net.wire import StatusConnection

COMPACT = 29004
ASK_S = 15.0
"""Tables and queues are saved before anything goes."""


class Trim:
    """Replicas drop the beginning of their logs; there is nothing to undo."""

    kind = "trim"

    def __init__(self, setting: Setting, *nodes: str, keep: float) -> None:
        self.targets = nodes
        self.witness = Witness(probe="sum of the logs' first indexes: before, then, at the end")
        self._setting = setting
        self._keep = int(keep)
        self._before: dict[str, int] = {}

    def undo_entry(self) -> Mapping[str, Any]:
        """Return the journal entry: there is nothing to lift."""
        return {"do": "nothing"}

    async def probe_before(self) -> None:
        """Note where the logs begin."""
        self._before = await self._begins()
        self.witness.before = float(sum(self._before.values()))

    async def apply(self) -> None:
        """Ask each for it. Errors: ClusterFailed with what one says that does not."""
        for node in self.targets:
            status = await self._setting.probe.ask(node)
            upto = status.commit - self._keep
            connection = StatusConnection(*self._setting.cluster.status_addr(node))
            try:
                await connection.ask(COMPACT, ASK_S, {"upto": str(upto)})
            except (OSError, TimeoutError, EOFError, ValueError) as error:
                raise ClusterFailed(f"{node} did not trim its log: {error}") from error
            finally:
                connection.close()

    async def probe_during(self) -> None:
        """See that each begins later."""
        begins = await self._begins()
        self.witness.during = float(sum(begins.values()))
        self.witness.effective = all(
            node in self._before and begins.get(node, -1) > self._before[node]
            for node in self.targets
        )

    async def undo(self) -> None:
        """Leave it as it is."""

    async def probe_after(self) -> None:
        """Note where they begin in the end."""
        self.witness.after = float(sum((await self._begins()).values()))

    async def _begins(self) -> dict[str, int]:
        states = [await self._setting.probe.ask(node) for node in self.targets]
        return {state.node: state.first_index for state in states if state.ok}
