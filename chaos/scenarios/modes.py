"""A scenario file of a pair, in another mode than it says: only a pair has others.

Pure. Source: docs/chaos.md (scenario files).
"""

from dataclasses import replace

from chaos.catalogue.contracts import CONTROLLER, RAFT
from chaos.scenarios.schema import Plan, WrongScenario, kinds_without


def in_mode(plan: Plan, mode: str) -> Plan:
    """Return the same faults in another mode. Errors: WrongScenario where that has not got them."""
    if plan.mode == mode:
        return plan
    if RAFT in {plan.mode, mode}:
        todo = "--mode is of pairs, the others say theirs (cluster: mode)"
        raise WrongScenario(f"{plan.name}: it is of {plan.mode}, and so no {mode}; {todo}")
    if lacking := kinds_without(plan, mode):
        todo = "leave --mode out"
        raise WrongScenario(f"{plan.name}: {mode} has nothing for {lacking[0]}; {todo}")
    if mode == CONTROLLER and any(step.do == "switch" for step in plan.steps):
        todo = "take masters-that-die-with-a-tail, or leave --mode out"
        raise WrongScenario(f"{plan.name}: it switches by hand, which controllers refuse; {todo}")
    return replace(plan, mode=mode)
