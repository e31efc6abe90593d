"""Whether the replicas come to rest at one end, once nothing is sent any more.

All members run and hear each other by then. One that stands still before the end of what the others
have will never hold it, though a majority has it and nobody misses anything: it goes on record as a
wrong answer.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from chaos.nemesis.wait import until
from chaos.parts import Parts
from chaos.probe import NodeStatus, settled
from chaos.stillness import Stillness

SETTLE_TIMEOUT_S = 6.0
STANDS_S: Final = 20.0
"""Who gives nothing for so long, of those that lag, gives nothing any more: a probe is repeated
several times a second, and a connection once a second."""
REST_S_MAX: Final = 90.0
"""For so long a member that moves is waited for."""


async def come_to_rest(parts: Parts) -> None:
    """Ask every node for its last word, once all hold the same, or those that lag stand still."""
    still = Stillness(int(STANDS_S * 1e9))

    async def at_rest() -> bool:
        states = [await parts.probe.ask(node) for node in parts.cluster.nodes]
        parts.statuses = {s.node: s for s in states if s.ok}
        if len(parts.statuses) < len(states):
            still.forget()  # who does not answer has a reason of its own, and a line elsewhere
        still.note(parts.clock.monotonic_ns(), behind(states))
        return len(parts.statuses) == len(states) and settled(states)

    async def over() -> bool:
        return await at_rest() or still.is_over(parts.clock.monotonic_ns())

    if await until(at_rest, SETTLE_TIMEOUT_S):
        return
    parts.view.notice("the replicas did not come to rest at one commit index")
    if not parts.lost_alone and await until(over, REST_S_MAX):
        for row in rows_of(still.still(parts.clock.monotonic_ns()), parts.statuses):
            parts.recorder.write("answers", row | {"t": parts.clock.monotonic_ns()})


def behind(states: Sequence[NodeStatus]) -> dict[str, int]:
    """Return where those are that have committed less than another; nothing without a leader."""
    if not any(state.leads for state in states):
        return {}
    end = max(state.commit for state in states)
    return {state.node: state.commit for state in states if state.ok and state.commit < end}


def rows_of(
    still: Mapping[str, int], statuses: Mapping[str, NodeStatus]
) -> list[dict[str, str | int]]:
    """Return what is told of members that stand still before the end."""
    end = max((status.commit for status in statuses.values()), default=-1)
    return [
        {
            "kind": "replica", "subject": node, "node": node, "expected": f"committed up to {end}",
            "told": f"at {at} for {STANDS_S:.0f} s",
        }
        for node, at in sorted(still.items())
    ]  # fmt: skip
