"""Clients that are far from the group and its name servers, for a whole run.

Between what they ask and what they are told much may change. It is how a run is, not a fault: what
is judged in calm times is judged of them as well (`sim.faults.apply`). Pure.
"""

from typing import Final

from sim.faults.plan import MEMBERS, FaultEvent, FaultKind, Package, Value, Workload
from sim.rng import SplitRng

FAR_CLIENTS: Final = "far clients"
"""The stream that they are drawn from."""
FAR_P: Final = 0.08
"""How probable it is that there are any."""
FAR_MS: Final = (10, 50, 150)
"""One way."""


def draw_far_clients(rng: SplitRng, workload: Workload, safety_ms: int) -> list[FaultEvent]:
    """Return what makes some clients of a plan be far away; in most plans there are none."""
    if not rng.split("on").chance(FAR_P):
        return []
    names = [f"p{number}" for number in range(workload.producers)]
    names += [f"c{number}" for number in range(workload.consumers)]
    for prefix in MEMBERS:
        names += [f"{prefix}{number}" for number in range(workload.members(prefix))]
    events: list[FaultEvent] = []
    for number in range(rng.split("count").randint(1, 4)):
        stream = rng.split(f"client{number}")
        host, base_ms = stream.split("host").choice(names), stream.split("base").choice(FAR_MS)
        spread_ms = stream.split("spread").choice((0, base_ms))
        brokers: dict[str, Value] = {"base_ms": base_ms, "spread_ms": spread_ms, "loss": 0.0}
        servers: dict[str, Value] = {"which": "all", "base_ms": base_ms, "loss": 0.0}
        for kind, params in (
            (FaultKind.DELAY, brokers),
            (FaultKind.NAMESRV_DELAY, servers),
        ):
            events.append(
                FaultEvent(
                    at_ms=1, kind=kind, package=Package.FAR, target=host, for_ms=safety_ms - 1,
                    seed=stream.split(kind.value).randint(0, (1 << 31) - 1), params=params,
                )
            )  # fmt: skip
    return events
